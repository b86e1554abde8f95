"""Runs controllers as local processes for the pods of their Deployments.

A stand-in for the kubelet, for pods with a container whose image is hosted: it starts the program (`chart_programs`,
`plain_programs`), reports the pod Ready when the program's readiness endpoint says so, and shows the end of its log
when it has ended. It restarts a program that has ended or does not answer its liveness probe, with growing pauses. As
with a real rollout, the old pods' process serves until the new pods are ready.

It differs from a kubelet in this: one process stands for all replicas of a pod template and leader election is off;
containers beside the hosted one are shown as running; pauses between restarts are shorter.
"""

from __future__ import annotations

import datetime
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.chart_programs import CHART_IMAGES
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.hosting import ContainerError, HostedImage, HostedProgram, hosted_container, image_named
from sandbox.kubernetes.supervisor import Process, http_ok

_LOG = logging.getLogger(__name__)
FIRST_BACK_OFF, LONGEST_BACK_OFF = 1.0, 10.0  # seconds between restarts of a crashing program
LIVENESS_SECONDS = 1.0  # between two looks at a program that lives
STEADY_SECONDS = 60.0  # a program that has run so long is restarted at once when it ends
_LOG_LINES = 3  # of a program that has ended, on its pod


@dataclass
class _Hosted:
    """The local process behind the pods of one pod template."""

    image: HostedImage
    folder: Path
    program: HostedProgram
    process: Process | None = None
    pods: list[Object] = field(default_factory=list)
    ready: bool = False
    problem: ContainerError | None = None  # why it cannot be started
    started_at: float = 0.0
    alive_at: float = 0.0  # when it was started, or last answered its liveness probe
    back_off: float = 0.0
    not_before: float = 0.0
    restarts: int = 0
    last_state: Object = field(default_factory=dict)  # how it ended last
    reported: dict[str, Object] = field(default_factory=dict)  # pod uid -> what was last said of it

    @property
    def container(self) -> Object:
        return hosted_container(self.pods[0], [self.image]) or {}

    @property
    def crashed(self) -> bool:
        return self.process is not None and not self.process.running

    def check(self) -> None:
        """Asks the process whether it is ready, and ends it where it has not been alive for too long."""
        running = self.process is not None and not self.crashed
        self.ready = running and ("readinessProbe" not in self.container or self._answers("readinessProbe"))
        if running and time.monotonic() - self.started_at > STEADY_SECONDS:
            self.back_off = 0.0
        if running and "livenessProbe" in self.container:
            self._check_alive()

    def _check_alive(self) -> None:
        now = time.monotonic()
        if now - self.alive_at < LIVENESS_SECONDS:
            return
        if self._answers("livenessProbe"):
            self.alive_at = now
            return
        probe = self.container["livenessProbe"]
        patience = probe.get("initialDelaySeconds", 0) + probe["periodSeconds"] * probe["failureThreshold"]
        if self.process and now - self.alive_at > patience:
            self.process.stop()

    def _answers(self, probe: str) -> bool:
        path = self.container[probe]["httpGet"]["path"]
        return http_ok(f"http://127.0.0.1:{self.program.health_port}{path}")()

    def state(self) -> Object:
        """The container's status as far as it can change."""
        if self.problem:
            waiting = {"reason": self.problem.reason, "message": str(self.problem)}
            return {"ready": False, "started": False, "restartCount": self.restarts, "state": {"waiting": waiting}}
        found: Object = {"ready": self.ready, "restartCount": self.restarts, "state": {"running": {}}}
        if self.process and self.crashed:
            end, code = self.process.tail(_LOG_LINES), self.process.popen.returncode
            # A shell's way to say which signal ended a program, which a kubelet shares.
            ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error", "message": end}
            found["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": end}}
            self.last_state = {"terminated": ended}
        return {**found, "lastState": self.last_state} if self.last_state else found


# Namespace, image and template hash of pods that share a process: an upgrade's new pods get one beside the old.
_Key = tuple[str, str, str]


class ControllerHost:
    """Hosts controllers for one control plane; `step` is to be called at least every few seconds.

    A program sees a changed Secret `refresh_seconds` later, as a kubelet takes its time to refresh mounts. An upgrade
    of the JobSet chart empties its certificate Secret: for that long its webhooks are not trusted, as in real life.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        refresh_seconds: float,
        images: Sequence[HostedImage] = CHART_IMAGES,
    ) -> None:
        self._plane = control_plane
        self._refresh_seconds = refresh_seconds
        self._images = images
        self._client: ApiClient = control_plane.client
        self._hosted: dict[_Key, _Hosted] = {}

    def step(self) -> bool:
        """One look at the pods: starts, restarts and stops processes, and reports on pods.

        True while one of them is about to change: to become ready, to be started again, to see a new Secret.
        """
        found: dict[_Key, list[Object]] = {}
        for pod in self._client.list_all("v1", "Pod"):
            container = hosted_container(pod, self._images)
            if container and pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                metadata = pod["metadata"]
                template = metadata.get("labels", {}).get("pod-template-hash", metadata["name"])
                found.setdefault((metadata["namespace"], container["image"], template), []).append(pod)
        for key in self._hosted.keys() - found.keys():
            self._drop(key)
        changing = [key for key, pods in found.items() if self._try(key, pods)]
        return bool(changing)

    def stop(self) -> None:
        """Stops all controllers; call after the last `step`."""
        for key in list(self._hosted):
            self._drop(key)

    def find_port(self, service: Object, port: Object) -> int | None:
        """The local port behind a Service port; None when no hosted pod is selected or the port is not served here."""
        selector = (service["spec"].get("selector") or {}).items()
        namespace = service["metadata"]["namespace"]
        behind = [
            hosted
            for key, hosted in list(self._hosted.items())
            if key[0] == namespace and selector and selector <= hosted.pods[0]["metadata"].get("labels", {}).items()
        ]
        for hosted in sorted(behind, key=lambda each: not each.ready):
            return hosted.program.local_port(_container_port(hosted.pods[0], port))
        return None

    def _drop(self, key: _Key) -> None:
        hosted = self._hosted.pop(key)
        if hosted.process:
            self._plane.supervisor.stop(hosted.process)
        hosted.program.close()
        shutil.rmtree(hosted.folder)

    def _try(self, key: _Key, pods: list[Object]) -> bool:
        try:
            return self._run(key, pods)
        except ApiError as error:  # a mounted object may not exist yet
            _LOG.info("%s: %s", key[1], error)
            return True

    def _run(self, key: _Key, pods: list[Object]) -> bool:
        if key not in self._hosted:
            self._hosted[key] = self._new(key, pods)
        hosted = self._hosted[key]
        hosted.pods = pods
        stale = hosted.program.refresh(pods[0])
        if not hosted.process:
            self._start(hosted)
        elif hosted.crashed:
            self._restart_later(hosted)
        hosted.check()
        self._report(hosted)
        return stale or not hosted.ready

    def _new(self, key: _Key, pods: list[Object]) -> _Hosted:
        image = image_named(self._images, key[1])
        assert image
        folder = self._plane.run_dir / "controllers" / f"{image.name}-{key[2]}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _Hosted(image, folder, image.make(self._plane, folder, self._refresh_seconds), pods=pods)

    def _start(self, hosted: _Hosted) -> None:
        try:
            command = hosted.program.command(hosted.pods[0])
        except ContainerError as error:
            hosted.problem = error
            return
        hosted.problem = None
        hosted.started_at = hosted.alive_at = time.monotonic()
        hosted.process = self._plane.supervisor.start(
            hosted.folder.name, command.program, command.arguments, command.environment
        )

    def _restart_later(self, hosted: _Hosted) -> None:
        now = time.monotonic()
        if not hosted.not_before:
            hosted.back_off = min(max(hosted.back_off * 2, FIRST_BACK_OFF), LONGEST_BACK_OFF)
            hosted.not_before = now + hosted.back_off
        elif now >= hosted.not_before and hosted.process:
            self._plane.supervisor.stop(hosted.process)
            hosted.process = None
            hosted.not_before = 0.0
            hosted.restarts += 1
            self._start(hosted)

    def _report(self, hosted: _Hosted) -> None:
        """Writes pod statuses where there is news."""
        news = hosted.state()
        for pod in hosted.pods:
            uid = pod["metadata"]["uid"]
            if hosted.reported.get(uid) != news:
                status = _pod_status(pod, hosted.container, news)
                self._client.patch(pod, {"status": status}, "strategic", subresource="status")
                hosted.reported[uid] = news


def _container_port(pod: Object, service_port: Object) -> int:
    target: str | int = service_port.get("targetPort") or service_port["port"]
    ports = [port for each in pod["spec"]["containers"] for port in each.get("ports", [])]
    named = {port["name"]: int(port["containerPort"]) for port in ports if "name" in port}
    return named.get(target, 0) if isinstance(target, str) else target


def _pod_status(pod: Object, hosted: Object, of_hosted: Object) -> Object:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = of_hosted["ready"]
    conditions = {"Initialized": True, "Ready": ready, "ContainersReady": ready}
    beside: Object = {"ready": True, "restartCount": 0, "state": {"running": {}}}
    statuses = []
    for each in pod["spec"]["containers"]:
        own = of_hosted if each["name"] == hosted["name"] else beside
        named = {"name": each["name"], "image": each["image"], "imageID": each["image"], "started": own["ready"]}
        statuses.append({**named, **own})
    never_ran = "lastState" not in of_hosted and not of_hosted["restartCount"] and "waiting" in of_hosted["state"]
    return {
        "phase": "Pending" if never_ran else "Running",
        "startTime": pod["status"].get("startTime", now),
        "conditions": [
            {"type": kind, "status": str(value), "lastTransitionTime": now} for kind, value in conditions.items()
        ],
        "containerStatuses": statuses,
    }
