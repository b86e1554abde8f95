"""What follows from slices whose node pools GKE or TPU Provisioner creates: selectors, sizes, costs, manifests."""

from __future__ import annotations

from typing import Any

import pytest

from plan.flavors import Flavor, flavors
from plan.platform import Platform
from plan.workloads.job import Job, WorkloadError
from plan.workloads.jobset import jobset
from plan.workloads.server import Server, inference_server
from tests.platforms import ZONES, load

Json = dict[str, Any]
V6E = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
IMAGE = f"example.com/images/tpu-provisioner@sha256:{'0' * 64}"
SHAPE = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}


def by_class(capacity: Any = "spot", **more: Any) -> Platform:
    return load({"s": V6E | {"capacity": capacity, "provisioning": "compute-class"} | more})


def by_provisioner(*capacities: Any) -> Platform:
    """A platform with a group of slices for each of these."""
    groups = {
        f"s{index}": V6E | {"capacity": capacity, "provisioning": "tpu-provisioner"}
        for index, capacity in enumerate(capacities)
    }
    return load(groups, cluster={"release_channel": "UNSPECIFIED"}, software={"tpu_provisioner": {"image": IMAGE}})


def tolerated(flavor: Flavor) -> set[tuple[str, str | None]]:
    return {(each.key, each.value) for each in flavor.tolerations}


def test_pods_of_a_class_select_it_and_its_shape_and_nothing_else() -> None:
    """GKE refuses selectors of spot, machine type and reservation beside a class."""
    (flavor,) = flavors(by_class(["spot", "on-demand"])).values()
    assert flavor.node_labels == {**SHAPE, "cloud.google.com/compute-class": "tpu-s"}
    assert ("cloud.google.com/compute-class", "tpu-s") in tolerated(flavor)
    assert not flavor.topology_aware


@pytest.mark.parametrize(
    ("capacity", "selectors"),
    [
        ("on-demand", {}),
        ("spot", {"cloud.google.com/gke-spot": "true"}),
        ({"model": "reservation", "name": "r"}, {"cloud.google.com/reservation-name": "r"}),
        (
            {"model": "reservation", "name": "r", "project": "owner"},
            {"cloud.google.com/reservation-name": "r", "cloud.google.com/reservation-project": "owner"},
        ),
    ],
)
def test_tpu_provisioner_reads_the_capacity_from_selectors(capacity: Any, selectors: Json) -> None:
    (flavor,) = flavors(by_provisioner(capacity)).values()
    own = {
        "cloud.google.com/gke-accelerator-count": "4",
        "tpu-platform/flavor": "tpu-s0",
        "tpu-platform/slice": "s0",
    }
    assert flavor.node_labels == {**SHAPE, **own, **selectors}
    assert (("cloud.google.com/gke-spot", "true") in tolerated(flavor)) == (capacity == "spot")


def test_two_reservations_are_two_flavors() -> None:
    """One flavor would send jobs of the second group to the first group's reservation."""
    platform = by_provisioner({"model": "reservation", "name": "a"}, {"model": "reservation", "name": "b"})
    names = [flavor.node_labels["cloud.google.com/reservation-name"] for flavor in flavors(platform).values()]
    assert names == ["a", "b"]


def test_slices_on_demand_count_in_everything_but_the_cost_of_standing_still() -> None:
    platform = by_class(["spot", "flex-start"])
    assert [plan.pools for plan in platform.slice_plans] == [(), ()]
    assert [hosts for _, hosts in platform.most_hosts] == [8, 0], "a slice has one pool, whichever model it is of"
    assert [plan.quota and plan.quota.chips for plan in platform.slice_plans] == [32, 32]
    assert platform.totals["chips"] == 32
    assert platform.totals["price_per_hour_usd"] > 0
    assert platform.idle_price_per_hour == 0
    assert load({"s": V6E | {"capacity": "spot"}}).idle_price_per_hour == platform.totals["price_per_hour_usd"]


def test_parts_of_a_reservation_are_asked_for_by_slice() -> None:
    parts = {"model": "reservation", "name": "r", "block": "b", "sub_block": ["x", "y"]}
    (plan,) = by_class(parts).slice_plans
    assert [(affinity.values[0][-1], hosts) for affinity, hosts in plan.asks] == [("x", 4), ("y", 4)]


def test_addresses_are_needed_for_slices_that_do_not_stand() -> None:
    assert by_class().most_nodes == load({"s": V6E | {"capacity": "spot"}}).most_nodes


def of_two(platform: Platform, name: str = "train") -> Json:
    plan = platform.slice_plans[0]
    return jobset(platform, plan, Job(name, "team-a", 2))


def selectors(made: Json) -> Json:
    found: Json = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"]
    return found


def test_jobs_of_tpu_provisioner_have_pools_of_their_own() -> None:
    made = of_two(by_provisioner("spot"))
    assert selectors(made)["tpu-platform/jobset"] == "team-a.train"
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert made["metadata"]["annotations"] == {exclusive: "cloud.google.com/gke-nodepool"}
    assert "tpu-platform/jobset" not in selectors(of_two(by_class()))


@pytest.mark.parametrize(
    ("namespace", "name", "message"),
    [("team-a", "a" * 35, "1 characters too long for TPU Provisioner"), ("n" * 40, "a" * 30, "together 8 characters")],
)
def test_names_that_do_not_fit_pools_and_labels_are_refused(namespace: str, name: str, message: str) -> None:
    """Of a JobSet's name a pool has 34 characters, and pools of one name delete each other."""
    platform = by_provisioner("spot")
    with pytest.raises(WorkloadError, match=message):
        jobset(platform, platform.slice_plans[0], Job(name, namespace, 1))


@pytest.mark.parametrize("name", ["Not_Good", "1st", "ends-", ""])
def test_a_name_that_kubernetes_refuses_is_refused_here(name: str) -> None:
    """It was printed, and the API server then refused the JobSet or its Service."""
    platform = by_provisioner("spot")
    with pytest.raises(WorkloadError, match="--name"):
        jobset(platform, platform.slice_plans[0], Job(name, "team-a", 1))


def test_slices_that_queues_limit_are_for_jobs_in_queues() -> None:
    """Without a queue a job would bring slices past `count`."""
    platform = load(
        {"s": V6E | {"capacity": "spot", "provisioning": "compute-class"}},
        queues={"q": {"namespaces": ["team-a"], "slices": {"s": 1}}},
    )
    with pytest.raises(WorkloadError, match="--queue q"):
        jobset(platform, platform.slice_plans[0], Job("train", "team-a", 1))


def test_single_hosts_of_tpu_provisioner_have_exclusive_topology_too() -> None:
    single = {"machine_type": "ct6e-standard-4t", "topology": "2x2", "capacity": "spot"}
    platform = load(
        {"s": single | {"provisioning": "tpu-provisioner"}},
        cluster={"release_channel": "UNSPECIFIED"},
        software={"tpu_provisioner": {"image": IMAGE}},
    )
    plan = platform.slice_plans[0]
    made = jobset(platform, plan, Job("train", "team-a", 1))
    assert made["metadata"]["annotations"]


def test_a_server_is_no_jobset_so_tpu_provisioner_creates_nothing_for_it() -> None:
    platform = by_provisioner("spot")
    with pytest.raises(WorkloadError, match="for JobSets only"):
        inference_server(platform, platform.slice_plans[0], Server(Job("a", "team-a", 1), "m"))


def test_a_class_of_tpu7x_uses_the_platforms_own_policy() -> None:
    platform = load(
        {
            "s": {
                "machine_type": "tpu7x-standard-4t",
                "topology": "2x2x2",
                "capacity": "spot",
                "provisioning": "compute-class",
            }
        },
        zone=ZONES["tpu7x"],
    )
    assert [policy.name for policy in platform.workload_policies] == ["tpu-2x2x2"]
