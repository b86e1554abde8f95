"""Runs the real JobSet and Kueue controllers for the pods of their Deployments.

A stand-in for the kubelet, for pods whose image is in HOSTED: it reads the ConfigMap and Secret that the pod mounts,
gets a token of its service account, runs the program built from the same release as a local process, and reports the
pod Ready when the process says so, or crashed with the end of its log. As with a real rollout, the old pods' process
serves until the new pods are ready.

It differs from a kubelet in this: one process stands for all replicas of a pod template and leader election is off;
probe and webhook addresses are local ones; the two exceptions in HOSTED.
"""

from __future__ import annotations

import base64
import copy
import datetime
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.control_plane import ControlPlane, write_kubeconfig
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.supervisor import Process, free_ports, http_ok
from sandbox.kubernetes.visibility import VisibilityStub
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION, KUEUE_VERSION

_LOG = logging.getLogger(__name__)
CONFIG_PATH = "/controller_manager_config.yaml"
CERTIFICATE_PATH = "/tmp/k8s-webhook-server/serving-certs"
WEBHOOK_PORT, VISIBILITY_PORT = 9443, 8082  # container ports of both charts
FIRST_BACK_OFF, LONGEST_BACK_OFF = 1.0, 10.0  # seconds between restarts of a crashing program
TOKEN_SECONDS = 30 * 24 * 3600
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_ADMISSION = "admissionregistration.k8s.io/v1"

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


@dataclass(frozen=True)
class HostedImage:
    """A container image whose pods run as local processes. `adapt` edits configuration and arguments in place."""

    program: str
    adapt: Callable[[Configuration, list[str]], None]
    own_certificate: bool = False  # the host, not the program, makes the webhook certificate


HOSTED = {
    f"registry.k8s.io/kueue/kueue:v{KUEUE_VERSION}": HostedImage("kueue", _local_kueue),
    f"registry.k8s.io/jobset/jobset:v{JOBSET_VERSION}": HostedImage("jobset", _local_jobset, own_certificate=True),
}


@dataclass
class _Hosted:
    """The local process behind the pods of one pod template."""

    image: HostedImage
    folder: Path
    health_port: int
    webhook_port: int
    process: Process | None = None
    pods: list[Object] = field(default_factory=list)
    ready: bool = False
    back_off: float = 0.0
    not_before: float = 0.0
    restarts: int = 0
    stale_since: float = 0.0  # when the mounted certificate was first seen to differ from the Secret
    reported: dict[str, Object] = field(default_factory=dict)  # pod uid -> what was last said of it

    @property
    def crashed(self) -> bool:
        return self.process is not None and not self.process.running

    def check(self) -> None:
        """Asks the process whether it is ready."""
        self.ready = not self.crashed and http_ok(f"http://127.0.0.1:{self.health_port}/readyz")()
        if self.ready:
            self.back_off = 0.0


# Namespace, image and template hash of pods that share a process: an upgrade's new pods get one beside the old.
_Key = tuple[str, str, str]


class ControllerHost:
    """Hosts controllers for one control plane; `step` is to be called a few times a second.

    A program sees a changed Secret `refresh_seconds` later, as a kubelet takes its time to refresh mounts. An upgrade
    of the JobSet chart empties its certificate Secret: for that long its webhooks are not trusted, as in real life.
    """

    def __init__(self, control_plane: ControlPlane, refresh_seconds: float) -> None:
        self._plane = control_plane
        self._refresh_seconds = refresh_seconds
        self._client: ApiClient = control_plane.client
        self._hosted: dict[_Key, _Hosted] = {}
        self._visibility: VisibilityStub | None = None
        self._lock = threading.Lock()

    def step(self) -> None:
        """One look at the pods: starts, restarts and stops processes, and reports on pods."""
        found: dict[_Key, list[Object]] = {}
        for pod in self._client.list_all("v1", "Pod"):
            image = _hosted_image(pod)
            if image and pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                template = pod["metadata"]["labels"].get("pod-template-hash", pod["metadata"]["name"])
                found.setdefault((pod["metadata"]["namespace"], image, template), []).append(pod)
        for key in self._hosted.keys() - found.keys():
            self._drop(key)
        for key, pods in found.items():
            try:
                self._run(key, pods)
            except ApiError as error:  # a mounted object may not exist yet
                _LOG.info("%s: %s", key[1], error)

    def stop(self) -> None:
        """Stops all controllers; call after the last `step`."""
        for key in list(self._hosted):
            self._drop(key)
        if self._visibility:
            self._visibility.stop()
            self._visibility = None

    def find_port(self, service: Object, port: Object) -> int | None:
        """The local port behind a Service port; None when no hosted pod is selected or the port is not served here."""
        selector = (service["spec"].get("selector") or {}).items()
        namespace = service["metadata"]["namespace"]
        behind = [
            hosted
            for key, hosted in list(self._hosted.items())
            if key[0] == namespace and selector and selector <= hosted.pods[0]["metadata"]["labels"].items()
        ]
        for hosted in sorted(behind, key=lambda each: not each.ready):
            return self._local_port(hosted, _container_port(hosted.pods[0], port))
        return None

    def _local_port(self, hosted: _Hosted, container_port: int) -> int | None:
        if container_port == WEBHOOK_PORT:
            return hosted.webhook_port
        if container_port == VISIBILITY_PORT:
            return self._visibility_stub().port
        return None

    def _visibility_stub(self) -> VisibilityStub:
        with self._lock:
            if not self._visibility:
                serving = self._plane.authority.issue("visibility", ["127.0.0.1", "localhost"])
                self._visibility = VisibilityStub(free_ports(1)[0], serving)
                self._visibility.start()
            return self._visibility

    def _drop(self, key: _Key) -> None:
        hosted = self._hosted.pop(key)
        if hosted.process:
            self._plane.supervisor.stop(hosted.process)
        shutil.rmtree(hosted.folder)

    def _run(self, key: _Key, pods: list[Object]) -> None:
        if key not in self._hosted:
            self._hosted[key] = self._new(key, pods)
        hosted = self._hosted[key]
        hosted.pods = pods
        self._refresh_certificate(hosted)
        if not hosted.process:
            self._start(hosted)
        elif hosted.crashed:
            self._restart_later(hosted)
        hosted.check()
        self._report(hosted)

    def _new(self, key: _Key, pods: list[Object]) -> _Hosted:
        image = HOSTED[key[1]]
        folder = self._plane.run_dir / "controllers" / f"{image.program}-{key[2]}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        health_port, webhook_port = free_ports(2)
        return _Hosted(image, folder, health_port, webhook_port, pods=pods)

    def _start(self, hosted: _Hosted) -> None:
        configuration, arguments = self._launch_plan(hosted)
        config_file = hosted.folder / "config.yaml"
        config_file.write_text(configuration)
        flags = [f"--kubeconfig={self._kubeconfig(hosted)}", f"--config={config_file}", *arguments]
        program = assets.program(hosted.image.program)
        # Stands for the public certificate authorities in the image: other clusters' endpoints are signed by one.
        trust = {"SSL_CERT_FILE": str(self._plane.authority.pair.certificate)}
        hosted.process = self._plane.supervisor.start(hosted.folder.name, program, flags, trust)

    def _restart_later(self, hosted: _Hosted) -> None:
        now = time.monotonic()
        if not hosted.not_before:
            hosted.back_off = min(max(hosted.back_off * 2, FIRST_BACK_OFF), LONGEST_BACK_OFF)
            hosted.not_before = now + hosted.back_off
        elif now >= hosted.not_before and hosted.process:
            self._plane.supervisor.stop(hosted.process)
            hosted.not_before = 0.0
            hosted.restarts += 1
            self._start(hosted)

    def _launch_plan(self, hosted: _Hosted) -> tuple[str, list[str]]:
        """Configuration text and arguments that differ from the rendered ones only where a local process must."""
        pod = hosted.pods[0]
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
        local["health"] = {"healthProbeBindAddress": f"127.0.0.1:{hosted.health_port}"}
        local["metrics"] = {"bindAddress": "0"}
        local["leaderElection"] = {"leaderElect": False}
        local["webhook"] = {"host": "127.0.0.1", "port": hosted.webhook_port, "certDir": str(hosted.folder)}
        hosted.image.adapt(local, arguments)
        return yaml.safe_dump(local), arguments

    def _mounted_file(self, pod: Object, path: str) -> str:
        mount, volume = _mount(pod, path)
        name, namespace = volume["configMap"]["name"], pod["metadata"]["namespace"]
        config_map = self._client.get("v1", "ConfigMap", name, namespace)
        if not config_map:
            raise ApiError(404, "NotFound", f'configmap "{name}" not found', {})
        text: str = config_map["data"][mount["subPath"]]
        return text

    def _refresh_certificate(self, hosted: _Hosted) -> None:
        """Keeps the program's certificate folder equal to the mounted Secret, late as a kubelet does."""
        pod = hosted.pods[0]
        name, namespace = _mount(pod, CERTIFICATE_PATH)[1]["secret"]["secretName"], pod["metadata"]["namespace"]
        secret = self._client.get("v1", "Secret", name, namespace)
        if not secret:
            raise ApiError(404, "NotFound", f'secret "{name}" not found', {})
        if hosted.image.own_certificate:
            self._rotate(hosted, secret)
        data = {file: base64.b64decode(secret.get("data", {}).get(file, "")) for file in ("tls.crt", "tls.key")}
        mounted = {file: path.read_bytes() for file in data if (path := hosted.folder / file).exists()}
        if data == mounted or not all(data.values()):
            return
        now = time.monotonic()
        hosted.stale_since = hosted.stale_since or now
        if not mounted or now >= hosted.stale_since + self._refresh_seconds:
            hosted.stale_since = 0.0
            for file, content in data.items():
                (hosted.folder / file).touch(mode=0o600)
                (hosted.folder / file).write_bytes(content)

    def _rotate(self, hosted: _Hosted, secret: Object) -> None:
        """What the program's own rotator does: fills an empty Secret from a new CA, names that CA in the webhooks."""
        namespace = secret["metadata"]["namespace"]
        if not secret.get("data", {}).get("tls.crt"):
            services = self._client.list_all("v1", "Service", namespace)
            names = [f"{each['metadata']['name']}.{namespace}.svc" for each in services]
            with tempfile.TemporaryDirectory(dir=hosted.folder) as scratch:
                authority = CertificateAuthority(Path(scratch), f"{hosted.image.program}-ca")
                pair = authority.issue("webhook", ["127.0.0.1", *names])
                secret["data"] = {
                    "ca.crt": authority.pair.certificate_base64(),
                    "tls.crt": pair.certificate_base64(),
                    "tls.key": pair.key_base64(),
                }
            self._client.patch(secret, {"data": secret["data"]})
        for kind in WEBHOOK_KINDS:
            for each in self._client.list_all(_ADMISSION, kind):
                self._trust(each, namespace, secret["data"]["ca.crt"])

    def _trust(self, configuration: Object, namespace: str, ca_bundle: str) -> None:
        clients = [hook["clientConfig"] for hook in configuration["webhooks"]]
        ours = [each for each in clients if each.get("service", {}).get("namespace") == namespace]
        if any(each.get("caBundle") != ca_bundle for each in ours):
            for each in ours:
                each["caBundle"] = ca_bundle
            self._client.patch(configuration, {"webhooks": configuration["webhooks"]})

    def _kubeconfig(self, hosted: _Hosted) -> Path:
        pod = hosted.pods[0]
        namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        path = self._client.path("v1", "ServiceAccount", account, namespace) + "/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = self._client.request("POST", path, request)["status"]["token"]
        return write_kubeconfig(hosted.folder / "kubeconfig", {"sandbox": self._plane}, token)

    def _report(self, hosted: _Hosted) -> None:
        """Writes pod statuses where there is news."""
        state: Object = {"running": {}}
        if hosted.process and hosted.crashed:
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": hosted.process.tail(3)}}
        news: Object = {"ready": hosted.ready, "restartCount": hosted.restarts, "state": state}
        for pod in hosted.pods:
            uid = pod["metadata"]["uid"]
            if hosted.reported.get(uid) != news:
                self._client.patch(pod, {"status": _pod_status(pod, news)}, "strategic", subresource="status")
                hosted.reported[uid] = news


def _hosted_image(pod: Object) -> str:
    return next((each["image"] for each in pod["spec"]["containers"] if each["image"] in HOSTED), "")


def _container_port(pod: Object, service_port: Object) -> int:
    target: str | int = service_port.get("targetPort") or service_port["port"]
    ports = [port for each in pod["spec"]["containers"] for port in each.get("ports", [])]
    named = {port["name"]: int(port["containerPort"]) for port in ports if "name" in port}
    return named.get(target, 0) if isinstance(target, str) else target


def _mount(pod: Object, path: str) -> tuple[Object, Object]:
    """The volume mount at a path of the first container, and its volume."""
    mount = next(each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["mountPath"] == path)
    return mount, next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])


def _pod_status(pod: Object, container_status: Object) -> Object:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = container_status["ready"]
    conditions = {"Initialized": True, "Ready": ready, "ContainersReady": ready}
    container = pod["spec"]["containers"][0]
    named = {"name": container["name"], "image": container["image"], "imageID": container["image"], "started": ready}
    return {
        "phase": "Running",
        "startTime": pod["status"].get("startTime", now),
        "conditions": [
            {"type": kind, "status": str(value), "lastTransitionTime": now} for kind, value in conditions.items()
        ],
        "containerStatuses": [{**named, **container_status}],
    }
