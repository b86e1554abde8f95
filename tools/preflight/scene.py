"""What checks read: the plan, Google Cloud, and the parts of the plan that exist already."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from catalogue.labels import FLAVOR_LABEL
from plan.capacity import ReservationAffinity
from plan.cpu_machines import default_disk
from plan.hosts import control_plane_machines, node_pool
from plan.platform import Platform
from plan.slices import CpuPoolPlan, PoolPlan, SlicePlan
from platform_config.self_managed import SelfManagedCluster
from tools.preflight.cloud import Cloud, Json


@dataclass(frozen=True)
class Machines:
    """Machines of one type that the plan wants in a zone: at least `fewest`, at most `most`; `chips` of each host are
    None where it has no TPUs."""

    zone: str
    machine_type: str
    disk_type: str
    fewest: int
    most: int
    chips: int | None = None


class Scene:
    """One platform and the cloud it is going to be built in."""

    def __init__(self, platform: Platform, stack: str, cloud: Cloud) -> None:
        self.platform = platform
        self.stack = stack
        self.cloud = cloud
        self._region_quotas: dict[str, dict[str, Json]] = {}

    def compute(self, method: str, **parameters: Any) -> Json | None:
        """A Compute Engine resource of the platform's project, None if it does not exist."""
        return self.cloud.find("compute", method, **{"project": self.platform.project, **parameters})

    @cached_property
    def cluster(self) -> Json | None:
        """The platform's GKE cluster, if it exists."""
        if self.platform.backend != "gke":
            return None
        platform = self.platform
        name = f"projects/{platform.project}/locations/{platform.location}/clusters/{platform.cluster_name}"
        return self.cloud.find("container", "projects.locations.clusters.get", name=name)

    @cached_property
    def standing(self) -> frozenset[str]:
        """Names of the pools and groups that exist already; their quota is in use, and not needed again."""
        if self.platform.backend == "gke":
            found = (self.cluster or {}).get("nodePools", [])
        else:
            place = {"project": self.platform.project, "zone": self.platform.zone}
            found = self.cloud.pages("compute", "instanceGroupManagers.list", "items", **place)
        return frozenset(each["name"] for each in found)

    @cached_property
    def project_number(self) -> str | None:
        """Of the platform's project; None if it does not exist."""
        found = self.cloud.find("projects", "projects.get", name=f"projects/{self.platform.project}")
        return str(found["name"]).removeprefix("projects/") if found else None

    def stands(self, pool: PoolPlan | CpuPoolPlan) -> bool:
        """Whether a pool has been made."""
        return node_pool(self.platform, pool.name) in self.standing

    def missing(self, plan: SlicePlan) -> tuple[tuple[ReservationAffinity, int], ...]:
        """What a plan asks for (`SlicePlan.asks`) without the hosts that exist; zero for a pool that stands."""
        if plan.provisioning.declared:
            stand = [self.stands(pool) for pool in plan.pools]
        else:
            made = sum(1 for pool in self._pools if _serves(pool, plan))
            stand = [index < made for index in range(plan.count)]
        return tuple(
            (affinity, 0 if there else hosts) for (affinity, hosts), there in zip(plan.asks, stand, strict=True)
        )

    @property
    def _pools(self) -> list[Json]:
        """Every node pool, also those that GKE or TPU Provisioner created."""
        found: list[Json] = (self.cluster or {}).get("nodePools", [])
        return found

    def region_quotas(self, region: str) -> Mapping[str, Json]:
        """Metric -> limit and usage, as Compute Engine describes a region."""
        if region not in self._region_quotas:
            found = self.compute("regions.get", region=region) or {}
            self._region_quotas[region] = {each["metric"]: each for each in found.get("quotas", ())}
        return self._region_quotas[region]

    def quota_buckets(self, metric: str) -> list[Json]:
        """Limits of a metric such as `compute.googleapis.com/cpus` by dimensions, the most specific last."""
        return [
            bucket
            for found in self._quota_metrics
            if found.get("metric") == metric
            for limit in found.get("consumerQuotaLimits", ())
            for bucket in limit.get("quotaBuckets", ())
        ]

    @cached_property
    def _quota_metrics(self) -> list[Json]:
        parent = f"projects/{self.platform.project}/services/compute.googleapis.com"
        return self.cloud.pages("quotas", "services.consumerQuotaMetrics.list", "metrics", parent=parent)

    @cached_property
    def machine_types(self) -> Mapping[tuple[str, str], Json | None]:
        """Zone and name -> machine type, None where the zone does not offer it."""
        wanted = sorted({(each.zone, each.machine_type) for each in machines(self.platform)})
        return {(zone, name): self.compute("machineTypes.get", zone=zone, machineType=name) for zone, name in wanted}


def _serves(pool: Json, plan: SlicePlan) -> bool:
    """Whether a node pool that the program did not declare holds a slice of a plan: of its flavor and capacity."""
    config = pool.get("config", {})
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType", "NO_RESERVATION")
    return (
        config.get("labels", {}).get(FLAVOR_LABEL) == plan.flavor
        and pool.get("status", "RUNNING") not in ("ERROR", "STOPPING")
        and bool(config.get("spot")) == plan.model.gke.spot
        and bool(config.get("flexStart")) == plan.model.gke.flex_start
        and (affinity == "SPECIFIC_RESERVATION") == (plan.reservation.type == "SPECIFIC_RESERVATION")
    )


def machines(platform: Platform) -> Iterator[Machines]:
    """Every kind of machine in the plan: of slices, of CPU pools, of the control plane."""
    for plan in platform.slice_plans:
        fixed = sum(pool.node_count or 0 for pool in plan.pools)
        yield Machines(
            platform.zone,
            plan.machine.name,
            plan.boot_disk.type,
            fixed,
            plan.most_hosts,
            chips=plan.chips_per_host,
        )
    for pool in platform.all_cpu_pools:
        yield Machines(platform.zone, pool.machine_type, pool.disk_type, pool.min_nodes, pool.max_nodes)
    if isinstance(platform.cluster, SelfManagedCluster):
        for machine in control_plane_machines(platform):
            yield Machines(machine.zone, machine.machine_type, default_disk(machine.machine_type), 1, 1)
