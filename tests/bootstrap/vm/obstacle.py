"""Whether VMs with systemd can run on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from sandbox.hosts.choice import SYSTEM_PATH, what_is_missing
from tests.bootstrap.vm.inside import SYSTEMD

# Programs of the operating system, and the Debian packages that have them.
_PACKAGES = {
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "gpgv": "gpgv",
    "curl": "curl",
    "openssl": "openssl",
    "losetup": "mount",
    "findmnt": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "sysctl": "procps",
}
_BRIDGES = Path("/proc/sys/net/bridge")


def what_vms_miss() -> str:
    """Why VMs cannot run here, and what to do; "" where they can."""
    if obstacle := what_is_missing():
        return obstacle
    packages = {package for program, package in _PACKAGES.items() if not shutil.which(program, path=SYSTEM_PATH)}
    if not Path(SYSTEMD).exists():
        packages.add("systemd")
    if packages:
        names = " ".join(sorted(packages))
        return f"VMs need the packages {names}: `apt-get install {names}`"
    if not Path("/dev/loop-control").exists():
        return "VMs need loop devices"
    if "\text4\n" not in Path("/proc/filesystems").read_text():
        return "VMs need ext4 in the kernel: `modprobe ext4`"
    return "" if _BRIDGES.exists() else "VMs need bridges that iptables sees: `modprobe br_netfilter`"
