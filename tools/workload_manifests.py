"""Manifests of what `python -m tools workload` was asked for, as YAML or JSON for `kubectl apply -f -`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from plan import images
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.workloads.autoscaling import autoscaling
from plan.workloads.gateway import gateway, reach_of
from plan.workloads.job import JAX_COMMAND, JAX_IMAGE, Job, Manifest, WorkloadError, namespace_of, plan_named
from plan.workloads.jobset import jobset
from plan.workloads.server import HEALTH_PATH, VLLM_IMAGE, VLLM_PORT, Server, inference_server, service_name


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; None and empty mean: not said."""

    slices: str
    count: int
    queue: str | None
    namespace: str | None
    name: str | None
    priority: str | None
    image: str | None
    command: tuple[str, ...]


@dataclass(frozen=True)
class Serving:
    """What was asked for of a server besides; None and empty mean: not said."""

    model: str
    flags: tuple[str, ...]
    weights: str | None
    token: str | None
    several_hosts: bool
    gateway: str | None
    certificate: str | None
    max_replicas: int | None


def train(platform: Platform, request: Request) -> list[Manifest]:
    """A job's objects; raises WorkloadError where it does not fit the platform."""
    plan, job = _job(platform, request, JAX_IMAGE)
    return [jobset(platform, plan, job)]


def serve(platform: Platform, request: Request, serving: Serving) -> list[Manifest]:
    """A model server's objects; raises WorkloadError where it does not fit the platform."""
    plan, job = _job(platform, request, VLLM_IMAGE)
    server = Server(job, serving.model, serving.flags, serving.weights, serving.token, serving.several_hosts)
    made = inference_server(platform, plan, server)
    if serving.gateway:
        reach, service = reach_of(serving.gateway), service_name(job)
        made += gateway(platform, job, service, VLLM_PORT, HEALTH_PATH, reach, serving.certificate)
    elif serving.certificate:
        raise WorkloadError("--certificate is for the load balancer: write --gateway internal or external as well")
    if serving.max_replicas:
        made += autoscaling(platform, job, VLLM_PORT, serving.max_replicas, plan.count)
    return made


def _job(platform: Platform, request: Request, default_image: str) -> tuple[SlicePlan, Job]:
    plan = plan_named(platform, request.slices)
    job = Job(
        name=request.name or request.slices,
        namespace=namespace_of(platform, request.queue, request.namespace),
        slices=request.count,
        queue=request.queue,
        priority=request.priority,
        # By way of the platform's mirror, where it has one: only images of Artifact Registry are streamed.
        image=request.image or images.mirror_of(platform, default_image),
        command=request.command or JAX_COMMAND,
    )
    return plan, job


def as_yaml(manifests: Sequence[Manifest]) -> str:
    """YAML documents."""
    return yaml.safe_dump_all(manifests, sort_keys=False, explicit_start=True)


def as_json(manifests: Sequence[Manifest]) -> str:
    """The same as a JSON list."""
    return json.dumps(list(manifests), indent=2)
