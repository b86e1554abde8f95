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
from plan.workloads.defaults import KEEP_SECONDS, RESTARTS

JOB = "slice"
"""Name of a JobSet's replicated job: each of its Jobs runs on one slice."""

# By digest: the image that tpu-operator's own tests run on tpu7x hosts.
JAX_IMAGE = (
    "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu"
    "@sha256:d3dbf1a00bf1c5b61bbd1d7456cca3ec090fd3200536a4b61a8fbd3de8ef23f3"
)

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


def check_fit(platform: Platform, plan: SlicePlan, job: Job, remedy: str = "ask for fewer (--slices)") -> None:
    """Raises WorkloadError where the platform, or the job's queue, can never run the job.

    `remedy`: how a person asks for fewer slices.
    """
    if not re.fullmatch(DNS_LABEL, job.name):
        # JobSet makes a Service of the name, whose names are stricter than those of jobs (RFC 1035).
        raise WorkloadError(f"the name {job.name} is refused: only a-z, 0-9 and -, beginning with a letter; use --name")
    if job.queue and plan.group not in platform.queues[job.queue].slices:
        names = ", ".join(platform.queues[job.queue].slices)
        raise WorkloadError(f"queue {job.queue} has no slices of {plan.group}: it has {names}")
    check_number(platform, plan, job.queue, job.slices, remedy)
    if job.priority and job.priority not in platform.priorities:
        known = ", ".join(platform.priorities)
        instead = known or f"none; add priorities: {{{job.priority}: 1000}} to the stack file"
        raise WorkloadError(f"the platform has no priority {job.priority}: it has {instead}")
    if plan.provisioning is TPU_PROVISIONER:
        _check_pool_names(job)
    if job.queue is None:
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
    """Refuses work past the queues where only a queue brings it hosts, or where the API server refuses it."""
    owners = queues.queues_with(platform, plan.group)
    instead = f"write --queue {' or '.join(owners)}" if owners else f"give a queue slices of {plan.group} first"
    if platform.is_manager:
        raise WorkloadError(f"a manager hands on what is in its queues, and has no slices of its own: {instead}")
    if plan.queued:
        raise WorkloadError(f"only Kueue asks for hosts of {plan.group} (queued provisioning): {instead}")
    # Nothing but queues limits the number of slices that come on demand.
    if not plan.provisioning.declared and owners and platform.software.kueue.refuse_unqueued:
        raise WorkloadError(f"slices of {plan.group} come for jobs in queues only: {instead}")


def check_number(platform: Platform, plan: SlicePlan, queue: str | None, slices: int, remedy: str) -> None:
    """Raises WorkloadError for more slices than the platform has, or the queue can ever have: Kueue would keep the work
    waiting. `remedy`: how a person asks for fewer."""
    if slices > plan.count:
        path = f"{'multikueue.' if platform.is_manager else ''}slices.{plan.group}.count"
        raise WorkloadError(
            f"{slices} slices of {plan.group} asked for, the platform has {plan.count}; {remedy}, or raise {path} in"
            " the stack file"
        )
    most = queues.slices_in_reach(platform, queue, plan) if queue else slices
    if slices > most:
        path = f"queues.{queue}"
        raise WorkloadError(
            f"queue {queue} can never have {slices} slices of {plan.group}, at most {most} with what it may borrow; "
            f"{remedy}, or raise {path}.slices.{plan.group} or {path}.borrow in the stack file"
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
