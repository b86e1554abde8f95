"""What is derived from a slice: node pools, placement, labels, cost. Plain values, no Pulumi."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from catalogue import versions
from catalogue.generations import Generation, Machine, Price
from catalogue.labels import (
    COMPUTE_CLASS_LABEL,
    DRA_LABEL,
    DRANET_LABEL,
    FLAVOR_LABEL,
    PLATFORM_LABEL,
    QUEUED_LABEL,
    SLICE_LABEL,
    TAINT_EFFECTS,
    tpu_labels,
)
from plan.backend import Backend, backend, region
from plan.capacity import CapacityModel, OnCompute, ReservationAffinity, model_of
from plan.provisioning import TPU_PROVISIONER, Provisioning, provisioning_of
from plan.shape import Shape, resolve
from platform_config.capacity import AnyCapacity
from platform_config.cluster import GkeCluster
from platform_config.platform import PlatformConfig
from platform_config.slice import Slice

HOURS_PER_MONTH = 730
PROVIDER_TIMEOUT_HOURS = 2
"""The provider's own time limit for a node pool; no pool gets less."""


@dataclass(frozen=True)
class NodeTaint:
    """A node taint in the GKE API's spelling (`effect`: NO_SCHEDULE, ...)."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class Placement:
    """How GKE keeps the hosts of a slice together. `type` is empty where a workload policy decides: the API then
    accepts no type, and the provider sends none for the empty string."""

    type: str
    topology: str
    policy: str | None


@dataclass(frozen=True)
class WorkloadPolicy:
    """A workload policy of the platform; `mode` None means the API's default."""

    name: str
    topology: str
    mode: str | None


@dataclass(frozen=True)
class Disk:
    """A boot disk."""

    type: str
    size_gb: int


@dataclass(frozen=True)
class Quota:
    """Quota that the hosts of a group of slices need: so many `chips` of `metric` in `region`."""

    metric: str
    chips: int
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
class CpuPoolPlan:
    """An autoscaled node pool without TPUs."""

    name: str
    machine_type: str
    min_nodes: int
    max_nodes: int
    disk_type: str
    disk_size_gb: int
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]


@dataclass(frozen=True)
class SlicePlan:
    """A group of identical slices of one capacity model: what was written (`spec`), and everything derived.

    - `group`: the entry under `slices`. A slice with fallbacks has one plan for each capacity model, all with the same
      `group` and a `compute_class`; any other plan has the name of its group
    - `backend`: with `compute`, each pool is a managed instance group of that size
    - `provisioning`: how hosts come to be; `pools` are those that the program declares
    - `alternative`: the capacity model as it was written, `model` what it determines
    - `version`: lowest GKE version that the pools need, if any
    - `timeout_hours`: how long it may take to create a pool
    - `price_per_chip_hour`: None if no price is known
    """

    backend: Backend
    name: str
    group: str
    spec: Slice
    shape: Shape
    provisioning: Provisioning
    alternative: AnyCapacity
    model: CapacityModel
    placement: Placement | None
    pools: tuple[PoolPlan, ...]
    boot_disk: Disk
    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    resource_labels: Mapping[str, str]
    version: str | None
    protect: bool
    timeout_hours: int
    price_per_chip_hour: Price | None
    quota: Quota | None
    compute_class: str | None

    @property
    def count(self) -> int:
        """How many slices."""
        return self.spec.count

    @property
    def generation(self) -> Generation:
        return self.shape.generation

    @property
    def machine(self) -> Machine:
        return self.shape.machine

    @property
    def topology(self) -> str:
        return self.shape.topology

    @property
    def hosts(self) -> int:
        """Hosts of one slice."""
        return self.shape.hosts

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return self.shape.chips

    @property
    def chips_per_host(self) -> int:
        return self.machine.chips

    @property
    def multi_host(self) -> bool:
        return self.shape.multi_host

    @property
    def capacity(self) -> str:
        """Name of the capacity model."""
        return self.model.name

    @property
    def devices(self) -> str:
        """How pods get chips."""
        return self.spec.devices

    @property
    def queued(self) -> bool:
        """Whether Kueue asks GKE for the hosts."""
        return self.model.gke.queued

    @property
    def begun(self) -> bool:
        """Whether hosts can be had already: not before a future reservation begins."""
        return self.model.begun(self.alternative)

    @property
    def wait(self) -> str:
        """The longest wait for hosts, in words."""
        if not self.begun:
            return "until the reservation begins, and its `active` is true"
        if self.provisioning.wait:
            return self.provisioning.wait
        compute = self.model.compute
        return compute.wait if self.backend == "compute" and isinstance(compute, OnCompute) else self.model.gke.wait

    @property
    def flavor(self) -> str:
        """Name of its hosts' flavor: shape, capacity model and kind of devices; or the group's own."""
        return self.labels[FLAVOR_LABEL]

    @property
    def tpu_labels(self) -> dict[str, str]:
        """Node labels with its TPU type, topology and chips."""
        return tpu_labels(self.generation.accelerator, self.topology, self.chips_per_host)

    @property
    def reservation(self) -> ReservationAffinity:
        """Affinity of the first slice; slices differ only where each has its own sub-block."""
        return self.model.affinities(self.alternative)[0]

    @property
    def max_run_duration(self) -> str | None:
        """After how long hosts are deleted, such as `3600s`."""
        return self.model.run_limit(self.alternative)

    @property
    def most_hosts(self) -> int:
        """Hosts that may exist at once. A reservation that has not begun has none."""
        return sum(hosts for _, hosts in self.asks)

    @property
    def asks(self) -> tuple[tuple[ReservationAffinity, int], ...]:
        """Where hosts come from, and how many may: of each declared pool, or of each slice that may exist at once."""
        if self.provisioning.declared:
            return tuple((pool.reservation, pool.most_nodes) for pool in self.pools)
        affinities = self.model.affinities(self.alternative)
        return tuple((affinities[index % len(affinities)], self.hosts) for index in range(self.count))

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

    @property
    def price_is_upper_bound(self) -> bool:
        """Whether less may be paid than `price_per_hour` says."""
        return self.price_per_chip_hour is not None and self.price_per_chip_hour.upper_bound

    def summary(self) -> dict[str, Any]:
        """The plan as plain data, for stack outputs and `explain --json`.

        Each name says of what it is: `..._per_host`, `..._per_slice`, or `group_...` for all `count` slices together.
        """
        placement, quota = self.placement, self.quota
        return {
            "name": self.name,
            "group": self.group,
            "generation": self.generation.name,
            "machine_type": self.machine.name,
            "topology": self.topology,
            "count": self.count,
            "hosts_per_slice": self.hosts,
            "chips_per_host": self.chips_per_host,
            "chips_per_slice": self.chips,
            "group_hosts": self.hosts * self.count,
            "group_chips": self.total_chips,
            "capacity": self.capacity,
            "placement": placement
            and {"type": placement.type, "topology": placement.topology, "policy": placement.policy},
            "backend": self.backend,
            "provisioning": self.provisioning.name,
            "pools": [{"nodes": pool.node_count, "min": pool.min_nodes, "max": pool.max_nodes} for pool in self.pools],
            "group_price_per_hour_usd": self.price_per_hour,
            "group_price_is_upper_bound": self.price_is_upper_bound,
            "group_quota": quota and {"metric": quota.metric, "region": quota.region, "chips": quota.chips},
        }


@dataclass(frozen=True)
class ComputeClass:
    """A GKE ComputeClass: the alternatives of a slice group, in the order in which GKE tries them."""

    name: str
    alternatives: tuple[SlicePlan, ...]

    @property
    def creates_pools(self) -> bool:
        """Whether GKE creates node pools for it; if not, it orders those that the program declares."""
        return not self.alternatives[0].provisioning.declared


def plan_group(platform: PlatformConfig, group: str, spec: Slice) -> Iterator[SlicePlan]:
    """The plans of one entry under `slices`: one, or one for each alternative of a fallback."""
    shape = resolve(spec)
    for alternative in spec.capacity:
        yield _plan(platform, group, spec, shape, alternative)


def _plan(platform: PlatformConfig, group: str, spec: Slice, shape: Shape, capacity: AnyCapacity) -> SlicePlan:
    model = model_of(capacity)
    provisioning = provisioning_of(backend(platform), spec)
    fallback = len(spec.capacity) > 1
    name = f"{group}-{capacity.model}" if fallback else group
    own_name = f"{platform.name}-{group}"
    compute_class = own_name if fallback or provisioning.by_class else None
    # TPU Provisioner takes the reservation from the flavor's selectors, so groups do not share a flavor.
    own_flavor = compute_class or provisioning is TPU_PROVISIONER
    return SlicePlan(
        backend=backend(platform),
        name=name,
        group=group,
        spec=spec,
        shape=shape,
        provisioning=provisioning,
        alternative=capacity,
        model=model,
        placement=_placement(platform, spec, shape, provisioning),
        pools=tuple(_pools(name, spec.count, shape, capacity, provisioning)) if provisioning.declared else (),
        boot_disk=Disk(spec.boot_disk.type or shape.generation.boot_disks[0], spec.boot_disk.size_gb),
        labels={
            **_labels(group, spec, model, compute_class),
            FLAVOR_LABEL: own_name if own_flavor else _flavor(shape, model.name, spec.devices),
        },
        taints=tuple(_taints(spec, compute_class)),
        resource_labels={**machine_labels(platform), "tpu-slice": group, **spec.resource_labels},
        version=_version(platform, shape),
        protect=platform.protect if spec.protect is None else spec.protect,
        timeout_hours=max(PROVIDER_TIMEOUT_HOURS, 0 if provisioning.autoscaled else model.gke.wait_hours + 1),
        price_per_chip_hour=_price(platform, shape.generation, model),
        quota=_quota(platform, spec.count * shape.chips, shape.generation, model),
        compute_class=compute_class,
    )


def machine_labels(platform: PlatformConfig) -> dict[str, str]:
    """Google Cloud labels of a platform's machines: the platform's labels and its name."""
    return {**platform.labels, PLATFORM_LABEL: platform.name}


def _flavor(shape: Shape, capacity: str, devices: str) -> str:
    name = f"{shape.generation.name}-{shape.topology}-{shape.machine.chips}t"
    return "-".join([name, capacity, *(["dra"] if devices == "dra" else [])])


def policy_name(platform: PlatformConfig, topology: str, mode: str | None, provisioning: Provisioning) -> str:
    """Name of the workload policy for a topology and mode. It contains both, since policies cannot be edited.

    TPU Provisioner knows policies by a fixed name, which all clusters of a project and region share
    (ai-on-gke/tpu-provisioner internal/cloud/gke.go).
    """
    if provisioning is TPU_PROVISIONER:
        return f"{provisioning.name}-{topology}"
    return "-".join([platform.name, topology, *(["provision-only"] if mode else [])])


def policy_mode(spec: Slice) -> str | None:
    """With dynamic slicing Google provisions the cubes, and the slice controller joins them later."""
    return "PROVISION_ONLY" if spec.dynamic_slicing else None


def _placement(platform: PlatformConfig, spec: Slice, shape: Shape, provisioning: Provisioning) -> Placement | None:
    if not shape.multi_host:
        return None
    if backend(platform) == "gke" and shape.generation.placement == "compact":
        return Placement("COMPACT", shape.topology, None)
    return Placement("", shape.topology, policy_name(platform, shape.topology, policy_mode(spec), provisioning))


def _pools(
    name: str, count: int, shape: Shape, capacity: AnyCapacity, provisioning: Provisioning
) -> Iterator[PoolPlan]:
    """A pool for each multi-host slice, since on GKE a pool is one slice; single-host slices share one pool."""
    model = model_of(capacity)
    affinities = model.affinities(capacity)
    pools = [(f"{name}-{index}", shape.hosts) for index in range(count)] if shape.multi_host else [(name, count)]
    for index, (pool, nodes) in enumerate(pools):
        affinity = affinities[index % len(affinities)]
        if provisioning.autoscaled:
            yield PoolPlan(pool, affinity, min_nodes=0, max_nodes=nodes)
        else:
            yield PoolPlan(pool, affinity, node_count=nodes if model.begun(capacity) else 0)


def _labels(group: str, spec: Slice, model: CapacityModel, compute_class: str | None) -> dict[str, str]:
    """Labels that GKE does not set. Those that it sets (accelerator, topology) would drift if declared."""
    labels = {**spec.labels, SLICE_LABEL: group}
    if spec.devices == "dra":
        labels[DRA_LABEL] = "true"
    if spec.dranet:
        labels[DRANET_LABEL] = "true"
    if model.gke.queued:
        labels[QUEUED_LABEL] = "true"
    if compute_class:
        labels[COMPUTE_CLASS_LABEL] = compute_class
    return labels


def _taints(spec: Slice, compute_class: str | None) -> Iterator[NodeTaint]:
    yield from (api_taint(taint.key, taint.value, taint.effect) for taint in spec.taints)
    if compute_class:
        yield NodeTaint(COMPUTE_CLASS_LABEL, compute_class, "NO_SCHEDULE")


def api_taint(key: str, value: str, effect: str) -> NodeTaint:
    """A taint in the GKE API's spelling, from Kubernetes'."""
    return NodeTaint(key, value, TAINT_EFFECTS[effect])


def _version(platform: PlatformConfig, shape: Shape) -> str | None:
    """New pools may be older than the control plane. So the version is set where a generation needs at least that
    version."""
    version = platform.cluster.version if isinstance(platform.cluster, GkeCluster) else None
    return version if version and shape.generation.min_version and versions.is_exact(version) else None


def _price(platform: PlatformConfig, generation: Generation, model: CapacityModel) -> Price | None:
    """The price of a chip: yours, or the list price. Flex-start and queued capacity is sold below the list price, and
    Google publishes no rate of it ("up to 53% off", GKE documentation), so there the price is an upper bound."""
    rate = platform.prices.get(generation.name)
    if rate is not None:
        own = {model.spot_price: rate.spot_usd_per_chip_hour, model.dws: rate.flex_start_usd_per_chip_hour}.get(True)
        amount = own if own is not None or model.spot_price else rate.usd_per_chip_hour
        bound = model.dws and own is None
        return None if amount is None else Price(amount, "USD", rate.as_of, rate.source, upper_bound=bound)
    price = generation.price
    if price is None or not model.spot_price:
        return price and replace(price, upper_bound=model.dws)
    return replace(
        price,
        amount=round(price.amount * generation.spot_factor, 4),
        source=f"{price.source}; spot estimated at {generation.spot_factor:g} of it",
    )


def _quota(platform: PlatformConfig, chips: int, generation: Generation, model: CapacityModel) -> Quota | None:
    if model.quota is None or generation.quota is None:
        return None
    return Quota(getattr(generation.quota, model.quota), chips, region(platform.zone))
