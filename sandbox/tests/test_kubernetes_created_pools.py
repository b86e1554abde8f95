"""Node pool auto-creation with a real control plane, JobSet's real controller and the emulated cloud behind both."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.google.auto_pools import AutoPools
from sandbox.google.backend import ClusterRef
from sandbox.google.container import autoscale
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.backend import KubernetesBackend
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.kubernetes.nodes import POOL_LABEL
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.tests.emulated_google import (
    ACCOUNT,
    ACCOUNTS,
    CLUSTERS,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Cloud,
    cluster,
    connected,
    eventually,
)
from sandbox.tests.kubernetes_support import EVERY_CHART, JOBSET_CHART, UNTIL_TOLD, end
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION

pytestmark = pytest.mark.sandbox

REF = ClusterRef(PROJECT, REGION, "tpu")
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
COMPUTE_CLASS = "cloud.google.com/compute-class"
MACHINE = "ct6e-standard-4t"
TPU = {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}
SPOT = {"tpu": TPU, "spot": True, "location": {"zones": [ZONE]}}
FLEX = {"tpu": TPU, "flexStart": {"enabled": True}, "maxRunDurationSeconds": 3600}


class World:
    """The emulated cloud and its one cluster, which has a system pool and JobSet."""

    def __init__(self, cloud: Cloud, client: ApiClient) -> None:
        self.cloud, self.client = cloud, client

    def created(self) -> dict[str, Any]:
        """Node pools by name, without the system pool."""
        pools = self.cloud.ok("GET", POOLS)["nodePools"]
        return {each["name"]: each for each in pools if each["name"] != "system"}

    def nodes(self, pool: str) -> set[str]:
        found = self.client.list_all("v1", "Node", labelSelector=f"{POOL_LABEL}={pool}")
        return {each["metadata"]["name"] for each in found}

    def running(self, jobset: str) -> list[Object]:
        selector = f"jobset.sigs.k8s.io/jobset-name={jobset}"
        pods = self.client.list_all("v1", "Pod", "default", labelSelector=selector)
        return [each for each in pods if each["status"].get("phase") == "Running"]

    def completed(self, jobset: str) -> bool:
        return is_true(self.client.get(JOBSET_API, "JobSet", jobset, "default") or {}, "Completed")

    def messages(self, pod: str) -> list[str]:
        events = self.client.list_all("v1", "Event", "default", fieldSelector=f"involvedObject.name={pod}")
        return [each["message"] for each in events if each["source"].get("component") == "cluster-autoscaler"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        backend = KubernetesBackend(Path(scratch), idle_seconds=3)
        try:
            with connected(backend=backend) as cloud:
                emulated = cloud.emulator.world
                backend.resize_pool = lambda ref, pool, nodes: autoscale(
                    emulated, f"{ref.path}/nodePools/{pool}", nodes
                )
                backend.node_pools = lambda ref: AutoPools(emulated, ref)
                make_cluster(cloud)
                plane = backend.cluster(REF).plane
                registry = ChartRegistry(plane.authority, EVERY_CHART)
                try:
                    helm = Helm(plane.kubeconfig_path, registry.variables(plane.authority.pair.certificate))
                    plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "jobset-system"}})
                    helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}))
                    emulated.operations.time_scale = 100  # from here on a pool takes its second and a half
                    yield World(cloud, plane.client)
                finally:
                    registry.stop()
        finally:
            backend.close()


def make_cluster(cloud: Cloud) -> None:
    cloud.offer("v6e")
    cloud.ok("POST", ACCOUNTS, {"accountId": "tpu-nodes"})
    cloud.make_network()
    system = {"name": "system", "initialNodeCount": 1, "config": {"machineType": "e2-standard-8"}}
    wanted = cluster(nodePools=[{**system, "management": {"autoUpgrade": True, "autoRepair": True}}])
    del wanted["initialNodeCount"]
    cloud.ok("POST", CLUSTERS, {"cluster": wanted})
    eventually(lambda: bool(cloud.ok("GET", f"{CLUSTERS}/tpu")["status"] == "RUNNING"), 120)


def compute_class(name: str, *priorities: Object) -> Object:
    config = {"serviceAccount": ACCOUNT, "nodeLabels": {"slice": name}}
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": name},
        "spec": {
            "nodePoolAutoCreation": {"enabled": True},
            "whenUnsatisfiable": "DoNotScaleUp",
            "nodePoolConfig": config,
            "priorities": list(priorities),
        },
    }


def pod_spec(class_name: str, **selector: str) -> Object:
    container = {"name": "jax", "image": "jax", "resources": {"limits": {"google.com/tpu": "4"}}}
    selectors = {COMPUTE_CLASS: class_name, **selector}
    return {"restartPolicy": "Never", "nodeSelector": selectors, "containers": [container]}


def jobset(name: str, class_name: str, slices: int) -> Object:
    """Jobs of four hosts, each with a node pool to itself; they run until the test ends them."""
    template = {"metadata": {"annotations": {RUN_FOR: f"{UNTIL_TOLD}s"}}, "spec": pod_spec(class_name)}
    job = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 0, "template": template}
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": POOL_LABEL}
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default", "annotations": exclusive},
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": job}}]},
    }


def test_two_slices_of_a_jobset_get_two_pools_which_go_when_they_are_done(world: World) -> None:
    world.client.apply(compute_class("train", SPOT))
    world.client.apply(jobset("both", "train", 2))
    eventually(lambda: len(world.running("both")) == 8)
    pools = world.created()
    assert len(pools) == 2
    assert all(each["autoscaling"]["autoprovisioned"] and each["config"]["spot"] for each in pools.values())
    jobs: dict[str, set[str]] = {}
    for pod in world.running("both"):
        job = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        jobs.setdefault(job, set()).add(pod["spec"]["nodeName"])
    assert sorted(map(sorted, jobs.values())) == sorted(sorted(world.nodes(pool)) for pool in pools)
    end(world.client, world.running("both"))
    eventually(lambda: world.completed("both"))
    eventually(lambda: not world.created())
    assert not [node for pool in pools for node in world.nodes(pool)]


def test_a_stockout_of_the_first_choice_leads_to_the_second(world: World) -> None:
    stock = {"zone": ZONE, "machine_type": MACHINE, "model": "spot"}
    world.cloud.control("stock", {**stock, "machines": 0})
    world.client.apply(compute_class("serve", SPOT, FLEX))
    world.client.apply(jobset("fallback", "serve", 1))
    eventually(lambda: len(world.running("fallback")) == 4)
    world.cloud.control("stock", {**stock, "machines": None})
    leader = next(
        each["metadata"]["name"]
        for each in world.running("fallback")
        if each["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
    )
    eventually(lambda: [each["config"].get("flexStart") for each in world.created().values()] == [True])
    eventually(lambda: any("failed: GCE out of resources" in each for each in world.messages(leader)))
    scaled = "pod triggered scale-up: [{nap-ct6e-standa-4t-"
    eventually(lambda: any(each.startswith(scaled) for each in world.messages(leader)))
    end(world.client, world.running("fallback"))
    eventually(lambda: not world.created())


def test_a_pod_against_its_class_stays_pending_and_is_told_why(world: World) -> None:
    world.client.apply(compute_class("train", SPOT))
    metadata = {"name": "wrong", "namespace": "default"}
    spec = pod_spec("train", **{"cloud.google.com/gke-tpu-topology": "8x8"})
    world.client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    eventually(lambda: bool(world.messages("wrong")))
    assert world.messages("wrong") == [
        "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector"
        " (cloud.google.com/gke-tpu-topology=8x8)"
    ]
    assert world.created() == {}
    world.client.delete({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


REFUSED: dict[str, tuple[Object, str]] = {
    "name of GKE's own": (compute_class("gke-train", SPOT), "name must not begin with gke or autopilot"),
    "half a TPU": (compute_class("x", {"tpu": {"type": "tpu-v6e-slice", "count": 4}}), "tpu requires type, count and"),
    "spot and flex-start": (compute_class("x", {**SPOT, **FLEX}), "Flex Start provisioning model is incompatible"),
    "any reservation": (
        compute_class("x", {"tpu": TPU, "reservations": {"affinity": "AnyBestEffort"}}),
        "AnyBestEffort is not supported with TPUs",
    ),
    "no reservation named": (
        compute_class("x", {"tpu": TPU, "reservations": {"affinity": "Specific"}}),
        "At least 1 specific reservation required",
    ),
    "location of a reservation": (
        compute_class("x", {**SPOT, "reservations": {"affinity": "Specific", "specific": [{"name": "r"}]}}),
        "location cannot be set together with specific reservations",
    ),
    "wait without a queue": (
        compute_class("x", {"machineType": "n2-standard-8", "capacityCheckWaitTimeSeconds": 60}),
        "capacityCheckWaitTimeSeconds is only supported for Flex Start and for multi-host TPUs",
    ),
    "pods per node": (compute_class("x", {**SPOT, "maxPodsPerNode": 7}), "should be greater than or equal to 8"),
    "pools and more": (compute_class("x", {**SPOT, "nodepools": ["a"]}), "Nodepool field cannot be set along with"),
    "unknown field": (compute_class("x", {**SPOT, "flexstart": True}), "flexstart: field not declared in schema"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_class_that_breaks_a_rule_is_refused(world: World, case: str) -> None:
    wrong, message = REFUSED[case]
    with pytest.raises(ApiError, match=message):
        world.client.apply(wrong, dry_run=True)
