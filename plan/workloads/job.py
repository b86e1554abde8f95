"""What a person asks for, and whether it fits the platform: the slices, the queue, the namespace, the name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalogue.labels import LABEL_VALUE_LIMIT, PRIORITY_LABEL, QUEUE_LABEL
from plan import queues
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import SlicePlan
from plan.tpu_provisioner import JOBSET_NAME_LIMIT, own_pools

JOB = "slice"
"""Name of a JobSet's replicated job: each of its Jobs runs on one slice."""

# By digest: the image that tpu-operator's own tests run on tpu7x hosts.
JAX_IMAGE = (
    "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu"
    "@sha256:d3dbf1a00bf1c5b61bbd1d7456cca3ec090fd3200536a4b61a8fbd3de8ef23f3"
)

RESTARTS = 3
KEEP_SECONDS = 3600
"""How often a job restarts after failures, and how long it is kept after its end, unless a person says otherwise."""

DNS_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"

Manifest = dict[str, Any]


class WorkloadError(Exception):
    """The workload does not fit the platform; the message says why and what to ask for instead."""


@dataclass(frozen=True)
class Job:
    """What a person asks for: a number of slices of a group, a queue, an image and what it runs.

    - `command`: None for the check that all devices are there (`device_check.py`); empty for the image's own
    - `arguments`: the container's `args`
    - `environment`: further variables of the container
    - `restarts`: how often the job starts again after a failure; those after host maintenance do not count
    - `keep_seconds`: how long the job is kept after its end
    """

    name: str
    namespace: str
    slices: int
    queue: str | None = None
    priority: str | None = None
    image: str = JAX_IMAGE
    command: Sequence[str] | None = None
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    restarts: int = RESTARTS
    keep_seconds: int = KEEP_SECONDS


def plan_named(platform: Platform, name: str) -> SlicePlan:
    """The plan of a slice group; for a group with fallbacks the first one, since all have the same shape."""
    for plan in platform.shared_plans:
        if plan.group == name:
            return plan
    known = ", ".join(platform.shared_slices) or "none"
    raise WorkloadError(f"the platform has no slices called {name}: it has {known}")


def namespace_of(platform: Platform, queue: str | None, namespace: str | None) -> str:
    """The namespace to submit to: the given one, else the queue's first, else the platform's only team or first."""
    if queue is None:
        namespaces = platform.workload_namespaces
        if namespace and namespace not in namespaces:
            raise WorkloadError(f"the platform has no namespace {namespace}: it has {', '.join(namespaces)}")
        if namespace is None and len(platform.teams) > 1:
            # A job gets its team's buckets and secrets.
            raise WorkloadError(f"which team's job is it? Write --queue or --namespace {' or '.join(platform.teams)}")
        return namespace or namespaces[0]
    if queue not in platform.queues:
        raise WorkloadError(f"the platform has no queue {queue}: it has {', '.join(platform.queues) or 'none'}")
    allowed = platform.queues[queue].namespaces
    if namespace and namespace not in allowed:
        raise WorkloadError(f"queue {queue} takes no work from {namespace}, only from {', '.join(allowed)}")
    return namespace or allowed[0]


def check_fit(platform: Platform, plan: SlicePlan, job: Job) -> None:
    """Raises WorkloadError where the platform, or the job's queue, can never run the job."""
    if not re.fullmatch(DNS_LABEL, job.name):
        # JobSet makes a Service of the name, whose names are stricter than those of jobs (RFC 1035).
        raise WorkloadError(f"the name {job.name} is refused: only a-z, 0-9 and -, beginning with a letter; use --name")
    if job.slices > plan.count:
        raise WorkloadError(f"{job.slices} slices of {plan.group} asked for, the platform has {plan.count}")
    if job.queue and plan.group not in platform.queues[job.queue].slices:
        names = ", ".join(platform.queues[job.queue].slices)
        raise WorkloadError(f"queue {job.queue} has no slices of {plan.group}: it has {names}")
    if job.queue:
        _check_reach(platform, plan, job, job.queue)
    if job.priority and job.priority not in platform.priorities:
        raise WorkloadError(
            f"the platform has no priority {job.priority}: it has {', '.join(platform.priorities) or 'none'}"
        )
    if plan.provisioning is TPU_PROVISIONER:
        _check_pool_names(job)
    if not plan.provisioning.declared and job.queue is None:
        _check_unqueued(platform, plan)
    longest = f"{job.name}-{JOB}-{job.slices - 1}-{plan.hosts - 1}-abcde"
    if len(longest) > 63:
        raise WorkloadError(f"the name {job.name} is {len(longest) - 63} characters too long: pods would be {longest}")


def _check_pool_names(job: Job) -> None:
    if (excess := len(job.name) - JOBSET_NAME_LIMIT) > 0:
        raise WorkloadError(f"the name {job.name} is {excess} characters too long for TPU Provisioner's node pools")
    if (excess := len(own_pools(job.namespace, job.name)) - LABEL_VALUE_LIMIT) > 0:
        raise WorkloadError(f"namespace and name are together {excess} characters too long for a label of hosts")


def _check_unqueued(platform: Platform, plan: SlicePlan) -> None:
    """Only queues limit the number of slices that come on demand, so the API server refuses jobs past them."""
    queued = [name for name, queue in platform.queues.items() if plan.group in queue.slices]
    if queued and platform.software.kueue.refuse_unqueued:
        raise WorkloadError(f"slices of {plan.group} come for jobs in queues only: --queue {' or '.join(queued)}")


def _check_reach(platform: Platform, plan: SlicePlan, job: Job, queue: str) -> None:
    """Refuses a job with more chips than its queue can ever have: Kueue would keep it waiting."""
    slices = queues.reach(platform, queue, plan.flavor) // plan.chips
    if job.slices <= slices:
        return
    path = f"queues.{queue}"
    raise WorkloadError(
        f"queue {queue} can never have {job.slices} slices of {plan.group}, at most {slices} with what it may borrow; "
        f"ask for fewer (--slices), or raise {path}.slices.{plan.group} or {path}.borrow in the stack file"
    )


def metadata(plan: SlicePlan, job: Job) -> Manifest:
    """Name and namespace, the labels that Kueue reads, and the annotation that its provisioning requests take over."""
    labels = {QUEUE_LABEL: job.queue, PRIORITY_LABEL: job.priority}
    annotations = {
        "provreq.kueue.x-k8s.io/maxRunDurationSeconds": (plan.max_run_duration or "").rstrip("s")
        if plan.queued
        else None,
    }
    made = {"name": job.name, "namespace": job.namespace, "labels": _set(labels), "annotations": _set(annotations)}
    return {key: value for key, value in made.items() if value}


def _set(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}
