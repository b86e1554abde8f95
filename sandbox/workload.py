"""A sample workload in a running stack: its manifest as the program's own command prints it, and what is seen of it.

Whoever submits it follows it through Kueue (queued, admitted), the node pools, the scheduler (chips), and the JobSet
controller (pods, completion), until its quota is free again.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from sandbox.kubernetes.api import ApiClient, ApiError, Object, condition, is_true
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.kubernetes.nodes import POOL_LABEL, TPU_RESOURCE

QUEUE_API = "kueue.x-k8s.io/v1beta2"
CLAIM_API = "resource.k8s.io/v1"
LOOK_EVERY_SECONDS = 0.3


class WorkloadError(Exception):
    """The workload cannot be made or has not come to its end; the message says why."""


def manifest(python_arguments: Sequence[str], folder: Path, seconds: float) -> Object:
    """The JobSet that a command prints, its pods told to run for `seconds`.

    The command is Python with these arguments, in a program's folder. Raises WorkloadError in the command's words.
    """
    command = [sys.executable, *python_arguments]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if printed.returncode:
        raise WorkloadError(f"`{shlex.join(command)}` failed:\n{printed.stderr}")
    return running_for(yaml.safe_load(printed.stdout), seconds)


def running_for(job: Object, seconds: float) -> Object:
    """The JobSet, its pods told to run for `seconds`."""
    for each in job["spec"]["replicatedJobs"]:
        pod = each["template"]["spec"]["template"]
        pod.setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = f"{seconds:g}s"
    return job


@dataclass(frozen=True)
class Sight:
    """A workload at one moment. `text` says each of its sides in words; `over` and `failed` are the JobSet's own;
    `hosts` are the nodes that it could run on."""

    text: Mapping[str, str]
    over: bool
    failed: bool
    hosts: int


def watch(client: ApiClient, job: Object, timeout: float, until_no_hosts: bool = False) -> Iterator[Sight]:
    """Looks at a submitted JobSet until it has ended and its queue is empty again, and its hosts are gone if asked.

    Raises WorkloadError when it fails, or is not over after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        sight = look(client, job)
        yield sight
        if sight.failed:
            raise WorkloadError(f"the workload has failed: {sight.text['job']}")
        if sight.over and not (until_no_hosts and sight.hosts):
            return
        if time.monotonic() > deadline:
            where = "; ".join(f"{side}: {said}" for side, said in sight.text.items() if said)
            raise WorkloadError(f"the workload is not over after {timeout:.0f} s ({where})")
        time.sleep(LOOK_EVERY_SECONDS)


def look(client: ApiClient, job: Object) -> Sight:
    """The workload as it is now; `job` is the JobSet as the server returned it."""
    metadata, template = job["metadata"], job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    name, namespace = metadata["name"], metadata["namespace"]
    live = client.get(job["apiVersion"], job["kind"], name, namespace) or {}
    pods = client.list_all("v1", "Pod", namespace, labelSelector=f"jobset.sigs.k8s.io/jobset-name={name}")
    nodes = client.list_all("v1", "Node", labelSelector=_selector(template["spec"].get("nodeSelector", {})))
    local = client.get(QUEUE_API, "LocalQueue", metadata["labels"]["kueue.x-k8s.io/queue-name"], namespace) or {}
    queue = client.get(QUEUE_API, "ClusterQueue", local["spec"]["clusterQueue"]) if local else None
    reserved = _chips(queue or {}, "flavorsReservation")
    ended = is_true(live, "Completed")
    text = {
        "queue": _admission(workload_of(client, job)),
        "nodes": _counted(each["metadata"]["labels"][POOL_LABEL] for each in nodes),
        "pods": _counted(each["status"].get("phase", "") for each in pods),
        "chips": _allocated(client, pods),
        "job": _ending(live),
        "quota": f"{reserved} chip{'' if reserved == 1 else 's'} in use",
    }
    return Sight(text, over=ended and not reserved, failed=is_true(live, "Failed"), hosts=len(nodes))


def log_lines(client: ApiClient, job: Object) -> Iterator[tuple[str, str]]:
    """Each pod of a job that ran in a container, with each line that it has written."""
    metadata = job["metadata"]
    selector = f"jobset.sigs.k8s.io/jobset-name={metadata['name']}"
    for pod in client.list_all("v1", "Pod", metadata["namespace"], labelSelector=selector):
        statuses = pod["status"].get("containerStatuses", [])
        if any(each.get("containerID", "").startswith("containerd://") for each in statuses):
            name = pod["metadata"]["name"]
            path = client.path("v1", "Pod", name, metadata["namespace"]) + "/log"
            try:
                text = client.request("GET", path)["text"]
            except ApiError as error:
                text = f"no log: {error}"  # the pod, or its host, has gone meanwhile
            for line in text.splitlines():
                yield name, line


def workload_of(client: ApiClient, job: Object) -> Object:
    """Kueue's Workload of a job; empty while there is none."""
    owned = (
        each
        for each in client.list_all(QUEUE_API, "Workload", job["metadata"]["namespace"])
        if any(owner["uid"] == job["metadata"]["uid"] for owner in each["metadata"].get("ownerReferences", []))
    )
    return next(owned, {})


def allocations(client: ApiClient, pod: Object) -> list[Object]:
    """Devices allocated to the claims of a pod: `driver`, `pool` and `device` each."""
    devices: list[Object] = []
    for status in pod["status"].get("resourceClaimStatuses", []):
        claim = client.get(CLAIM_API, "ResourceClaim", status["resourceClaimName"], pod["metadata"]["namespace"]) or {}
        devices += claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return devices


def _admission(workload: Object) -> str:
    if is_true(workload, "Admitted"):
        sets = workload["status"]["admission"]["podSetAssignments"]
        flavors = {flavor for each in sets for flavor in each.get("flavors", {}).values()}
        return f"admitted, {', '.join(sorted(flavors))}"
    if is_true(workload, "QuotaReserved"):
        return "quota reserved; waits for admission checks"
    if workload:
        return f"queued {condition(workload, 'QuotaReserved').get('message', '')}".strip()
    return ""


def _allocated(client: ApiClient, pods: Iterable[Object]) -> str:
    """Chips of the job's placed pods: through claims, or asked of the device plugin."""
    claimed = assigned = claims = 0
    for pod in pods:
        devices = allocations(client, pod)
        claims += bool(devices)
        claimed += len(devices)
        if pod["spec"].get("nodeName"):
            limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
            assigned += sum(int(each.get(TPU_RESOURCE, 0)) for each in limits)
    if claims:
        return f"{claimed} allocated to {claims} claims"
    return f"{assigned} assigned by the device plugin" if assigned else ""


def _ending(job: Object) -> str:
    for kind in ("Completed", "Failed"):
        if is_true(job, kind):
            return f"{kind.lower()}: {condition(job, kind).get('message', '')}"
    return ""


def _chips(queue: Object, status: str) -> int:
    flavors = queue.get("status", {}).get(status, [])
    return sum(int(resource["total"]) for flavor in flavors for resource in flavor["resources"])


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
