"""What the shares and limits of queues must satisfy."""

from collections import Counter
from collections.abc import Iterator

from plan.flavors import flavors
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.queues import cohort_root, owned_slices, shares
from plan.slices import SlicePlan
from plan.words import counted
from platform_config.wording import similar
from rules.registry import PLATFORM, QUEUES, Finding


@QUEUES.rule(
    "queue-slices",
    reason="Queues can own only slices that exist, and together no more than there are.",
    source="Kueue: a nominal quota beyond the hardware admits what cannot run",
)
def queue_slices(platform: Platform) -> Iterator[Finding]:
    where = "multikueue.slices" if platform.is_manager else "slices"
    owned = dict.fromkeys(platform.slices, 0)
    for name, queue in platform.queues.items():
        for group, share in queue.slices.items():
            path = f"queues.{name}.slices.{group}"
            if group not in owned:
                yield Finding(
                    path,
                    f"there are no slices {group}",
                    similar(group, list(owned)) if owned else "describe it under slices",
                )
                continue
            owned[group] += share
            if owned[group] > (count := platform.slices[group].count) and not platform.overcommit:
                yield Finding(
                    path,
                    f"queues own {owned[group]} slices of {group}, which has {count}",
                    f"lower the shares to {count} in all, raise {where}.{group}.count, or set overcommit: true",
                )


@QUEUES.rule(
    "queue-limits",
    reason="A queue has limits only for its own groups of slices, and cannot lend what it does not own.",
    source="Kueue v0.19 pkg/webhooks: lendingLimit must be less than or equal to nominalQuota",
)
def queue_limits(platform: Platform) -> Iterator[Finding]:
    for name, queue in platform.queues.items():
        for key, limit in (("borrow", queue.borrow), ("lend", queue.lend)):
            for group, most in limit.items() if isinstance(limit, dict) else ():
                path = f"queues.{name}.{key}.{group}"
                if group not in queue.slices:
                    hint = f"{similar(group, list(queue.slices))}, or add it to its slices"
                    yield Finding(path, f"the queue has no slices {group}", hint)
                elif key == "lend" and most > queue.slices[group]:
                    own = queue.slices[group]
                    yield Finding(path, f"{most} slices to lend, where the queue owns {own}", f"write {own} or less")


@QUEUES.rule(
    "queue-cohorts",
    reason="Cohorts form trees.",
    source="Kueue, hierarchical cohorts",
)
def queue_cohorts(platform: Platform) -> Iterator[Finding]:
    for name, cohort in platform.cohorts.items():
        if cohort.parent is not None and cohort.parent not in platform.cohorts:
            hint = f"{similar(cohort.parent, list(platform.cohorts))}, or describe it under cohorts"
            yield Finding(f"cohorts.{name}.parent", f"there is no cohort {cohort.parent}", hint)
        elif name in _ancestors(platform, name):
            yield Finding(f"cohorts.{name}.parent", f"{name} would be its own ancestor", "break the circle")


def _ancestors(platform: Platform, name: str) -> list[str]:
    found: list[str] = []
    cohort = platform.cohorts.get(name)
    while cohort and cohort.parent and cohort.parent not in found:
        found.append(cohort.parent)
        cohort = platform.cohorts.get(cohort.parent)
    return found


@QUEUES.rule(
    "slices-unowned",
    level="warning",
    reason="Kueue gives out what queues own; slices beyond that get no job of any queue, and cost the same.",
    source="Kueue v0.19, nominalQuota",
)
def slices_unowned(platform: Platform) -> Iterator[Finding]:
    if not platform.queues:
        return
    where = "multikueue.slices" if platform.is_manager else "slices"
    owned, named = owned_slices(platform), {group for queue in platform.queues.values() for group in queue.slices}
    for group, plan in {plan.group: plan for plan in reversed(platform.shared_plans)}.items():
        idle = plan.count - owned[group]
        # Slices that no queue names may be meant for namespaces without a queue.
        if idle <= 0 or _is_spare(plan, owned[group]) or (group not in named and _past_queues(platform)):
            continue
        hourly = None if plan.provisioning.on_demand or platform.is_manager else plan.price_per_hour
        cost = f", for {hourly * idle / plan.count:,.2f} USD/h" if hourly else ""
        verb = "belongs" if idle == 1 else "belong"
        yield Finding(
            f"{where}.{group}",
            f"{idle} of {counted(plan.count, 'slice')} {verb} to no queue: Kueue gives out only what queues own{cost}",
            f"raise a queue's share of {group}, or lower {where}.{group}.count",
        )


def _is_spare(plan: SlicePlan, owned: int) -> bool:
    """TPU Provisioner makes the pools of the next job while those of the last one stand (rule provisioner-spare)."""
    return plan.provisioning is TPU_PROVISIONER and owned > 0


def _past_queues(platform: Platform) -> bool:
    """Whether there are namespaces whose workloads go through no queue."""
    return bool({*platform.workload_namespaces} - {*platform.queue_namespaces})


@QUEUES.rule(
    "queue-out-of-reach",
    level="warning",
    reason="A job waits for ever in a queue that neither owns slices nor can borrow them.",
    source="Kueue v0.19, cohorts and borrowingLimit",
)
def queue_out_of_reach(platform: Platform) -> Iterator[Finding]:
    for name, of_queue in shares(platform).items():
        missing = [share for share in of_queue if not share.most]
        groups = [group for share in missing for group in share.groups]
        if not groups:
            continue
        cohort = platform.queues[name].cohort or platform.name
        lent = any(share.lent for share in missing)
        yield Finding(
            f"queues.{name}.slices" + (f".{groups[0]}" if len(groups) == 1 else ""),
            f"a job here never gets a slice of {' or '.join(groups)}: the queue owns none, and "
            + ("may not borrow" if lent else f"no other queue of cohort {cohort} lends any"),
            "raise its share"
            + (", or write borrow: true" if lent else f", or put a queue that owns some into {cohort}"),
        )


@QUEUES.rule(
    "lonely-cohort",
    level="warning",
    reason="A queue borrows from other queues of its cohort's tree, and lends to them only.",
    source="Kueue v0.19, cohorts",
)
def lonely_cohort(platform: Platform) -> Iterator[Finding]:
    cohorts = {name: queue.cohort or platform.name for name, queue in platform.queues.items()}
    roots = {name: cohort_root(platform, cohort) for name, cohort in cohorts.items()}
    members = Counter(roots.values())
    for name, of_queue in shares(platform).items():
        queue, alone = platform.queues[name], members[roots[name]] == 1
        borrows = queue.borrow is True or (isinstance(queue.borrow, dict) and any(queue.borrow.values()))
        in_vain = borrows and any(share.owns for share in of_queue) and not any(share.lent for share in of_queue)
        why = (
            f"is alone in cohort {cohorts[name]}"
            if alone
            else f"no other queue of cohort {cohorts[name]} lends its slices"
        )
        if in_vain:
            yield Finding(
                f"queues.{name}.borrow",
                f"has no effect: the queue {why}" if alone else f"has no effect: {why}",
                "leave it out, or put queues that share slices into one cohort",
            )
        elif alone and queue.cohort and len(platform.queues) > 1 and not borrows:
            yield Finding(
                f"queues.{name}.cohort",
                f"the queue {why}: it neither borrows nor lends",
                f"leave it out to share with the queues of {platform.name}, or name another queue's cohort",
            )


@PLATFORM.rule(
    "topology-aware",
    level="warning",
    reason="Kueue places jobs by the hosts that it sees, and TPU slices by the device plugin's count.",
    source="Kueue v0.19, topology-aware scheduling",
)
def topology_aware(platform: Platform) -> Iterator[Finding]:
    if platform.software.kueue.topology_aware and not any(each.topology_aware for each in flavors(platform).values()):
        yield Finding(
            "software.kueue.topology_aware",
            "has no effect: no slices have several hosts, devices: device-plugin and provisioning: fixed",
            "leave it out",
        )
