"""Node pools that the autoscaler creates for ComputeClasses, in the emulated cloud; the API server is a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from sandbox.google.auto_pools import AutoPools
from sandbox.google.backend import ClusterEndpoint, ClusterRef, NoBackend
from sandbox.google.roles import service_agent
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.auto_creation import AutoCreation
from sandbox.kubernetes.autoscaler import Autoscaler
from sandbox.kubernetes.growth import BACK_OFF_SECONDS, SETTLE_SECONDS
from sandbox.kubernetes.nodes import POOL_LABEL, NodeSpec, Pool, parse_pool, pool_nodes
from sandbox.tests.emulated_google import ACCOUNT, CLUSTERS, POOLS, PROJECT, REGION, ZONE, Cloud, connected

COMPUTE_CLASS = "cloud.google.com/compute-class"
IDLE_SECONDS = 60.0
MACHINE = "ct6e-standard-4t"
TPU = {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}
RESERVATION = {"affinity": "Specific", "specific": [{"name": "my-res", "zones": [ZONE]}]}
RESERVED = {"tpu": TPU, "reservations": RESERVATION}
SPOT = {"tpu": TPU, "spot": True, "location": {"zones": [ZONE]}}
FLEX = {"tpu": TPU, "flexStart": {"enabled": True}, "maxRunDurationSeconds": 604_800}
ON_DEMAND = {"tpu": TPU}
TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}
CONFIG = {
    "serviceAccount": ACCOUNT,
    "imageType": "cos_containerd",
    "imageStreaming": {"enabled": True},
    "gvnic": {"enabled": True},
    "ipType": "private",
    "autoRepair": True,
    "autoUpgrade": True,
    "nodeLabels": {"tpu-platform/slice": "train"},
    "taints": [TAINT],
}


class Objects(ApiClient):
    """The objects of a cluster, and its nodes as its pools are."""

    def __init__(self, nodes: Callable[[], list[NodeSpec]]) -> None:
        self.objects: list[Object] = []
        self._nodes = nodes

    def list_all(self, api_version: str, kind: str, namespace: str = "", **selectors: str) -> list[Object]:
        if kind == "Node":
            label, _, value = selectors["labelSelector"].partition("=")
            return [{"metadata": {"name": each.name}} for each in self._nodes() if each.labels[label] == value]
        return [each for each in self.objects if each["kind"] == kind]

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        return next((each for each in self.list_all("", kind) if each["metadata"]["name"] == name), None)

    def create(self, obj: Object, manager: str = "sandbox", *, dry_run: bool = False) -> Object:
        self.objects.append(obj)
        return obj


class Backend(NoBackend):
    """Knows the pools of the cluster as the emulator tells of them."""

    def __init__(self) -> None:
        super().__init__()
        self.pools: list[Pool] = []

    def create(self, ref: ClusterRef, cluster: dict[str, Any]) -> ClusterEndpoint:
        self.pools = []
        return super().create(ref, cluster)

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        self.pools = [parse_pool(each) for each in pools]


class Rig:
    """An emulated cluster and the autoscaler that looks at it, at a time that the test sets."""

    def __init__(self, cloud: Cloud, backend: Backend) -> None:
        self.cloud, self.backend = cloud, backend
        self.now = 1000.0
        self.api = Objects(self.nodes)
        pools = AutoPools(cloud.emulator.world, ClusterRef(PROJECT, REGION, "tpu"))
        creation = AutoCreation(self.api, lambda: pools, self.clock)
        self._autoscaler = Autoscaler(self.api, lambda: backend.pools, pools.resize, IDLE_SECONDS, creation, self.clock)

    def clock(self) -> float:
        return self.now

    def nodes(self) -> list[NodeSpec]:
        return [node for pool in self.backend.pools for node in pool_nodes(pool, ClusterRef(PROJECT, REGION, "tpu"))]

    def nodes_of(self, pool: str) -> int:
        return len([each for each in self.nodes() if each.labels[POOL_LABEL] == pool])

    def step(self, seconds: float = 0.5, times: int = 1) -> None:
        for _ in range(times):
            self.now += seconds
            self._autoscaler.step()

    def pools(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.cloud.ok("GET", POOLS).get("nodePools", [])}

    def only_pool(self) -> dict[str, Any]:
        (pool,) = self.pools().values()
        return pool

    def create_class(self, *priorities: Object, **spec: Any) -> Object:
        """The class "train"; one that was there before is replaced."""
        spec = {"nodePoolAutoCreation": {"enabled": True}, "nodePoolConfig": CONFIG, **spec}
        made = {"kind": "ComputeClass", "metadata": {"name": "train"}, "spec": {**spec, "priorities": [*priorities]}}
        self.api.objects = [each for each in self.api.objects if each["kind"] != "ComputeClass"]
        return self.api.create(made)

    def delete(self, *objects: Object) -> None:
        self.api.objects = [each for each in self.api.objects if each not in objects]

    def create_pod(
        self, name: str = "pod", chips: int = 4, job: str = "", selector: Mapping[str, str] = MappingProxyType({})
    ) -> Object:
        """A pod that cannot be placed and selects "train"; with a `job` as JobSet makes the first of a Job's pods."""
        exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": POOL_LABEL} if job else {}
        tolerated = {COMPUTE_CLASS: "train", "team": "a", "google.com/tpu": "present"}
        container = {"name": "jax", "image": "jax", "resources": {"limits": {"google.com/tpu": str(chips)}}}
        pod: Object = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid of {name}",
                "annotations": exclusive,
                "labels": {"jobset.sigs.k8s.io/job-key": job} if job else {},
            },
            "spec": {
                "nodeSelector": {COMPUTE_CLASS: "train", **selector},
                "tolerations": [{"key": key, "value": value} for key, value in tolerated.items()],
                "containers": [container],
            },
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        }
        return self.api.create(pod)

    def bind(self, pod: Object, pool: str) -> None:
        node = next(each.name for each in self.nodes() if each.labels[POOL_LABEL] == pool)
        pod["spec"]["nodeName"] = node
        pod["status"] = {"phase": "Running"}

    def events(self, reason: str) -> list[str]:
        events = [each for each in self.api.objects if each["kind"] == "Event"]
        return [each["message"] for each in events if each["reason"] == reason]

    def use_up(self, model: str) -> None:
        self.cloud.control("stock", {"zone": ZONE, "machine_type": MACHINE, "model": model, "machines": 0})


@pytest.fixture(scope="module")
def emulated() -> Iterator[tuple[Cloud, Backend]]:
    backend = Backend()
    with connected(backend=backend) as cloud:
        yield cloud, backend


@pytest.fixture
def rig(emulated: tuple[Cloud, Backend]) -> Rig:
    cloud, backend = emulated
    cloud.control("reset")
    cloud.make_cluster()
    cloud.offer("v5e", "v6e", "tpu7x")
    return Rig(cloud, backend)


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    return bool(whole == part)


def test_a_pending_pod_gets_a_whole_slice_with_everything_its_class_says(rig: Rig) -> None:
    rig.create_class(
        {**SPOT, "maxPodsPerNode": 15, "storage": {"bootDiskType": "hyperdisk-balanced", "bootDiskSize": 50}}
    )
    pod = rig.create_pod()
    rig.step()
    pool = rig.only_pool()
    assert rig.nodes() == []
    assert pool["name"].startswith("nap-ct6e-standa-4t-spot-")
    assert contains(
        pool,
        {
            "status": "RUNNING",
            "locations": [ZONE],
            "autoscaling": {"enabled": True, "autoprovisioned": True, "maxNodeCount": 4, "locationPolicy": "ANY"},
            "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
            "maxPodsConstraint": {"maxPodsPerNode": "15"},
            "management": {"autoRepair": True, "autoUpgrade": True},
            "networkConfig": {"enablePrivateNodes": True},
            "config": {
                "machineType": MACHINE,
                "serviceAccount": ACCOUNT,
                "imageType": "COS_CONTAINERD",
                "gcfsConfig": {"enabled": True},
                "gvnic": {"enabled": True},
                "diskType": "hyperdisk-balanced",
                "diskSizeGb": 50,
                "spot": True,
                "labels": {COMPUTE_CLASS: "train", "tpu-platform/slice": "train"},
            },
        },
    )
    taints = {(each["key"], each["value"], each["effect"]) for each in pool["config"]["taints"]}
    assert taints >= {(COMPUTE_CLASS, "train", "NO_SCHEDULE"), ("team", "a", "NO_SCHEDULE")}
    rig.step()
    assert rig.nodes_of(pool["name"]) == 4
    assert rig.events("TriggeredScaleUp") == [f"pod triggered scale-up: [{{{pool['name']} 0->4 (max: 4)}}]"]
    rig.bind(pod, pool["name"])
    rig.step(times=20)
    assert list(rig.pools()) == [pool["name"]]


NO_RESERVATION = {"consumeReservationType": "NO_RESERVATION"}
PRIORITIES: dict[str, tuple[Object, Object]] = {
    "reservation": (
        RESERVED,
        {
            "config": {
                "reservationAffinity": {
                    "consumeReservationType": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": ["my-res"],
                }
            }
        },
    ),
    "block of a shared reservation": (
        {
            "tpu": TPU,
            "reservations": {
                "affinity": "Specific",
                "specific": [{"name": "res", "project": "owner", "reservationBlock": {"name": "b-1"}, "zones": [ZONE]}],
            },
        },
        {"config": {"reservationAffinity": {"values": ["projects/owner/reservations/res/reservationBlocks/b-1"]}}},
    ),
    "flex-start": (
        FLEX,
        {
            "config": {"flexStart": True, "maxRunDuration": "604800s", "reservationAffinity": NO_RESERVATION},
            "autoscaling": {"locationPolicy": "ANY"},
            "upgradeSettings": {"strategy": "SHORT_LIVED"},
        },
    ),
    "workload policy": (
        {"tpu": {"type": "tpu7x", "count": 4, "topology": "2x2x2"}, "placement": {"policyName": "wp"}},
        {"placementPolicy": {"policyName": "wp"}, "autoscaling": {"maxNodeCount": 2}},
    ),
    "one host": (
        {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "2x2"}},
        {"autoscaling": {"maxNodeCount": 1000}},
    ),
}


@pytest.mark.parametrize("case", PRIORITIES)
def test_every_capacity_model_and_shape_gives_a_pool_that_the_api_accepts(rig: Rig, case: str) -> None:
    priority, expected = PRIORITIES[case]
    rig.cloud.make_policy("wp", "2x2x2")
    rig.create_class(priority)
    rig.create_pod()
    rig.step(times=2)
    pool = rig.only_pool()
    assert contains(pool, expected)
    assert rig.nodes_of(pool["name"]) == {"workload policy": 2, "one host": 1}.get(case, 4)


def test_a_model_out_of_stock_is_followed_by_the_next_and_its_pool_is_deleted(rig: Rig) -> None:
    rig.use_up("spot")
    rig.create_class(SPOT, FLEX)
    rig.create_pod()
    rig.step()
    (first,) = rig.pools()
    rig.step(times=2)
    pool = rig.only_pool()
    assert pool["name"] != first
    assert pool["config"]["flexStart"]
    assert rig.nodes_of(pool["name"]) == 4
    failed = f"Node scale up in zones {ZONE} associated with this pod failed: GCE out of resources."
    assert rig.events("FailedScaleUp") == [f"{failed} Pod is at risk of not being scheduled."]


def test_a_creation_that_fails_is_followed_by_the_next_priority(rig: Rig) -> None:
    fault = {
        "kind": "operation",
        "path": "/nodePools$",
        "body": '"spot": ?true',
        "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
    }
    rig.cloud.control("faults", fault)
    rig.create_class(SPOT, ON_DEMAND)
    rig.create_pod()
    rig.step()
    assert rig.only_pool()["status"] == "ERROR"
    rig.step(times=2)
    pool = rig.only_pool()
    assert "spot" not in pool["config"]
    assert rig.nodes_of(pool["name"]) == 4
    assert "GCE out of resources" in rig.events("FailedScaleUp")[0]


def test_a_refused_request_is_followed_by_the_next_priority(rig: Rig) -> None:
    rig.cloud.control(
        "faults", {"kind": "status", "status": 503, "path": "/nodePools$", "body": "SPECIFIC_RESERVATION"}
    )
    rig.create_class(RESERVED, SPOT)
    rig.create_pod()
    rig.step(times=3)
    assert rig.only_pool()["config"]["spot"]


def test_quota_and_a_reservation_in_use_are_limits(rig: Rig) -> None:
    rig.cloud.control("quotas", {REGION: {"PREEMPTIBLE_TPU_V6E": 8, "TPUS_PER_TPU_FAMILY:CT6E": 100}})
    seed = {"project": PROJECT, "zone": ZONE, "name": "my-res", "machine_type": MACHINE, "count": 3}
    rig.cloud.control("reservations", seed)
    rig.create_class(RESERVED, SPOT, ON_DEMAND)
    rig.create_pod()
    rig.step(times=4)
    pool = rig.only_pool()
    assert not {"spot", "reservationAffinity"} & {key for key, value in pool["config"].items() if value}
    assert rig.nodes_of(pool["name"]) == 4
    reserved, spot = rig.events("FailedScaleUp")
    assert "reservation my-res does not have available resources for the request: 4 VMs requested, 3 of 3" in reserved
    assert "failed: GCE quota exceeded." in spot


def test_without_any_capacity_the_pod_waits_and_is_looked_at_again(rig: Rig) -> None:
    rig.use_up("spot")
    rig.use_up("flex")
    rig.create_class(SPOT, FLEX)
    rig.create_pod()
    rig.step(times=8)
    assert rig.pools() == {}
    assert rig.events("NotTriggerScaleUp") == ["pod didn't trigger scale-up: 2 in backoff after failed scale-up"]
    rig.cloud.control("stock", {"zone": ZONE, "machine_type": MACHINE, "model": "spot", "machines": 4})
    rig.step(times=4)
    assert rig.pools() == {}
    rig.step(BACK_OFF_SECONDS)
    rig.step()
    pool = rig.only_pool()
    assert pool["config"]["spot"]
    assert rig.nodes_of(pool["name"]) == 4


INCOMPATIBLE = "Pod incompatible with requested ComputeClass train of type CCC"
UNMATCHED = "node(s) didn't match Pod's node affinity/selector"
CONTRADICTIONS = {
    "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice": f"2 {UNMATCHED}",
    "cloud.google.com/gke-tpu-topology=8x8": f"2 {UNMATCHED}",
    "cloud.google.com/gke-spot=true": INCOMPATIBLE,
    "node.kubernetes.io/instance-type=ct6e-standard-4t": INCOMPATIBLE,
    "cloud.google.com/reservation-name=my-res": INCOMPATIBLE,
    "disktype=ssd": f"2 {UNMATCHED}",
}


@pytest.mark.parametrize("selector", CONTRADICTIONS)
def test_a_selector_against_the_class_leaves_the_pod_pending_and_an_event_says_why(rig: Rig, selector: str) -> None:
    key, _, value = selector.partition("=")
    rig.create_class(SPOT, ON_DEMAND)
    rig.create_pod(selector={key: value})
    rig.step(times=30)
    assert rig.pools() == {}
    (message,) = rig.events("NotTriggerScaleUp")
    assert message.startswith(f"pod didn't trigger scale-up: {CONTRADICTIONS[selector]} (")
    assert key in message


def test_selectors_that_agree_with_the_class_are_allowed(rig: Rig) -> None:
    rig.create_class(SPOT)
    labels = {"gke-tpu-accelerator": "tpu-v6e-slice", "gke-tpu-topology": "4x4"}
    selectors = {f"cloud.google.com/{key}": value for key, value in labels.items()}
    rig.create_pod(selector={**selectors, "tpu-platform/slice": "train", "topology.kubernetes.io/zone": ZONE})
    rig.step(times=2)
    assert len(rig.nodes()) == 4


CLASSES: dict[str, tuple[Object, str]] = {
    "chips": ({"tpu": {**TPU, "count": 3}}, "1 Accelerator count 3 is not supported for TPU type tpu-v6e-slice"),
    "type": ({"tpu": {**TPU, "type": "tpu-v9"}}, '1 TPU type "tpu-v9" not supported'),
    "topology": ({"tpu": {**TPU, "topology": "3x3"}}, "1 Invalid TPU topology"),
    "too few chips for the pod": ({"tpu": {**TPU, "count": 1, "topology": "1x1"}}, "1 Insufficient google.com/tpu"),
    "taint": (
        {**ON_DEMAND, "taints": [{"key": "other", "value": "x", "effect": "NoSchedule"}]},
        "1 node(s) had untolerated taint {other: x}",
    ),
}


@pytest.mark.parametrize("case", CLASSES)
def test_a_class_that_gives_no_pool_is_explained(rig: Rig, case: str) -> None:
    priority, expected = CLASSES[case]
    rig.create_class(priority)
    rig.create_pod()
    rig.step(times=3)
    assert rig.pools() == {}
    assert rig.events("NotTriggerScaleUp") == [f"pod didn't trigger scale-up: {expected}"]


def test_a_class_without_auto_creation_creates_nothing(rig: Rig) -> None:
    rig.cloud.ok("POST", POOLS, {"nodePool": {"name": "declared", "autoscaling": {"enabled": True, "maxNodeCount": 1}}})
    rig.create_class(SPOT, nodePoolAutoCreation={"enabled": False})
    rig.create_pod()
    rig.step()
    assert list(rig.pools()) == ["declared"]
    assert rig.events("NotTriggerScaleUp") == [
        "pod didn't trigger scale-up: NAP disabled for ComputeClass train of type CCC"
    ]


@pytest.mark.parametrize("provisioned", [False, True])
def test_an_old_cluster_creates_pools_only_with_cluster_auto_provisioning(
    emulated: tuple[Cloud, Backend], provisioned: bool
) -> None:
    cloud, backend = emulated
    cloud.control("reset")
    old = {"releaseChannel": {"channel": "EXTENDED"}, "initialClusterVersion": "1.32"}
    limits = [{"resourceType": each, "maximum": "1000"} for each in ("cpu", "memory", "tpu-v6e-slice")]
    scaling = {"autoscaling": {"enableNodeAutoprovisioning": True, "resourceLimits": limits}} if provisioned else {}
    cloud.make_cluster(**old, **scaling)
    rig = Rig(cloud, backend)
    rig.create_class(ON_DEMAND)
    rig.create_pod()
    rig.step()
    assert len(rig.pools()) == provisioned
    told = "pod didn't trigger scale-up: NAP is not enabled for the cluster but Crd is configured with NAP enabled."
    assert rig.events("NotTriggerScaleUp") == ([] if provisioned else [told])


def test_each_job_of_a_jobset_gets_a_pool_of_its_own_at_once(rig: Rig) -> None:
    rig.create_class(SPOT)
    pods = [rig.create_pod(f"train-{job}-0", job=job) for job in ("a", "b")]
    rig.step(times=2)
    pools = list(rig.pools())
    assert [rig.nodes_of(each) for each in pools] == [4, 4]
    for pod, pool in zip(pods, pools, strict=True):
        rig.bind(pod, pool)
    rig.step(times=20)
    assert list(rig.pools()) == pools


def test_pods_that_come_while_a_slice_is_made_share_it_and_the_fifth_gets_another(rig: Rig) -> None:
    rig.create_class(SPOT)
    for index in range(5):
        rig.create_pod(f"pod-{index}")
        rig.step(0.1)
    rig.step(times=3)
    assert sorted(rig.nodes_of(each) for each in rig.pools()) == [4, 4]


def test_a_pool_of_single_hosts_grows_for_more_pods(rig: Rig) -> None:
    rig.create_class({"tpu": {"type": "tpu-v6e-slice", "count": 1, "topology": "1x1"}})
    first = rig.create_pod("first", chips=1)
    rig.step(times=2)
    pool = rig.only_pool()["name"]
    rig.bind(first, pool)
    rig.step(SETTLE_SECONDS)
    rig.create_pod("second", chips=1)
    rig.step(times=2)
    assert rig.only_pool()["name"] == pool
    assert rig.nodes_of(pool) == 2


def in_use(rig: Rig) -> tuple[Object, str]:
    """A pod that runs in a pool created for it."""
    pod = rig.create_pod()
    rig.step(times=2)
    (pool,) = rig.pools()
    rig.bind(pod, pool)
    rig.step(SETTLE_SECONDS, times=2)
    return pod, pool


def test_an_idle_pool_loses_its_nodes_and_is_deleted(rig: Rig) -> None:
    rig.create_class(SPOT)
    pod, pool = in_use(rig)
    rig.step(IDLE_SECONDS, times=2)
    assert rig.nodes_of(pool) == 4
    rig.delete(pod)
    rig.step()
    assert rig.nodes_of(pool) == 4
    rig.step(IDLE_SECONDS)
    assert rig.nodes() == []
    assert rig.pools() == {}


def test_a_new_pool_follows_the_class_as_it_is_now_and_an_older_one_stays_until_it_is_idle(rig: Rig) -> None:
    rig.create_class(SPOT)
    pod, old = in_use(rig)
    rig.create_class(SPOT, nodePoolConfig={**CONFIG, "nodeLabels": {"version": "2"}})
    rig.step(IDLE_SECONDS, times=2)
    assert list(rig.pools()) == [old]
    rig.create_pod("other")
    rig.step(times=2)
    (new,) = rig.pools().keys() - {old}
    assert rig.pools()[new]["config"]["labels"]["version"] == "2"
    rig.delete(pod)
    rig.step()
    rig.step(IDLE_SECONDS)
    assert old not in rig.pools()


def test_the_pool_of_a_deleted_class_loses_its_nodes_but_stays(rig: Rig) -> None:
    made = rig.create_class(SPOT)
    pod, pool = in_use(rig)
    rig.delete(made)
    rig.step(IDLE_SECONDS, times=2)
    assert rig.nodes_of(pool) == 4
    rig.delete(pod)
    rig.step()
    rig.step(IDLE_SECONDS, times=2)
    assert rig.nodes() == []
    assert list(rig.pools()) == [pool]


def test_the_class_of_a_pod_may_be_missing(rig: Rig) -> None:
    rig.create_class(SPOT)
    pod = rig.create_pod()
    pod["spec"]["nodeSelector"][COMPUTE_CLASS] = "serve"
    rig.step()
    assert rig.events("NotTriggerScaleUp") == ["pod didn't trigger scale-up: ComputeClass serve of type CCC not found"]


def test_an_account_of_another_project_needs_a_grant_for_the_service_agent(rig: Rig) -> None:
    email = "tpu-nodes@elsewhere.iam.gserviceaccount.com"
    account = f"/iam/v1/projects/elsewhere/serviceAccounts/{email}"
    rig.cloud.ok("POST", "/iam/v1/projects/elsewhere/serviceAccounts", {"accountId": "tpu-nodes"})
    rig.create_class(SPOT, nodePoolConfig={**CONFIG, "serviceAccount": email})
    rig.create_pod()
    rig.step(times=3)
    assert rig.pools() == {}
    assert (
        f'Internal error (The user does not have access to service account "{email}"' in rig.events("FailedScaleUp")[0]
    )
    member = f"serviceAccount:{service_agent(PROJECT)}"
    binding = {"role": "roles/iam.serviceAccountUser", "members": [member]}
    rig.cloud.ok("POST", f"{account}:setIamPolicy", {"policy": {"bindings": [binding]}})
    rig.step(BACK_OFF_SECONDS)
    assert rig.only_pool()["config"]["serviceAccount"] == email


def test_the_rights_of_the_deployer_do_not_matter(rig: Rig) -> None:
    rig.cloud.control("permissions", {"granted": ["container.clusters.get"]})
    rig.create_class(SPOT)
    rig.create_pod()
    rig.step()
    assert len(rig.pools()) == 1


def test_while_the_cluster_is_updated_creation_waits(rig: Rig) -> None:
    world = rig.cloud.emulator.world
    world.operations.time_scale = 1.0
    update = {"update": {"desiredShieldedNodes": {"enabled": True}}}
    operation = rig.cloud.ok("PUT", f"{CLUSTERS}/tpu", update)["name"]
    world.operations.time_scale = 0
    rig.create_class(SPOT, ON_DEMAND)
    rig.create_pod()
    rig.step(times=3)
    assert rig.pools() == {}
    world.operations.finish(operation)
    rig.step()
    assert rig.only_pool()["config"]["spot"]


def test_a_deleted_cluster_takes_its_pools_along(rig: Rig) -> None:
    rig.create_class(SPOT)
    in_use(rig)
    rig.cloud.ok("DELETE", f"{CLUSTERS}/tpu")
    rig.step(times=3)
    assert not [each for kind in rig.cloud.inventory().values() for each in kind if "nap-" in each]


def test_claims_get_a_pool_with_the_driver_when_the_class_says_so(rig: Rig) -> None:
    rig.create_class(SPOT, nodePoolConfig={**CONFIG, "tpu": {"driverMode": "DynamicResourceAllocation"}})
    exactly = {"deviceClassName": "tpu.google.com", "count": 4}
    template = {"devices": {"requests": [{"name": "tpu", "exactly": exactly}]}}
    rig.api.create({"kind": "ResourceClaimTemplate", "metadata": {"name": "four"}, "spec": {"spec": template}})
    pod = rig.create_pod()
    pod["spec"]["containers"] = [{"name": "jax", "image": "jax"}]
    pod["spec"]["resourceClaims"] = [{"name": "tpu", "resourceClaimTemplateName": "four"}]
    rig.step(times=2)
    assert rig.only_pool()["config"]["labels"]["cloud.google.com/gke-tpu-dra-driver"] == "true"
    assert len(rig.nodes()) == 4


def test_priorities_may_mix_declared_pools_and_scores(rig: Rig) -> None:
    rig.cloud.ok("POST", POOLS, {"nodePool": declared("declared")})
    rig.create_class({**ON_DEMAND, "priorityScore": 1}, {**SPOT, "priorityScore": 10})
    rig.create_pod("by-score")
    rig.step(times=2)
    (created,) = rig.pools().keys() - {"declared"}
    assert rig.pools()[created]["config"]["spot"]
    rig.create_class({"nodepools": ["declared"]}, SPOT)
    rig.create_pod("to-declared")
    rig.step(times=2)
    assert rig.nodes_of("declared") == 4


def declared(name: str) -> dict[str, Any]:
    """A NodePool of a slice that a class may name, made by a user."""
    return {
        "name": name,
        "config": {"machineType": MACHINE, "labels": {COMPUTE_CLASS: "train"}, "serviceAccount": ACCOUNT},
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
        "management": {"autoRepair": True, "autoUpgrade": True},
        "autoscaling": {"enabled": True, "maxNodeCount": 4},
    }
