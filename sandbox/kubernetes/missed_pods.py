"""Shows kwok again the pods that it has overlooked.

kwok 0.8.0 lists a new Node's pods once, as soon as it has created the Node's lease, and passes over every pod whose
Node's lease its own cache does not show yet (`PodController.readOnly`, `NodeLeaseController.Held`). Such a pod is never
looked at again unless it changes: it stays Pending, and so does what waits for it. It hits pods that are bound at once
to a brand-new Node, as those of a DaemonSet are. A kubelet has no such gap. Remedy: a pod on which kwok should have
acted, and which has stood unchanged for a second, gets an annotation; kwok sees every change.

On a machine with too much to do a lease also ends in between, and kwok passes over it when a Job's pod starts:
it would run for ever. Such a pod is shown again some seconds after its time is over, and its time begins anew.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import FAKE_NODE, HELD, RUN_FOR

PATIENCE_SECONDS = 1.0  # kwok acts within milliseconds
LATE_SECONDS = 10.0  # after the time of a Job's pod
SHOWN_AGAIN = "sandbox/shown-again"
_LOG = logging.getLogger(__name__)


class MissedPods:
    """Watches the pods on kwok's Nodes. `hosted_images`: patterns of images whose pods somebody else starts."""

    def __init__(
        self, client: ApiClient, hosted_images: tuple[str, ...], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._hosted_images = [re.compile(each) for each in hosted_images]
        self._clock = clock
        self._waiting: dict[tuple[str, str], float] = {}  # uid and resource version -> when first seen so

    def step(self) -> bool:
        """True while kwok has time left to act on a pod by itself."""
        nodes = {each["metadata"]["name"] for each in self._client.list_all("v1", "Node") if _is_fake(each)}
        pods = [each for each in self._client.list_all("v1", "Pod") if each["spec"].get("nodeName") in nodes]
        now = self._clock()
        due = {_state(each): (each, PATIENCE_SECONDS) for each in pods if self._is_due(each)}
        ending = {_state(each): (each, seconds) for each in pods if (seconds := _seconds_to_end(each)) is not None}
        self._waiting = {state: self._waiting.get(state, now) for state in (*due, *ending)}
        for state, (pod, patience) in (ending | due).items():
            if now - self._waiting[state] >= patience:
                self._show_again(pod)
        return bool(due)

    def _is_due(self, pod: Object) -> bool:
        """Whether kwok's next step for the pod is one that it takes at once: start it, or remove it."""
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            return bool(metadata.get("deletionGracePeriodSeconds") != 0)  # 0: it is removed when its finalizers are
        images = [each["image"] for each in pod["spec"]["containers"]]
        hosted = any(pattern.fullmatch(image) for pattern in self._hosted_images for image in images)
        held = HELD in metadata.get("annotations", {})
        return bool(pod["status"].get("phase") == "Pending") and not hosted and not held

    def _show_again(self, pod: Object) -> None:
        metadata = pod["metadata"]
        _LOG.warning("kwok has overlooked pod %s/%s", metadata["namespace"], metadata["name"])
        self._client.patch(pod, {"metadata": {"annotations": {SHOWN_AGAIN: metadata["resourceVersion"]}}})


def _seconds_to_end(pod: Object) -> float | None:
    """After how many seconds without a change kwok must have ended a pod; None of one that it does not end."""
    metadata = pod["metadata"]
    of_job = any(owner["kind"] == "Job" for owner in metadata.get("ownerReferences", ()))
    if not of_job or "deletionTimestamp" in metadata or pod["status"].get("phase") != "Running":
        return None
    seconds = re.fullmatch(r"([0-9.e+]+)s", metadata.get("annotations", {}).get(RUN_FOR, "1s"))
    return float(seconds[1]) + LATE_SECONDS if seconds else None


def _is_fake(node: Object) -> bool:
    annotations: dict[str, str] = node["metadata"].get("annotations", {})
    return annotations.items() >= FAKE_NODE.items()


def _state(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
