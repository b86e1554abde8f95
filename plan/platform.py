"""The platform with everything derived from it. Plain values, no Pulumi."""

from functools import cached_property
from typing import Any

from pydantic import ConfigDict

from plan.backend import Backend, backend, region
from plan.cpu_machines import default_disk, default_machine
from plan.provisioning import TPU_PROVISIONER
from plan.slices import (
    HOURS_PER_MONTH,
    ComputeClass,
    CpuPoolPlan,
    SlicePlan,
    WorkloadPolicy,
    api_taint,
    machine_labels,
    plan_group,
)
from platform_config.cluster import CpuPool, Exclusion, GkeCluster, PoolOptions
from platform_config.fields import Name
from platform_config.partial import without
from platform_config.platform import PlatformConfig
from platform_config.queues import DEFAULT_QUEUE
from platform_config.self_managed import ExistingCluster, InCluster, SelfManagedCluster
from platform_config.slice import Slice

SYSTEM_POOL = "system"


class Platform(PlatformConfig):
    """What a person wrote, and what is derived from it. Properties assume that it breaks no rule (see `rules.load`)."""

    model_config = ConfigDict(defer_build=True)  # made of a checked PlatformConfig, so nothing is checked again

    @classmethod
    def of(cls, written: PlatformConfig) -> "Platform":
        """The plan of a platform as it was written; what is unknown stays unknown (`platform_config.partial`)."""
        unknown = cls.model_fields.keys() - written.__dict__.keys()
        return without(cls.model_construct(written.model_fields_set, **dict(written)), *unknown)

    @property
    def region(self) -> str:
        return region(self.zone)

    @property
    def backend(self) -> Backend:
        """What slices are built as."""
        return backend(self)

    @property
    def gke(self) -> GkeCluster:
        """The cluster, of a platform on GKE."""
        assert isinstance(self.cluster, GkeCluster)
        return self.cluster

    @property
    def compute(self) -> SelfManagedCluster | ExistingCluster:
        """The cluster, of a platform whose hosts are Compute Engine's."""
        assert not isinstance(self.cluster, GkeCluster)
        return self.cluster

    @property
    def location(self) -> str:
        """Location of the control plane: the region, or the zone."""
        return self.region if isinstance(self.cluster, GkeCluster) and self.cluster.regional else self.zone

    @property
    def cluster_name(self) -> str:
        return self.name

    @property
    def identity_pool(self) -> str:
        """The pool of identities that GKE gives to Kubernetes service accounts of the project (Workload Identity)."""
        return f"{self.project}.svc.id.goog"

    @property
    def most_nodes(self) -> int:
        """Nodes of the cluster when everything runs."""
        hosts = sum(hosts for _, hosts in self.most_hosts)
        own = self.cluster.control_plane.replicas if isinstance(self.cluster, SelfManagedCluster) else 0
        return own + hosts + sum(pool.max_nodes for pool in self.all_cpu_pools)

    @property
    def most_hosts(self) -> tuple[tuple[SlicePlan, int], ...]:
        """For each plan, the hosts that may exist together with those of all other plans.

        Declared pools of all alternatives of a fallback may have hosts at once. Where pools are created for a slice,
        the slice has one pool, whichever alternative it is of: only the first counts.
        """
        return tuple(
            (plan, plan.most_hosts if plan.provisioning.declared or plan.alternative is plan.spec.capacity[0] else 0)
            for plan in self.slice_plans
        )

    @property
    def job_plans(self) -> tuple[SlicePlan, ...]:
        """Plans whose node pools TPU Provisioner creates."""
        return tuple(plan for plan in self.slice_plans if plan.provisioning is TPU_PROVISIONER)

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """Maintenance exclusions of the GKE cluster. The default one needs a release channel."""
        written = self.gke.maintenance
        default = "exclusions" not in written.model_fields_set
        return () if default and not self.in_channel else written.exclusions

    @property
    def in_channel(self) -> bool:
        """Whether the GKE cluster is in a release channel."""
        return self.gke.release_channel != "UNSPECIFIED"

    @property
    def creates_pools(self) -> bool:
        """Whether GKE creates node pools by itself, for a ComputeClass."""
        return any(compute_class.creates_pools for compute_class in self.compute_classes)

    @property
    def workload_namespaces(self) -> tuple[str, ...]:
        """Namespaces of workloads: the platform's own, those of teams and those of queues."""
        by_default = "namespaces" not in self.model_fields_set
        own = () if self.teams and by_default else self.namespaces
        return tuple(dict.fromkeys([*own, *self.teams, *self.queue_namespaces]))

    @property
    def queue_namespaces(self) -> tuple[str, ...]:
        """Namespaces whose workloads go through a queue."""
        return tuple(dict.fromkeys(namespace for queue in self.queues.values() for namespace in queue.namespaces))

    @property
    def default_queues(self) -> dict[str, str]:
        """By namespace, the queue of jobs that name none: the only one there. A queue called `default` is left out,
        since its own LocalQueue is the default already. A manager has none: it would send every Job to a worker, which
        lacks everything else in the Job's namespace."""
        if self.is_manager:
            return {}
        queues: dict[str, list[str]] = {}
        for name, queue in self.queues.items():
            for namespace in queue.namespaces:
                queues.setdefault(namespace, []).append(name)
        alone = {namespace: names[0] for namespace, names in sorted(queues.items()) if len(names) == 1}
        return {namespace: name for namespace, name in alone.items() if name != DEFAULT_QUEUE}

    @property
    def used_inside(self) -> tuple[InCluster, ...]:
        """What the slices and queues need in the cluster, whoever installs it; without what GKE brings."""
        devices = {plan.devices for plan in self.slice_plans}
        used: dict[InCluster, bool] = {
            "device-plugin": self.backend == "compute" and "device-plugin" in devices,
            "dra-driver": "dra" in devices,
            "jobset": True,
            "kueue": bool(self.queues),
            "lws": any(plan.provisioning.serves for plan in self.slice_plans),
            "namespaces": True,
        }
        return tuple(part for part, is_used in used.items() if is_used)

    @property
    def provided(self) -> tuple[InCluster, ...]:
        """What the cluster has already, used or not."""
        return self.cluster.provides if isinstance(self.cluster, ExistingCluster) else ()

    def installs(self, part: InCluster) -> bool:
        """Whether the platform installs this: the platform uses it, and the cluster does not provide it."""
        return part in self.used_inside and part not in self.provided

    @property
    def is_manager(self) -> bool:
        """Whether the platform's queues hand their work to other clusters."""
        return self.multikueue is not None and self.multikueue.role == "manager"

    @property
    def is_worker(self) -> bool:
        """Whether the platform takes work from a manager."""
        return self.multikueue is not None and self.multikueue.role == "worker"

    @property
    def shared_slices(self) -> dict[Name, Slice]:
        """Slices that queues share: the platform's own, or those of a manager's workers."""
        return self.multikueue.slices if self.multikueue and self.is_manager else self.slices

    @property
    def machine_labels(self) -> dict[str, str]:
        """Google Cloud labels of its machines: the platform's labels and its name."""
        return machine_labels(self)

    @property
    def needs_slice_controller(self) -> bool:
        return any(spec.dynamic_slicing for spec in self.slices.values())

    @property
    def needs_multi_networking(self) -> bool:
        return any(spec.additional_networks for spec in self.slices.values())

    @cached_property
    def slice_plans(self) -> tuple[SlicePlan, ...]:
        """Every group of slices, by name, alternatives of a fallback in their order."""
        return tuple(plan for name in sorted(self.slices) for plan in plan_group(self, name, self.slices[name]))

    @cached_property
    def shared_plans(self) -> tuple[SlicePlan, ...]:
        """The plans of `shared_slices`; slices of a manager's workers have no node pools here."""
        if not self.is_manager:
            return self.slice_plans
        shared = self.shared_slices
        return tuple(plan for name in sorted(shared) for plan in plan_group(self, name, shared[name]))

    @cached_property
    def workload_policies(self) -> tuple[WorkloadPolicy, ...]:
        """One policy for each distinct topology and mode, shared by the pools of that shape."""
        policies = {
            plan.placement.policy: WorkloadPolicy(
                plan.placement.policy,
                plan.placement.topology,
                "PROVISION_ONLY" if plan.spec.dynamic_slicing else None,
            )
            for plan in self.slice_plans
            if plan.placement and plan.placement.policy
        }
        return tuple(policies[name] for name in sorted(policies))

    @property
    def compute_classes(self) -> tuple[ComputeClass, ...]:
        """One ComputeClass for each slice group with fallbacks, or whose pools GKE creates."""
        groups: dict[str, list[SlicePlan]] = {}
        for plan in self.slice_plans:
            if plan.compute_class:
                groups.setdefault(plan.compute_class, []).append(plan)
        return tuple(ComputeClass(name, tuple(plans)) for name, plans in groups.items())

    @cached_property
    def system_pool(self) -> CpuPoolPlan | None:
        """The pool that carries controllers; an existing cluster has its own."""
        if isinstance(self.cluster, ExistingCluster):
            return None
        spec = self.cluster.system_pool
        machine_type = spec.machine_type or default_machine(self.zone)
        return self._cpu_pool(SYSTEM_POOL, machine_type, spec.min, spec)

    @cached_property
    def cpu_pools(self) -> tuple[CpuPoolPlan, ...]:
        """Further pools without TPUs, by name."""
        pools: dict[str, CpuPool] = self.cluster.cpu_pools
        return tuple(
            self._cpu_pool(name, pools[name].machine_type, pools[name].min, pools[name]) for name in sorted(pools)
        )

    @property
    def all_cpu_pools(self) -> tuple[CpuPoolPlan, ...]:
        """Every pool without TPUs, the system pool first."""
        return (*([self.system_pool] if self.system_pool else []), *self.cpu_pools)

    @property
    def cpu_machines(self) -> tuple[tuple[str, str], ...]:
        """Path and machine type of everything without TPUs: pools, and the control plane where its type is
        configurable."""
        machines = [(f"cluster.cpu_pools.{pool.name}", pool.machine_type) for pool in self.cpu_pools]
        if self.system_pool:
            machines.insert(0, ("cluster.system_pool", self.system_pool.machine_type))
        if isinstance(self.cluster, SelfManagedCluster) and self.cluster.control_plane.machine_type:
            machines.append(("cluster.control_plane", self.cluster.control_plane.machine_type))
        return tuple(machines)

    def _cpu_pool(self, name: str, machine_type: str, minimum: int, spec: PoolOptions) -> CpuPoolPlan:
        return CpuPoolPlan(
            name=name,
            machine_type=machine_type,
            min_nodes=minimum,
            max_nodes=spec.max if self.backend == "gke" else minimum,
            disk_type=spec.disk_type or default_disk(machine_type),
            disk_size_gb=spec.disk_size_gb,
            labels=spec.labels,
            taints=tuple(api_taint(taint.key, taint.value, taint.effect) for taint in spec.taints),
        )

    @property
    def _first_choices(self) -> list[SlicePlan]:
        """One plan for each slice group, with the first of its capacity models."""
        return list({plan.group: plan for plan in reversed(self.slice_plans)}.values())

    @property
    def idle_price_per_hour(self) -> float | None:
        """Estimate in USD while nothing runs: of the hosts that are there and do not come on demand. None if a price is
        unknown."""
        there = [plan for plan in self._first_choices if plan.begun and not plan.provisioning.on_demand]
        return _sum([plan.price_per_hour for plan in there])

    @property
    def dearest_price_per_hour(self) -> float | None:
        """Estimate in USD while all slices run, each group with the dearest of its capacity models."""
        groups: dict[str, list[float | None]] = {}
        for plan in self.slice_plans:
            groups.setdefault(plan.group, []).append(plan.price_per_hour)
        dearest = [None if None in prices else max(price or 0 for price in prices) for prices in groups.values()]
        return _sum(dearest)

    @property
    def price_is_upper_bound(self) -> bool:
        """Whether less may be paid than the totals' prices say."""
        return any(plan.price_is_upper_bound for plan in self._first_choices)

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Sums over all slices when all run. A slice with fallbacks counts once, with its first capacity model.

        `price_per_hour_usd` and `price_per_month_usd` (of 730 hours) are None when any slice has no known price.
        """
        plans = self._first_choices
        hourly = _sum([plan.price_per_hour for plan in plans])
        return {
            "slices": sum(plan.count for plan in plans),
            "hosts": sum(plan.count * plan.hosts for plan in plans),
            "chips": sum(plan.total_chips for plan in plans),
            "hbm_gib": sum(plan.total_chips * plan.generation.hbm_gib for plan in plans),
            "bf16_tflops": sum(plan.total_chips * plan.generation.bf16_tflops for plan in plans),
            "price_per_hour_usd": hourly,
            "price_per_month_usd": None if hourly is None else round(hourly * HOURS_PER_MONTH, 2),
        }


def _sum(prices: list[float | None]) -> float | None:
    """The sum, None if a price is unknown."""
    return None if None in prices else round(sum(price or 0 for price in prices), 2)
