"""One real host, from the inside: namespaces of its own, and in them the programs that a machine of a cluster runs.

Started as root by `sandbox.hosts.host`, with nothing but Python's standard library: `machine.py <folder>/machine.json`.
The first process makes the namespaces (mounts, processes, network, host name) and waits; the second is process 1 in
them. When either ends, however it ends, the kernel ends every process of the host, containers too, and with the last
of them go its mounts, its network and its iptables rules. Cgroups stay: whoever starts hosts removes them.

The host sees the machine's own file system through an overlay: what it writes lies in memory, except below /var/lib and
/var/log/pods, which lie in its folder. Different from a real machine: no systemd, so this file starts the programs in
order and again when they end; and the processors and the memory that it shows to its kubelet are those of the machine
type that it stands for, not those that are there.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000  # mount, uts, ipc, pid, net
PR_SET_PDEATHSIG = 1
NETWORK_SECONDS = 60
READY_SECONDS = 60
RESTART_SECONDS = 1.0
# In the host's folder: process 1 of the host, as the outside numbers it; and a mark that its programs can start.
PID_FILE, UP_FILE = "pid", "up"
# Kept as they are in the host, or made anew there.
OWN_MOUNTS = ("/proc", "/sys", "/dev", "/run")
ON_DISK = {"kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd", "pods": "/var/log/pods"}
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    folder = Path(sys.argv[1]).parent
    config = json.loads(Path(sys.argv[1]).read_text())
    unshare(NAMESPACES, config["name"])
    outside = os.getpid()
    pid = os.fork()
    if pid:
        wait_for(pid, folder)
    die_with_parent()
    if os.getppid() not in (0, outside):
        sys.exit("the host's first process is gone")
    _own_root(folder)
    socket.sethostname(config["name"])
    own_hardware(folder, config["cpus"], config["memory_mib"])
    own_network(config["address"], config["gateway"])
    own_files(config["files"])
    (folder / UP_FILE).touch()
    Programs(folder, config["programs"]).run()


def unshare(namespaces: int, name: str) -> None:
    """Moves this process and, for processes, its children into new namespaces."""
    if _LIBC.unshare(namespaces):
        sys.exit(f"the namespaces of {name} cannot be made: {os.strerror(ctypes.get_errno())}")


def wait_for(pid: int, folder: Path) -> None:
    """The outer process: ends the host when it is told to, and ends with it."""

    def end(_number: int, _frame: object) -> None:
        os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    draft = folder / f".{PID_FILE}"
    draft.write_text(str(pid))
    draft.rename(folder / PID_FILE)
    _, status = os.waitpid(pid, 0)
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _own_root(folder: Path) -> None:
    """Turns / into a copy of itself that remembers what is written to it for as long as the host lives."""
    run("mount", "--make-rprivate", "/")
    others = other_mounts(folder)
    scratch = folder / "root"
    scratch.mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", str(scratch))
    upper, work, root = (scratch / name for name in ("upper", "work", "merged"))
    for each in (upper, work, root):
        each.mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", str(root))
    for point in ("/sys", "/dev", *others):
        run("mount", "--rbind", point, f"{root}{point}")
    run("mount", "-t", "proc", "proc", f"{root}/proc")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/run")
    inner = Path(f"{root}{folder}")
    inner.mkdir(parents=True, exist_ok=True)
    run("mount", "--bind", str(folder), str(inner))
    put_on_disk(folder, root)
    turn_to(root)


def put_on_disk(folder: Path, root: Path) -> None:
    """Places that lie in the host's folder, since an overlay cannot lie on another one."""
    for name, place in ON_DISK.items():
        target = Path(f"{root}{place}")
        for each in (folder / name, target):
            each.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", str(folder / name), str(target))


def turn_to(root: Path) -> None:
    """Makes a mounted folder the root of everything that this process starts."""
    old = root / "mnt"
    old.mkdir(exist_ok=True)
    os.chdir(root)
    run("pivot_root", ".", "mnt")
    os.chroot(".")
    os.chdir("/")
    run("umount", "-l", "/mnt")
    run("mount", "--make-rshared", "/")


def other_mounts(folder: Path) -> list[str]:
    """File systems below / that an overlay of / alone would miss."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    skipped = (*OWN_MOUNTS, str(folder))
    outer = [each for each in points if each != "/" and not any(f"{each}/".startswith(f"{skip}/") for skip in skipped)]
    return [each for each in outer if not any(each != other and each.startswith(f"{other}/") for other in outer)]


def own_hardware(folder: Path, cpus: int, memory_mib: int) -> None:
    """What a kubelet counts: one folder for each processor, and the line MemTotal.

    Only processors that are there get a place in the topology, because the kubelet puts its pods on those.
    """
    empty = folder / "no-numa"
    empty.mkdir(exist_ok=True)
    processors = folder / "cpus"
    for number in range(cpus):
        topology = processors / f"cpu{number}" / "topology"
        topology.mkdir(parents=True, exist_ok=True)
        if number not in os.sched_getaffinity(0):
            continue
        for fact, value in (("physical_package_id", 0), ("core_id", number)):
            (topology / fact).write_text(f"{value}\n")
    if Path("/sys/devices/system/node").is_dir():
        run("mount", "--bind", str(empty), "/sys/devices/system/node")
    run("mount", "--bind", str(processors), "/sys/devices/system/cpu")
    sizes = ("MemTotal", "MemFree", "MemAvailable")
    lines = Path("/proc/meminfo").read_text().splitlines()
    shown = [f"{line.partition(':')[0]}: {memory_mib * 1024} kB" if line.startswith(sizes) else line for line in lines]
    meminfo = folder / "meminfo"
    meminfo.write_text("\n".join(shown) + "\n")
    run("mount", "--bind", str(meminfo), "/proc/meminfo")


def own_network(address: str, gateway: str) -> None:
    """The end of the wire that the outside puts here, and a route to everybody through the other end."""
    deadline = time.monotonic() + NETWORK_SECONDS
    while "eth0" not in (name for _, name in socket.if_nameindex()):
        if time.monotonic() > deadline:
            sys.exit(f"no network came within {NETWORK_SECONDS} s")
        time.sleep(0.02)
    for command in (
        "link set lo up",
        f"addr add {address}/32 dev eth0",
        "link set eth0 up",
        f"route add {gateway} dev eth0 scope link",
        f"route add default via {gateway} dev eth0 src {address}",
    ):
        run("ip", *command.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def own_files(files: dict[str, str]) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if Path(path).is_symlink():
            Path(path).unlink()
        Path(path).write_text(text)


class Programs:
    """Starts the host's programs in order, and each again when it has ended, as systemd does.

    Each is {name, command, environment, ready, while, once}: `ready` is a path that exists when the next one can start;
    a program with `while` runs only while that path exists; the next waits for the end of one with `once`, which is not
    started again. Logs are in <folder>/logs.
    """

    def __init__(self, folder: Path, programs: list[dict[str, Any]]) -> None:
        self._logs = folder / "logs"
        self._logs.mkdir(exist_ok=True)
        self._programs = programs
        self._running: dict[int, str] = {}
        self._not_before: dict[str, float] = {}
        self._done: set[str] = set()

    def run(self) -> None:
        while True:
            for program in self._programs:
                self._look_after(program)
            self._reap()
            time.sleep(0.1)

    def _look_after(self, program: dict[str, Any]) -> None:
        name, condition = program["name"], program.get("while")
        if name in self._done:
            return
        wanted = condition is None or Path(condition).exists()
        running = [pid for pid, each in self._running.items() if each == name]
        if running and not wanted:
            os.kill(running[0], signal.SIGTERM)
        elif wanted and not running and time.monotonic() >= self._not_before.get(name, 0):
            self._start(program)

    def _start(self, program: dict[str, Any]) -> None:
        name = program["name"]
        self._not_before[name] = time.monotonic() + RESTART_SECONDS
        with (self._logs / f"{name}.log").open("ab") as log:
            environment = {"PATH": os.environ["PATH"], "HOME": "/root", **program.get("environment", {})}
            process = subprocess.Popen(
                program["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/"
            )
        self._running[process.pid] = name
        process.returncode = 0  # reaped below, not by subprocess
        if program.get("once"):
            self._done.add(name)
        deadline = time.monotonic() + READY_SECONDS
        while not self._go_on(program) and process.pid in self._running and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)

    def _go_on(self, program: dict[str, Any]) -> bool:
        """Whether the next program need not wait for the end of this one."""
        ready = program.get("ready")
        return Path(ready).exists() if ready else not program.get("once")

    def _reap(self) -> None:
        """Takes note of the ends of programs, and buries whatever else has been left to process 1."""
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if name := self._running.pop(pid, None):
                    print(f"{name} has ended", flush=True)
        except ChildProcessError:
            return


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
