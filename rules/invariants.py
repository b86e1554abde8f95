"""Invariants of every plan: rules of GKE's node pools and of managed instance groups that no configuration can break.

They are predicates, so that tests can check them for every shape and capacity model. docs/rules.md lists them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from catalogue.labels import ACCELERATOR_LABEL, CHIPS_LABEL, QUEUED_LABEL, TOPOLOGY_LABEL, TPU_TAINT
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.capacity import FLEX_SECONDS
from plan.hosts import GROUP_NAME_LIMIT, JOIN_TOKEN, HostGroup
from plan.slices import PoolPlan, SlicePlan


class GroupOfPlan(NamedTuple):
    """A managed instance group, with its plan and the pool of the plan that it implements."""

    plan: SlicePlan
    pool: PoolPlan
    group: HostGroup


Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Invariant(Generic[Subject]):
    """A rule that every `SlicePlan`, or every `GroupOfPlan`, satisfies."""

    id: str
    statement: str
    source: str
    holds: Callable[[Subject], bool]


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
    by_policy = plan.backend == "compute" or plan.generation.placement == "workload-policy"
    return (
        placement is not None
        and placement.topology == plan.topology
        and (placement.type == "") == by_policy == (placement.policy is not None)
    )


def _flex_start(plan: SlicePlan) -> bool:
    if not plan.model.gke.flex_start:
        return True
    return (
        not plan.model.gke.auto_repair
        and not plan.model.gke.spot
        and plan.generation.dws
        and plan.reservation.type == "NO_RESERVATION"
        and plan.max_run_duration is not None
        and int(plan.max_run_duration.removesuffix("s")) <= FLEX_SECONDS
        and all((pool.node_count is None) == (plan.backend == "gke") for pool in plan.pools)
    )


INVARIANTS: tuple[Invariant[SlicePlan], ...] = (
    Invariant(
        "whole-slices",
        "A pool has no host or all hosts of its slice; autoscaled pools go from 0 to all, by per-zone bounds.",
        "xpk #751 (gang mode); vllm-project/ci-infra PR 545",
        _sized_as_slice,
    ),
    Invariant(
        "one-size",
        "A pool has either a fixed number of hosts or bounds, never both.",
        "provider: Cannot set both initial_node_count and node_count",
        lambda plan: all((pool.node_count is None) != (pool.max_nodes is None) for pool in plan.pools),
    ),
    Invariant(
        "hosts-times-chips",
        "Hosts times chips of a host are the chips of the slice, and a pool has at most 2,000 hosts.",
        "cluster-autoscaler: vms = product(topology) / chips per VM, gceLimitOnMigSizes",
        lambda plan: plan.hosts * plan.chips_per_host == plan.chips and plan.hosts <= MAX_HOSTS_PER_POOL,
    ),
    Invariant(
        "placement",
        "Single hosts have no placement, others COMPACT and topology; tpu7x, and all without GKE, a workload policy, "
        "topology and no type.",
        "cluster-autoscaler autoscaling_gke_client_v1beta1.go; Compute Engine documentation, workload policies",
        _placed,
    ),
    Invariant(
        "one-capacity-model",
        "A pool is spot, flex-start, reserved, or none of these; queued implies flex-start.",
        "GKE documentation, consumption options; cluster-toolkit preconditions",
        lambda plan: (
            plan.model.gke.spot + plan.model.gke.flex_start + (plan.reservation.type == "SPECIFIC_RESERVATION") <= 1
            and plan.model.gke.flex_start >= plan.queued
        ),
    ),
    Invariant(
        "lent-hosts",
        "Flex-start and queued pools are not repaired, not reserved, start empty on GKE, and last at most seven days.",
        "GKE documentation, flex-start; cluster-toolkit gke-consumption-options",
        _flex_start,
    ),
    Invariant(
        "queued-label",
        "Queued pools, and no others, have the label that matches the taint that GKE sets.",
        "cluster-toolkit dws-flex-start-queued-provisioning",
        lambda plan: (plan.labels.get(QUEUED_LABEL) == "true") == plan.queued,
    ),
    Invariant(
        "reservation-said",
        "Every pool says whether it uses a reservation, with exactly one value if it does.",
        "kubernetes-engine-samples get-started/main.tf",
        lambda plan: all(
            len(pool.reservation.values) == (pool.reservation.type == "SPECIFIC_RESERVATION") for pool in plan.pools
        ),
    ),
    Invariant(
        "network-or-profile",
        "A pool has an accelerator network profile or additional networks, never both.",
        "cluster-toolkit #5896",
        lambda plan: not (plan.spec.dranet and plan.spec.additional_networks),
    ),
)


def _named_and_placed(subject: GroupOfPlan) -> bool:
    """Groups of several hosts, and no others, are bulk and have a workload policy: that of the plan's topology."""
    plan, _, group = subject
    policy = plan.placement.policy if plan.placement else None
    return group.bulk == plan.multi_host == (group.policy is not None) and group.policy == policy


def _bound_to_reservation(subject: GroupOfPlan) -> bool:
    template = subject.group.template
    bound = template.scheduling.provisioning_model == "RESERVATION_BOUND"
    reservation = template.reservation
    return reservation is not None and bound == (
        reservation.type == "SPECIFIC_RESERVATION" and reservation == subject.pool.reservation
    )


def _has_termination(subject: GroupOfPlan) -> bool:
    template, flex_start = subject.group.template, subject.plan.model.gke.flex_start
    scheduling = template.scheduling
    if flex_start and (scheduling.provisioning_model != "FLEX_START" or scheduling.restart or scheduling.up_waits):
        return False
    if template.max_run_seconds is None:
        return not flex_start
    return scheduling.termination is not None and scheduling.provisioning_model != "RESERVATION_BOUND"


def _labelled_and_tainted(subject: GroupOfPlan) -> bool:
    plan, _, group = subject
    labels = {
        ACCELERATOR_LABEL: plan.generation.accelerator,
        TOPOLOGY_LABEL: plan.topology,
        CHIPS_LABEL: str(plan.chips_per_host),
    }
    metadata = group.template.metadata()
    node_labels = dict(label.split("=") for label in metadata["tpu-node-labels"].split(","))
    plugin = dict(label.split("=") for label in metadata["kube-labels"].split(","))
    return (
        plugin == labels
        and {**plan.labels, **labels}.items() <= node_labels.items()
        and f"{TPU_TAINT}=present:NoSchedule" in metadata["tpu-node-taints"].split(",")
    )


GROUP_INVARIANTS: tuple[Invariant[GroupOfPlan], ...] = (
    Invariant(
        "group-of-a-slice",
        "A group has the hosts of its slice, or one for each single-host slice, or none before its reservation begins.",
        "Compute Engine documentation, bulk mode: a group grows from no hosts to all",
        lambda subject: (
            subject.group.size in (0, subject.plan.hosts if subject.plan.multi_host else subject.plan.count)
            and subject.group.size == len(set(subject.group.host_names))
        ),
    ),
    Invariant(
        "bulk-and-policy",
        "Groups of several hosts a slice are bulk and have the workload policy of their topology; others are neither.",
        "Compute Engine documentation, bulk mode and workload policies; gke-labs/tpu-operator CRD",
        _named_and_placed,
    ),
    Invariant(
        "reservation-bound",
        "Exactly the groups with a reservation are bound to it; all others use none.",
        "gke-labs/tpu-operator CRD",
        _bound_to_reservation,
    ),
    Invariant(
        "end-of-hosts",
        "Hosts with a run limit have a termination action; flex-start hosts have a run limit, and are never restarted.",
        "Compute Engine API, scheduling; terraform-provider-google acceptance tests",
        _has_termination,
    ),
    Invariant(
        "marked-hosts",
        "Hosts have the TPU taint, and the TPU labels both for the device plugin and for the kubelet.",
        "TPU device plugin, metadata attribute kube-labels; GKE documentation, TPU taint",
        _labelled_and_tainted,
    ),
    Invariant(
        "no-secret-metadata",
        "No instance metadata has a value that looks like a join token.",
        "kubeadm documentation, bootstrap tokens; everybody who may view an instance reads its metadata",
        lambda subject: not JOIN_TOKEN.search("\n".join(subject.group.template.metadata().values())),
    ),
    Invariant(
        "names-fit",
        "Names of hosts and groups fit into 63 characters.",
        "Compute Engine API, resource names",
        lambda subject: (
            len(subject.group.name) <= GROUP_NAME_LIMIT and all(len(name) <= 63 for name in subject.group.host_names)
        ),
    ),
)
