"""What a controller's pod and the local process behind it have in common: images, commands, and what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import ControlPlane, write_kubeconfig

TOKEN_SECONDS = 30 * 24 * 3600


class ContainerError(Exception):
    """A container cannot be started; `reason` and the message are those that a kubelet shows on the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Command:
    """A program to be started. `environment` is all that it sees besides the supervisor's own variables."""

    program: Path
    arguments: list[str]
    environment: dict[str, str]


class HostedProgram(Protocol):
    """What runs behind the pods of one pod template; `pod` is any of them."""

    health_port: int

    def refresh(self, pod: Object) -> bool:
        """Brings up to date what the program reads while it runs; True where that has to be done again in a moment.

        Raises ApiError while something is not there yet.
        """

    def command(self, pod: Object) -> Command:
        """How to start it, from what the cluster has now. Raises ContainerError, or ApiError as `refresh`."""

    def local_port(self, container_port: int) -> int | None:
        """Where a port of the container is served; None where it is not."""

    def close(self) -> None:
        """The pods are gone; the program has ended."""


@dataclass(frozen=True)
class HostedImage:
    """Container images whose pods run as local processes.

    `pattern` is a regular expression for the whole image, in the syntax that Python and Go share. `make` gets the
    control plane, a folder for the program alone, and how many seconds late a changed Secret is seen.
    """

    name: str
    pattern: str
    make: Callable[[ControlPlane, Path, float], HostedProgram]


def image_named(images: Iterable[HostedImage], image: str) -> HostedImage | None:
    return next((each for each in images if re.fullmatch(each.pattern, image)), None)


def hosted_container(pod: Object, images: Iterable[HostedImage]) -> Object | None:
    """The container of a pod that runs as a local process."""
    known = list(images)
    return next((each for each in pod["spec"]["containers"] if image_named(known, each["image"])), None)


def kubeconfig(plane: ControlPlane, pod: Object, folder: Path) -> Path:
    """A kubeconfig in `folder` with a new token of the pod's service account."""
    client: ApiClient = plane.client
    namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName", "default")
    path = client.path("v1", "ServiceAccount", account, namespace) + "/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = client.request("POST", path, request)["status"]["token"]
    return write_kubeconfig(folder / "kubeconfig", {"sandbox": plane}, token)
