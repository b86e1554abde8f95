"""Manifests of what `python -m tools workload` was asked for, as YAML or JSON for `kubectl apply -f -`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import yaml

from plan import images
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.workloads.autoscaling import autoscaling
from plan.workloads.destination import destination
from plan.workloads.gateway import gateway, reach_of
from plan.workloads.job import JAX_IMAGE, Job, Manifest, WorkloadError, plan_named
from plan.workloads.jobset import jobset
from plan.workloads.server import HEALTH_PATH, VLLM_IMAGE, VLLM_PORT, Server, inference_server, service_name
from tools.workload_values import check_values


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


@dataclass(frozen=True)
class Running:
    """How a job was asked to run: arguments, variables as NAME=VALUE, restarts, and seconds that it is kept."""

    arguments: Sequence[str]
    variables: Sequence[str]
    restarts: int
    keep_seconds: int


def train(platform: Platform, request: Request, running: Running) -> list[Manifest]:
    """A job's objects; raises WorkloadError where it does not fit the platform."""
    check_values(_values(request))
    plan, job = _job(platform, request, JAX_IMAGE)
    if running.arguments and not (request.command or request.image):
        raise WorkloadError("--arg needs what takes it: a command after --, or --image with a command of its own")
    asked = replace(
        job,
        # An image of a person's own runs its own command.
        command=() if request.image and not request.command else job.command,
        arguments=running.arguments,
        environment=_variables(running.variables),
        restarts=running.restarts,
        keep_seconds=running.keep_seconds,
    )
    return [jobset(platform, plan, asked)]


def _variables(written: Sequence[str]) -> Mapping[str, str]:
    """NAME=VALUE as a mapping; raises WorkloadError with everything that is not of this form or written twice."""
    names = [each.partition("=")[0] for each in written]

    def problems() -> Iterator[str]:
        yield from (f"--env {each} has no value: write NAME=VALUE" for each in written if "=" not in each)
        yield from (f"--env {name} is written twice" for name in sorted(set(names)) if names.count(name) > 1)

    if found := list(problems()):
        raise WorkloadError("; ".join(found))
    return dict(each.split("=", 1) for each in written)


def serve(platform: Platform, request: Request, serving: Serving) -> list[Manifest]:
    """A model server's objects; raises WorkloadError where it does not fit the platform."""
    values = {
        "--model": serving.model,
        "--weights": serving.weights,
        "--token": serving.token,
        "--gateway": serving.gateway,
        "--certificate": serving.certificate,
    }
    check_values({**_values(request), **values})
    plan, job = _job(platform, request, VLLM_IMAGE)
    server = Server(job, serving.model, serving.flags, serving.weights, serving.token, serving.several_hosts)
    made = inference_server(platform, plan, server)
    if serving.gateway:
        reach, service = reach_of(serving.gateway), service_name(job)
        made += gateway(platform, job, service, VLLM_PORT, HEALTH_PATH, reach, serving.certificate)
    elif serving.certificate:
        raise WorkloadError("--certificate is for the load balancer: write --gateway internal or external as well")
    if serving.max_replicas:
        made += autoscaling(platform, plan, job, VLLM_PORT, serving.max_replicas)
        # Left to the autoscaler: `kubectl apply` would set it back each time. LeaderWorkerSet begins with one.
        del made[0]["spec"]["replicas"]
    return made


def _values(request: Request) -> dict[str, str | None]:
    return {
        "--queue": request.queue,
        "--namespace": request.namespace,
        "--name": request.name,
        "--priority": request.priority,
        "--image": request.image,
    }


def _job(platform: Platform, request: Request, default_image: str) -> tuple[SlicePlan, Job]:
    plan = plan_named(platform, request.slices)
    queue, namespace = destination(platform, plan, request.queue, request.namespace)
    job = Job(
        name=request.name or request.slices,
        namespace=namespace,
        slices=request.count,
        queue=queue,
        priority=request.priority,
        # By way of the platform's mirror, where it has one: only images of Artifact Registry are streamed.
        image=request.image or images.mirror_of(platform, default_image),
        command=request.command or None,
    )
    return plan, job


def as_yaml(manifests: Sequence[Manifest]) -> str:
    """YAML documents; texts of several lines are written as such."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, explicit_start=True)


class _Dumper(yaml.SafeDumper):
    """Writes programs as blocks, and nothing as a reference to what was written before."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _block)


def as_json(manifests: Sequence[Manifest]) -> str:
    """The same as a JSON list."""
    return json.dumps(list(manifests), indent=2)
