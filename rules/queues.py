"""What the shares and limits of queues must satisfy."""

from collections.abc import Iterator

from plan.flavors import flavors
from plan.platform import Platform
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
