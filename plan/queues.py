"""ClusterQueues with their quotas and checks. Field rules: Kueue v0.19 `apis/kueue/v1beta2`."""

from collections import Counter
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
    known = flavors(platform)
    by_group = {plan.group: known[plan.flavor] for plan in reversed(platform.shared_plans)}
    return tuple(_cluster_queue(platform, name, platform.queues[name], by_group) for name in sorted(platform.queues))


def _cluster_queue(platform: Platform, name: str, queue: Queue, flavor_of: Mapping[str, Flavor]) -> ClusterQueue:
    by_flavor: dict[str, FlavorQuota] = {}
    for group, slices in queue.slices.items():
        flavor = flavor_of[group]
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
    """The most chips of a flavor that a queue can have at once; 0 of a flavor that it does not name."""
    found = reaches(platform)[queue].get(flavor)
    return found.most if found else 0


@dataclass(frozen=True)
class Reach:
    """Chips of a flavor for a queue: what the others of its cohort's tree lend, and the most that it can have at once,
    its borrowing limit considered."""

    flavor: Flavor
    own: int
    lent: int
    most: int


def reaches(platform: Platform) -> dict[str, dict[str, Reach]]:
    """By queue and flavor, what the queue can have. One pass over all quotas, however many queues share them."""
    queues = [(each, _quotas(each), cohort_root(platform, each.cohort)) for each in cluster_queues(platform)]
    lent: Counter[tuple[str, str]] = Counter()
    for _, quotas, root in queues:
        for quota in quotas:
            lent[root, quota.flavor.name] += _lends(quota)
    found: dict[str, dict[str, Reach]] = {}
    for queue, quotas, root in queues:
        of_queue = found.setdefault(queue.name, {})
        for quota in quotas:
            others = lent[root, quota.flavor.name] - _lends(quota)
            borrowed = others if quota.borrowing_limit is None else min(others, quota.borrowing_limit)
            of_queue[quota.flavor.name] = Reach(quota.flavor, quota.nominal, others, quota.nominal + borrowed)
    return found


@dataclass(frozen=True)
class Share:
    """What a queue has of its slice groups of one flavor, in slices: those that it `owns`, those that others of its
    cohort's tree lend (`lent`), and the `most` that it can have at once."""

    groups: tuple[str, ...]
    owns: int
    lent: int
    most: int


def shares(platform: Platform) -> dict[str, tuple[Share, ...]]:
    """By queue, in the order of the stack file. Nobody gets more slices at once than there are."""
    flavor_of, there = {}, Counter[str]()
    for plan in {plan.group: plan for plan in reversed(platform.shared_plans)}.values():
        flavor_of[plan.group] = plan.flavor
        there[plan.flavor] += plan.count
    found: dict[str, tuple[Share, ...]] = {}
    reached = reaches(platform)
    for name, queue in platform.queues.items():
        groups: dict[str, list[str]] = {}
        for group in queue.slices:
            groups.setdefault(flavor_of[group], []).append(group)
        found[name] = tuple(
            Share(
                tuple(names),
                each.own // each.flavor.chips,
                each.lent // each.flavor.chips,
                min(each.most // each.flavor.chips, there[flavor]),
            )
            for flavor, names in groups.items()
            for each in (reached[name][flavor],)
        )
    return found


def owned_slices(platform: Platform) -> Counter[str]:
    """By group, the slices that queues own together."""
    owned: Counter[str] = Counter()
    for queue in platform.queues.values():
        owned.update(queue.slices)
    return owned


def _quotas(queue: ClusterQueue) -> list[FlavorQuota]:
    return [quota for quotas in queue.quotas.values() for quota in quotas]


def _lends(quota: FlavorQuota) -> int:
    return quota.nominal if quota.lending_limit is None else min(quota.nominal, quota.lending_limit)


def cohort_root(platform: Platform, cohort: str) -> str:
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
