"""What a VM's disk has before its first boot, over this machine's own files: what Ubuntu's image for Google Cloud has.

Stands for that image as far as the boot scripts meet it: systemd with the units of Google's agents, empty lists of
packages, and no settings of the kernel. Commands that would change this machine's kernel are stand-ins, below
/usr/local, which look and do nothing; each says so.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import yaml

from sandbox.hosts import lenient_runc
from sandbox.hosts.fabric import GATEWAY

HOSTS = (
    *("secretmanager.googleapis.com", "storage.googleapis.com"),
    *("download.docker.com", "pkgs.k8s.io", "archive.ubuntu.com"),
)
STARTUP = "/usr/local/libexec/google-startup-script"
# Paths of this machine that the VM does not have, as patterns below /.
REMOVED = (
    *(
        "var/log/journal",
        "etc/apt/sources.list",
        "etc/apt/sources.list.d/*",
        "etc/apt/apt.conf.d/*",
        "etc/apt/auth.conf.d/*",
    ),
    *("var/lib/apt/lists/*", "etc/dpkg/dpkg.cfg.d/*"),
    # `sysctl --system` would apply them to the whole machine.
    *("etc/sysctl.conf", "etc/sysctl.d/*", "usr/lib/sysctl.d/*", "usr/local/lib/sysctl.d/*"),
    *("etc/systemd/system/*", "etc/systemd/*.d", "etc/init.d/*", "etc/rc?.d/*", "etc/modules-load.d/*"),
    # Units that are part of this machine's boot, and generators that look for its disks; not the one for /etc/fstab.
    *("usr/lib/systemd/system/*.wants", "usr/lib/systemd/system-generators/systemd-[!f]*"),
    "usr/lib/systemd/system-generators/[!s]*",
    *("usr/lib/systemd/system-environment-generators/*", "etc/cron*/*", "etc/kubernetes", "etc/cni", "etc/containerd"),
    *("etc/default/kubelet", "etc/default/instance_configs.cfg", "usr/local/bin/kube*", "usr/local/bin/crictl"),
)
_SWAPOFF = """\
#!/bin/sh
# Swap is this machine's, and stays: the VM shows none.
[ "$(wc --lines < /proc/swaps)" = 1 ]
"""
_MODPROBE = """\
#!/bin/sh
# The kernel is this machine's, and takes no modules from a VM: looks whether it has what is asked for.
for module; do
  case $module in
  overlay) grep --quiet --word-regexp overlay /proc/filesystems || exit 1 ;;
  br_netfilter) test -d /proc/sys/net/bridge || exit 1 ;;
  esac
done
"""
_KUBEADM = """\
#!/bin/sh
# This machine has cgroups of version 1, which kubeadm refuses for a kubelet of 1.35 or newer. Ubuntu has version 2.
case "$1 $2" in
'init phase' | 'join phase') ;;
init\\ * | join\\ *) set -- "$@" --ignore-preflight-errors=SystemVerification ;;
esac
exec /usr/bin/kubeadm "$@"
"""
_STARTUP_SCRIPT = """\
#!/bin/sh
# Google's agent: runs the startup script of the VM's metadata.
set -e
curl --silent --show-error --fail --header 'Metadata-Flavor: Google' --output /run/startup-script \
  http://169.254.169.254/computeMetadata/v1/instance/attributes/startup-script
chmod 0700 /run/startup-script
exec /run/startup-script
"""
_STARTUP_UNIT = f"""\
[Unit]
Description=Google Compute Engine Startup Scripts
Wants=network-online.target
After=network-online.target google-guest-agent.service

[Service]
Type=oneshot
ExecStart={STARTUP}
KillMode=process

[Install]
WantedBy=multi-user.target
"""
# Google's agent makes the addresses of load balancers in front of a VM addresses of the VM.
_AGENT_UNIT = """\
[Unit]
Description=Google Compute Engine Guest Agent

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={command}
"""
_KUBELET_SETTINGS = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    # How full this machine's disk is, is not the VM's matter.
    "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
}


def files(name: str, authority: str, front: str = "") -> dict[str, tuple[str, int]]:
    """Files by path: text and mode. `authority`: the certificate that vouches for every server that a VM asks, `front`:
    the address of a load balancer in front of the VM."""
    agent = f"ip route replace local {front}/32 dev lo" if front else "/bin/true"
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    texts = {
        "/etc/os-release": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_CODENAME=noble\n',
        "/etc/hostname": f"{name}\n",
        "/etc/machine-id": f"{hashlib.md5(name.encode()).hexdigest()}\n",
        "/etc/fstab": "",
        "/etc/hosts": f"127.0.0.1 localhost\n{GATEWAY} {' '.join(HOSTS)}\n",
        "/etc/resolv.conf": "",
        str(bundle): (bundle.read_text() if bundle.exists() else "") + authority,
        "/etc/apt/sources.list": "deb [trusted=yes] https://archive.ubuntu.com/ubuntu /\n",
        "/etc/dpkg/dpkg.cfg.d/test": "force-unsafe-io\n",
        "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubelet.d\n",
        "/etc/kubelet.d/10-machine.conf": yaml.safe_dump(_KUBELET_SETTINGS),
        "/etc/systemd/journald.conf.d/test.conf": "[Journal]\nRateLimitBurst=0\nAudit=no\nReadKMsg=no\n",
        "/etc/systemd/system/google-startup-scripts.service": _STARTUP_UNIT,
        "/etc/systemd/system/google-guest-agent.service": _AGENT_UNIT.format(command=agent),
    }
    programs = {
        STARTUP: _STARTUP_SCRIPT,
        "/usr/local/sbin/swapoff": _SWAPOFF,
        "/usr/local/sbin/modprobe": _MODPROBE,
    }
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        programs["/usr/local/bin/kubeadm"] = _KUBEADM
    if lenient_runc.lacking():
        script = f'exec {sys.executable} -I -S {lenient_runc.__file__} "$@"'
        programs["/usr/local/sbin/runc"] = f"#!/bin/sh\nPATH=/usr/sbin:/usr/bin\n{script}\n"
    return {path: (text, 0o644) for path, text in texts.items()} | {
        path: (text, 0o755) for path, text in programs.items()
    }


_WANTS = "/etc/systemd/system/multi-user.target.wants"
LINKS = {
    "/etc/systemd/system/default.target": "/usr/lib/systemd/system/multi-user.target",
    **{
        f"{_WANTS}/{name}": f"/etc/systemd/system/{name}"
        for name in ("google-startup-scripts.service", "google-guest-agent.service")
    },
    **{
        f"/etc/systemd/system/sockets.target.wants/{name}": f"/usr/lib/systemd/system/{name}"
        for name in ("systemd-journald.socket", "systemd-journald-dev-log.socket")
    },
    "/etc/systemd/system/sysinit.target.wants/systemd-journald.service": (
        "/usr/lib/systemd/system/systemd-journald.service"
    ),
}
