"""What holds for every plan because nothing else can be expressed: GKE's rules about node pools that nobody can break.

They are stated as predicates, so that tests can try them on every shape and capacity model, and the docs list them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from spec.capacity import MAX_FLEX_SECONDS
from spec.catalogue import MAX_HOSTS_PER_POOL
from spec.labels import QUEUED_LABEL
from spec.slices import SlicePlan


@dataclass(frozen=True)
class Held:
    """A rule that every `SlicePlan` satisfies."""

    id: str
    statement: str
    source: str
    holds: Callable[[SlicePlan], bool]


def _sized_as_slice(plan: SlicePlan) -> bool:
    """A multi-host pool is exactly one slice; static pools of a reservation that has not begun are empty."""
    whole = plan.hosts if plan.multi_host else plan.count
    return all(
        pool.node_count in (whole, 0) if pool.max_nodes is None else (pool.min_nodes, pool.max_nodes) == (0, whole)
        for pool in plan.pools
    )


def _placed(plan: SlicePlan) -> bool:
    if not plan.multi_host:
        return plan.placement is None
    placement = plan.placement
    by_policy = plan.generation.placement == "workload-policy"
    return (
        placement is not None
        and placement.topology == plan.topology
        and (placement.type == "") == by_policy == (placement.policy is not None)
    )


def _lent(plan: SlicePlan) -> bool:
    if not plan.flex_start:
        return True
    return (
        not plan.auto_repair
        and not plan.spot
        and plan.generation.dws
        and plan.reservation.type == "NO_RESERVATION"
        and plan.max_run_duration is not None
        and int(plan.max_run_duration.removesuffix("s")) <= MAX_FLEX_SECONDS
        and all(pool.node_count is None for pool in plan.pools)
    )


HELD = (
    Held(
        "whole-slices",
        "A pool has no host or all hosts of its slice; autoscaled pools go from 0 to all, by per-zone bounds.",
        "xpk #751 (gang mode); vllm-project/ci-infra PR 545",
        _sized_as_slice,
    ),
    Held(
        "one-size",
        "A pool has either a fixed number of hosts or bounds, never both.",
        "provider: Cannot set both initial_node_count and node_count",
        lambda plan: all((pool.node_count is None) != (pool.max_nodes is None) for pool in plan.pools),
    ),
    Held(
        "hosts-times-chips",
        "Hosts times chips of a host are the chips of the slice, and a pool has at most 2,000 hosts.",
        "cluster-autoscaler: vms = product(topology) / chips per VM, gceLimitOnMigSizes",
        lambda plan: plan.hosts * plan.chips_per_host == plan.chips and plan.hosts <= MAX_HOSTS_PER_POOL,
    ),
    Held(
        "placement",
        "Single hosts have no placement, others COMPACT and topology; tpu7x workload policy, topology and no type.",
        "cluster-autoscaler autoscaling_gke_client_v1beta1.go",
        _placed,
    ),
    Held(
        "one-capacity-model",
        "A pool is spot, or lent (flex-start), or reserved, or none of these; queued implies lent.",
        "GKE documentation, consumption options; cluster-toolkit preconditions",
        lambda plan: (
            plan.spot + plan.flex_start + (plan.reservation.type == "SPECIFIC_RESERVATION") <= 1
            and plan.flex_start >= plan.queued
        ),
    ),
    Held(
        "lent-hosts",
        "Flex-start and queued pools are not repaired, not reserved, start empty and last at most seven days.",
        "GKE documentation, flex-start; cluster-toolkit gke-consumption-options",
        _lent,
    ),
    Held(
        "queued-label",
        "Queued pools carry the label that goes with the taint GKE sets.",
        "cluster-toolkit dws-flex-start-queued-provisioning",
        lambda plan: (plan.labels.get(QUEUED_LABEL) == "true") == plan.queued,
    ),
    Held(
        "reservation-said",
        "Every pool says whether it uses a reservation, with exactly one value if it does.",
        "kubernetes-engine-samples get-started/main.tf",
        lambda plan: all(
            len(pool.reservation.values) == (pool.reservation.type == "SPECIFIC_RESERVATION") for pool in plan.pools
        ),
    ),
    Held(
        "upgrades-on",
        "Pools are upgraded automatically, as release channels demand; maintenance exclusions hold upgrades back.",
        "GKE API: Auto_upgrade must be true when release_channel is set",
        lambda plan: plan.auto_upgrade,
    ),
    Held(
        "network-or-profile",
        "A pool has an accelerator network profile or additional networks, never both.",
        "cluster-toolkit #5896",
        lambda plan: not (plan.accelerator_network_profile and plan.additional_networks),
    ),
)
