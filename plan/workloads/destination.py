"""Where work goes: the queue that takes it, and the namespace."""

from typing import NamedTuple

from plan.platform import Platform
from plan.queues import queues_with
from plan.slices import SlicePlan
from plan.workloads.job import WorkloadError


class Destination(NamedTuple):
    """A namespace, and the queue that takes work there; None: work of the namespace goes past the queues."""

    queue: str | None
    namespace: str


def destination(platform: Platform, plan: SlicePlan, queue: str | None, namespace: str | None) -> Destination:
    """Where work for the slices goes, from the queue and the namespace that a person wrote.

    - a queue alone: its first namespace
    - a namespace alone: its only queue, to which Kueue would send the work anyway
    - neither: the only queue that has the slices, and its first namespace

    Raises WorkloadError where there is no such place, or several.
    """
    if queue is not None:
        return Destination(queue, _namespace_of(platform, queue, namespace))
    if namespace is not None:
        return Destination(_queue_of(platform, namespace), namespace)
    owners = queues_with(platform, plan.group)
    if len(owners) > 1:
        raise WorkloadError(
            f"slices of {plan.group} belong to queues {', '.join(owners)}: write --queue {' or '.join(owners)}"
            f"{_way_past(platform, plan)}"
        )
    if owners:
        allowed = platform.queues[owners[0]].namespaces
        _check_team(platform, allowed)
        return Destination(owners[0], allowed[0])
    _check_team(platform, platform.workload_namespaces)
    # Of a namespace with a queue Kueue would send the work there, where it would wait without end.
    chosen = (*_without_queue(platform), *platform.workload_namespaces)[0]
    return Destination(_queue_of(platform, chosen), chosen)


def _namespace_of(platform: Platform, queue: str, namespace: str | None) -> str:
    if queue not in platform.queues:
        raise WorkloadError(f"the platform has no queue {queue}: it has {', '.join(platform.queues) or 'none'}")
    allowed = platform.queues[queue].namespaces
    if namespace and namespace not in allowed:
        raise WorkloadError(f"queue {queue} takes no work from {namespace}, only from {', '.join(allowed)}")
    return namespace or allowed[0]


def _queue_of(platform: Platform, namespace: str) -> str | None:
    namespaces = platform.workload_namespaces
    if namespace not in namespaces:
        raise WorkloadError(f"the platform has no namespace {namespace}: it has {', '.join(namespaces)}")
    taking = [name for name, each in platform.queues.items() if namespace in each.namespaces]
    if len(taking) > 1:
        raise WorkloadError(f"namespace {namespace} has queues {', '.join(taking)}: write --queue")
    return taking[0] if taking else None


def _check_team(platform: Platform, namespaces: tuple[str, ...]) -> None:
    """A job gets its team's buckets and secrets, so it is never sent to the first of several teams."""
    teams = [each for each in namespaces if each in platform.teams]
    if len(teams) > 1:
        raise WorkloadError(f"which team's work is it? Write --namespace {' or '.join(teams)}")


def _without_queue(platform: Platform) -> list[str]:
    return [each for each in platform.workload_namespaces if each not in platform.queue_namespaces]


def _way_past(platform: Platform, plan: SlicePlan) -> str:
    """How to run past the queues, where that is possible."""
    outside = _without_queue(platform)
    possible = outside and plan.provisioning.declared and not plan.queued and not platform.is_manager
    return f", or -n {' or '.join(outside)} to run past them" if possible else ""
