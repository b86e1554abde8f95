"""Reads what the cluster says: hosts, the pods on them, queues, jobs. One pass: each collection is listed once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Literal

from catalogue.labels import ACCELERATOR_LABEL, CHIPS_LABEL, DRA_LABEL, NODE_POOL_LABEL
from plan.flavors import DEVICE_PLUGIN_RESOURCE
from plan.platform import Platform
from plan.workloads.jobset import JOBSET_API
from plan.workloads.leader_worker_set import SET_LABEL
from tools.cluster_api import ClusterApi, RefusedReadError
from tools.kueue_readings import (
    PATHS,
    Condition,
    conditions,
    moment,
    quantity,
    queue_readings,
    workload_readings,
)
from tools.status.readings import ClusterReadings, Holder, Host, JobSetReading, ScaleUpFailure, Unread

Json = Mapping[str, Any]

DRIVER = "tpu.google.com"
"""Name of the TPU DRA driver in claims and ResourceSlices."""
SYSTEM_NAMESPACES = ("kube-system", "gmp-system")
"""Their pods hold no chips, and there are several of them on each host."""
MAINTENANCE_LABEL = "cloud.google.com/scheduled-maintenance-time"
TERMINATION_TAINT = "cloud.google.com/impending-node-termination"
SERVING_KINDS = frozenset({"ReplicaSet", "StatefulSet"})
WELL = ("ready", "succeeded")
"""What a JobSet counts of its Jobs; neither counts a Job of the other."""
RECENT = timedelta(minutes=30)
"""After that the autoscaler has tried again, and said so again."""
AT_ONCE = 6

EVERY_LIST: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "nodes": ("/api/v1/nodes", {"labelSelector": ACCELERATOR_LABEL}),
    "pods": (
        "/api/v1/pods",
        {
            "fieldSelector": ",".join(
                [
                    *(f"metadata.namespace!={name}" for name in SYSTEM_NAMESPACES),
                    "status.phase!=Succeeded",
                    "status.phase!=Failed",
                ]
            )
        },
    ),
    "jobsets": (f"/apis/{JOBSET_API}/jobsets", {}),
    "events": ("/api/v1/events", {"fieldSelector": "reason=FailedScaleUp"}),
    "resourceclaims": ("/apis/resource.k8s.io/v1/resourceclaims", {}),
    "resourceslices": ("/apis/resource.k8s.io/v1/resourceslices", {"fieldSelector": f"spec.driver={DRIVER}"}),
    **{kind: (path, {}) for kind, path in PATHS.items()},
}
"""Everything that is ever listed, by the plural of its kind."""


def wanted_lists(platform: Platform) -> tuple[str, ...]:
    """The kinds that a platform has."""
    dra = any(plan.devices == "dra" for plan in platform.slice_plans)
    wanted = {
        "nodes": bool(platform.slices),
        "pods": bool(platform.slices),
        "jobsets": True,
        "events": any(plan.provisioning.autoscaled for plan in platform.slice_plans),
        "resourceclaims": dra,
        "resourceslices": dra,
        "clusterqueues": bool(platform.queues),
        "localqueues": bool(platform.queues),
        "workloads": bool(platform.queues),
        "multikueueclusters": platform.is_manager,
    }
    return tuple(kind for kind, is_wanted in wanted.items() if is_wanted)


def read_cluster(platform: Platform, api: ClusterApi, at: datetime) -> ClusterReadings:
    """Everything of the cluster. Raises ClusterAwayError where it does not answer; what it refuses is noted."""
    kinds = wanted_lists(platform)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(kinds, pool.map(_list(api), kinds), strict=True))
    found = {kind: answer for kind, answer in answers.items() if isinstance(answer, list)}
    refused = {kind: answer for kind, answer in answers.items() if isinstance(answer, RefusedReadError)}
    pods = found.get("pods")
    holders = None
    if pods is not None and ("resourceclaims" in found or "resourceclaims" not in kinds):
        holders = tuple(_holders(pods, found.get("resourceclaims", [])))
    waiting = {(each.namespace, each.name) for each in holders or () if not each.host}
    return ClusterReadings(
        hosts=tuple(_hosts(found["nodes"], found.get("resourceslices"))) if "nodes" in found else None,
        holders=holders,
        queues=tuple(queue_readings(found["clusterqueues"])) if "clusterqueues" in found else None,
        workloads=_workloads(found) if "workloads" in found else None,
        jobsets=tuple(map(_jobset, found["jobsets"])) if "jobsets" in found else None,
        workers=_workers(found["multikueueclusters"]) if "multikueueclusters" in found else None,
        failures=tuple(_failures(found.get("events", ()), waiting, at)),
        unread=tuple(Unread(kind, _said(error)) for kind, error in refused.items()),
    )


def _list(api: ClusterApi) -> Callable[[str], list[dict[str, Any]] | RefusedReadError]:
    def read(kind: str) -> list[dict[str, Any]] | RefusedReadError:
        path, query = EVERY_LIST[kind]
        try:
            return api.items(path, **query)
        except RefusedReadError as error:
            return error

    return read


def _said(error: RefusedReadError) -> str:
    return f"the cluster answers {error.status}: {error}"


def _workloads(found: Mapping[str, list[Any]]) -> tuple[Any, ...]:
    return tuple(workload_readings(found["workloads"], found.get("localqueues", ())))


def _hosts(nodes: Iterable[Json], slices: list[Any] | None) -> Iterator[Host]:
    devices: dict[str, int] = {}
    for each in slices or ():
        name = each["spec"].get("nodeName", "")
        devices[name] = devices.get(name, 0) + len(each["spec"].get("devices", ()))
    for node in nodes:
        yield _host(node, devices if slices is not None else None)


def _host(node: Json, devices: Mapping[str, int] | None) -> Host:
    """`devices`: by node, the chips that the DRA driver shows; None where that was not read."""
    metadata, spec = node["metadata"], node["spec"]
    labels = metadata.get("labels", {})
    known = conditions(node).get("Ready")
    ready = known is not None and known.true
    allocatable = quantity(node.get("status", {}).get("allocatable", {}).get(DEVICE_PLUGIN_RESOURCE, 0))
    if DRA_LABEL in labels:
        chips = devices.get(metadata["name"], 0) if devices is not None else int(labels.get(CHIPS_LABEL, 0))
    else:
        chips = allocatable
    return Host(
        name=metadata["name"],
        pool=labels.get(NODE_POOL_LABEL, ""),
        labels=labels,
        ready=ready,
        since=known.since if known else moment(metadata["creationTimestamp"]),
        why="" if ready else _why_not_ready(known),
        chips=chips,
        cordoned=bool(spec.get("unschedulable")),
        leaves=_leaving(labels, spec.get("taints", ())),
    )


def _why_not_ready(known: Condition | None) -> str:
    return known.message or known.reason if known else "its kubelet has not reported yet"


def _leaving(labels: Mapping[str, str], taints: Iterable[Json]) -> str:
    if any(each["key"] == TERMINATION_TAINT for each in taints):
        return "Google is about to end it"
    if planned := labels.get(MAINTENANCE_LABEL):
        return f"maintenance is planned for {_maintenance_time(planned)}"
    return ""


def _maintenance_time(text: str) -> str:
    """GKE writes seconds since 1970 into the label."""
    return f"{datetime.fromtimestamp(int(text)).astimezone():%d %b %H:%M %Z}" if text.isdigit() else text


def _holders(pods: Iterable[Json], claims: Iterable[Json]) -> Iterator[Holder]:
    claimed: dict[tuple[str, str], int] = {}
    for claim in claims:
        devices = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        chips = sum(1 for each in devices if each["driver"] == DRIVER)
        for user in claim.get("status", {}).get("reservedFor", ()):
            key = claim["metadata"]["namespace"], user["name"]
            claimed[key] = claimed.get(key, 0) + chips
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        chips = _requested(spec) + claimed.get((metadata["namespace"], metadata["name"]), 0)
        if chips:
            known = conditions(pod).get("Ready")
            yield Holder(
                namespace=metadata["namespace"],
                name=metadata["name"],
                host=spec.get("nodeName", ""),
                chips=chips,
                owner=_owner(metadata),
                server=_serves(metadata, spec),
                ready_since=known.since if known and known.true else None,
            )


def _requested(spec: Json) -> int:
    limits = (each.get("resources", {}).get("limits", {}) for each in spec["containers"])
    return sum(quantity(each.get(DEVICE_PLUGIN_RESOURCE, 0)) for each in limits)


def _owner(metadata: Json) -> str:
    labels = metadata.get("labels", {})
    if jobset := labels.get("jobset.sigs.k8s.io/jobset-name"):
        return f"JobSet {metadata['namespace']}/{jobset}"
    if server := labels.get(SET_LABEL):
        return f"LeaderWorkerSet {metadata['namespace']}/{server}"
    owners = [each for each in metadata.get("ownerReferences", ()) if each.get("controller")]
    kind, name = (owners[0]["kind"], owners[0]["name"]) if owners else ("pod", metadata["name"])
    return f"{kind} {metadata['namespace']}/{name}"


def _serves(metadata: Json, spec: Json) -> bool:
    """Whether a pod answers requests: its controller is one for servers, or a probe asks it over HTTP."""
    kinds = {each["kind"] for each in metadata.get("ownerReferences", ())}
    if SET_LABEL in metadata.get("labels", {}):
        return True
    probed = any("httpGet" in (each.get("readinessProbe") or {}) for each in spec["containers"])
    return probed or not kinds.isdisjoint(SERVING_KINDS)


def _jobset(found: Json) -> JobSetReading:
    metadata, spec, status = found["metadata"], found["spec"], found.get("status", {})
    known = conditions(found)
    ends: tuple[Literal["Completed", "Failed"], ...] = ("Completed", "Failed")
    end = next((name for name in ends if name in known and known[name].true), None)
    return JobSetReading(
        namespace=metadata["namespace"],
        name=metadata["name"],
        suspended=bool(spec.get("suspend")),
        end=end or "",
        restarts=int(status.get("restartsCountTowardsMax", status.get("restarts", 0))),
        most_restarts=int((spec.get("failurePolicy") or {}).get("maxRestarts", 0)),
        ready=sum(int(each.get(word, 0)) for each in status.get("replicatedJobsStatus", ()) for word in WELL),
        wanted=sum(int(each.get("replicas", 1)) for each in spec["replicatedJobs"]),
        since=known[end].since if end else moment(metadata["creationTimestamp"]),
    )


def _workers(found: Iterable[Json]) -> dict[str, str]:
    """Workers of a MultiKueue manager, each with why it is away; empty if it is not."""
    workers = {}
    for each in found:
        active = conditions(each).get("Active")
        away = "" if active and active.true else (active.message if active else "Kueue has not tried it yet")
        workers[each["metadata"]["name"]] = away
    return workers


def _failures(events: Iterable[Json], waiting: set[tuple[str, str]], at: datetime) -> Iterator[ScaleUpFailure]:
    """Failures to add hosts for TPU pods that still wait."""
    for event in events:
        about = event["involvedObject"]
        key = about.get("namespace", ""), about["name"]
        last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
        if key in waiting and at - moment(last) < RECENT:
            yield ScaleUpFailure(*key, moment(last), event.get("message", ""))
