"""What the stand-in for TPU Provisioner does when things fail, call by call: rights, throttling, shortage, old pools.

It calls https://container.googleapis.com through the front, with tokens of the metadata server. There is no control
plane; what the cluster holds is in memory.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from sandbox.google.workload_identity import WorkloadIdentity
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.google_front import GoogleFront
from sandbox.kubernetes.metadata_server import MetadataServer, Workload
from sandbox.tests.emulated_google import ACCOUNT, POOLS, PROJECT, REGION, ZONE, Cloud, connected, eventually
from sandbox.tests.provisioner_support import EMAIL, NAME, NAMESPACE, REF, grant, make_project, pools
from sandbox.tpu_provisioner import node_pool
from sandbox.tpu_provisioner.cluster import Informer, Recorder
from sandbox.tpu_provisioner.controllers import (
    COMPLETION_INDEX,
    DISABLED,
    Creation,
    GarbageCollection,
    JobSets,
    wants_pool,
)
from sandbox.tpu_provisioner.google import CallError, ContainerApi, Metadata
from sandbox.tpu_provisioner.node_pool import HASH, JOB_KEY, JOBSET_NAME
from sandbox.tpu_provisioner.provider import DuplicateError, Provider
from sandbox.tpu_provisioner.settings import Settings
from sandbox.tpu_provisioner.work_queue import RequeueError, WorkQueue

POOL = "train-01234"


class EndedError(Exception):
    """The process would have ended."""


@dataclass
class Played:
    """The cluster's API server: JobSets and Nodes in memory, events as they are written."""

    objects: dict[str, list[Object]] = field(default_factory=lambda: {"JobSet": [], "Node": [], "Pod": []})
    events: list[Object] = field(default_factory=list)

    def path(self, api_version: str, kind: str) -> str:
        return kind

    def request(self, method: str, path: str, **query: str) -> Object:
        return {"items": self.objects[path], "metadata": {"resourceVersion": "1"}}

    def watch(self, *arguments: object, **query: str) -> Iterator[tuple[str, Object]]:
        threading.Event().wait(60)
        return iter(())

    def create(self, event: Object, manager: str) -> None:
        self.events.append(event)


@dataclass
class Scene:
    """An emulated project, and the controller's calls to it."""

    cloud: Cloud
    cluster: Played
    provider: Provider

    @property
    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.cluster.events]

    @property
    def said(self) -> str:
        """The newest event."""
        return str(self.cluster.events[-1]["message"])

    def ensure(self, **changes: Any) -> None:
        self.provider.ensure_for_pod(pod(**changes), "pod is currently unschedulable")


@pytest.fixture
def front() -> Iterator[tuple[Cloud, GoogleFront]]:
    with connected() as cloud:
        make_project(cloud)
        made = GoogleFront(lambda: cloud.emulator.url)
        yield cloud, made
        made.stop()


@pytest.fixture
def scene(front: tuple[Cloud, GoogleFront], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scene]:
    """Every permission is granted."""
    cloud, google = front
    grant(cloud)
    identity = WorkloadIdentity(cloud.emulator.world, cloud.emulator.url)
    metadata = MetadataServer(Workload(REF, ZONE, NAMESPACE, NAME), lambda: identity, lambda: EMAIL)
    trust = tmp_path / "google.crt"
    trust.write_text(google.authority)
    monkeypatch.setenv("HTTPS_PROXY", google.url)
    monkeypatch.setenv("SSL_CERT_FILE", str(trust))
    settings = Settings(PROJECT, "tpu", REGION, ZONE, node_service_account=ACCOUNT)
    cluster = Played()

    def end(reason: str) -> None:
        raise EndedError(reason)

    api = ContainerApi(settings, Metadata(metadata.address))
    yield Scene(cloud, cluster, Provider(settings, api, Recorder(cast(ApiClient, cluster)), end))
    metadata.stop()


def pod(**changes: Any) -> Object:
    """The leader of a JobSet's job that waits for a v6e 4x4 slice."""
    metadata = {
        "name": "train-workers-0-0-abcde",
        "namespace": "team",
        "uid": "1",
        "labels": {JOBSET_NAME: "train", JOB_KEY: "0123456789", **changes.get("labels", {})},
        "annotations": {JOBSET_NAME: "train", COMPLETION_INDEX: "0", **changes.get("annotations", {})},
        "ownerReferences": [{"kind": "Job", "name": "train-workers-0", "controller": True}],
        **changes.get("metadata", {}),
    }
    selector = {node_pool.ACCELERATOR: "tpu-v6e-slice", node_pool.TOPOLOGY: "4x4", **changes.get("selector", {})}
    container = {"name": "main", "resources": {"requests": changes.get("requests", {"google.com/tpu": "4"})}}
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeSelector": {k: v for k, v in selector.items() if v}, "containers": [container]},
        "status": {"phase": "Pending", "conditions": [waiting], **changes.get("status", {})},
    }


# Which pods


def test_the_leader_of_a_waiting_job_starts_a_creation() -> None:
    assert wants_pool(pod(), "google.com/tpu")


@pytest.mark.parametrize(
    "changes",
    [
        {"annotations": {JOBSET_NAME: ""}},
        {"annotations": {COMPLETION_INDEX: "1"}},
        {"status": {"phase": "Running"}},
        {"status": {"conditions": []}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
        {"requests": {"cpu": "1"}},
        {"selector": {node_pool.TOPOLOGY: ""}},
        {"labels": {DISABLED: "true"}},
        {"annotations": {DISABLED: "true"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_other_pods_start_none(changes: dict[str, Any]) -> None:
    assert not wants_pool(pod(**changes), "google.com/tpu")


def test_five_jobs_get_their_pools_three_at_a_time(scene: Scene) -> None:
    scene.cloud.control("faults", {"kind": "slow", "method": "POST", "path": "/nodePools$", "seconds": 600, "times": 5})
    jobs = [pod(labels={JOB_KEY: f"{number}" * 10}, metadata={"name": f"leader-{number}"}) for number in range(5)]
    for each in jobs:
        each["metadata"] = {**each["metadata"], "resourceVersion": "1"}
        each["metadata"].setdefault("labels", {})
    scene.cluster.objects["Pod"] = jobs
    Creation(cast(ApiClient, scene.cluster), scene.provider, Settings()).start()
    eventually(lambda: scene.reasons.count("NodePoolCreationStarted") >= 3)
    time.sleep(0.3)
    assert scene.reasons.count("NodePoolCreationStarted") == 3
    scene.cloud.ok("DELETE", "/sandbox/faults")
    eventually(lambda: len(pools(scene.cloud)) == 5)


# Rights


def test_the_least_rights_are_enough_for_a_pools_whole_life(scene: Scene) -> None:
    scene.ensure()
    assert pools(scene.cloud) == {POOL: "RUNNING"}
    scene.provider.delete(POOL, pod(), "the test is over")
    assert pools(scene.cloud) == {}
    assert scene.reasons == [
        "NodePoolCreationStarted",
        "NodePoolCreationSucceeded",
        "NodePoolDeletionStarted",
        "NodePoolDeletionSucceeded",
    ]
    assert scene.cluster.events[0]["message"] == (
        f"Starting creation of Node Pool {POOL} (size = 4) for JobSet train because pod is currently unschedulable"
    )


def test_without_clusters_get_the_look_for_the_pool_ends_the_process(scene: Scene) -> None:
    grant(scene.cloud, "container.clusters.get")
    with pytest.raises(EndedError, match=f'getting node pool {POOL}: .*403.*"container.clusters.get"'):
        scene.ensure()


def test_without_clusters_update_the_request_for_the_pool_is_refused(scene: Scene) -> None:
    grant(scene.cloud, "container.clusters.update")
    with pytest.raises(CallError):
        scene.ensure()
    assert scene.reasons[-1] == "NodePoolCreationFailed"
    assert f"Request to create Node Pool {POOL} failed" in scene.said
    assert "container.clusters.update" in scene.said
    assert pools(scene.cloud) == {}


def test_without_operations_get_the_pool_comes_but_the_wait_for_it_fails(scene: Scene) -> None:
    grant(scene.cloud, "container.operations.get")
    with pytest.raises(CallError):
        scene.ensure()
    assert f"Operation to create Node Pool {POOL} failed: waiting for operation" in scene.said
    assert "container.operations.get" in scene.said
    assert pools(scene.cloud) == {POOL: "RUNNING"}


def test_without_act_as_on_the_node_account_the_request_for_the_pool_is_refused(scene: Scene) -> None:
    grant(scene.cloud, "iam.serviceAccounts.actAs")
    with pytest.raises(CallError):
        scene.ensure()
    assert "Request to create" in scene.said
    assert f'does not have access to service account "{ACCOUNT}"' in scene.said
    assert pools(scene.cloud) == {}


# Failures


@pytest.mark.parametrize("status", [403, 429, 503])
def test_any_refusal_of_the_look_for_a_pool_ends_the_process(scene: Scene, status: int) -> None:
    scene.cloud.control("faults", {"kind": "status", "status": status, "method": "GET", "path": "/nodePools/"})
    with pytest.raises(EndedError, match=str(status)):
        scene.ensure()


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_creation_is_announced_and_can_be_tried_again(scene: Scene, status: int) -> None:
    scene.cloud.control("faults", {"kind": "status", "status": status, "method": "POST", "path": "/nodePools$"})
    with pytest.raises(CallError):
        scene.ensure()
    assert scene.reasons == ["NodePoolCreationStarted", "NodePoolCreationFailed"]
    scene.ensure()
    assert pools(scene.cloud) == {POOL: "RUNNING"}


def test_a_creation_that_fails_later_is_announced_as_a_success_and_never_tried_again(scene: Scene) -> None:
    scene.cloud.control(
        "faults",
        {"kind": "operation", "method": "POST", "path": "/nodePools$", "code": "ZONE_RESOURCE_POOL_EXHAUSTED"},
    )
    scene.ensure()
    assert scene.reasons == ["NodePoolCreationStarted", "NodePoolCreationSucceeded"]
    assert pools(scene.cloud) == {POOL: "ERROR"}
    scene.ensure()
    assert (len(scene.cluster.events), pools(scene.cloud)) == (2, {POOL: "ERROR"})


def test_a_release_channel_refuses_every_pool(scene: Scene) -> None:
    path = POOLS.removesuffix("/nodePools")
    scene.cloud.ok("PUT", path, {"update": {"desiredReleaseChannel": {"channel": "REGULAR"}}})
    with pytest.raises(CallError, match=r"400.*Auto_upgrade must be true when release_channel"):
        scene.ensure()


def test_the_deletion_of_a_pool_that_is_gone_is_ignored(scene: Scene) -> None:
    scene.provider.delete(POOL, pod(), "it is gone")
    assert scene.reasons == ["NodePoolDeletionStarted", "NodePoolNotFound"]


# Pools that are there


def test_a_pool_for_the_same_is_taken_and_one_for_something_else_is_made_anew(scene: Scene) -> None:
    scene.ensure()
    scene.ensure()
    assert scene.reasons.count("NodePoolCreationStarted") == 1
    with pytest.raises(RequeueError):
        scene.ensure(selector={"cloud.google.com/gke-spot": "true"})
    assert pools(scene.cloud) == {}
    assert "existing node pool did not match pod" in scene.cluster.events[-2]["message"]
    scene.ensure(selector={"cloud.google.com/gke-spot": "true"})
    assert scene.cloud.ok("GET", f"{POOLS}/{POOL}")["config"]["spot"] is True


def test_a_pool_without_a_hash_counts_as_the_same(scene: Scene) -> None:
    request = node_pool.creation_request(pod(), Settings(PROJECT, "tpu", REGION, ZONE, node_service_account=ACCOUNT))
    del request["nodePool"]["config"]["labels"][HASH]
    scene.cloud.ok("POST", POOLS, request)
    scene.ensure(selector={"cloud.google.com/gke-spot": "true"})
    assert scene.reasons == []


def test_one_creation_at_a_time_for_a_job(scene: Scene) -> None:
    scene.cloud.control("faults", {"kind": "slow", "method": "POST", "path": "/nodePools$", "seconds": 600})
    first = threading.Thread(target=scene.ensure)
    first.start()
    eventually(lambda: "NodePoolCreationStarted" in scene.reasons)
    with pytest.raises(DuplicateError):
        scene.ensure()
    scene.cloud.ok("DELETE", "/sandbox/faults")
    first.join()
    assert pools(scene.cloud) == {POOL: "RUNNING"}


# Broken pools


def collect(scene: Scene) -> None:
    client = cast(ApiClient, scene.cluster)
    GarbageCollection(scene.provider, JobSets(client), Informer(client, "v1", "Node")).step()


def test_a_broken_pool_goes_with_its_jobset(scene: Scene) -> None:
    scene.cloud.control(
        "faults", {"kind": "operation", "method": "POST", "path": "/nodePools$", "code": "QUOTA_EXCEEDED"}
    )
    scene.ensure()
    scene.cluster.objects["JobSet"] = [{"metadata": {"name": "train", "namespace": "team", "resourceVersion": "1"}}]
    collect(scene)
    assert pools(scene.cloud) == {POOL: "ERROR"}
    scene.cluster.objects["JobSet"] = []
    labels = {node_pool.POOL_LABEL: POOL}
    scene.cluster.objects["Node"] = [{"metadata": {"name": "host", "labels": labels, "resourceVersion": "1"}}]
    collect(scene)
    assert pools(scene.cloud) == {POOL: "ERROR"}
    scene.cluster.objects["Node"] = []
    collect(scene)
    assert pools(scene.cloud) == {}


def test_a_sound_pool_without_nodes_stays(scene: Scene) -> None:
    scene.ensure()
    collect(scene)
    assert pools(scene.cloud) == {POOL: "RUNNING"}


# The queue


def test_three_at_a_time_and_no_key_twice_at_once() -> None:
    busy: list[str] = []
    most: list[int] = []
    done: list[str] = []
    twice: list[str] = []
    go_on = threading.Event()

    def reconcile(key: str) -> None:
        twice.extend(each for each in busy if each == key)
        busy.append(key)
        most.append(len(busy))
        go_on.wait()
        busy.remove(key)
        done.append(key)

    queue = WorkQueue("test", 3, reconcile)
    for key in "abcdeab":
        queue.add(key)
    queue.start()
    eventually(lambda: len(busy) == 3)
    time.sleep(0.05)  # a fourth would come now
    go_on.set()
    eventually(lambda: len(done) == 5)
    queue.add("a")
    queue.add("a")
    eventually(lambda: len(done) == 6)
    assert (max(most), twice) == (3, [])


def test_a_key_that_changes_in_hand_comes_again_afterwards() -> None:
    started, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def reconcile(key: str) -> None:
        seen.append(key)
        started.set()
        go_on.wait()

    queue = WorkQueue("test", 3, reconcile)
    queue.start()
    queue.add("a")
    started.wait()
    queue.add("a")
    time.sleep(0.05)
    assert seen == ["a"]
    go_on.set()
    eventually(lambda: seen == ["a", "a"])


def test_failures_and_wishes_come_back() -> None:
    seen: list[float] = []

    def reconcile(key: str) -> float | None:
        seen.append(time.monotonic())
        if len(seen) < 3:
            raise CallError(503, "later")
        return 0.1 if len(seen) == 3 else None

    queue = WorkQueue("test", 1, reconcile)
    queue.start()
    queue.add("a")
    eventually(lambda: len(seen) == 4)
    assert seen[3] - seen[2] >= 0.1


# The front


def test_the_front_is_google_to_those_who_trust_it_and_nobody_else(front: tuple[Cloud, GoogleFront]) -> None:
    _, google = front
    address = f"https://container.googleapis.com/v1beta1/projects/{PROJECT}/locations/{REGION}/clusters"
    trust = ssl.create_default_context(cadata=google.authority)
    with httpx.Client(proxy=google.url, verify=trust, trust_env=False) as client:
        anonymous = client.get(address)
        assert (anonymous.status_code, anonymous.json()["error"]["status"]) == (401, "UNAUTHENTICATED")
        headers = {"Authorization": "Bearer deployer"}
        assert [each["name"] for each in client.get(address, headers=headers).json()["clusters"]] == ["tpu"]
        with pytest.raises(httpx.ProxyError, match="502"):
            client.get("https://compute.googleapis.com/")
    with httpx.Client(proxy=google.url, trust_env=False) as client, pytest.raises(httpx.ConnectError):
        client.get(address)
    assert google.url.startswith("http://127.0.0.1:")
