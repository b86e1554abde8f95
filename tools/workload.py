"""Workload manifests as YAML or JSON, for `kubectl apply -f -`."""

import json
from dataclasses import dataclass

import yaml

from plan import workload
from plan.platform import Platform
from plan.workload import Manifest, WorkloadError


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; None and empty mean: not said."""

    slices: str
    queue: str | None
    namespace: str | None
    name: str | None
    count: int
    priority: str | None
    image: str | None
    command: tuple[str, ...]
    model: str | None


def render(platform: Platform, request: Request) -> str:
    """YAML documents of the workload; raises WorkloadError where it does not fit the platform."""
    return yaml.safe_dump_all(manifests(platform, request), sort_keys=False, explicit_start=True)


def as_json(platform: Platform, request: Request) -> str:
    """The same as a JSON list."""
    return json.dumps(manifests(platform, request), indent=2)


def manifests(platform: Platform, request: Request) -> list[Manifest]:
    """The workload's Kubernetes objects."""
    plan = workload.plan_named(platform, request.slices)
    namespace = workload.namespace_of(platform, request.queue, request.namespace)
    name = request.name or request.slices
    default = workload.JAX_IMAGE if request.model is None else workload.VLLM_IMAGE
    job = workload.Job(
        name=name,
        namespace=namespace,
        slices=request.count,
        queue=request.queue,
        priority=request.priority,
        image=request.image or default,
        command=request.command or workload.JAX_COMMAND,
    )
    if request.model is None:
        return [workload.jobset(platform, plan, job)]
    if request.command:
        raise WorkloadError("--serve runs vLLM: leave out the command after --")
    return workload.inference_server(platform, plan, job, request.model)
