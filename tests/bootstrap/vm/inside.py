"""One VM from the inside: namespaces, a root and devices of its own, and systemd as process 1.

Started as root by `machine.py` with the VM's folder, and ended by it as pulling a plug does. All processes, mounts and
network of the VM go with process 1, and the loop device of its data disk with the last mount. Its root is that of this
machine with what has been written on top of it, which lies in the folder: so the VM's disk outlives a boot.

Different from a VM: there is no udev. What is in /etc/fstab by a device's name is mounted before systemd starts, and
/sys can only be read, by which systemd knows not to wait for devices.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import sys
from pathlib import Path
from typing import Any

from sandbox.hosts import cgroups, machine

CGROUP_NAMESPACE = 0x02000000
SYSTEMD = "/lib/systemd/systemd"
INSTALLED = "installed"  # in the VM's folder: its disk has been written
# As `mknod` takes them: type, major, minor.
_NODES = {
    "null": ("c", 1, 3),
    "zero": ("c", 1, 5),
    "full": ("c", 1, 7),
    "random": ("c", 1, 8),
    "urandom": ("c", 1, 9),
    "kmsg": ("c", 1, 11),
    "tty": ("c", 5, 0),
    "loop-control": ("c", 10, 237),
    **{f"loop{number}": ("b", 7, number) for number in range(64)},
}


def main() -> None:
    folder = Path(sys.argv[1])
    config = json.loads((folder / "machine.json").read_text())
    before = _cgroups_of_this_process()
    cgroups.enter(folder)
    machine.unshare(machine.NAMESPACES | CGROUP_NAMESPACE, config["name"])
    outside = os.getpid()
    pid = os.fork()
    if pid:
        for group in before:  # with version 2 no process may be where systemd makes groups
            (group / "cgroup.procs").write_text(str(outside))
        machine.wait_for(pid, folder)
    machine.die_with_parent()
    if os.getppid() not in (0, outside):
        sys.exit("the VM's first process is gone")
    _own_root(folder, config["disks"])
    socket.sethostname(config["name"])
    machine.own_hardware(folder, config["cpus"], config["memory_mib"])
    machine.own_network(config["address"], config["gateway"])
    _no_swap(folder)
    if not (folder / INSTALLED).exists():
        _install(config)
        (folder / INSTALLED).touch()
    machine.run("mount", "--all", "--types", "ext4")
    environment = {"container": "tpu-test", "PATH": os.environ["PATH"]}
    os.execve(SYSTEMD, [SYSTEMD, "--show-status=no", "--log-target=journal"], environment)


def _cgroups_of_this_process() -> list[Path]:
    paths = {line.split(":", 2)[2].strip("/\n") for line in Path("/proc/self/cgroup").read_text().splitlines()}
    candidates = [hierarchy / path for hierarchy in cgroups.hierarchies() for path in paths]
    own = str(os.getpid())
    return [
        each
        for each in candidates
        if (each / "cgroup.procs").exists() and own in (each / "cgroup.procs").read_text().split()
    ]


def _own_root(folder: Path, disks: dict[str, str]) -> None:
    machine.run("mount", "--make-rprivate", "/")
    groups = cgroups.mounts()
    others = machine.other_mounts(folder)
    upper, work, root = (folder / "root" / name for name in ("upper", "work", "merged"))
    for each in (upper, work, root):
        each.mkdir(parents=True, exist_ok=True)
    machine.run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", str(root))
    for point in others:
        machine.run("mount", "--rbind", point, f"{root}{point}")
    machine.run("mount", "-t", "proc", "proc", f"{root}/proc")
    machine.run("mount", "-t", "sysfs", "-o", "ro", "sysfs", f"{root}/sys")
    machine.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/run")
    _mount_cgroups(root, groups)
    _make_devices(root / "dev", disks)
    inner = Path(f"{root}{folder}")
    inner.mkdir(parents=True, exist_ok=True)
    machine.run("mount", "--bind", str(folder), str(inner))
    machine.put_on_disk(folder, root)
    machine.turn_to(root)


def _mount_cgroups(root: Path, groups: list[tuple[str, str, str]]) -> None:
    """The same hierarchies at the same places, seen from the VM's own group."""
    if groups[0][0] != "/sys/fs/cgroup":
        machine.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/sys/fs/cgroup")
    for point, kind, options in groups:
        Path(f"{root}{point}").mkdir(exist_ok=True)
        machine.run("mount", "-t", kind, *(["-o", options] if options else []), kind, f"{root}{point}")


def _make_devices(dev: Path, disks: dict[str, str]) -> None:
    machine.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(dev))
    for name, (kind, major, minor) in _NODES.items():
        mode = stat.S_IFCHR if kind == "c" else stat.S_IFBLK
        os.mknod(dev / name, mode | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name in ("pts", "shm", "mqueue", "disk/by-id"):
        (dev / name).mkdir(parents=True)
    machine.run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", str(dev / "pts"))
    machine.run("mount", "-t", "tmpfs", "tmpfs", str(dev / "shm"))
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", **{f"std{n}": f"/proc/self/fd/{i}" for n, i in _STREAMS}}
    for name, target in {**links, **{f"disk/by-id/{disk}": file for disk, file in disks.items()}}.items():
        (dev / name).symlink_to(target)


_STREAMS = (("in", 0), ("out", 1), ("err", 2))


def _no_swap(folder: Path) -> None:
    swaps = folder / "swaps"
    swaps.write_text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
    machine.run("mount", "--bind", str(swaps), "/proc/swaps")


def _install(config: dict[str, Any]) -> None:
    """Writes the VM's image: what is removed of this machine's files, and what comes in addition."""
    for pattern in config["removed"]:
        for each in Path("/").glob(pattern):
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    machine.own_files({path: text for path, (text, _) in config["files"].items()})
    for path, (_, mode) in config["files"].items():
        Path(path).chmod(mode)
    for path, target in config["links"].items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).unlink(missing_ok=True)
        Path(path).symlink_to(target)


if __name__ == "__main__":
    main()
