"""What follows from a slice: node pools, placement, capacity settings, labels, cost. Plain values, no Pulumi."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spec import capacity as models
from spec import versions
from spec.capacity import BEHAVIOUR, SCHEDULING, AnyCapacity, Behaviour
from spec.catalogue import Generation, Machine, Price
from spec.labels import COMPUTE_CLASS_LABEL, QUEUED_LABEL, TAINT_EFFECTS
from spec.queueing import FLAVOR_LABEL, flavor_of
from spec.shape import Shape, resolve
from spec.slice import AdditionalNetwork, NodeDrain, SecondaryBootDisk, Slice

if TYPE_CHECKING:
    from spec.platform import Platform

SLICE_LABEL = "tpu-platform/slice"
"""Node label that names the group a host belongs to; the same for all its pools, so queues can select it."""

DRA_LABEL = "cloud.google.com/gke-tpu-dra-driver"
DRANET_LABEL = "cloud.google.com/gke-networking-dra-driver"

HOURS_PER_MONTH = 730
PROVIDER_TIMEOUT_HOURS = 2
"""The provider's own time limit for a node pool; no pool gets less."""


@dataclass(frozen=True)
class Taint:
    """A node taint in the GKE API's spelling (`effect`: NO_SCHEDULE, ...)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class Placement:
    """How GKE keeps the hosts of a slice together. `type` is empty where a workload policy decides: the API then wants
    no type at all, and the provider sends none for the empty string."""

    type: str
    topology: str
    policy: str | None


@dataclass(frozen=True)
class WorkloadPolicy:
    """A workload policy the platform owns; `mode` None leaves the API's default."""

    name: str
    topology: str
    mode: str | None


@dataclass(frozen=True)
class ReservationAffinity:
    """What a node pool says about reservations; stated on every TPU pool, also when there is none."""

    type: str
    key: str | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Disk:
    """A boot disk."""

    type: str
    size_gb: int


@dataclass(frozen=True)
class Quota:
    """Quota that the group's hosts need: `amount` chips of `metric` in `region`."""

    metric: str
    amount: int
    unit: str
    region: str


@dataclass(frozen=True)
class PoolPlan:
    """One node pool. Either `node_count` (static) or `min_nodes` and `max_nodes` (autoscaled) is set."""

    name: str
    reservation: ReservationAffinity
    node_count: int | None = None
    min_nodes: int | None = None
    max_nodes: int | None = None

    @property
    def most_nodes(self) -> int:
        """Hosts the pool may have."""
        return self.node_count if self.max_nodes is None else self.max_nodes  # type: ignore[return-value]


@dataclass(frozen=True)
class CpuPool:
    """An autoscaled node pool without TPUs."""

    name: str
    machine_type: str
    min_nodes: int
    max_nodes: int
    disk_type: str
    disk_size_gb: int
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


@dataclass(frozen=True)
class ComputeClass:
    """A GKE ComputeClass: `priorities` are pool names to try, in this order."""

    name: str
    priorities: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SlicePlan:
    """A group of identical slices of one capacity model: everything derived.

    `hosts`, `chips`: of one slice; `count`: how many slices. A slice with fallbacks has one plan for each alternative,
    all of the same `group`; other plans have the group's name as their own. `wait`: text for people.
    `price_per_chip_hour` None: no price known. `backend`: "gke" or "compute", where each pool is a managed instance
    group of that size.
    """

    backend: str
    name: str
    group: str
    count: int
    generation: Generation
    machine: Machine
    topology: str
    hosts: int
    chips: int
    capacity: str
    devices: str
    placement: Placement | None
    pools: tuple[PoolPlan, ...]
    spot: bool
    flex_start: bool
    queued: bool
    max_run_duration: str | None
    auto_repair: bool
    auto_upgrade: bool
    location_policy: str
    boot_disk: Disk
    secondary_boot_disks: tuple[SecondaryBootDisk, ...]
    image_streaming: bool
    accelerator_network_profile: str | None
    additional_networks: tuple[AdditionalNetwork, ...]
    max_pods_per_node: int
    host_maintenance_interval: str | None
    node_drain: NodeDrain | None
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tags: tuple[str, ...]
    resource_labels: Mapping[str, str]
    service_account: str | None
    kms_key: str | None
    threads_per_core: int | None
    version: str | None
    protect: bool
    delete_before_replace: bool
    timeout_hours: int
    price_per_chip_hour: Price | None
    quota: Quota | None
    wait: str
    compute_class: str | None

    @property
    def chips_per_host(self) -> int:
        return self.machine.chips

    @property
    def multi_host(self) -> bool:
        return self.hosts > 1

    @property
    def reservation(self) -> ReservationAffinity:
        """Of the first pool; pools differ only where every slice has a sub-block of its own."""
        return self.pools[0].reservation

    @property
    def total_chips(self) -> int:
        """Chips of all slices of the group."""
        return self.chips * self.count

    @property
    def price_per_hour(self) -> float | None:
        """Estimate for all slices of the group when all run, in the price's currency."""
        if self.price_per_chip_hour is None:
            return None
        return round(self.total_chips * self.price_per_chip_hour.amount, 2)

    def summary(self) -> dict[str, Any]:
        """The plan as plain data, for machines: stack outputs and `explain --json`."""
        placement, quota = self.placement, self.quota
        return {
            "name": self.name,
            "generation": self.generation.name,
            "machine_type": self.machine.name,
            "topology": self.topology,
            "hosts": self.hosts,
            "chips_per_host": self.chips_per_host,
            "chips": self.chips,
            "count": self.count,
            "capacity": self.capacity,
            "placement": placement
            and {"type": placement.type, "topology": placement.topology, "policy": placement.policy},
            "backend": self.backend,
            "pools": [{"nodes": pool.node_count, "min": pool.min_nodes, "max": pool.max_nodes} for pool in self.pools],
            "price_per_hour_usd": self.price_per_hour,
            "quota": quota
            and {"metric": quota.metric, "amount": quota.amount, "unit": quota.unit, "region": quota.region},
        }


def plan_group(platform: "Platform", group: str, spec: Slice) -> Iterator[SlicePlan]:
    """The plans of one entry under `slices`: one, or one for each alternative of a fallback."""
    shape = resolve(spec)
    for alternative in spec.capacity:
        plan = _plan(platform, group, spec, shape, alternative)
        yield replace(plan, labels={**plan.labels, FLAVOR_LABEL: flavor_of(plan)})


def _plan(platform: "Platform", group: str, spec: Slice, shape: Shape, capacity: AnyCapacity) -> SlicePlan:
    behaviour = BEHAVIOUR[capacity.model]
    on_gke = platform.backend == "gke"
    fallback = len(spec.capacity) > 1
    autoscaled = on_gke and (behaviour.always_autoscaled or fallback or bool(spec.autoscale))
    name = f"{group}-{capacity.model}" if fallback else group
    compute_class = f"{platform.name}-{group}" if fallback else None
    return SlicePlan(
        backend=platform.backend,
        name=name,
        group=group,
        count=spec.count,
        generation=shape.generation,
        machine=shape.machine,
        topology=shape.topology,
        hosts=shape.hosts,
        chips=shape.chips,
        capacity=capacity.model,
        devices=spec.devices,
        placement=_placement(platform, spec, shape),
        pools=tuple(_pools(name, spec.count, shape, capacity, autoscaled)),
        spot=behaviour.spot,
        flex_start=behaviour.flex_start,
        queued=behaviour.queued,
        max_run_duration=getattr(capacity, "max_run_duration", None),
        auto_repair=behaviour.auto_repair,
        auto_upgrade=platform.auto_upgrade,
        location_policy="ANY",
        boot_disk=Disk(spec.boot_disk.type or shape.generation.boot_disks[0], spec.boot_disk.size_gb),
        secondary_boot_disks=spec.secondary_boot_disks,
        image_streaming=spec.image_streaming,
        accelerator_network_profile="auto" if spec.dranet else None,
        additional_networks=spec.additional_networks,
        max_pods_per_node=spec.max_pods_per_node,
        host_maintenance_interval=spec.host_maintenance,
        node_drain=spec.node_drain,
        labels=_labels(group, spec, behaviour, compute_class),
        taints=tuple(_taints(spec, compute_class)),
        tags=spec.tags,
        resource_labels={**platform.machine_labels, "tpu-slice": group, **spec.resource_labels},
        service_account=spec.service_account,
        kms_key=spec.kms_key,
        threads_per_core=shape.machine.threads_per_core,
        version=_version(platform, shape),
        protect=platform.protect if spec.protect is None else spec.protect,
        delete_before_replace=True,
        timeout_hours=max(PROVIDER_TIMEOUT_HOURS, 0 if autoscaled else behaviour.wait_hours + 1),
        price_per_chip_hour=_price(platform, shape.generation, behaviour),
        quota=_quota(platform, spec.count * shape.chips, shape.generation, behaviour),
        wait=behaviour.wait if on_gke or capacity.model not in SCHEDULING else SCHEDULING[capacity.model].words,
        compute_class=compute_class,
    )


def policy_name(platform: "Platform", topology: str, mode: str | None) -> str:
    """Name of the workload policy for a topology and mode; the shape is in it, since policies cannot be edited."""
    return "-".join([platform.name, topology, *(["provision-only"] if mode else [])])


def policy_mode(spec: Slice) -> str | None:
    """Dynamic slicing provisions cubes without joining them: the slice controller does that later."""
    return "PROVISION_ONLY" if spec.dynamic_slicing else None


def _placement(platform: "Platform", spec: Slice, shape: Shape) -> Placement | None:
    if not shape.multi_host:
        return None
    if platform.backend == "gke" and shape.generation.placement == "compact":
        return Placement("COMPACT", shape.topology, None)
    return Placement("", shape.topology, policy_name(platform, shape.topology, policy_mode(spec)))


def _pools(name: str, count: int, shape: Shape, capacity: AnyCapacity, autoscaled: bool) -> Iterator[PoolPlan]:
    """A pool for each multi-host slice, since GKE ties a pool to one slice; single-host slices share one pool."""
    affinities = _affinities(capacity)
    pools = [(f"{name}-{index}", shape.hosts) for index in range(count)] if shape.multi_host else [(name, count)]
    for index, (pool, nodes) in enumerate(pools):
        affinity = affinities[index % len(affinities)]
        if autoscaled:
            yield PoolPlan(pool, affinity, min_nodes=0, max_nodes=nodes)
        else:
            yield PoolPlan(pool, affinity, node_count=nodes if getattr(capacity, "active", True) else 0)


def _affinities(capacity: AnyCapacity) -> tuple[ReservationAffinity, ...]:
    """One affinity for all pools, or one for each sub-block."""
    if not isinstance(capacity, models.Reservation):
        return (ReservationAffinity("NO_RESERVATION"),)
    value = f"projects/{capacity.project}/reservations/{capacity.name}" if capacity.project else capacity.name
    if capacity.block:
        value += f"/reservationBlocks/{capacity.block}"
    values = [f"{value}/reservationSubBlocks/{sub_block}" for sub_block in capacity.sub_block] or [value]
    return tuple(ReservationAffinity("SPECIFIC_RESERVATION", models.RESERVATION_KEY, (value,)) for value in values)


def _labels(group: str, spec: Slice, behaviour: Behaviour, compute_class: str | None) -> dict[str, str]:
    """Labels that GKE does not set by itself; its own (accelerator, topology) would only drift if declared."""
    labels = {**spec.labels, SLICE_LABEL: group}
    if spec.devices == "dra":
        labels[DRA_LABEL] = "true"
    if spec.dranet:
        labels[DRANET_LABEL] = "true"
    if behaviour.queued:
        labels[QUEUED_LABEL] = "true"
    if compute_class:
        labels[COMPUTE_CLASS_LABEL] = compute_class
    return labels


def _taints(spec: Slice, compute_class: str | None) -> Iterator[Taint]:
    yield from (api_taint(taint.key, taint.value, taint.effect) for taint in spec.taints)
    if compute_class:
        yield Taint(COMPUTE_CLASS_LABEL, compute_class, "NO_SCHEDULE")


def api_taint(key: str, value: str, effect: str) -> Taint:
    """A taint in the GKE API's spelling, from Kubernetes'."""
    return Taint(key, value, TAINT_EFFECTS[effect])


def _version(platform: "Platform", shape: Shape) -> str | None:
    """New pools may start below the control plane's version; only where a generation needs a floor is that pinned."""
    version = platform.gke.version if platform.backend == "gke" else None
    return version if version and shape.generation.min_version and versions.is_exact(version) else None


def _price(platform: "Platform", generation: Generation, behaviour: Behaviour) -> Price | None:
    rate = platform.prices.get(generation.name)
    if rate is not None:
        amount = rate.spot_usd_per_chip_hour if behaviour.spot else rate.usd_per_chip_hour
        return None if amount is None else Price(amount, "USD", rate.as_of, rate.source)
    price = generation.price
    if price is None or not behaviour.spot:
        return price
    return Price(
        round(price.amount * generation.spot_factor, 4),
        price.currency,
        price.as_of,
        f"{price.source}; spot estimated at {generation.spot_factor:g} of it",
    )


def _quota(platform: "Platform", chips: int, generation: Generation, behaviour: Behaviour) -> Quota | None:
    if behaviour.quota is None or generation.quota is None:
        return None
    return Quota(getattr(generation.quota, behaviour.quota), chips, "chips", platform.region)
