"""Volumes of the FUSE driver on played hosts: a pod stays ContainerCreating, with the driver's event, until it may.

On these hosts no container runs and nothing is mounted: what is left of the driver are its checks. kwok leaves a pod
alone as long as it has the annotation HELD.
"""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import FAKE_NODE, HELD
from sandbox.kubernetes.fuse import FuseDriver, MountError, volumes

AGAIN_SECONDS = 2.0  # a kubelet waits from half a second to two minutes


class PlayedMounts:
    """Looks after the held pods of one cluster."""

    def __init__(self, driver: FuseDriver) -> None:
        self._driver = driver
        self._client: ApiClient = driver.client
        self._not_before: dict[str, float] = {}  # uid of a pod -> when to try again

    def step(self) -> bool:
        """True while pods are held."""
        pods = [each for each in self._client.list_all("v1", "Pod") if _is_held(each)]
        if not pods:
            return False
        nodes = {each["metadata"]["name"] for each in self._client.list_all("v1", "Node") if _is_fake(each)}
        now = time.monotonic()
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if pod["spec"].get("nodeName") in nodes and now >= self._not_before.get(uid, 0):
                self._not_before[uid] = now + AGAIN_SECONDS
                self._try(pod)
        return True

    def _try(self, pod: Object) -> None:
        for _, volume in volumes(self._client, pod, pod["metadata"]["namespace"]):
            try:
                self._driver.check(pod, volume)
            except MountError as error:
                text = f'MountVolume.SetUp failed for volume "{volume.name}" : rpc error: code = {error.code} desc = '
                self._refuse(pod, text + str(error))
                return
        self._client.patch(pod, {"metadata": {"annotations": {HELD: None}}})

    def _refuse(self, pod: Object, message: str) -> None:
        """What a kubelet shows: containers that are being created, and an event."""
        metadata = pod["metadata"]
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        statuses = [
            {"name": each["name"], "image": each["image"], "imageID": "", "ready": False, "restartCount": 0}
            | {"state": waiting, "started": False}
            for each in pod["spec"]["containers"]
        ]
        path = self._client.path("v1", "Pod", metadata["name"], metadata["namespace"])
        status = {"status": {"containerStatuses": statuses}}
        self._client.request("PATCH", f"{path}/status", status, "application/merge-patch+json")
        self._event(pod, message)

    def _event(self, pod: Object, message: str) -> None:
        metadata = pod["metadata"]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        key = hashlib.sha256(message.encode()).hexdigest()[:16]
        name = f"{metadata['name']}.{key}"
        known = self._client.get("v1", "Event", name, metadata["namespace"])
        if known:
            self._client.patch(known, {"count": known.get("count", 1) + 1, "lastTimestamp": now})
            return
        involved = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "namespace": metadata["namespace"]}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": {**involved, "uid": metadata["uid"]},
            "type": "Warning",
            "reason": "FailedMount",
            "message": message,
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._client.create(event, "kubelet")


def _is_held(pod: Object) -> bool:
    pending = pod["status"].get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"]
    return pending and HELD in (pod["metadata"].get("annotations") or {})


def _is_fake(node: Object) -> bool:
    annotations: dict[str, str] = node["metadata"].get("annotations") or {}
    return annotations.items() >= FAKE_NODE.items()
