"""Why a job does not run, in the order of what it must pass: queue, quota, capacity, hosts, claims, pods."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plan.flavors import Flavor, flavors
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.queues import reach
from plan.slices import SlicePlan
from plan.words import counted
from tools.why.cluster import Object
from tools.why.hosts import hosts
from tools.why.job import Job, all_workloads, condition, is_true, named
from tools.why.pods import claims, pods
from tools.why.quota import quota
from tools.why.side import Side

State = Literal["done", "runs", "waits", "person"]


@dataclass(frozen=True)
class Answer:
    """What is known of one job.

    `state`: `waits` comes to an end by itself, `person` does not. `reason`: in one sentence; `todo`: what to do, empty
    if nothing; `sides`: everything that was looked at, in order.
    """

    job: str
    queue: str
    state: State
    reason: str
    todo: str
    sides: Sequence[Side]


def answer(platform: Platform, job: Job) -> Answer:
    """The reason is the first side that waits for a person; without one, the first that holds the job back."""
    sides = list(_sides(platform, job))
    ended = _ended(job)
    holding = [side for side in sides if side.holds]
    held = next((side for side in holding if side.todo), next(iter(holding), None))
    if ended:
        state, reason, todo = ended
    elif held:
        state, reason, todo = ("person" if held.todo else "waits"), held.text, held.todo
    else:
        state, reason, todo = "runs", sides[-1].text, ""
    return Answer(named(job.live), job.queue, state, reason, todo, sides)


def _ended(job: Job) -> tuple[State, str, str] | None:
    """How a job has ended, if it has."""
    name, namespace = job.live["metadata"]["name"], job.namespace
    for kind in ("Completed", "Complete", "Failed"):
        if is_true(job.live, kind):
            said = condition(job.live, kind).get("message") or kind.lower()
            if kind != "Failed":
                return "done", said, ""
            first = next((pod for pod in job.pods if pod["status"].get("phase") == "Failed"), None)
            of = f"pod/{first['metadata']['name']}" if first else f"{job.live['kind'].lower()}/{name}"
            return "person", f"failed: {said}", f"kubectl -n {namespace} {'logs' if first else 'describe'} {of}"
    phase = job.live.get("status", {}).get("phase") if job.live["kind"] == "Pod" else ""
    if phase == "Succeeded":
        return "done", "the pod has ended", ""
    if phase == "Failed":
        return "person", "the pod has failed", f"kubectl -n {namespace} logs pod/{name}"
    return None


def _sides(platform: Platform, job: Job) -> Iterator[Side]:
    flavor = _flavor(platform, job)
    if platform.queues:
        yield from _queue(platform, job, flavor)
    plans = [each for each in platform.shared_plans if flavor and each.flavor == flavor.name]
    if job.workloads and not all(is_true(each, "Admitted") for each in job.workloads):
        yield from _checks(job, plans)
        return
    if any(each.get("status", {}).get("clusterName") for each in job.workloads):
        workers = sorted({each["status"]["clusterName"] for each in job.workloads if each["status"].get("clusterName")})
        yield Side("cluster", f"runs on {', '.join(workers)}: ask the stack of that cluster")
        return
    if plans and flavor:
        yield _capacity(plans)
        yield hosts(flavor, _waits(plans), job)
    yield from claims(job)
    yield pods(job)


def _flavor(platform: Platform, job: Job) -> Flavor | None:
    """The flavor that Kueue has assigned, or the one that the pods select; None if neither says one."""
    known = flavors(platform)
    for workload in job.workloads:
        for each in workload.get("status", {}).get("admission", {}).get("podSetAssignments") or []:
            for name in (each.get("flavors") or {}).values():
                if name in known:
                    return known[name]
    selectors: list[Mapping[str, str]] = [spec.get("nodeSelector") or {} for spec in job.templates]
    fitting = [
        each for each in known.values() if any(each.node_labels.items() <= select.items() for select in selectors)
    ]
    return fitting[0] if len(fitting) == 1 else None


def _queue(platform: Platform, job: Job, flavor: Flavor | None) -> Iterator[Side]:
    """Whether the job is in a queue and admitted, and what the queue's quota is."""
    if not job.workloads:
        yield _unqueued(platform, job)
        return
    local = next((each for each in job.of_kind("LocalQueue") if each["metadata"]["name"] == job.queue), None)
    cluster_queue = local["spec"]["clusterQueue"] if local else ""
    for workload in job.workloads:
        yield _workload(job, workload, cluster_queue)
    if cluster_queue:
        yield quota(job, cluster_queue, flavor, lambda chips: _beyond_reach(platform, cluster_queue, flavor, chips))


def _beyond_reach(platform: Platform, queue: str, flavor: Flavor | None, chips: int) -> str:
    """Why a queue of the platform can never give so many chips; empty if it can."""
    if not flavor or queue not in platform.queues or (most := reach(platform, queue, flavor.name)) >= chips:
        return ""
    return f"the job wants {counted(chips, 'chip')} and queue {queue} can never have more than {most} of {flavor.name}"


def _unqueued(platform: Platform, job: Job) -> Side:
    if job.namespace not in platform.queue_namespaces:
        return Side("queue", f"none: no queue takes work from namespace {job.namespace}, so nothing holds the job back")
    if job.queue:
        seen = "Kueue has not seen the job yet"
        return Side("queue", f"{job.queue}: {seen}", holds=True)
    if job.live["spec"].get("suspend"):
        named_queues = " or ".join(sorted(n for n, q in platform.queues.items() if job.namespace in q.namespaces))
        todo = f"label the job kueue.x-k8s.io/queue-name: {named_queues}"
        return Side("queue", "the job is suspended and names no queue", holds=True, todo=todo)
    return Side("queue", "none: Kueue does not know this job")


def _workload(job: Job, workload: Object, cluster_queue: str) -> Side:
    """Whether Kueue has admitted it; if not, why."""
    where = f"{job.queue} (ClusterQueue {cluster_queue})" if cluster_queue else job.queue
    name = workload["metadata"]["name"]
    again = f'kubectl -n {job.namespace} patch workload {name} --type merge -p \'{{"spec":{{"active":true}}}}\''
    evicted = condition(workload, "Evicted")
    before = f"; evicted before: {_evicted(job, evicted)}" if evicted.get("status") == "True" else ""
    if workload["spec"].get("active") is False:
        text = f"{where}: deactivated{before}"
        return Side("queue", text, holds=True, todo=again)
    if is_true(workload, "Finished"):
        return Side("queue", f"{where}: finished")
    if is_true(workload, "Admitted"):
        since = condition(workload, "Admitted").get("lastTransitionTime", "")
        return Side("queue", f"{where}: admitted {since}".rstrip())
    if is_true(workload, "QuotaReserved"):
        return Side("queue", f"{where}: has its quota, and is not admitted before its checks are through")
    reserved = condition(workload, "QuotaReserved")
    if not cluster_queue:
        todo = f"name one of `kubectl -n {job.namespace} get localqueues`"
        return Side("queue", f"there is no LocalQueue {job.queue} in namespace {job.namespace}", holds=True, todo=todo)
    said = reserved.get("message") or "Kueue has not looked at it yet"
    todo = "change what the message names: the job or its queue" if reserved.get("reason") == "Inadmissible" else ""
    return Side("queue", f"{where}: waits: {said}{before}", holds=True, todo=todo)


def _evicted(job: Job, evicted: Object) -> str:
    """Why a workload lost its quota, and to whom."""
    reason, message = evicted.get("reason", ""), str(evicted.get("message", ""))
    for other in all_workloads(job.listed):
        owners = other["metadata"].get("ownerReferences") or []
        if other["metadata"]["uid"] in message or any(owner["uid"] in message for owner in owners):
            by = ", ".join(f"{owner['kind']} {other['metadata']['namespace']}/{owner['name']}" for owner in owners)
            return f"{reason} for {by} at {evicted.get('lastTransitionTime')}"
    return f"{reason} at {evicted.get('lastTransitionTime')}: {message}"


def _checks(job: Job, plans: Sequence[SlicePlan]) -> Iterator[Side]:
    """Admission checks that a workload with quota waits for: queued provisioning, or another cluster."""
    for workload in job.workloads:
        if not is_true(workload, "QuotaReserved"):
            continue
        for check in workload.get("status", {}).get("admissionChecks") or []:
            if check["state"] == "Ready":
                continue
            wait = f" ({_waits(plans)})" if plans else ""
            asked = "; ".join(_requests(job, workload))
            text = f"{check['name']} is {check['state'].lower()}{wait}: {check.get('message') or asked or 'no message'}"
            todo = "submit the job again" if check["state"] == "Rejected" else ""
            yield Side("capacity", text, holds=True, todo=todo)


def _requests(job: Job, workload: Object) -> Iterator[str]:
    """What the ProvisioningRequests of a workload say."""
    name = workload["metadata"]["name"]
    for request in job.of_kind("ProvisioningRequest"):
        if str(request["metadata"]["name"]).startswith(name):
            said = [
                each["type"] for each in request.get("status", {}).get("conditions", []) if each["status"] == "True"
            ]
            yield f"ProvisioningRequest {request['metadata']['name']}: {', '.join(said) or 'no answer yet'}"


def _waits(plans: Sequence[SlicePlan]) -> str:
    """The longest wait for hosts, of each capacity model in the order in which they are tried."""
    return ", then ".join(dict.fromkeys(f"{plan.capacity}: {plan.wait}" for plan in plans))


def _capacity(plans: Sequence[SlicePlan]) -> Side:
    """What brings the hosts of a group."""
    comes = plans[0].provisioning.comes
    look = "; `python -m tools pools` lists the pools" if plans[0].provisioning is TPU_PROVISIONER else ""
    text = f"{plans[0].group}: {_waits(plans)}{f'; {comes}' if comes else ''}{look}"
    return Side("capacity", text)
