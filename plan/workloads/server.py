"""A vLLM server: a LeaderWorkerSet, which Kueue queues and counts, and a Service in front of its leaders.

On several hosts it is experimental. vLLM spreads over them with Ray (kubernetes-sigs/lws v0.9.0,
docs/examples/vllm/TPU/lws.yaml). The support matrix of vllm-project/tpu-inference, v0.23 to v0.27, calls that untested.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from plan import flavors
from plan.federation import federated_namespaces
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.storage import mounted, stores_of
from plan.workloads.job import Job, Manifest, WorkloadError, check_fit
from plan.workloads.leader_worker_set import Group, leader_worker_set, leaders, worker_environment
from plan.workloads.pods import devices, host_environment
from platform_config.cluster import GkeCluster
from platform_config.teams import BUCKET_NAME

VLLM_IMAGE = "vllm/vllm-tpu:v0.19.0"
VLLM_PORT = 8000
VLLM_MODULE = "vllm.entrypoints.openai.api_server"
HEALTH_PATH = "/health"
TOKEN, TOKEN_KEY = "HF_TOKEN", "hf_api_token"
"""The variable with the model hub's token, and the key of a Secret that holds it, as in Google's tutorials."""

OWN_FLAGS = {
    "--port": "clients find the server by its Service",
    "--model": "write --model MODEL before the two dashes",
    "--served-model-name": "write --model MODEL before the two dashes; with --weights it is the name served",
}
"""Flags of vLLM that come from here, and what to write instead."""

RAY = "/workspace/vllm/examples/online_serving/multi-node-serving.sh"
"""Script of the image that forms a Ray cluster of a group's pods."""


@dataclass(frozen=True)
class Server:
    """What a person asks for.

    - `job`: name, namespace, queue, priority and image; a slice for each replica
    - `model`: by its name on the hub, which is also the name that clients ask for
    - `flags`: further flags of vLLM
    - `weights`: where they are if not on the hub: `gs://BUCKET/PATH`, or a team's storage as NAME or NAME/PATH
    - `token`: Secret with the hub's token, as NAME or NAME:KEY
    - `several_hosts`: whether a slice of several hosts is wanted although that is experimental
    """

    job: Job
    model: str
    flags: Sequence[str] = ()
    weights: str | None = None
    token: str | None = None
    several_hosts: bool = False


def inference_server(platform: Platform, plan: SlicePlan, server: Server) -> list[Manifest]:
    """The server's objects; raises WorkloadError where it does not fit the platform."""
    _check(platform, plan, server)
    flavor = flavors.flavors(platform)[plan.flavor]
    job = server.job
    volumes: list[Manifest] = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    leader = _container(platform, plan, server)
    return [
        leader_worker_set(platform, plan, flavor, job, _group(plan, server, leader), volumes),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service_name(job), "namespace": job.namespace},
            # Reachable inside the cluster only. The team decides who may reach it from outside.
            "spec": {
                "selector": leaders(job.name),
                "ports": [{"name": "http", "port": VLLM_PORT, "targetPort": VLLM_PORT}],
            },
        },
    ]


def service_name(job: Job) -> str:
    """The Service that clients use. The LeaderWorkerSet's controller makes a headless one of the server's own name."""
    return f"{job.name}-http"


def _check(platform: Platform, plan: SlicePlan, server: Server) -> None:
    if platform.is_manager:
        raise WorkloadError("a manager hands on jobs, no servers: print the server with the stack of a worker")
    if not plan.provisioning.serves:
        raise WorkloadError(
            f"TPU Provisioner creates hosts of {plan.group} for JobSets only, and a server is none; use slices with"
            " another provisioning"
        )
    if plan.multi_host and not server.several_hosts:
        raise WorkloadError(
            f"{plan.group} has {plan.hosts} hosts a slice, and vLLM on several TPU hosts is experimental: its own"
            " support matrix calls it untested. Use slices of one host, or say --experimental-multi-host"
        )
    if server.several_hosts and not plan.multi_host:
        raise WorkloadError(f"{plan.group} has one host a slice: leave out --experimental-multi-host")
    for flag in server.flags:
        if instead := OWN_FLAGS.get(flag.partition("=")[0]):
            raise WorkloadError(f"{flag.partition('=')[0]} is not for you to set: {instead}")
    check_fit(platform, plan, server.job, "ask for fewer (--replicas)")


def _container(platform: Platform, plan: SlicePlan, server: Server) -> Manifest:
    """The container that answers requests."""
    environment = [*_token(server), *host_environment(plan), *worker_environment(plan, server.job)]
    return {
        "name": "vllm",
        "image": server.job.image,
        "command": ["python3", "-m", VLLM_MODULE],
        "args": [
            f"--port={VLLM_PORT}",
            *_model(platform, server),
            *_default("--tensor-parallel-size", _devices_of_slice(plan), server.flags),
            *server.flags,
        ],
        **({"env": environment} if environment else {}),
        "ports": [{"containerPort": VLLM_PORT}],
        "readinessProbe": {"httpGet": {"path": HEALTH_PATH, "port": VLLM_PORT}, "periodSeconds": 10},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
        **devices(plan, flavors.flavors(platform)[plan.flavor], platform.software.dra_driver.capabilities),
    }


def _group(plan: SlicePlan, server: Server, alone: Manifest) -> Group:
    """The container alone on its host; or one that first waits for the others, and the others, which join it."""
    if not plan.multi_host:
        return Group(alone, None)
    environment = [*alone.get("env", []), {"name": "TPU_MULTIHOST_BACKEND", "value": "ray"}]
    leads = f'bash {RAY} leader --ray_cluster_size=$LWS_GROUP_SIZE && exec python3 -m {VLLM_MODULE} "$@"'
    leader = {**alone, "env": environment, "command": ["sh", "-c", leads, "vllm"]}
    joins = f"exec bash {RAY} worker --ray_address=$LWS_LEADER_ADDRESS"
    no_requests = ("args", "ports", "readinessProbe")
    worker = {key: value for key, value in leader.items() if key not in no_requests}
    return Group(leader, {**worker, "command": ["sh", "-c", joins]})


def _devices_of_slice(plan: SlicePlan) -> int:
    return plan.chips * plan.generation.tensor_cores_as_devices


def _default(flag: str, value: int, given: Sequence[str]) -> list[str]:
    """The flag, unless it is given."""
    return [] if any(each.partition("=")[0] == flag for each in given) else [f"{flag}={value}"]


def _model(platform: Platform, server: Server) -> list[str]:
    """What vLLM loads: from the hub, from files, or from a bucket that it reads by itself (Run:ai Model Streamer)."""
    if server.weights is None:
        return [f"--model={server.model}"]
    place = _place(platform, server.job.namespace, server.weights)
    streamed = ["--load-format=runai_streamer"] if place.startswith("gs://") else []
    if streamed:
        _check_identity(platform, server.job.namespace)
    return [f"--model={place}", f"--served-model-name={server.model}", *streamed]


def _place(platform: Platform, namespace: str, weights: str) -> str:
    """The address or the path of the weights."""
    if weights.startswith("gs://"):
        return _in_bucket(weights)
    name, _, below = weights.strip("/").partition("/")
    here = {store.name: store.spec.mount for store in mounted(platform, namespace)}
    addresses = {store.name: store.uri for store in stores_of(platform, namespace)}
    place = here.get(name) or addresses.get(name)
    if place is None:
        known = ", ".join(sorted({*here, *addresses})) or "none"
        raise WorkloadError(
            f"{namespace} has no storage called {name}: it has {known}. Write --weights gs://BUCKET/PATH for a bucket"
        )
    return "/".join(each for each in (place.rstrip("/"), below) if each)


def _in_bucket(weights: str) -> str:
    bucket, _, path = weights.removeprefix("gs://").partition("/")
    if not re.fullmatch(BUCKET_NAME, bucket):
        raise WorkloadError(
            f"--weights {weights}: {bucket or 'an empty text'} is no bucket name; write gs://BUCKET/PATH"
        )
    if not path.strip("/"):
        raise WorkloadError(f"--weights {weights} has no path: write gs://{bucket}/PATH")
    return weights.rstrip("/")


def _check_identity(platform: Platform, namespace: str) -> None:
    """On GKE every pod has an identity, by Workload Identity."""
    if not isinstance(platform.cluster, GkeCluster) and namespace not in federated_namespaces(platform):
        raise WorkloadError(
            "--weights gs:// needs an identity for pods, which only a team with storage has without GKE, in a cluster"
            f" of kind self-managed; {namespace} is none"
        )


def _token(server: Server) -> list[Manifest]:
    """The hub's token. Open models need none, and a team may have one among its secrets."""
    if server.token is None:
        return []
    name, _, key = server.token.partition(":")
    return [{"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": name, "key": key or TOKEN_KEY}}}]
