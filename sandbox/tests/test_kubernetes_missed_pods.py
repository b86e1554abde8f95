"""Pods that are bound to a brand-new Node run, also those that kwok passes over."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.changes import Changes
from sandbox.kubernetes.cluster import RunningCluster
from sandbox.kubernetes.control_plane import FAKE_NODE, RUN_FOR, ControlPlane
from sandbox.kubernetes.missed_pods import LATE_SECONDS, PATIENCE_SECONDS, MissedPods

NODES = 60
RUN_SECONDS = 180.0
HOSTED = "registry.example/controller:v1"
KWOK_NODE: Object = {"metadata": {"name": "host", "annotations": dict(FAKE_NODE)}}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="plane-") as folder:
        plane = ControlPlane(Path(folder))
        running = RunningCluster(plane, Changes(plane.client))
        running.start([])
        yield plane
        running.stop()


@pytest.mark.sandbox
def test_pods_bound_at_once_to_new_nodes_all_run(plane: ControlPlane) -> None:
    """kwok alone left 2 of 28 such pods Pending until they changed: a host's chip or job was then never seen."""
    client = plane.client
    for index in range(NODES):
        client.create(_node(f"host-{index}"))
        client.create(_bound(f"pod-{index}", f"host-{index}"))
    deadline = time.monotonic() + RUN_SECONDS
    while pending := [each for each in client.list_all("v1", "Pod") if each["status"]["phase"] != "Running"]:
        assert time.monotonic() < deadline, f"never started: {[each['metadata']['name'] for each in pending]}"
        time.sleep(0.2)


def _node(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": dict(FAKE_NODE)}}


def _bound(name: str, node: str) -> Object:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
    spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Played:
    """An API client with one Node and one pod in memory; notes which pods are patched."""

    def __init__(self, pod: Object, node: Object = KWOK_NODE) -> None:
        self.objects = {"Node": [node], "Pod": [pod]}
        self.patched: list[str] = []

    def list_all(self, api_version: str, kind: str) -> list[Object]:
        assert api_version == "v1"
        return self.objects[kind]

    def patch(self, pod: Object, change: Object) -> None:
        assert set(change["metadata"]) == {"annotations"}
        self.patched.append(pod["metadata"]["name"])


def shown_after(seconds: float, pod: Object, node: Object = KWOK_NODE) -> bool:
    """Whether a pod that stands unchanged for so long is shown to kwok again."""
    client, now = Played(pod, node), [0.0]
    watch = MissedPods(cast(ApiClient, client), (re.escape(HOSTED),), lambda: now[0])
    watch.step()
    assert not client.patched, "kwok is given time to act by itself"
    now[0] = seconds
    watch.step()
    return bool(client.patched)


def pod(image: str = "image", phase: str = "Pending", node: str | None = "host", **metadata: object) -> Object:
    spec: Object = {"containers": [{"name": "main", "image": image}], **({"nodeName": node} if node else {})}
    named = {"name": "pod", "namespace": "default", "uid": "1", "resourceVersion": "7", **metadata}
    return {"metadata": named, "spec": spec, "status": {"phase": phase}}


LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("overlooked", "pod"),
    [
        pytest.param(True, pod(), id="pending"),
        pytest.param(True, pod(phase="Running", **LEAVING, deletionGracePeriodSeconds=30), id="leaving"),
        pytest.param(False, pod(phase="Running", **LEAVING, deletionGracePeriodSeconds=0), id="held by a finalizer"),
        pytest.param(False, pod(phase="Running"), id="running"),
        pytest.param(False, pod(image=HOSTED), id="started by somebody else"),
        pytest.param(False, pod(node=None), id="not bound"),
    ],
)
def test_only_pods_that_kwok_should_have_acted_on_are_shown_again(overlooked: bool, pod: Object) -> None:
    assert shown_after(PATIENCE_SECONDS, pod) is overlooked


def of_job(phase: str, owner: str = "Job") -> Object:
    return pod(phase=phase, ownerReferences=[{"kind": owner}], annotations={RUN_FOR: "30s"})


@pytest.mark.parametrize(
    ("overlooked", "seconds", "pod"),
    [
        pytest.param(False, 30.0, of_job("Running"), id="its time is just over"),
        pytest.param(True, 30.0 + LATE_SECONDS, of_job("Running"), id="it should have ended"),
        pytest.param(False, 1e6, of_job("Succeeded"), id="ended"),
        pytest.param(False, 1e6, of_job("Running", "ReplicaSet"), id="of no job"),
    ],
)
def test_a_pod_of_a_job_that_runs_on_is_shown_again(overlooked: bool, seconds: float, pod: Object) -> None:
    """`make demo STACK=recipe` on a busy machine: two of four pods ran for ever, since a lease had ended meanwhile."""
    assert shown_after(seconds, pod) is overlooked


def test_a_pod_on_a_node_that_kwok_does_not_play_is_left_alone() -> None:
    assert not shown_after(PATIENCE_SECONDS, pod(), {"metadata": {"name": "host"}})


def test_a_pod_that_changes_is_not_overlooked() -> None:
    assert not shown_after(PATIENCE_SECONDS / 2, pod())
