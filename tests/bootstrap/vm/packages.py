"""Repositories of Debian packages like those that the boot scripts install from, with the toolchain's programs.

Stands for download.docker.com, pkgs.k8s.io and Ubuntu's archive. Names, dependencies, paths and units are those of the
real packages (kubernetes/release, `cmd/krel/templates/latest`; docker/containerd-packaging). Different: there are no
maintainer scripts, all programs are of the toolchain's versions whatever a package's version says, runc is this
machine's, and Ubuntu's archive is not signed.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.hosts.choice import cni_folder
from sandbox.kubernetes import assets
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION
from tests.bootstrap.vm.signing import SigningKey

MINOR = KUBERNETES_VERSION.rpartition(".")[0]
DOCKER_DISTRIBUTION = "/linux/ubuntu/dists/noble"
KUBERNETES_FOLDER = f"/core:/stable:/v{MINOR}/deb"
KUBERNETES = f"{KUBERNETES_VERSION}-1.1"
_UNITS = "usr/lib/systemd/system"
_CONTAINERD_UNIT = """\
[Unit]
Description=containerd container runtime
Documentation=https://containerd.io
After=network.target dbus.service local-fs.target

[Service]
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""
_KUBELET_UNIT = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Documentation=https://kubernetes.io/docs/
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
_KUBEADM_DROP_IN = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


@dataclass(frozen=True)
class Package:
    """One package: its files by their place, a program's path or a text."""

    name: str
    version: str
    files: Mapping[str, Path | str] = field(default_factory=dict)
    depends: str = ""


def _docker(containerd: str) -> list[Package]:
    programs = {f"usr/bin/{each}": assets.program(each) for each in ("containerd", "containerd-shim-runc-v2", "ctr")}
    files = {
        **programs,
        f"{_UNITS}/containerd.service": _CONTAINERD_UNIT,
        "etc/containerd/config.toml": 'disabled_plugins = ["cri"]\n',  # as Docker's package has it
    }
    return [Package("containerd.io", containerd.replace("*", "sandbox"), files)]


def _kubernetes() -> list[Package]:
    cni = cni_folder()
    assert cni
    kubelet = {"usr/bin/kubelet": assets.program("kubelet"), f"{_UNITS}/kubelet.service": _KUBELET_UNIT}
    kubeadm = {
        "usr/bin/kubeadm": assets.program("kubeadm"),
        f"{_UNITS}/kubelet.service.d/10-kubeadm.conf": _KUBEADM_DROP_IN,
    }
    return [
        Package("kubelet", KUBERNETES, kubelet, "kubernetes-cni"),
        Package("kubeadm", KUBERNETES, kubeadm, "cri-tools"),
        Package("kubectl", KUBERNETES, {"usr/bin/kubectl": assets.program("kubectl")}),
        Package("cri-tools", f"{MINOR}.0-1.1", {"usr/bin/crictl": assets.program("crictl")}),
        Package("kubernetes-cni", "1.8.0-1.1", {f"opt/cni/bin/{each.name}": each for each in cni.iterdir()}),
    ]


def _archive() -> list[Package]:
    return [Package(name, "1.0-sandbox") for name in ("conntrack", "ethtool", "socat")]


def repositories(containerd: str, key: SigningKey, folder: Path) -> dict[str, Path]:
    """The files of all repositories by host and path: "pkgs.k8s.io/core:/...". `containerd`: the version that VMs ask
    for. The packages are made once, into the per-user cache; the indexes, which `key` signs, lie in `folder`."""
    # A package with other programs or another layout is another one: this file and the programs' paths say all of it.
    identity = [Path(__file__).read_text(), containerd, *(str(each.files) for each in (*_docker(""), *_kubernetes()))]
    name = f"packages-{hashlib.sha256(''.join(identity).encode()).hexdigest()[:12]}"
    debs = assets.once(name, lambda target: _build(target, containerd))
    key_file = folder / "key.asc"
    key_file.write_text(key.armored())
    docker, kubernetes = "download.docker.com", "pkgs.k8s.io"
    served = {f"{docker}/linux/ubuntu/gpg": key_file, f"{kubernetes}{KUBERNETES_FOLDER}/Release.key": key_file}
    for host, base, inner, release in (
        (docker, "/linux/ubuntu", "stable/binary-amd64/", DOCKER_DISTRIBUTION),
        (kubernetes, KUBERNETES_FOLDER, "", KUBERNETES_FOLDER),
        ("archive.ubuntu.com", "/ubuntu", "", "/ubuntu"),
    ):
        packages = {each.name: each for each in sorted((debs / host).glob("*.deb"))}
        served |= {f"{host}{base}/{name}": deb for name, deb in packages.items()}
        made = _index(folder / host, list(packages.values()), inner, key)
        served |= {f"{host}{release}/{place}": path for place, path in made.items()}
    return served


def _build(target: Path, containerd: str) -> None:
    for host, packages in (
        ("download.docker.com", _docker(containerd)),
        ("pkgs.k8s.io", _kubernetes()),
        ("archive.ubuntu.com", _archive()),
    ):
        (target / host).mkdir()
        for package in packages:
            with tempfile.TemporaryDirectory(dir=target) as scratch:
                _build_one(package, Path(scratch), target / host)


def _build_one(package: Package, root: Path, target: Path) -> None:
    for place, content in package.files.items():
        file = root / place
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content)
        else:
            shutil.copyfile(content, file)
            file.chmod(0o755)
    control = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": "amd64",
        "Maintainer": "the sandbox <sandbox@example.invalid>",
        **({"Depends": package.depends} if package.depends else {}),
        "Description": "stands for the package of this name",
    }
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text("".join(f"{key}: {value}\n" for key, value in control.items()))
    root.chmod(0o755)
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(target)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _index(folder: Path, debs: list[Path], inner: str, key: SigningKey) -> dict[str, Path]:
    """Packages, Release and its signature, by their place below the repository's."""
    folder.mkdir()
    entries = []
    for deb in debs:
        control = subprocess.run(["dpkg-deb", "--field", str(deb)], check=True, capture_output=True, text=True).stdout
        content = deb.read_bytes()
        entries.append(
            f"{control}Filename: {deb.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    listed = "\n".join(entries).encode()
    files = {"Packages": listed, "Packages.gz": gzip.compress(listed)}
    sums = "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {inner}{name}\n" for name, data in files.items())
    release = f"Codename: noble\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n{sums}".encode()
    files = {f"{inner}{name}": data for name, data in files.items()}
    files |= {"Release": release, "Release.gpg": key.detached_signature(release)}
    made = {}
    for place, data in files.items():
        made[place] = folder / place.replace("/", "-")
        made[place].write_bytes(data)
    return made
