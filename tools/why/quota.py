"""What a queue owns, uses and has borrowed, and who holds the chips that a job waits for."""

from collections.abc import Callable, Iterator

from plan.flavors import Flavor
from tools.kueue_readings import quantity
from tools.why.cluster import Object
from tools.why.job import Job, all_workloads, is_true
from tools.why.side import Side

MOST_HOLDERS = 4


def quota(job: Job, cluster_queue: str, flavor: Flavor | None, beyond: Callable[[int], str]) -> Side:
    """The quota of the job's queue. `beyond`: why the queue can never give so many chips; empty if it can."""
    queue = next((each for each in job.of_kind("ClusterQueue") if each["metadata"]["name"] == cluster_queue), None)
    if queue is None:
        return Side("quota", f"ClusterQueue {cluster_queue} is not there, or may not be read")
    text = "; ".join(_usage(queue, flavor)) or "no quota of chips"
    if (stopped := queue["spec"].get("stopPolicy", "None")) != "None":
        patch = '{"spec":{"stopPolicy":"None"}}'
        todo = f"kubectl patch clusterqueue {cluster_queue} --type merge -p '{patch}'"
        return Side("quota", f"queue {cluster_queue} is stopped ({stopped}); {text}", holds=True, todo=todo)
    if all(is_true(each, "QuotaReserved") for each in job.workloads):
        return Side("quota", text)
    asked = [_chips(workload, flavor) for workload in job.workloads if not is_true(workload, "QuotaReserved")]
    if said := beyond(max(asked)):
        return Side("quota", f"{said}; {text}", holds=True, todo="ask for fewer slices, or give the queue more")
    held = "; ".join(_holders(job, flavor))
    asks = f"the job asks for {sum(asked)}; " if sum(asked) else ""
    return Side("quota", f"{asks}{text}{f'; held by {held}' if held else ''}", holds=True)


def _usage(queue: Object, flavor: Flavor | None) -> Iterator[str]:
    """Used, owned and borrowed chips: of the job's flavor, or of all that the queue has."""
    name, used = queue["metadata"]["name"], {}
    for each in queue.get("status", {}).get("flavorsReservation") or []:
        for resource in each["resources"]:
            amounts = quantity(resource["total"]), quantity(resource.get("borrowed", 0))
            used[each["name"], resource["name"]] = amounts
    for group in queue["spec"].get("resourceGroups") or []:
        for each in group["flavors"]:
            if flavor and each["name"] != flavor.name:
                continue
            for resource in each["resources"]:
                total, borrowed = used.get((each["name"], resource["name"]), (0, 0))
                owned = quantity(resource["nominalQuota"])
                own = f"{name} uses {total} of its {owned} chips of {each['name']}"
                yield f"{own}, {borrowed} of them borrowed"


def _holders(job: Job, flavor: Flavor | None) -> Iterator[str]:
    """Who holds chips of the flavor, in any queue; no more than a few."""
    found = []
    for workload in all_workloads(job.listed):
        assigned = workload.get("status", {}).get("admission", {}).get("podSetAssignments") or []
        names = {name for each in assigned for name in (each.get("flavors") or {}).values()}
        if is_true(workload, "QuotaReserved") and not is_true(workload, "Finished") and flavor and flavor.name in names:
            chips = sum(quantity((each.get("resourceUsage") or {}).get(flavor.resource, 0)) for each in assigned)
            owner = (workload["metadata"].get("ownerReferences") or [{"name": workload["metadata"]["name"]}])[0]["name"]
            found.append(f"{workload['metadata']['namespace']}/{owner} ({chips})")
    yield from sorted(found)[:MOST_HOLDERS]
    if len(found) > MOST_HOLDERS:
        yield f"{len(found) - MOST_HOLDERS} more"


def _chips(workload: Object, flavor: Flavor | None) -> int:
    """Chips that a workload asks for; 0 where its flavor is not known, because claims do not say how many they take."""
    return sum(each["count"] * flavor.chips_per_host for each in workload["spec"]["podSets"]) if flavor else 0
