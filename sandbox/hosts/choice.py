"""Whether a sandbox runs pods in real containers, and on how many hosts: the person's choice and what is possible here.

The variables are read when a sandbox starts: SANDBOX_PODS is `real` or `played`, SANDBOX_REAL_HOSTS a number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandbox.hosts import cgroups

PODS_VARIABLE = "SANDBOX_PODS"
HOSTS_VARIABLE = "SANDBOX_REAL_HOSTS"
DEFAULT_HOSTS = 2
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CNI_PLUGINS = ("ptp", "host-local", "loopback", "portmap")
# Programs of the operating system, and the Debian packages that have them.
_PACKAGES = {
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "ip": "iproute2",
    "busybox": "busybox-static",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
_CNI_PACKAGE = "containernetworking-plugins"
# Inotify instances, which all programs of a user share: a kubelet has six, containerd two, kube-proxy one.
WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
WATCHES_OF_A_HOST, WATCHES_BESIDE = 9, 20
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ChoiceError(Exception):
    """A variable has a value that cannot be used, or asks for what is impossible here; the message says what to do."""


class Pods(StrEnum):
    """Who runs the pods of a sandbox."""

    REAL = "real"
    """A kubelet and containerd on some hosts, kwok on the others."""
    PLAYED = "played"
    """kwok on all hosts: no container runs."""


@dataclass(frozen=True)
class Choice:
    """How many hosts of each cluster are real; 0 where pods are played. `words` say it to a person, and why."""

    hosts: int
    words: str

    @property
    def real(self) -> bool:
        return self.hosts > 0


PLAYED = Choice(0, f"played by kwok: no container runs ({PODS_VARIABLE}={Pods.PLAYED})")


def choose(environment: Mapping[str, str] = os.environ) -> Choice:
    """What a sandbox that starts now does. Raises ChoiceError."""
    wanted = environment.get(PODS_VARIABLE, "")
    if wanted and wanted not in set(Pods):
        raise ChoiceError(f"{PODS_VARIABLE}: {wanted!r} is not known -> write {' or '.join(Pods)}")
    hosts = _number(environment.get(HOSTS_VARIABLE, ""))
    if wanted == Pods.PLAYED:
        return PLAYED
    obstacle = what_is_missing() or _too_few_watches(hosts)
    if obstacle and wanted == Pods.REAL:
        raise ChoiceError(f"{PODS_VARIABLE}={Pods.REAL}: {obstacle}")
    if obstacle:
        return Choice(0, f"played by kwok: no container runs; {obstacle}")
    where = f"on up to {hosts} TPU hosts of each cluster ({HOSTS_VARIABLE}={hosts}), played by kwok elsewhere"
    return Choice(hosts, f"real containers {where}")


def _number(text: str) -> int:
    if not text:
        return DEFAULT_HOSTS
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ChoiceError(f"{HOSTS_VARIABLE}: {text!r} is no number of hosts -> write 1 to 64")
    return int(text)


def what_is_missing() -> str:
    """Why containers cannot run here, and what to do; "" where they can."""
    if sys.platform != "linux":
        return "real pods need Linux"
    if os.geteuid() != 0:
        return "real pods need root"
    packages = {package for program, package in _PACKAGES.items() if not shutil.which(program, path=SYSTEM_PATH)}
    if cni_folder() is None:
        packages.add(_CNI_PACKAGE)
    if packages:
        names = " ".join(sorted(packages))
        return f"real pods need the packages {names}: `apt-get install {names}`"
    refusal = _refusal() or cgroups.refusal()
    return f"real pods need what this machine refuses even to root: {refusal}" if refusal else ""


def _too_few_watches(hosts: int) -> str:
    """The kernel's limit that many kubelets meet first; they then end with "too many open files"."""
    allowed, needed = int(WATCHES.read_text()), WATCHES_OF_A_HOST * hosts + WATCHES_BESIDE
    if allowed >= needed:
        return ""
    setting = f"fs.inotify.max_user_instances={needed}"
    return f"real pods on {hosts} hosts need more inotify instances than {allowed}: `sysctl -w {setting}`"


def cni_folder() -> Path | None:
    """Where the CNI plugins lie."""
    complete = (each for each in CNI_FOLDERS if all((each / name).exists() for name in _CNI_PLUGINS))
    return next(complete, None)


def _refusal() -> str:
    """What fails of that which a host does first, in namespaces that are gone afterwards; "" where all of it works.

    Root in a container often may make neither mounts nor namespaces; a kernel may lack overlays, wires, NAT or sets.
    """
    probe = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "sh", "-exc", _PROBE]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False, env={"PATH": SYSTEM_PATH})
    command, *words = tried.stderr.rpartition("+ ")[2].strip().splitlines() or [""]
    return " ".join((f"`{command}`", *map(str.strip, words))) if tried.returncode else ""


_PROBE = """
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/merged
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged
ip link add one type veth peer name two
iptables --table nat --list --numeric
ipset create probe hash:net
iptables --append FORWARD --match set --match-set probe src --jump NFLOG
"""
