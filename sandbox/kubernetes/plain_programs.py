"""TPU Provisioner behind the pods of its image: a program that has its settings from variables and flags alone.

It gets what the pod says (`env`, `envFrom`, `args`), the token of the pod's ServiceAccount in a kubeconfig, GKE's
metadata server, and Google's APIs at their real addresses. The program is the stand-in of `sandbox.tpu_provisioner`, or
the executable that SANDBOX_TPU_PROVISIONER names.

Different from a pod: the container's `command` is not looked at, probes are at a local address, metrics and leader
election are off.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from sandbox.environment import module_command
from sandbox.google.backend import ClusterRef
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.google_front import GoogleFront
from sandbox.kubernetes.hosting import Command, ContainerError, HostedImage, kubeconfig
from sandbox.kubernetes.metadata_server import ANNOTATION, Cloud, MetadataServer, Workload
from sandbox.kubernetes.pod_environment import arguments, environment
from sandbox.kubernetes.supervisor import free_ports
from sandbox.kubernetes.tunnels import NO_PROXY

PROVISIONER_VARIABLE = "SANDBOX_TPU_PROVISIONER"
STAND_IN = "sandbox.tpu_provisioner"
IMAGES = r".*/tpu-provisioner([:@][^/]*)?"  # in any registry, with any tag or digest
ZONE_LABEL = "topology.kubernetes.io/zone"
_REPLACED = ("kubeconfig", "health-probe-bind-address", "metrics-bind-address", "leader-elect")  # flags


def provisioner_image(cluster: ClusterRef, cloud: Callable[[], Cloud]) -> HostedImage:
    """Images with the name of TPU Provisioner in a cluster, wherever they were pushed to."""

    def make(plane: ControlPlane, folder: Path, _refresh_seconds: float) -> PlainProgram:
        return PlainProgram(plane, folder, cluster, cloud)

    return HostedImage("tpu-provisioner", IMAGES, make)


class PlainProgram:
    """A HostedProgram."""

    def __init__(self, plane: ControlPlane, folder: Path, cluster: ClusterRef, cloud: Callable[[], Cloud]) -> None:
        self._plane, self._folder, self._cluster, self._cloud = plane, folder, cluster, cloud
        self._client: ApiClient = plane.client
        (self.health_port,) = free_ports(1)
        self._metadata: MetadataServer | None = None
        self._front: GoogleFront | None = None

    def refresh(self, pod: Object) -> bool:
        return False

    def command(self, pod: Object) -> Command:
        container = next(each for each in pod["spec"]["containers"] if re.fullmatch(IMAGES, each["image"]))
        program, first = _program()
        variables = environment(self._client, pod, container)
        given = [
            each for each in arguments(container, variables) if each.lstrip("-").partition("=")[0] not in _REPLACED
        ]
        config = kubeconfig(self._plane, pod, self._folder)
        local = [
            f"--kubeconfig={config}",
            f"--health-probe-bind-address=127.0.0.1:{self.health_port}",
            "--metrics-bind-address=0",
        ]
        return Command(program, [*first, *local, *given], {**variables, "KUBECONFIG": str(config), **self._around(pod)})

    def local_port(self, container_port: int) -> int | None:
        return None

    def close(self) -> None:
        if self._metadata:
            self._metadata.stop()
        if self._front:
            self._front.stop()

    def _around(self, pod: Object) -> dict[str, str]:
        """The variables that lead to the metadata server and to Google."""
        if not self._metadata or not self._front:
            self._metadata = MetadataServer(self._workload(pod), self._cloud, lambda: self._google_account(pod))
            self._front = GoogleFront(lambda: self._cloud().url)
        trust = self._folder / "google.crt"
        trust.write_text(self._front.authority)
        return {
            "GCE_METADATA_HOST": self._metadata.address,
            "GCE_METADATA_IP": self._metadata.address,
            "HTTPS_PROXY": self._front.url,
            "NO_PROXY": NO_PROXY,
            "SSL_CERT_FILE": str(trust),
        }

    def _workload(self, pod: Object) -> Workload:
        node = self._client.get("v1", "Node", pod["spec"]["nodeName"]) or {"metadata": {}}
        zone = node["metadata"].get("labels", {}).get(ZONE_LABEL, "")
        return Workload(self._cluster, zone, pod["metadata"]["namespace"], _service_account(pod))

    def _google_account(self, pod: Object) -> str:
        found = self._client.get("v1", "ServiceAccount", _service_account(pod), pod["metadata"]["namespace"])
        return str((found or {"metadata": {}})["metadata"].get("annotations", {}).get(ANNOTATION, ""))


def _service_account(pod: Object) -> str:
    return str(pod["spec"].get("serviceAccountName", "default"))


def _program() -> tuple[Path, list[str]]:
    """The program and its first arguments."""
    own = os.environ.get(PROVISIONER_VARIABLE, "")
    if not own:
        interpreter, *rest = module_command(STAND_IN)
        return Path(interpreter), rest
    path = Path(own)
    if not path.is_absolute() or not path.is_file() or not os.access(path, os.X_OK):
        text = f"{PROVISIONER_VARIABLE}={own} is not the absolute path of an executable file"
        raise ContainerError("CreateContainerError", text)
    return path, []
