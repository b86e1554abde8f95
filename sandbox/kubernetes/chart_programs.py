"""The JobSet, Kueue and LeaderWorkerSet controllers behind the pods of their charts.

The configuration file and the certificate that the pod mounts are those of the cluster; addresses in the configuration
are replaced by local ones, and leader election is off.
"""

from __future__ import annotations

import base64
import copy
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.hosting import Command, HostedImage, kubeconfig
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.supervisor import free_ports
from sandbox.kubernetes.visibility import VisibilityStub
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION, KUEUE_VERSION, LWS_VERSION

CONFIG_PATH = "/controller_manager_config.yaml"
CERTIFICATE_PATH = "/tmp/k8s-webhook-server/serving-certs"
WEBHOOK_PORT, VISIBILITY_PORT, METRICS_PORT = 9443, 8082, 8443  # container ports of the charts
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
ADMISSION = "admissionregistration.k8s.io/v1"

Configuration = dict[str, Any]


def _local_kueue(configuration: Configuration, arguments: list[str]) -> None:
    """Kueue keeps the certificate of its visibility API in a fixed folder of the root file system: that API is off."""
    gate = "VisibilityOnDemand"
    for index, argument in enumerate(arguments):
        if argument.startswith("--feature-gates="):
            arguments[index] = f"{argument},{gate}=false"
            return
    configuration.setdefault("featureGates", {})[gate] = False


def _local_jobset(configuration: Configuration, arguments: list[str]) -> None:
    """JobSet's certificate rotator waits for a file in a fixed folder of /tmp: the host makes the certificate."""
    configuration["internalCertManagement"] = {"enable": False}


def _local_lws(configuration: Configuration, arguments: list[str]) -> None:
    """LeaderWorkerSet needs no more than every controller: it makes its certificate where it is told to look for it."""


@dataclass(frozen=True)
class Controller:
    """A program of the toolchain. `adapt` edits configuration and arguments in place."""

    program: str
    adapt: Callable[[Configuration, list[str]], None]
    own_certificate: bool = False  # the host, not the program, makes the webhook certificate


class ChartProgram:
    """A HostedProgram. It sees a changed Secret `refresh_seconds` later."""

    def __init__(self, controller: Controller, plane: ControlPlane, folder: Path, refresh_seconds: float) -> None:
        self._controller, self._plane, self._folder = controller, plane, folder
        self._client: ApiClient = plane.client
        self._refresh_seconds = refresh_seconds
        self.health_port, self._webhook_port, self._metrics_port = free_ports(3)
        self._stale_since = 0.0  # when the mounted certificate was first seen to differ from the Secret
        self._visibility: VisibilityStub | None = None
        self._lock = threading.Lock()

    def command(self, pod: Object) -> Command:
        configuration, arguments = self._launch_plan(pod)
        config_file = self._folder / "config.yaml"
        config_file.write_text(configuration)
        flags = [f"--kubeconfig={kubeconfig(self._plane, pod, self._folder)}", f"--config={config_file}", *arguments]
        # Stands for the public certificate authorities in the image: other clusters' endpoints are signed by one.
        trust = {"SSL_CERT_FILE": str(self._plane.authority.pair.certificate)}
        return Command(assets.program(self._controller.program), flags, trust)

    def local_port(self, container_port: int) -> int | None:
        if container_port == WEBHOOK_PORT:
            return self._webhook_port
        if container_port == METRICS_PORT:
            return self._metrics_port
        return self._visibility_stub().port if container_port == VISIBILITY_PORT else None

    def close(self) -> None:
        if self._visibility:
            self._visibility.stop()

    def _visibility_stub(self) -> VisibilityStub:
        with self._lock:
            if not self._visibility:
                serving = self._plane.authority.issue("visibility", ["127.0.0.1", "localhost"])
                self._visibility = VisibilityStub(free_ports(1)[0], serving)
                self._visibility.start()
            return self._visibility

    def _launch_plan(self, pod: Object) -> tuple[str, list[str]]:
        """Configuration text and arguments that differ from the rendered ones only where a local process must."""
        container = pod["spec"]["containers"][0]
        arguments = [each for each in container.get("args", []) if not each.startswith(("--config=", "--kubeconfig="))]
        text = self._mounted_file(pod, CONFIG_PATH)
        try:
            configuration = yaml.safe_load(text)
        except yaml.YAMLError:
            configuration = None
        if not isinstance(configuration, dict):
            return text, arguments  # the program itself says what is wrong with it
        local = copy.deepcopy(configuration)
        local["health"] = {"healthProbeBindAddress": f"127.0.0.1:{self.health_port}"}
        local["metrics"] = {**configuration.get("metrics", {}), "bindAddress": f"127.0.0.1:{self._metrics_port}"}
        local["leaderElection"] = {"leaderElect": False}
        local["webhook"] = {"host": "127.0.0.1", "port": self._webhook_port, "certDir": str(self._folder)}
        self._controller.adapt(local, arguments)
        return yaml.safe_dump(local), arguments

    def _mounted_file(self, pod: Object, path: str) -> str:
        mount, volume = _mount(pod, path)
        name, namespace = volume["configMap"]["name"], pod["metadata"]["namespace"]
        config_map = self._client.get("v1", "ConfigMap", name, namespace)
        if not config_map:
            raise ApiError(404, "NotFound", f'configmap "{name}" not found', {})
        text: str = config_map["data"][mount["subPath"]]
        return text

    def refresh(self, pod: Object) -> bool:
        """Keeps the program's certificate folder equal to the mounted Secret, late as a kubelet does."""
        name, namespace = _mount(pod, CERTIFICATE_PATH)[1]["secret"]["secretName"], pod["metadata"]["namespace"]
        secret = self._client.get("v1", "Secret", name, namespace)
        if not secret:
            raise ApiError(404, "NotFound", f'secret "{name}" not found', {})
        if self._controller.own_certificate:
            self._rotate(secret)
        data = {file: base64.b64decode(secret.get("data", {}).get(file, "")) for file in ("tls.crt", "tls.key")}
        mounted = {file: path.read_bytes() for file in data if (path := self._folder / file).exists()}
        if data == mounted or not all(data.values()):
            return False
        now = time.monotonic()
        self._stale_since = self._stale_since or now
        if not mounted or now >= self._stale_since + self._refresh_seconds:
            self._stale_since = 0.0
            for file, content in data.items():
                (self._folder / file).touch(mode=0o600)
                (self._folder / file).write_bytes(content)
        return bool(self._stale_since)

    def _rotate(self, secret: Object) -> None:
        """What the program's own rotator does: fills an empty Secret from a new CA, names that CA in the webhooks."""
        namespace = secret["metadata"]["namespace"]
        if not secret.get("data", {}).get("tls.crt"):
            services = self._client.list_all("v1", "Service", namespace)
            names = [f"{each['metadata']['name']}.{namespace}.svc" for each in services]
            with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
                authority = CertificateAuthority(Path(scratch), f"{self._controller.program}-ca")
                pair = authority.issue("webhook", ["127.0.0.1", *names])
                secret["data"] = {
                    "ca.crt": authority.pair.certificate_base64(),
                    "tls.crt": pair.certificate_base64(),
                    "tls.key": pair.key_base64(),
                }
            self._client.patch(secret, {"data": secret["data"]})
        for kind in WEBHOOK_KINDS:
            for each in self._client.list_all(ADMISSION, kind):
                self._trust(each, namespace, secret["data"]["ca.crt"])

    def _trust(self, configuration: Object, namespace: str, ca_bundle: str) -> None:
        clients = [hook["clientConfig"] for hook in configuration["webhooks"]]
        ours = [each for each in clients if each.get("service", {}).get("namespace") == namespace]
        if any(each.get("caBundle") != ca_bundle for each in ours):
            for each in ours:
                each["caBundle"] = ca_bundle
            self._client.patch(configuration, {"webhooks": configuration["webhooks"]})


def _mount(pod: Object, path: str) -> tuple[Object, Object]:
    """The volume mount at a path of the first container, and its volume."""
    mount = next(each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["mountPath"] == path)
    return mount, next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])


def _hosted(image: str, controller: Controller) -> HostedImage:
    def make(plane: ControlPlane, folder: Path, refresh_seconds: float) -> ChartProgram:
        return ChartProgram(controller, plane, folder, refresh_seconds)

    return HostedImage(controller.program, re.escape(image), make)


CHART_IMAGES = (
    _hosted(f"registry.k8s.io/kueue/kueue:v{KUEUE_VERSION}", Controller("kueue", _local_kueue)),
    _hosted(f"registry.k8s.io/lws/lws:v{LWS_VERSION}", Controller("lws", _local_lws)),
    _hosted(
        f"registry.k8s.io/jobset/jobset:v{JOBSET_VERSION}", Controller("jobset", _local_jobset, own_certificate=True)
    ),
)
