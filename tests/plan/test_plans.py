"""What follows from a slice."""

import re
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.capacity import CAPACITY_MODELS, OnCompute
from plan.hosts import slice_groups
from plan.network import network_id, subnetwork_id
from plan.platform import Platform
from plan.shape import candidates, resolve
from plan.slices import SlicePlan
from rules.invariants import GROUP_INVARIANTS, INVARIANTS, GroupOfPlan, Invariant
from rules.registry import SLICE, SliceView
from tests.platforms import PROJECT, SELF_MANAGED, ZONES, errors, load, raw

CAPACITY: dict[str, dict[str, Any]] = {
    "on-demand": {},
    "spot": {},
    "reservation": {"name": "my-res"},
    "flex-start": {},
    "queued": {"max_run_duration": "1d"},
}

WIDE = {"nodes_cidr": "10.0.0.0/18", "services_cidr": "10.0.64.0/20", "pods_cidr": "10.128.0.0/9"}

shapes = [
    (shape.machine, shape.topology)
    for generation in GENERATIONS.values()
    for dims in topology.shapes(generation)
    for shape in candidates(generation, dims)
    if shape.hosts <= MAX_HOSTS_PER_POOL
]


ON_COMPUTE = tuple(name for name, model in CAPACITY_MODELS.items() if isinstance(model.compute, OnCompute))


@st.composite
def specs(draw: st.DrawFn, models: Sequence[str] = tuple(CAPACITY_MODELS)) -> tuple[str, dict[str, Any]]:
    """The zone and the settings of a slice of any machine type, topology and capacity model."""
    machine, dims = draw(st.sampled_from(shapes))
    model = draw(st.sampled_from(models))
    if CAPACITY_MODELS[model].dws and not machine.generation.dws:
        model = "spot"
    return ZONES[machine.generation.name], {
        "machine_type": machine.name,
        "topology": dims,
        "count": draw(st.integers(1, 4)),
        "capacity": {"model": model, **CAPACITY[model]},
    }


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.id)
@settings(max_examples=60)
@given(written=specs(), provisioning=st.sampled_from([None, "autoscaled"]), dranet=st.booleans())
def test_what_nobody_can_break(
    invariant: Invariant[SlicePlan], written: tuple[str, dict[str, Any]], provisioning: str | None, dranet: bool
) -> None:
    zone, spec = written
    spec |= {"provisioning": provisioning, "dranet": dranet and MACHINES[spec["machine_type"]].accelerator_nics > 0}
    for plan in load({"s": spec}, zone=zone, network=WIDE).slice_plans:
        assert invariant.holds(plan)


@settings(max_examples=60)
@given(written=specs(ON_COMPUTE))
@pytest.mark.parametrize("invariant", [*INVARIANTS, *GROUP_INVARIANTS], ids=lambda invariant: invariant.id)
def test_what_nobody_can_break_without_gke(invariant: Invariant[Any], written: tuple[str, dict[str, Any]]) -> None:
    zone, spec = written
    assume(not errors(raw({"s": spec}, zone=zone, network=WIDE, cluster=SELF_MANAGED)))
    platform = load({"s": spec}, zone=zone, network=WIDE, cluster=SELF_MANAGED)
    for plan in platform.slice_plans:
        subjects = list(map(GroupOfPlan, repeat(plan), plan.pools, slice_groups(platform, plan)))
        assert len(subjects) == len(plan.pools)
        for subject in subjects if invariant in GROUP_INVARIANTS else [plan]:
            assert invariant.holds(subject)


@given(
    written=specs(),
    more=st.fixed_dictionaries(
        {},
        optional={
            "provisioning": st.sampled_from(["fixed", "autoscaled"]),
            "devices": st.sampled_from(["dra", "device-plugin"]),
            "dranet": st.booleans(),
            "image_streaming": st.booleans(),
            "additional_networks": st.just([{"network": "n", "subnetwork": "s"}]),
            "host_maintenance": st.just("AS_NEEDED"),
            "labels": st.just({"team": "a"}),
            "max_pods_per_node": st.integers(8, 256),
            "node_drain": st.sampled_from([{}, {"grace": "1h"}, {"respect_pdb": False}]),
            "capacity": st.just(["spot", "on-demand"]),
        },
    ),
)
@settings(max_examples=200)
def test_another_back_end_is_a_change_of_the_cluster_alone(
    written: tuple[str, dict[str, Any]], more: dict[str, Any]
) -> None:
    """A slice that GKE takes is taken without GKE, too, or refused by a rule that says why."""
    zone, spec = written
    on_gke = raw({"s": spec | more}, zone=zone, network=WIDE)
    assume(not errors(on_gke))
    rules = [rule for rule in SLICE.rules if rule.backend == "compute" and rule.level == "error"]
    said = errors(on_gke | {"cluster": SELF_MANAGED})
    platform = Platform.model_validate({**on_gke, "project": PROJECT, "cluster": SELF_MANAGED})
    view = SliceView(platform, "s", platform.slices["s"], resolve(platform.slices["s"]))
    reasons = [finding.message for rule in rules for finding in rule.check(view)]
    assert sorted(error.message for error in said) == sorted(reasons)
    if not said:
        plan, there = load(**on_gke).slice_plans[0], load(**on_gke, cluster=SELF_MANAGED).slice_plans[0]
        assert (plan.hosts, plan.chips, plan.labels, plan.taints) == (
            there.hosts,
            there.chips,
            there.labels,
            there.taints,
        )
        assert [pool.most_nodes for pool in plan.pools] == [pool.most_nodes for pool in there.pools]


def test_every_capacity_model_is_tried_above() -> None:
    assert set(CAPACITY) == set(CAPACITY_MODELS)


@pytest.mark.parametrize(
    ("machine", "shape", "placement"),
    [
        ("ct6e-standard-1t", "1x1", None),
        ("ct6e-standard-8t", "2x4", None),
        ("tpu7x-standard-4t", "2x2x1", None),
        ("tpu7x-standard-1t", "1x1x1", None),
        ("ct4p-hightpu-4t", "2x2x2", ("COMPACT", "2x2x2", None)),
        ("ct5lp-hightpu-4t", "2x4", ("COMPACT", "2x4", None)),
        ("ct5p-hightpu-4t", "4x4x4", ("COMPACT", "4x4x4", None)),
        ("ct6e-standard-4t", "16x16", ("COMPACT", "16x16", None)),
        ("tpu7x-standard-4t", "2x2x2", ("", "2x2x2", "tpu-2x2x2")),
    ],
)
def test_placement(machine: str, shape: str, placement: tuple[str, str, str | None] | None) -> None:
    plan = one({"machine_type": machine, "topology": shape}, zone=ZONES[MACHINES[machine].generation.name])
    found = plan.placement and (plan.placement.type, plan.placement.topology, plan.placement.policy)
    assert found == placement


def one(spec: dict[str, Any], **platform: Any) -> SlicePlan:
    (plan,) = load({"s": spec}, **platform).slice_plans
    return plan


def test_slices_of_one_shape_share_a_policy() -> None:
    slice_ = {"machine_type": "tpu7x-standard-4t", "topology": "4x4x4"}
    cube = slice_ | {
        "dynamic_slicing": True,
        "capacity": {"model": "reservation", "name": "r", "block": "b", "sub_block": "c"},
    }
    platform = load(
        {"a": slice_ | {"count": 2}, "b": slice_, "c": slice_ | {"topology": "2x2x2"}, "d": cube},
        zone=ZONES["tpu7x"],
        name="iron",
        cluster={"release_channel": "RAPID"},
    )
    assert [(policy.name, policy.topology, policy.mode) for policy in platform.workload_policies] == [
        ("iron-2x2x2", "2x2x2", None),
        ("iron-4x4x4", "4x4x4", None),
        ("iron-4x4x4-provision-only", "4x4x4", "PROVISION_ONLY"),
    ]
    assert platform.needs_slice_controller


def test_a_pool_for_each_slice_of_several_hosts_and_one_for_all_of_single_hosts() -> None:
    several = one({"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2})
    single = one({"machine_type": "ct6e-standard-8t", "topology": "2x4", "count": 3})
    assert [(pool.name, pool.node_count) for pool in several.pools] == [("s-0", 4), ("s-1", 4)]
    assert [(pool.name, pool.node_count) for pool in single.pools] == [("s", 3)]


def test_a_larger_count_keeps_the_names_of_the_pools_that_exist() -> None:
    spec = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
    assert one(spec).pools[0].name == one(spec | {"count": 5}).pools[0].name


@pytest.mark.parametrize(
    ("capacity", "value"),
    [
        ({"name": "r"}, "r"),
        ({"name": "r", "project": "owner"}, "projects/owner/reservations/r"),
        ({"name": "r", "block": "b"}, "r/reservationBlocks/b"),
        (
            {"name": "r", "project": "owner", "block": "b", "sub_block": "s"},
            "projects/owner/reservations/r/reservationBlocks/b/reservationSubBlocks/s",
        ),
    ],
)
def test_the_four_forms_of_a_reservation(capacity: dict[str, str], value: str) -> None:
    plan = one(
        {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": {"model": "reservation", **capacity}}
    )
    assert plan.reservation.type == "SPECIFIC_RESERVATION"
    assert plan.reservation.key == "compute.googleapis.com/reservation-name"
    assert plan.reservation.values == (value,)


def test_each_slice_in_a_sub_block_of_its_own() -> None:
    capacity = {"model": "reservation", "name": "r", "block": "b", "sub_block": ["s1", "s2"]}
    plan = one({"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2, "capacity": capacity})
    assert [pool.reservation.values[0].rpartition("/")[2] for pool in plan.pools] == ["s1", "s2"]


def test_a_reservation_that_has_not_begun_has_pools_without_hosts() -> None:
    capacity = {"model": "reservation", "name": "r", "active": False}
    plan = one({"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": capacity})
    assert [pool.node_count for pool in plan.pools] == [0]


def test_fallback_is_a_compute_class_over_pools_of_each_model() -> None:
    platform = load(
        {
            "any": {
                "machine_type": "ct6e-standard-4t",
                "topology": "4x4",
                "count": 2,
                "capacity": [{"model": "reservation", "name": "r"}, "spot", "flex-start"],
            }
        }
    )
    (compute_class,) = platform.compute_classes
    assert compute_class.name == "tpu-any"
    assert [[pool.name for pool in plan.pools] for plan in compute_class.alternatives] == [
        ["any-reservation-0", "any-reservation-1"],
        ["any-spot-0", "any-spot-1"],
        ["any-flex-start-0", "any-flex-start-1"],
    ]
    for plan in platform.slice_plans:
        assert plan.labels["cloud.google.com/compute-class"] == "tpu-any"
        assert [(taint.key, taint.value, taint.effect) for taint in plan.taints] == [
            ("cloud.google.com/compute-class", "tpu-any", "NO_SCHEDULE")
        ]
        assert [(pool.min_nodes, pool.max_nodes) for pool in plan.pools] == [(0, 4), (0, 4)]
    assert platform.totals["chips"] == 32
    assert platform.totals["price_per_hour_usd"] == platform.slice_plans[0].price_per_hour == 32 * 2.70


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        ({"devices": "dra"}, {"cloud.google.com/gke-tpu-dra-driver": "true"}),
        ({"dranet": True}, {"cloud.google.com/gke-networking-dra-driver": "true"}),
        ({"capacity": "queued"}, {"cloud.google.com/gke-queued": "true"}),
        ({"labels": {"team": "a"}}, {"team": "a"}),
        ({}, {}),
    ],
)
def test_labels_that_gke_does_not_set_by_itself(spec: dict[str, Any], labels: dict[str, str]) -> None:
    plan = one({"machine_type": "ct6e-standard-4t", "topology": "4x4", **spec})
    assert plan.labels == {**labels, "tpu-platform/slice": "s", "tpu-platform/flavor": plan.flavor}


@pytest.mark.parametrize(("capacity", "hours"), [("on-demand", 11), ("spot", 11), ("flex-start", 2), ("queued", 2)])
def test_a_pool_is_waited_for_as_long_as_gke_tries(capacity: str, hours: int) -> None:
    """Static pools wait for hosts while they are created (GKE tries for 10 h); pools at zero do not."""
    plan = one({"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": capacity})
    assert plan.timeout_hours == hours


@pytest.mark.parametrize(
    ("generation", "shape", "capacity", "price"),
    [
        ("v4", "2x2x2", "on-demand", 8 * 3.22),
        ("v4", "2x2x2", "spot", 8 * 3.22 * 0.30),
        ("v5e", "4x4", "on-demand", 16 * 1.20),
        ("v5p", "2x2x1", "spot", 4 * 4.20 * 0.5),
        ("v6e", "4x4", "spot", 16 * 2.70 * 0.5),
        ("tpu7x", "2x2x1", "on-demand", None),
    ],
)
def test_list_prices(generation: str, shape: str, capacity: str, price: float | None) -> None:
    plan = one({"generation": generation, "topology": shape, "capacity": capacity}, zone=ZONES[generation])
    assert plan.price_per_hour == (price if price is None else pytest.approx(price, abs=0.01))


def test_own_prices_take_the_place_of_list_prices() -> None:
    rate = {"usd_per_chip_hour": 2, "as_of": "2026-11-01", "source": "contract"}
    spec = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
    assert one(spec, prices={"v6e": rate}).price_per_hour == 32
    assert one(spec | {"capacity": "spot"}, prices={"v6e": rate}).price_per_hour is None
    assert one(spec | {"capacity": "spot"}, prices={"v6e": rate | {"spot_usd_per_chip_hour": 0.5}}).price_per_hour == 8
    flex = spec | {"capacity": "flex-start"}
    assert (one(flex).price_per_hour, one(flex).price_is_upper_bound) == (one(spec).price_per_hour, True)
    bound = one(flex, prices={"v6e": rate})
    assert (bound.price_per_hour, bound.price_is_upper_bound) == (32, True)
    own = one(flex, prices={"v6e": rate | {"flex_start_usd_per_chip_hour": 1.5}})
    assert (own.price_per_hour, own.price_is_upper_bound) == (24, False)
    assert not one(spec).price_is_upper_bound
    assert not one(spec | {"capacity": "spot"}).price_is_upper_bound


@pytest.mark.parametrize(
    ("generation", "capacity", "metric"),
    [
        ("v5e", "on-demand", "TPU-LITE-PODSLICE-V5-per-project-region"),
        ("v6e", "spot", "PREEMPTIBLE-TPU-V6E-per-project-region"),
        ("v6e", "queued", "PREEMPTIBLE-TPU-V6E-per-project-region"),
        ("tpu7x", "on-demand", "TPUS-PER-TPU-FAMILY-per-project-region"),
        ("v5p", "on-demand", None),
        ("v6e", {"model": "reservation", "name": "r"}, None),
    ],
)
def test_quota(generation: str, capacity: Any, metric: str | None) -> None:
    shape = "4x4x4" if GENERATIONS[generation].dimensions == 3 else "4x4"
    plan = one({"generation": generation, "topology": shape, "capacity": capacity, "count": 2}, zone=ZONES[generation])
    quota = plan.quota and (plan.quota.metric, plan.quota.chips, plan.quota.region)
    assert quota == (metric and (metric, 2 * plan.chips, ZONES[generation].rpartition("-")[0]))


def test_chips_alone_are_enough_where_one_shape_has_them() -> None:
    assert one({"generation": "v6e", "chips": 16}).topology == "4x4"
    assert one({"generation": "v5p", "chips": 8}, zone=ZONES["v5p"]).topology == "2x2x2"


@pytest.mark.parametrize(("zone", "machine"), [("us-central2-b", "n2-standard-4"), ("us-east5-b", "e2-standard-4")])
def test_the_system_pool_has_a_machine_type_of_its_zone(zone: str, machine: str) -> None:
    assert load({}, zone=zone).system_pool.machine_type == machine


def test_plans_come_in_the_order_of_their_names() -> None:
    spec = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
    assert [plan.name for plan in load({"b": spec, "a": spec, "c": spec}).slice_plans] == ["a", "b", "c"]


def test_the_control_plane_is_in_the_region_or_in_the_zone() -> None:
    assert load().location == "us-east5"
    assert load(cluster={"regional": False}).location == "us-east5-b"


def test_an_existing_network_is_named_in_full() -> None:
    network = {"kind": "existing", "network": "n", "subnetwork": "s", "pods_range": "p", "services_range": "v"}
    platform = load(network=network | {"project": "host-project"})
    assert platform.network.kind == "existing"
    assert network_id(platform, platform.network) == "projects/host-project/global/networks/n"
    assert subnetwork_id(platform, platform.network) == "projects/host-project/regions/us-east5/subnetworks/s"
    own = load(network=network)
    assert own.network.kind == "existing"
    assert network_id(own, own.network) == "projects/my-project/global/networks/n"


def test_the_page_names_what_is_exported_of_a_slice() -> None:
    """Outputs are an interface: a key that is renamed is renamed on the page."""
    page = (Path(__file__).parents[2] / "docs" / "real-cloud.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `slices` |")]
    named = re.sub(r"\([^)]*\)", "", row.partition("by name: ")[2])
    assert set(re.findall("`([a-z_]+)`", named)) == one({"generation": "v6e", "chips": 16}).summary().keys()
