"""A job's pods, the claims of those that use DRA, and the events that say what is wrong with them."""

from collections import Counter
from collections.abc import Iterator

from tools.why.cluster import Object
from tools.why.job import Job, condition, is_true
from tools.why.side import Side

BROKEN = (
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
)
"""Reasons for which a container waits until somebody changes something."""
MOST_EVENTS = 2
ENDING = "ending"


def claims(job: Job) -> Iterator[Side]:
    """How many of the claims of the job's pods have their chips."""
    wanted = [
        (pod, claim["name"])
        for pod in job.pods
        for claim in pod["spec"].get("resourceClaims") or []
        if pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]
    if not wanted:
        return
    made = {each["metadata"]["name"]: each for each in job.of_kind("ResourceClaim")}
    names = {
        (pod["metadata"]["name"], status["name"]): status.get("resourceClaimName")
        for pod in job.pods
        for status in pod["status"].get("resourceClaimStatuses") or []
    }
    live = [made.get(names.get((pod["metadata"]["name"], claim), "")) for pod, claim in wanted]
    missing = [
        claim["resourceClaimTemplateName"]
        for pod, name in wanted
        for claim in pod["spec"]["resourceClaims"]
        if claim["name"] == name
        and (pod["metadata"]["name"], name) not in names
        and claim.get("resourceClaimTemplateName")
    ]
    allocated = sum(bool(each and each.get("status", {}).get("allocation")) for each in live)
    text = f"{allocated} of {len(wanted)} have their chips"
    failed = [each["message"] for each in job.warnings if each.get("reason") == "FailedResourceClaimCreation"]
    if missing and failed:
        todo = f"kubectl -n {job.namespace} get resourceclaimtemplates lists those that there are"
        yield Side("claims", f"{text}; {failed[-1]}", holds=True, todo=todo)
    else:
        yield Side("claims", text)


def pods(job: Job) -> Side:
    """Phases of the pods; if not all run, the first reason that anything gives."""
    phases = Counter(map(_phase, job.pods))
    text = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none yet"
    events = "; ".join(f"{each.get('reason')}: {each.get('message')}" for each in job.warnings[-MOST_EVENTS:])
    for pod in job.pods:
        if broken := _broken(pod):
            todo = f"kubectl -n {job.namespace} describe pod {pod['metadata']['name']}"
            return Side("pods", f"{text}; {broken}", holds=True, todo=todo)
    if not job.pods:
        return Side("pods", f"{text}{f'; {events}' if events else ''}", holds=True)
    waiting = [pod for pod in job.pods if _phase(pod) == "pending"]
    if not waiting and ENDING in phases:
        return Side("pods", f"{text}: their hosts are gone, or they are asked to end", holds=True)
    if not waiting:
        return Side("pods", text)
    said = next((said for said in map(_unplaced, waiting) if said), "") or "containers start"
    return Side("pods", f"{text}; {said}{f'; {events}' if events and events not in said else ''}", holds=True)


def _phase(pod: Object) -> str:
    """In a word. The API calls a pod running that is to go, also where its host is gone and nobody can end it."""
    phase = str(pod["status"].get("phase", "Unknown")).lower()
    leaves = "deletionTimestamp" in pod["metadata"] and phase not in ("succeeded", "failed")
    return ENDING if leaves else phase


def _broken(pod: Object) -> str:
    """Why a container of the pod cannot start, or does not stay."""
    statuses = (pod["status"].get("initContainerStatuses") or []) + (pod["status"].get("containerStatuses") or [])
    for status in statuses:
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in BROKEN:
            return f"{pod['metadata']['name']}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    return ""


def _unplaced(pod: Object) -> str:
    """What the scheduler says of a pod that it cannot place."""
    return "" if is_true(pod, "PodScheduled") else str(condition(pod, "PodScheduled").get("message", ""))
