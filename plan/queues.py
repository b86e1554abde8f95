"""ClusterQueues with their quotas and checks. Field rules: Kueue v0.19 `apis/kueue/v1beta2`."""

from collections.abc import Mapping
from dataclasses import dataclass

from plan.flavors import Flavor, flavors
from plan.multikueue import CHECK as MULTIKUEUE_CHECK
from plan.platform import Platform
from plan.slices import SlicePlan
from platform_config.queues import Queue, SliceCounts


@dataclass(frozen=True)
class FlavorQuota:
    """A queue's quota in one flavor, in chips; a limit of None means no limit."""

    flavor: Flavor
    nominal: int
    borrowing_limit: int | None
    lending_limit: int | None


@dataclass(frozen=True)
class ClusterQueue:
    """A ClusterQueue: quotas by resource, flavors in the order of preference.

    `dispatched`: a MultiKueue manager sends its workloads to workers.
    """

    name: str
    cohort: str
    namespaces: tuple[str, ...]
    quotas: Mapping[str, tuple[FlavorQuota, ...]]
    spec: Queue
    dispatched: bool

    @property
    def checks(self) -> Mapping[str, tuple[str, ...]]:
        """Admission checks, each with its flavors; an empty list means all, which Kueue requires of MultiKueue's
        check."""
        if self.dispatched:
            return {MULTIKUEUE_CHECK: ()}
        checks: dict[str, tuple[str, ...]] = {}
        for quota in (quota for quotas in self.quotas.values() for quota in quotas):
            if quota.flavor.check:
                checks[quota.flavor.check] = (*checks.get(quota.flavor.check, ()), quota.flavor.name)
        return checks


def cluster_queues(platform: Platform) -> tuple[ClusterQueue, ...]:
    """Every ClusterQueue of the platform, by name."""
    return tuple(_cluster_queue(platform, name, platform.queues[name]) for name in sorted(platform.queues))


def _cluster_queue(platform: Platform, name: str, queue: Queue) -> ClusterQueue:
    plans = {plan.group: plan for plan in reversed(platform.shared_plans)}
    by_flavor: dict[str, FlavorQuota] = {}
    known = flavors(platform)
    for group, slices in queue.slices.items():
        flavor = known[plans[group].flavor]
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


def queues_with(platform: Platform, group: str) -> tuple[str, ...]:
    """Queues that have slices of a group, were it none of their own but only borrowed ones."""
    return tuple(name for name, queue in platform.queues.items() if group in queue.slices)


def slices_in_reach(platform: Platform, queue: str, plan: SlicePlan) -> int:
    """The most slices of a plan that a queue can have at once."""
    return reach(platform, queue, plan.flavor) // plan.chips


def reach(platform: Platform, queue: str, flavor: str) -> int:
    """The most chips of a flavor that a queue can have at once: its own quota, plus what other queues of its cohorts
    lend, up to its borrowing limit."""
    own: FlavorQuota | None = None
    borrowable = 0
    queues = {each.name: each for each in cluster_queues(platform)}
    tree = _root(platform, queues[queue].cohort)
    for name, each in queues.items():
        quota = next(
            (quota for quotas in each.quotas.values() for quota in quotas if quota.flavor.name == flavor), None
        )
        if quota and name == queue:
            own = quota
        elif quota and _root(platform, each.cohort) == tree:
            borrowable += quota.nominal if quota.lending_limit is None else min(quota.nominal, quota.lending_limit)
    if own is None:
        return 0
    return own.nominal + (borrowable if own.borrowing_limit is None else min(borrowable, own.borrowing_limit))


def _root(platform: Platform, cohort: str) -> str:
    """The root of a cohort's tree."""
    seen: set[str] = set()
    while cohort not in seen and cohort in platform.cohorts and platform.cohorts[cohort].parent:
        seen.add(cohort)
        cohort = platform.cohorts[cohort].parent or cohort
    return cohort


def _limit(limit: bool | SliceCounts, group: str, flavor: Flavor) -> int | None:
    """A borrowing or lending limit in chips: no limit (None) for True, 0 for False."""
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
