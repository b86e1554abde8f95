"""What follows from queues and slices: flavors, quotas, claims, checks. Plain values, no Pulumi.

Quotas are counted in chips. Device-plugin pods ask for `google.com/tpu`; DRA pods are counted under a resource of their
own, which Kueue maps from DeviceClasses: one shared key would let a DRA pod take the quota of hosts it cannot run on.
Field rules: Kueue v0.19 `apis/kueue/v1beta2`; DRA counting: `pkg/dra/claims.go` (ExactCount only, no selectors in
claims).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec import multikueue
from spec.labels import COMPUTE_CLASS_LABEL, QUEUED_LABEL, TAINT_EFFECTS
from spec.queues import Queue, SliceCounts

if TYPE_CHECKING:
    from spec.platform import Platform
    from spec.slices import SlicePlan

DEVICE_PLUGIN_RESOURCE = "google.com/tpu"
DRA_RESOURCE = "google.com/tpu-dra"
RESOURCES = {"device-plugin": DEVICE_PLUGIN_RESOURCE, "dra": DRA_RESOURCE}

ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
CHIPS_LABEL = "cloud.google.com/gke-accelerator-count"
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
HOSTNAME_LABEL = "kubernetes.io/hostname"
FLAVOR_LABEL = "tpu-platform/flavor"
"""Node label that names the flavor of a host; declared by the platform, so that a flavor selects exactly its pools."""

TPU_TAINT = "google.com/tpu"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
TOPOLOGY_NAME = "gke-tpu"

# The driver's name for a generation, where it is not ours.
TPU_GEN = {"v5e": "v5litepod"}


@dataclass(frozen=True)
class Toleration:
    """A toleration in Kubernetes' spelling; without `value` any value is tolerated."""

    key: str
    value: str | None = None
    effect: str = "NoSchedule"


@dataclass(frozen=True)
class Flavor:
    """Hosts of one shape and capacity model. `chips`: of one slice; `check`: the admission check it needs, if any."""

    name: str
    generation: str
    topology: str
    hosts: int
    chips: int
    chips_per_host: int
    devices: str
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    queued: bool
    topology_aware: bool

    @property
    def resource(self) -> str:
        """The resource that quotas of this flavor are counted in."""
        return RESOURCES[self.devices]

    @property
    def check(self) -> str | None:
        """Name of the admission check, one for each topology since the topology is its parameter."""
        return f"queued-{self.topology}" if self.queued else None

    @property
    def device_class(self) -> str | None:
        """DeviceClass of its chips, one for each generation: Kueue wants selectors there and not in claims."""
        return f"tpu-{self.generation}" if self.devices == "dra" else None

    @property
    def claim_template(self) -> str | None:
        """Name of the ResourceClaimTemplate for one host of it."""
        return f"tpu-{self.generation}-{self.chips_per_host}" if self.devices == "dra" else None


@dataclass(frozen=True)
class FlavorQuota:
    """A queue's quota in one flavor, in chips; None for a limit means none."""

    flavor: Flavor
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True)
class ClusterQueue:
    """A ClusterQueue: quotas by resource, flavors in the order of preference.

    `dispatched`: its work goes to the workers of a MultiKueue manager.
    """

    name: str
    cohort: str
    namespaces: tuple[str, ...]
    quotas: Mapping[str, tuple[FlavorQuota, ...]]
    spec: Queue
    dispatched: bool

    @property
    def checks(self) -> Mapping[str, tuple[str, ...]]:
        """Admission checks, each with the flavors it is for; none: for all, as Kueue wants it of MultiKueue's."""
        if self.dispatched:
            return {multikueue.CHECK: ()}
        checks: dict[str, tuple[str, ...]] = {}
        for quota in (quota for quotas in self.quotas.values() for quota in quotas):
            if quota.flavor.check:
                checks[quota.flavor.check] = (*checks.get(quota.flavor.check, ()), quota.flavor.name)
        return checks


@dataclass(frozen=True)
class ClaimTemplate:
    """A ResourceClaimTemplate in a namespace: all `count` chips of one host."""

    name: str
    namespace: str
    device_class: str
    count: int


def flavor_of(plan: "SlicePlan") -> str:
    """Name of a plan's flavor: shape, capacity model and how devices are handed out; or its ComputeClass."""
    if plan.compute_class:
        return plan.compute_class
    shape = f"{plan.generation.name}-{plan.topology}-{plan.chips_per_host}t"
    return "-".join([shape, plan.capacity, *(["dra"] if plan.devices == "dra" else [])])


def flavors(platform: "Platform") -> dict[str, Flavor]:
    """Every flavor that the platform's queues share out, by name."""
    found: dict[str, Flavor] = {}
    for plan in platform.shared_plans:
        found.setdefault(flavor_of(plan), _flavor(platform, plan))
    return dict(sorted(found.items()))


def _flavor(platform: "Platform", plan: "SlicePlan") -> Flavor:
    return Flavor(
        name=flavor_of(plan),
        generation=plan.generation.name,
        topology=plan.topology,
        hosts=plan.hosts,
        chips=plan.chips,
        chips_per_host=plan.chips_per_host,
        devices=plan.devices,
        node_labels=_node_labels(plan),
        tolerations=tuple(_tolerations(plan)),
        # Capacity is asked for where it is: Kueue refuses both checks on one queue.
        queued=plan.queued and not platform.is_manager,
        topology_aware=platform.software.kueue.topology_aware
        and plan.devices == "device-plugin"
        and plan.multi_host
        and all(pool.node_count for pool in plan.pools),
    )


def _node_labels(plan: "SlicePlan") -> dict[str, str]:
    labels = {
        ACCELERATOR_LABEL: plan.generation.accelerator,
        TOPOLOGY_LABEL: plan.topology,
        CHIPS_LABEL: str(plan.chips_per_host),
        FLAVOR_LABEL: flavor_of(plan),
    }
    if plan.queued:
        labels[QUEUED_LABEL] = "true"
    if plan.compute_class:
        labels[COMPUTE_CLASS_LABEL] = plan.compute_class
    return labels


def _tolerations(plan: "SlicePlan") -> Iterator[Toleration]:
    """The TPU taint is tolerated for every flavor: GKE adds that only to pods that ask the device plugin."""
    effects = {api: effect for effect, api in TAINT_EFFECTS.items()}
    yield Toleration(TPU_TAINT)
    if plan.queued:
        yield Toleration(QUEUED_LABEL, "true")
    for taint in plan.taints:
        yield Toleration(taint.key, taint.value, effects[taint.effect])


def cluster_queues(platform: "Platform") -> tuple[ClusterQueue, ...]:
    """Every ClusterQueue of the platform, by name."""
    return tuple(_cluster_queue(platform, name, platform.queues[name]) for name in sorted(platform.queues))


def _cluster_queue(platform: "Platform", name: str, queue: Queue) -> ClusterQueue:
    plans = {plan.group: plan for plan in reversed(platform.shared_plans)}
    by_flavor: dict[str, FlavorQuota] = {}
    known = flavors(platform)
    for group, slices in queue.slices.items():
        flavor = known[flavor_of(plans[group])]
        quota = FlavorQuota(
            flavor,
            slices * flavor.chips,
            _limit(queue.borrow, group, flavor),
            _limit(queue.lend, group, flavor),
        )
        by_flavor[flavor.name] = _added(by_flavor.get(flavor.name), quota)
    quotas: dict[str, tuple[FlavorQuota, ...]] = {}
    for quota in by_flavor.values():
        quotas[quota.flavor.resource] = (*quotas.get(quota.flavor.resource, ()), quota)
    return ClusterQueue(
        name,
        queue.cohort or platform.name,
        queue.namespaces,
        dict(sorted(quotas.items())),
        queue,
        dispatched=platform.is_manager,
    )


def reach(platform: "Platform", queue: str, flavor: str) -> int:
    """The most chips of a flavor that a queue can ever have at once: its own, and what its cohorts' other queues lend,
    up to its borrowing limit."""
    own: FlavorQuota | None = None
    lent = 0
    queues = {each.name: each for each in cluster_queues(platform)}
    tree = _root(platform, queues[queue].cohort)
    for name, each in queues.items():
        quota = next(
            (quota for quotas in each.quotas.values() for quota in quotas if quota.flavor.name == flavor), None
        )
        if quota and name == queue:
            own = quota
        elif quota and _root(platform, each.cohort) == tree:
            lent += quota.nominal if quota.lending_limit is None else min(quota.nominal, quota.lending_limit)
    if own is None:
        return 0
    return own.nominal + (lent if own.borrowing_limit is None else min(lent, own.borrowing_limit))


def _root(platform: "Platform", cohort: str) -> str:
    """The cohort at the top of a cohort's tree."""
    seen: set[str] = set()
    while cohort not in seen and cohort in platform.cohorts and platform.cohorts[cohort].parent:
        seen.add(cohort)
        cohort = platform.cohorts[cohort].parent or cohort
    return cohort


def _limit(limit: bool | SliceCounts, group: str, flavor: Flavor) -> int | None:
    """A borrowing or lending limit in chips: none for True, nothing for False."""
    if limit is True:
        return None
    return 0 if limit is False else limit.get(group, 0) * flavor.chips


def _added(first: FlavorQuota | None, second: FlavorQuota) -> FlavorQuota:
    """Two groups of the same flavor share one quota."""
    if first is None:
        return second

    def both(left: int | None, right: int | None) -> int | None:
        return None if left is None or right is None else left + right

    return FlavorQuota(
        first.flavor,
        first.nominal + second.nominal,
        both(first.borrowing_limit, second.borrowing_limit),
        both(first.lending_limit, second.lending_limit),
    )


def claim_templates(platform: "Platform") -> tuple[ClaimTemplate, ...]:
    """One template for each DRA host shape in each namespace that may submit work."""
    shapes = {
        (flavor.claim_template, flavor.device_class, flavor.chips_per_host)
        for flavor in flavors(platform).values()
        if flavor.claim_template and flavor.device_class
    }
    return tuple(
        ClaimTemplate(name, namespace, device_class, count)
        for namespace in platform.workload_namespaces
        for name, device_class, count in sorted(shapes)
        if name and device_class
    )


def device_classes(platform: "Platform") -> dict[str, str]:
    """DeviceClasses beside the driver's own, with their CEL selector.

    Only `tpuGen` may be asked for: it is the one attribute that GKE predicts for a pool without hosts.
    """
    classes = {
        flavor.device_class: TPU_GEN.get(flavor.generation, flavor.generation)
        for flavor in flavors(platform).values()
        if flavor.device_class
    }
    return {
        name: f'device.driver == "tpu.google.com" && device.attributes["tpu.google.com"].tpuGen == "{generation}"'
        for name, generation in sorted(classes.items())
    }
