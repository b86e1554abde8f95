"""What Kueue's objects in a cluster say, in the words of this program: queues in chips, and the work in them.

Pure functions of objects as the API server gives them. Form: Kueue v0.19 `apis/kueue/v1beta2`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from plan.flavors import RESOURCES
from plan.kueue_configuration import OBJECTS_API

Json = Mapping[str, Any]

PATHS = {
    kind: f"/apis/{OBJECTS_API}/{kind}" for kind in ("clusterqueues", "localqueues", "workloads", "multikueueclusters")
}
"""Where the API server has all objects of a kind."""

TPU_RESOURCES = frozenset(RESOURCES.values())
NEVER = "maximum capacity"
"""Part of Kueue's message about a flavor of which work asks for more than its queue can ever have
(pkg/scheduler/flavorassigner)."""
LATER = "insufficient unused quota"
"""The same where quota of a flavor may become free. One message has a part for each flavor."""

State = Literal["waiting", "reserved", "admitted", "finished", "stopped"]
"""Of a workload. `reserved`: it has its quota, and waits for a check, such as for hosts that are queued for. `stopped`:
Kueue or a person has deactivated it."""


@dataclass(frozen=True)
class Condition:
    """A condition that is true or false since a moment."""

    true: bool
    since: datetime
    reason: str
    message: str


@dataclass(frozen=True)
class QueueReading:
    """A ClusterQueue, in chips of all its flavors.

    - `used`: of admitted work; `reserved`: also of work that waits for a check; `borrowed`: the part of `reserved` that
      is above what the queue owns
    - `why_inactive`: empty while it admits work
    """

    name: str
    owned: int
    used: int
    reserved: int
    borrowed: int
    why_inactive: str


@dataclass(frozen=True)
class WorkloadReading:
    """A job as Kueue sees it.

    - `owner`: kind and name of the job, such as `JobSet train`; `owner_uid`: its uid
    - `queue`: its ClusterQueue, empty where its LocalQueue is not there
    - `chips`: of all its pods
    - `since`: when it got into its state; of waiting work, when it was made or last evicted
    - `why`: why it waits, in Kueue's own words
    - `never`: whether it asks for more than its queue can ever have, or for what Kueue cannot count
    - `evicted`: when it last lost its quota, and why
    - `cluster`: the worker that it runs in, on a MultiKueue manager
    """

    namespace: str
    name: str
    owner: str
    owner_uid: str
    queue: str
    chips: int
    state: State
    since: datetime
    why: str
    never: bool
    evicted: Condition | None
    cluster: str

    @property
    def title(self) -> str:
        """`JobSet team-a/train`."""
        kind, _, name = self.owner.partition(" ")
        return f"{kind} {self.namespace}/{name}"

    @property
    def waits(self) -> bool:
        return self.state in ("waiting", "reserved")


def moment(text: str) -> datetime:
    """A time as the API server writes it."""
    return datetime.fromisoformat(text).astimezone(UTC)


def conditions(found: Json) -> dict[str, Condition]:
    """Conditions of an object, by type."""
    return {
        each["type"]: Condition(
            each["status"] == "True",
            moment(each.get("lastTransitionTime") or found["metadata"]["creationTimestamp"]),
            each.get("reason", ""),
            each.get("message", ""),
        )
        for each in found.get("status", {}).get("conditions", ())
    }


def queue_readings(cluster_queues: Iterable[Json]) -> list[QueueReading]:
    """Every ClusterQueue that has a quota of TPUs, by name."""
    return sorted((_queue(each) for each in cluster_queues if _quotas(each)), key=lambda queue: queue.name)


def _quotas(queue: Json) -> list[int]:
    """Its nominal quotas of chips."""
    return [
        quantity(resource["nominalQuota"])
        for group in queue["spec"].get("resourceGroups", ())
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] in TPU_RESOURCES
    ]


def _queue(queue: Json) -> QueueReading:
    status = queue.get("status", {})
    active = conditions(queue).get("Active")
    return QueueReading(
        name=queue["metadata"]["name"],
        owned=sum(_quotas(queue)),
        used=_usage(status.get("flavorsUsage"), "total"),
        reserved=_usage(status.get("flavorsReservation"), "total"),
        borrowed=_usage(status.get("flavorsReservation"), "borrowed"),
        why_inactive=active.message if active and not active.true else "",
    )


def _usage(flavors: Any, what: str) -> int:
    return sum(
        quantity(resource.get(what, 0))
        for flavor in flavors or ()
        for resource in flavor["resources"]
        if resource["name"] in TPU_RESOURCES
    )


def quantity(value: Any) -> int:
    """Chips from a Kubernetes quantity, which Kueue may write as `1k`."""
    text = str(value)
    factor = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 0)
    return int(text[:-1]) * factor if factor else int(text)


def workload_readings(workloads: Iterable[Json], local_queues: Iterable[Json]) -> list[WorkloadReading]:
    """Every Workload that asks for TPUs, the oldest first."""
    queues = {_place(each): each["spec"]["clusterQueue"] for each in local_queues}
    found = (_workload(each, queues) for each in workloads)
    return sorted((each for each in found if each.chips), key=lambda each: (each.since, each.namespace, each.name))


def _place(found: Json) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


def _workload(workload: Json, queues: Mapping[tuple[str, str], str]) -> WorkloadReading:
    metadata, spec, status = workload["metadata"], workload["spec"], workload.get("status", {})
    known = conditions(workload)
    admission = status.get("admission") or {}
    evicted = known.get("Evicted")
    state, decisive = _state(workload, known)
    began = decisive.since if decisive else moment(metadata["creationTimestamp"])
    if state == "waiting" and evicted and evicted.true:
        began = evicted.since
    owner = next((each for each in metadata.get("ownerReferences", ()) if each.get("controller")), None)
    why, never = _why(workload, state, known)
    return WorkloadReading(
        namespace=metadata["namespace"],
        name=metadata["name"],
        owner=f"{owner['kind']} {owner['name']}" if owner else f"Workload {metadata['name']}",
        owner_uid=owner["uid"] if owner else "",
        queue=admission.get("clusterQueue") or queues.get((metadata["namespace"], spec.get("queueName", "")), ""),
        chips=_chips(workload),
        state=state,
        since=began,
        why=why,
        never=never,
        evicted=evicted,
        cluster=status.get("clusterName") or "",
    )


def _state(workload: Json, known: Mapping[str, Condition]) -> tuple[State, Condition | None]:
    """Its state, and the condition that began it; none for what waits since it was made."""
    ways: tuple[tuple[str, State], ...] = (
        ("Finished", "finished"),
        ("Admitted", "admitted"),
        ("QuotaReserved", "reserved"),
    )
    if workload["spec"].get("active") is False and not _true(known, "Finished"):
        return "stopped", known.get("Evicted")
    for name, state in ways:
        if _true(known, name):
            return state, known[name]
    return "waiting", None


def _true(known: Mapping[str, Condition], name: str) -> bool:
    return name in known and known[name].true


def _why(workload: Json, state: State, known: Mapping[str, Condition]) -> tuple[str, bool]:
    if state == "reserved":
        checks = workload.get("status", {}).get("admissionChecks", ())
        words = [f"{each['name']}: {each.get('message') or each['state']}" for each in checks if not _passed(each)]
        return "; ".join(words), False
    if state == "stopped":
        evicted = known.get("Evicted")
        return (evicted.message if evicted else "somebody has deactivated it"), False
    if state != "waiting":
        return "", False
    quota = known.get("QuotaReserved")
    if quota is None:
        return "Kueue has not looked at it yet", False
    never = NEVER in quota.message and LATER not in quota.message
    return quota.message, never or quota.reason == "Misconfigured"


def _passed(check: Json) -> bool:
    return bool(check["state"] == "Ready")


def _chips(workload: Json) -> int:
    """Chips of all pods: as Kueue has admitted or considered them, else what the containers ask for."""
    status = workload.get("status", {})
    admitted = (status.get("admission") or {}).get("podSetAssignments")
    if admitted:
        return sum(_amounts(each.get("resourceUsage")) for each in admitted)
    if considered := status.get("resourceRequests"):
        return sum(_amounts(each.get("resources")) for each in considered)
    return sum(each["count"] * _of_pod(each["template"]["spec"]) for each in workload["spec"]["podSets"])


def _amounts(resources: Any) -> int:
    return sum(quantity(value) for key, value in (resources or {}).items() if key in TPU_RESOURCES)


def _of_pod(pod: Json) -> int:
    wanted = (each.get("resources", {}) for each in pod["containers"])
    return sum(_amounts({**each.get("limits", {}), **each.get("requests", {})}) for each in wanted)
