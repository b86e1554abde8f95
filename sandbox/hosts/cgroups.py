"""The cgroups of real hosts: named after the hosts' folders, because nothing removes them by itself.

All else that a host has goes with its processes; its cgroups stay, empty, when a sandbox is killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

ROOT = "tpu-sandbox"
_FILE_SYSTEMS = Path("/sys/fs/cgroup")
SECONDS = 5.0


def name_of(folder: Path) -> str:
    """The cgroup of what runs in a folder, below every hierarchy; folders below it have cgroups below its own."""
    return f"{ROOT}{folder}"


def hierarchies() -> list[Path]:
    """The cgroup file systems: one with version 2, one for each controller with version 1; none without Linux."""
    mounts = Path("/proc/self/mountinfo")
    lines = [line.split(" - ") for line in mounts.read_text().splitlines()] if mounts.exists() else []
    points = [first.split()[4] for first, second in lines if second.split()[0] in ("cgroup", "cgroup2")]
    return [Path(each) for each in points if Path(each).is_relative_to(_FILE_SYSTEMS)]


def make(folder: Path) -> None:
    """Makes the cgroup of a folder in every hierarchy, such that a kubelet can use it. Raises OSError.

    With version 1 a cgroup may have no processors and no memory nodes until somebody says which; with version 2 it has
    only the controllers that its parent hands down.
    """
    for hierarchy in hierarchies():
        path = hierarchy
        for part in Path(name_of(folder)).parts:
            _hand_down(path)
            path = path / part
            path.mkdir(exist_ok=True)
            _copy_from_parent(path)
        _hand_down(path)


def refusal() -> str:
    """Why this machine lets nobody make such cgroups, as in a container without a cgroup of its own; "" if it does."""
    try:
        for hierarchy in hierarchies():
            (hierarchy / ROOT).mkdir(exist_ok=True)
            _hand_down(hierarchy)
            with contextlib.suppress(OSError):
                (hierarchy / ROOT).rmdir()  # unless a sandbox uses it
    except OSError as error:
        return str(error)
    return ""


def _hand_down(cgroup: Path) -> None:
    """Version 2: children get all controllers. The kernel refuses where processes are in the cgroup itself."""
    controllers = cgroup / "cgroup.controllers"
    if controllers.exists():
        wanted = [f"+{each}" for each in controllers.read_text().split()]
        (cgroup / "cgroup.subtree_control").write_text(" ".join(wanted))


def _copy_from_parent(cgroup: Path) -> None:
    for name in ("cpuset.cpus", "cpuset.mems"):
        file, above = cgroup / name, cgroup.parent / name
        if _version_1(cgroup) and file.exists() and above.exists() and not file.read_text().strip():
            file.write_text(above.read_text())


def _version_1(cgroup: Path) -> bool:
    return not (cgroup / "cgroup.controllers").exists()


def enter(folder: Path) -> None:
    """Moves this process into a group of its own below that of a folder: the root of a namespace. Raises OSError."""
    for hierarchy in hierarchies():
        own = hierarchy / name_of(folder) / "machine"
        own.mkdir(exist_ok=True)
        _copy_from_parent(own)
        (own / "cgroup.procs").write_text(str(os.getpid()))


def mounts() -> list[tuple[str, str, str]]:
    """The same file systems as mount points, types and the options that make such a mount again."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        first, second = line.split(" - ")
        point, (kind, _, options) = first.split()[4], second.split()[:3]
        if kind in ("cgroup", "cgroup2") and Path(point).is_relative_to(_FILE_SYSTEMS):
            kept = [each for each in options.split(",") if kind == "cgroup" and each not in ("rw", "ro", "xattr")]
            found.append((point, kind, ",".join(kept)))
    return found


def remove(folder: Path) -> None:
    """Removes the cgroups of a folder, and of those below it, from every hierarchy.

    Their processes have been killed; the kernel takes a moment. Raises OSError where one cannot be removed in time.
    """
    deadline = time.monotonic() + SECONDS
    for hierarchy in hierarchies():
        own = hierarchy / name_of(folder)
        for each, _, _ in os.walk(own, topdown=False):
            _remove(Path(each), deadline)
        for parent in own.parents:
            if parent == hierarchy:
                break
            with contextlib.suppress(OSError):
                parent.rmdir()  # unless another sandbox uses it


def _remove(cgroup: Path, deadline: float) -> None:
    while True:
        try:
            cgroup.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
