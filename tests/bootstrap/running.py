"""The control plane that kubeadm described on a dry machine, run: its four programs as processes.

Their arguments are those of the static pods. Different: files lie below the machine's scratch root, everything listens
on 127.0.0.1 and on free ports, etcd does not wait for the disk, and programs are of the toolchain's version instead of
in images.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from sandbox import toolchain
from sandbox.kubernetes.supervisor import Supervisor, free_ports, http_ok
from tests.bootstrap.machine import Machine

START_SECONDS = 240.0
METRICS_PORT = "2381"
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
ETCD_PORTS = ("2379", "2380", METRICS_PORT)


def manifest(made: Machine, name: str) -> dict[str, Any]:
    """The static pod of one program, with its paths as on a VM."""
    pod: dict[str, Any] = yaml.safe_load(made.read(f"/etc/kubernetes/manifests/{name}.yaml"))
    return pod


def arguments(made: Machine, name: str) -> dict[str, str]:
    """What a static pod's program is started with, by name of the flag."""
    (container,) = manifest(made, name)["spec"]["containers"]
    program, *flags = container["command"]
    assert program == name
    return dict(flag.removeprefix("--").split("=", 1) for flag in flags)


class Running:
    """Starts the control plane of a machine whose script ran `kubeadm init`; clients find it under 127.0.0.1."""

    def __init__(self, made: Machine, folder: Path) -> None:
        self.made = made
        self.address = f"127.0.0.1:{made.api_port}"
        self.programs = toolchain.ensure(["etcd", "kube-apiserver", *CONTROLLERS, "kubectl", "kubeadm"])
        self._folder = folder
        self.supervisor = Supervisor(folder)
        etcd_ports = free_ports(len(ETCD_PORTS))
        self._ports = dict(zip(ETCD_PORTS, etcd_ports, strict=True))

    def start(self) -> None:
        """Returns once the API server and the controllers are ready, and what kubeadm puts into a cluster is there.
        Raises ProcessError where a program does not accept its arguments or files."""
        for conf in (self.made.root / "etc/kubernetes").glob("*.conf"):
            conf.write_text(re.sub(r"server: https://\S+", f"server: https://{self.address}", conf.read_text()))
        (self.made.root / "var/log/kubernetes/audit").mkdir(
            parents=True, exist_ok=True
        )  # the kubelet makes it for the pod
        fresh = self._forget_stand_in()
        etcd = self._run("etcd", {"unsafe-no-fsync": "true"})
        etcd.wait_ready(http_ok(f"http://127.0.0.1:{self._ports[METRICS_PORT]}/health"), START_SECONDS)
        api = self._run("kube-apiserver", {"bind-address": "127.0.0.1"})
        api.wait_ready(http_ok(f"https://{self.address}/readyz"), START_SECONDS)
        for name, port in zip(CONTROLLERS, free_ports(len(CONTROLLERS)), strict=True):
            controller = self._run(name, {"secure-port": str(port)})
            controller.wait_ready(http_ok(f"https://127.0.0.1:{port}/healthz"), START_SECONDS)
        if fresh:
            # kubeadm's first request, as the user of super-admin.conf; all further ones are of the user of admin.conf.
            self.kubectl(
                *("create", "clusterrolebinding", "kubeadm:cluster-admins", "--clusterrole=cluster-admin"),
                *("--group=kubeadm:cluster-admins", f"--kubeconfig={self.made.root}/etc/kubernetes/super-admin.conf"),
            )
        *_, config = self.made.kubeadm_configs("init")
        for phase in (("upload-config", "all"), ("bootstrap-token",), ("addon", "all")):
            self.kubeadm("init", "phase", *phase, "--config", str(config))

    def _forget_stand_in(self) -> bool:
        """Whether etcd has not run on this disk yet: then what stands for its data is removed."""
        member = self.made.root / "var/lib/etcd/member"
        if (member / "wal").exists():
            return False
        shutil.rmtree(member)
        return True

    def stop(self) -> None:
        self.supervisor.stop_all()

    def kubectl(self, *words: str) -> str:
        """What kubectl prints, asked as the administrator unless told otherwise."""
        return self._ask("kubectl", words)

    def kubeadm(self, *words: str) -> str:
        return self._ask("kubeadm", (*words, f"--kubeconfig={self.made.root}/etc/kubernetes/admin.conf"))

    def _ask(self, name: str, words: tuple[str, ...]) -> str:
        done = subprocess.run(
            [self.programs[name], *words],
            env={"KUBECONFIG": f"{self.made.root}/etc/kubernetes/admin.conf", "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, f"{name} {' '.join(words)}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def _run(self, name: str, changes: dict[str, str]) -> Any:
        flags = {key: self._here(value) for key, value in arguments(self.made, name).items()} | changes
        return self.supervisor.start(name, self.programs[name], [f"--{key}={value}" for key, value in flags.items()])

    def _here(self, value: str) -> str:
        """A flag's value as it is for this process: files, and etcd's addresses."""
        moved = self.made.moved(value)
        for port, free in self._ports.items():
            moved = re.sub(rf"(https?://)[\d.]+:{port}\b", rf"\g<1>127.0.0.1:{free}", moved)
        return ",".join(dict.fromkeys(moved.split(",")))


@contextmanager
def running(made: Machine, folder: Path) -> Iterator[Running]:
    """The control plane of a machine while the context lasts; the machine's own commands reach it, too."""
    control_plane = Running(made, folder)
    try:
        control_plane.start()
        made.say("live", "")
        yield control_plane
    finally:
        control_plane.stop()
