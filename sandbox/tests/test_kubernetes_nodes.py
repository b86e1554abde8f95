"""Node pools as Nodes: labels, taints and capacity of every generation; which pool a pod would fit on. No processes."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml

from sandbox.google.backend import ClusterRef
from sandbox.kubernetes import fitting
from sandbox.kubernetes.api import ApiClient, ApiError
from sandbox.kubernetes.dra import resource_slice
from sandbox.kubernetes.gke import COMPUTE_CLASS, PREINSTALLED
from sandbox.kubernetes.nodes import PartialSliceError, Pool, parse_pool, pool_nodes, remove_pods

ZONE = "us-east5-b"
LAB = ClusterRef("my-project", "us-east5", "lab")
LABEL = "cloud.google.com/gke-"


def node_pool(machine: str, nodes: int = 0, topology: str = "", **extra: Any) -> dict[str, Any]:
    config = {"machineType": machine, **extra.pop("config", {})}
    pool = {"name": "pool", "config": config, "currentNodeCount": nodes, "locations": [ZONE], **extra}
    return pool | ({"placementPolicy": {"tpuTopology": topology}} if topology else {})


@pytest.mark.parametrize(
    ("machine", "topology", "accelerator", "shown_topology", "chips", "hosts"),
    [
        ("ct4p-hightpu-4t", "2x2x4", "tpu-v4-podslice", "2x2x4", 4, 4),
        ("ct5lp-hightpu-8t", "", "tpu-v5-lite-podslice", "2x4", 8, 1),
        ("ct5lp-hightpu-4t", "2x4", "tpu-v5-lite-podslice", "2x4", 4, 2),
        ("ct5p-hightpu-4t", "4x4x4", "tpu-v5p-slice", "4x4x4", 4, 16),
        ("ct6e-standard-1t", "", "tpu-v6e-slice", "1x1", 1, 1),
        ("ct6e-standard-4t", "4x4", "tpu-v6e-slice", "4x4", 4, 4),
        ("tpu7x-standard-4t", "2x2x2", "tpu7x", "2x2x2", 4, 2),
    ],
)
def test_every_generation_has_its_labels_taint_and_capacity(
    machine: str, topology: str, accelerator: str, shown_topology: str, chips: int, hosts: int
) -> None:
    pool = parse_pool(node_pool(machine, hosts, topology))
    nodes = pool_nodes(pool, LAB)
    assert len({each.name for each in nodes}) == hosts
    assert all(len(each.name) <= 63 for each in nodes)
    for node in nodes:
        assert node.labels[f"{LABEL}tpu-accelerator"] == accelerator
        assert node.labels[f"{LABEL}tpu-topology"] == shown_topology
        assert node.labels[f"{LABEL}accelerator-count"] == str(chips)
        assert node.labels["topology.kubernetes.io/zone"] == ZONE
        assert node.taints == ({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"},)
        assert node.capacity["google.com/tpu"] == node.allocatable["google.com/tpu"] == str(chips)


def test_a_pool_with_a_workload_policy_alone_has_the_topology_of_the_policy() -> None:
    wanted = node_pool("tpu7x-standard-4t", 16, placementPolicy={"policyName": "wp"}, policyTopology="4x4x4")
    pool = parse_pool(wanted)
    assert pool.hosts == 16
    assert {each.labels[f"{LABEL}tpu-topology"] for each in pool_nodes(pool, LAB)} == {"4x4x4"}
    with pytest.raises(PartialSliceError, match="1 nodes are no 4x4x4 slice"):
        parse_pool({**wanted, "currentNodeCount": 1})


def test_a_dra_pool_has_no_device_plugin_capacity() -> None:
    dra = {"labels": {f"{LABEL}tpu-dra-driver": "true"}}
    pool = parse_pool(node_pool("ct6e-standard-4t", config=dra))
    assert pool.dra
    assert "google.com/tpu" not in pool.capacity
    assert fitting.node_resources(pool)[fitting.CLAIMED_CHIPS] == 4000


def test_capacity_models_show_in_labels_and_taints() -> None:
    spot = parse_pool(node_pool("ct6e-standard-1t", config={"spot": True}))
    assert spot.labels[f"{LABEL}spot"] == "true"
    queued = parse_pool(node_pool("ct6e-standard-1t", config={"flexStart": True}, queuedProvisioning={"enabled": True}))
    assert queued.labels[f"{LABEL}flex-start"] == "true"
    assert queued.labels[f"{LABEL}provisioning"] == "flex-start"
    assert f"{LABEL}queued" not in queued.labels
    assert {"key": f"{LABEL}queued", "value": "true", "effect": "NoSchedule"} in queued.taints


def test_a_taint_that_gke_shows_among_the_pools_own_counts_once() -> None:
    shown = {"key": "google.com/tpu", "value": "present", "effect": "NO_SCHEDULE"}
    pool = parse_pool(node_pool("ct6e-standard-1t", config={"taints": [shown]}))
    assert pool.taints == ({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"},)


def test_a_cpu_pool_has_no_tpu_marks_and_own_taints_are_translated() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NO_EXECUTE"}
    pool = parse_pool(node_pool("e2-standard-4", 1, config={"taints": [taint], "labels": {"a": "b"}}))
    assert not [each for each in pool.labels if "tpu" in each]
    assert pool.labels["a"] == "b"
    assert pool.taints == ({"key": "dedicated", "value": "x", "effect": "NoExecute"},)


def test_the_system_keeps_what_gke_reserves() -> None:
    pool = parse_pool(node_pool("e2-standard-4"))
    assert pool.capacity["cpu"] == "4000m"
    assert pool.allocatable["cpu"] == "3920m"  # GKE's documentation: 80 milli-CPUs of 4
    assert pool.capacity["memory"] == "16384Mi"
    assert pool.allocatable["memory"] == f"{16384 - round(2.6 * 1024) - 100}Mi"  # 25 % of 4, 20 % of 4, 10 % of 8 GiB


@pytest.mark.parametrize(
    ("pool", "error", "message"),
    [
        (node_pool("ct6e-standard-4t", 3, "4x4"), PartialSliceError, "3 nodes are no 4x4 slice, which has 4 hosts"),
        (node_pool("ct6e-standard-4t", 8, "4x4"), PartialSliceError, "8 nodes are no 4x4 slice"),
        (node_pool("ct6e-standard-8t", 1, "3x3"), ValueError, "machines of type ct6e-standard-8t form no 3x3 slice"),
        (node_pool("ct9-mega-4t", 1), ValueError, "there is no machine type ct9-mega-4t"),
    ],
)
def test_impossible_pools_are_refused(pool: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_pool(pool)


def test_bounds_of_an_autoscaled_pool_are_per_zone() -> None:
    totals = {"enabled": True, "totalMinNodeCount": 0, "totalMaxNodeCount": 5}
    two_zones = node_pool("e2-standard-4", autoscaling=totals) | {"locations": ["us-east5-a", "us-east5-b"]}
    assert (parse_pool(two_zones).min_nodes, parse_pool(two_zones).max_nodes) == (0, 3)
    per_zone = node_pool("e2-standard-4", autoscaling={"enabled": True, "minNodeCount": 1, "maxNodeCount": 4})
    assert (parse_pool(per_zone).min_nodes, parse_pool(per_zone).max_nodes) == (1, 4)


def test_names_of_nodes_stay_while_the_pool_grows() -> None:
    small, large = (
        [each.name for each in pool_nodes(parse_pool(node_pool("e2-standard-4", count)), LAB)] for count in (2, 5)
    )
    assert large[:2] == small


def node(accelerator: str, chips: str, topology: str = "2x2") -> dict[str, Any]:
    labels = {
        f"{LABEL}tpu-accelerator": accelerator,
        f"{LABEL}accelerator-count": chips,
        f"{LABEL}tpu-topology": topology,
    }
    return {"metadata": {"name": "node-a", "uid": "1", "labels": labels}}


def test_a_resource_slice_has_a_device_per_chip_with_the_drivers_attributes() -> None:
    published = resource_slice(node("tpu-v5-lite-podslice", "4"), "0.2.0")
    assert published
    devices = published["spec"]["devices"]
    assert [each["name"] for each in devices] == ["0", "1", "2", "3"]
    attributes = devices[3]["attributes"]
    assert attributes.pop("uuid")["string"].startswith("tpu-")
    assert attributes == {
        "index": {"int": 3},
        "tpuGen": {"string": "v5litepod"},
        "brand": {"string": "Google"},
        "accelerator": {"string": "tpu-v5-lite-podslice"},
        "chipCount": {"int": 4},
        "topology": {"string": "2x2"},
    }


def test_an_older_driver_publishes_fewer_attributes_and_v4_has_other_device_names() -> None:
    published = resource_slice(node("tpu-v4-podslice", "4"), "0.1.0")
    assert published
    assert published["spec"]["devices"][0]["name"] == "accel0"
    assert set(published["spec"]["devices"][0]["attributes"]) == {"index", "uuid", "tpuGen"}


def test_a_node_without_tpus_publishes_nothing() -> None:
    assert resource_slice({"metadata": {"name": "cpu", "uid": "1", "labels": {}}}, "0.2.0") is None


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [("1", 1000), ("100m", 100), ("0.5", 500), ("1Gi", 1024**3 * 1000), ("1k", 10**6), ("1e3", 10**6), (4, 4000)],
)
def test_quantities(quantity: str | int, thousandths: int) -> None:
    assert fitting.milli(quantity) == thousandths


@pytest.mark.parametrize("quantity", ["", "one", "1Qi", "1 Gi"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        fitting.milli(quantity)


def v6e_pool(**config: Any) -> Pool:
    return parse_pool(node_pool("ct6e-standard-4t", config=config))


@pytest.mark.parametrize(
    ("spec", "admitted"),
    [
        ({}, False),
        ({"tolerations": [{"operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "google.com/tpu", "value": "present"}]}, True),
        ({"tolerations": [{"key": "google.com/tpu", "value": "absent"}]}, False),
        ({"tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoExecute"}]}, False),
        (
            {"tolerations": [{"operator": "Exists"}], "nodeSelector": {f"{LABEL}tpu-accelerator": "tpu-v6e-slice"}},
            True,
        ),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {f"{LABEL}tpu-topology": "4x4"}}, False),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"topology.kubernetes.io/zone": ZONE}}, True),
    ],
)
def test_taints_and_selectors_decide_where_a_pod_may_go(spec: dict[str, Any], admitted: bool) -> None:
    assert fitting.admits(v6e_pool(), spec) is admitted


@pytest.mark.parametrize(
    ("operator", "key", "values", "admitted"),
    [
        ("In", f"{LABEL}accelerator-count", ["1", "4"], True),
        ("In", f"{LABEL}accelerator-count", ["8"], False),
        ("NotIn", f"{LABEL}accelerator-count", ["4"], False),
        ("Exists", f"{LABEL}tpu-topology", [], True),
        ("DoesNotExist", f"{LABEL}tpu-topology", [], False),
        ("Gt", f"{LABEL}accelerator-count", ["3"], True),
        ("Lt", f"{LABEL}accelerator-count", ["3"], False),
    ],
)
def test_required_node_affinity(operator: str, key: str, values: list[str], admitted: bool) -> None:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": required}}
    assert fitting.admits(v6e_pool(), spec) is admitted


@pytest.mark.parametrize(
    ("expression", "predicted"),
    [
        ('device.driver == "tpu.google.com"', True),
        ('device.attributes["tpu.google.com"].tpuGen == "v6e"', True),
        ('device.attributes["tpu.google.com"].tpuGen == "v5p"', False),
        ('device.attributes["tpu.google.com"].chipCount == 4', False),
        ('device.attributes["tpu.google.com"].?chipCount.orValue(4) == 4', True),
        ('device.attributes["tpu.google.com"].?chipCount.orValue(0) == 4', False),
        ('device.attributes["tpu.google.com"].?topology.orValue("") == "2x2"', False),
    ],
)
def test_only_the_generation_can_be_predicted_of_nodes_to_be(expression: str, predicted: bool) -> None:
    assert fitting.predicted_match(v6e_pool(), [expression]) is predicted


def test_what_gke_preinstalls_is_well_formed() -> None:
    objects = [*yaml.safe_load_all(PREINSTALLED.read_text()), yaml.safe_load(COMPUTE_CLASS.read_text())]
    policies = {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}
    assert {each["kind"] for each in objects} == {"Namespace", "ResourceQuota", "CustomResourceDefinition", *policies}


class Pods:
    """An API client with pods in memory; notes what is done to each. One of them is gone when it is patched."""

    def __init__(self, **phases: str) -> None:
        self.pods = [{"metadata": {"name": name}, "status": {"phase": phase}} for name, phase in phases.items()]
        self.done: list[tuple[str, object]] = []

    def list_all(self, api_version: str, kind: str, fieldSelector: str) -> list[Any]:  # noqa: N803  # the API's name
        assert (api_version, kind, fieldSelector) == ("v1", "Pod", "spec.nodeName=host")
        return self.pods

    def patch(self, pod: Any, change: Any, kind: str, *, subresource: str) -> None:
        assert (kind, subresource) == ("strategic", "status")
        if pod["metadata"]["name"] == "gone":
            raise ApiError(404, "NotFound", "", {})
        assert change["status"]["conditions"][0]["type"] == "DisruptionTarget"
        self.done.append((pod["metadata"]["name"], change["status"]["phase"]))

    def delete(self, pod: Any, *, grace_seconds: int) -> None:
        self.done.append((pod["metadata"]["name"], grace_seconds))


def test_pods_of_a_lost_host_have_failed_before_they_go() -> None:
    """A Job with a pod failure policy waits until its pods have ended: without that the drill's job hung for ever."""
    client = Pods(gone="Running", runs="Running", waits="Pending", ended="Succeeded")
    remove_pods(cast(ApiClient, client), "host")
    failed = [("runs", "Failed"), ("runs", 0), ("waits", "Failed"), ("waits", 0)]
    assert client.done == [("gone", 0), *failed, ("ended", 0)]
