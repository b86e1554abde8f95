"""The images of a control plane, in a containerd's root folder, under the names that kubeadm asks for.

Stands for registry.k8s.io: nothing is pulled. All of them are one image with the toolchain's programs, busybox and
iptables. So etcd and CoreDNS have the toolchain's versions under the names of kubeadm's. kube-proxy leaves the kernel's
limits of connections alone, since they are not a VM's to change here.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.hosts import images
from sandbox.hosts.choice import SYSTEM_PATH
from sandbox.hosts.images import Content, Image
from sandbox.kubernetes import assets
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "coredns")
_TABLES = ("iptables", "ip6tables")
_KUBE_PROXY = r"""#!/bin/sh
sed 's/^\( *\(maxPerCore\|min\)\): null$/\1: 0/; s/^\( *tcp[A-Za-z]*Timeout\): null$/\1: 0s/' \
  /var/lib/kube-proxy/config.conf > /tmp/config.conf
exec /usr/local/libexec/kube-proxy "$@" --config=/tmp/config.conf
"""


def store() -> Path:
    """The root folder of a containerd that has the images. Raises AssetError."""
    programs = [str(assets.program(each)) for each in PROGRAMS]
    identity = [Path(__file__).read_text(), Path(images.__file__).read_text(), *programs, *_names()]
    name = f"images-kubeadm-{hashlib.sha256(''.join(identity).encode()).hexdigest()[:12]}"
    return assets.once(name, _build) / "containerd"


def _names() -> list[str]:
    """What kubeadm asks for, and the pause image of containerd's own default."""
    command = [str(assets.program("kubeadm")), "config", "images", "list", f"--kubernetes-version={KUBERNETES_VERSION}"]
    asked = subprocess.run(command, check=True, capture_output=True, text=True, env={"PATH": SYSTEM_PATH}).stdout
    default = [str(assets.program("containerd")), "config", "default"]
    written = subprocess.run(default, check=True, capture_output=True, text=True).stdout
    return sorted({*asked.split(), *re.findall(r"sandbox = '(\S+)'", written)})


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        archive = Path(scratch) / "images.tar"
        kube_proxy = Path(scratch) / "kube-proxy"
        kube_proxy.write_text(_KUBE_PROXY)
        kube_proxy.chmod(0o755)
        layer = images.layer(Path(scratch) / "layer.tar", _content(kube_proxy))
        images.pack(archive, {name: _image(name, layer) for name in _names()})
        images.unpack(archive, folder / "containerd")


def _image(name: str, layer: Path) -> Image:
    program = name.rpartition("/")[2].partition(":")[0]
    if program == "pause":
        return Image([layer], images.SLEEP)
    return Image([layer], entrypoint=[f"/usr/local/bin/{program}"])


def _content(kube_proxy: Path) -> dict[str, Content]:
    tables = [Path(each).resolve() for name in _TABLES if (each := shutil.which(name, path=SYSTEM_PATH))]
    extensions = sorted(Path("/usr/lib").glob("**/xtables/*.so"))
    libraries = images.shared_libraries([*tables, *extensions])
    names = [f"{name}{verb}" for name in _TABLES for verb in ("", "-save", "-restore")]
    return {
        **images.shell(),
        "usr/local/libexec": None,
        **{f"usr/local/bin/{each}": assets.program(each) for each in PROGRAMS if each != "kube-proxy"},
        "usr/local/libexec/kube-proxy": assets.program("kube-proxy"),
        "usr/local/bin/kube-proxy": kube_proxy,
        **{f"usr/bin/{name}": tables[0].name for name in names},
        f"usr/bin/{tables[0].name}": tables[0],
        **libraries,
        **{str(each)[1:]: each for each in extensions},
    }
