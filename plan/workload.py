"""Manifests of workloads that fit a platform's slices: JobSets, and a vLLM server. Data to apply, never infrastructure.

Kueue changes a job when it admits it, so jobs are not resources of the program. Forms: JobSet v1alpha2; TPU variables
as JAX's `GkeTpuCluster` reads them; claims as the TPU DRA driver prepares them (all chips of a host or none).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalogue.labels import NODE_POOL_LABEL, PRIORITY_LABEL, QUEUE_LABEL
from plan import flavors, queues
from plan.flavors import Flavor
from plan.platform import Platform
from plan.pod_security import TPU_CAPABILITIES
from plan.slices import SlicePlan

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOB = "slice"
"""Name of the replicated job: each of its Jobs runs on one slice."""

# More than half of a host's cpu and memory, so that no two pods of a job ever share a host.
SHARE_OF_HOST = 0.55
PORTS = (8471, 8080, 8476, 8431)  # TPU runtime, MEGASCALE, JAX coordinator, metrics

# By digest: the image that tpu-operator's own tests run on tpu7x hosts.
JAX_IMAGE = (
    "us-docker.pkg.dev/cloud-tpu-images/jax-ai-image/tpu"
    "@sha256:d3dbf1a00bf1c5b61bbd1d7456cca3ec090fd3200536a4b61a8fbd3de8ef23f3"
)
JAX_COMMAND = ("python", "-c", "import jax; print(jax.device_count(), 'devices')")
VLLM_IMAGE = "vllm/vllm-tpu:v0.19.0"
VLLM_PORT = 8000
NEVER_GIVE_UP = 2**31 - 1  # the most retries that a Job takes
TOKEN_SECRET, TOKEN_KEY = "hf-secret", "hf_api_token"

Manifest = dict[str, Any]


class WorkloadError(Exception):
    """The workload does not fit the platform; the message says why and what to ask for instead."""


@dataclass(frozen=True)
class Job:
    """What a person asks for: a number of slices of a group, a queue, an image and a command."""

    name: str
    namespace: str
    slices: int
    queue: str | None = None
    priority: str | None = None
    image: str = JAX_IMAGE
    command: Sequence[str] = JAX_COMMAND


def plan_named(platform: Platform, name: str) -> SlicePlan:
    """The plan of a slice group; for a group with fallbacks the first one, since all have the same shape."""
    for plan in platform.shared_plans:
        if plan.group == name:
            return plan
    known = ", ".join(platform.shared_slices) or "none"
    raise WorkloadError(f"the platform has no slices called {name}: it has {known}")


def namespace_of(platform: Platform, queue: str | None, namespace: str | None) -> str:
    """The namespace to submit to: the given one, else the queue's first, else the platform's first."""
    if queue is None:
        namespaces = platform.workload_namespaces
        if namespace and namespace not in namespaces:
            raise WorkloadError(f"the platform has no namespace {namespace}: it has {', '.join(namespaces)}")
        return namespace or namespaces[0]
    if queue not in platform.queues:
        raise WorkloadError(f"the platform has no queue {queue}: it has {', '.join(platform.queues) or 'none'}")
    allowed = platform.queues[queue].namespaces
    if namespace and namespace not in allowed:
        raise WorkloadError(f"queue {queue} takes no work from {namespace}, only from {', '.join(allowed)}")
    return namespace or allowed[0]


def jobset(platform: Platform, plan: SlicePlan, job: Job) -> Manifest:
    """A JobSet with one Job for each slice and one pod for each host."""
    flavor = flavors.flavors(platform)[plan.flavor]
    _check_fit(platform, plan, job)
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": _jobset_metadata(plan, flavor, job),
        "spec": {
            "ttlSecondsAfterFinished": 3600,
            "coordinator": {"replicatedJob": JOB, "jobIndex": 0, "podIndex": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": job.name},
            "failurePolicy": {
                "maxRestarts": 3,
                # The JobSet deletes old pods before it starts new ones, so that their claims are free.
                "restartStrategy": "BlockingRecreate",
                "rules": [
                    {
                        "name": "hostMaintenance",
                        "action": "RestartJobSetAndIgnoreMaxRestarts",
                        "onJobFailureReasons": ["PodFailurePolicy"],
                    }
                ],
            },
            "replicatedJobs": [
                {"name": JOB, "replicas": job.slices, "template": {"spec": _job_spec(platform, plan, flavor, job)}}
            ],
        },
    }


def _check_fit(platform: Platform, plan: SlicePlan, job: Job) -> None:
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
    longest = f"{job.name}-{JOB}-{job.slices - 1}-{plan.hosts - 1}-abcde"
    if len(longest) > 63:
        raise WorkloadError(f"the name {job.name} is {len(longest) - 63} characters too long: pods would be {longest}")


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


def _jobset_metadata(plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    labels = {QUEUE_LABEL: job.queue, PRIORITY_LABEL: job.priority}
    annotations = {
        # One Job = one slice = one node pool, unless Kueue's topology-aware scheduling ensures it.
        EXCLUSIVE: NODE_POOL_LABEL if plan.multi_host and not flavor.topology_aware else None,
        "provreq.kueue.x-k8s.io/maxRunDurationSeconds": (plan.max_run_duration or "").rstrip("s")
        if plan.queued
        else None,
    }
    metadata = {"name": job.name, "namespace": job.namespace, "labels": _set(labels), "annotations": _set(annotations)}
    return {key: value for key, value in metadata.items() if value}


def _set(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value}


def _job_spec(platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    container = {
        "name": "worker",
        "image": job.image,
        "command": list(job.command),
        "ports": [{"containerPort": port} for port in PORTS],
        **_devices(plan, flavor, platform.software.dra_driver.capabilities),
    }
    if _needs_environment(plan) and (plan.multi_host or job.slices > 1):
        container["env"] = _worker_environment(plan, job)
    template: Manifest = {"spec": {"restartPolicy": "Never", **_placement(flavor), "containers": [container]}}
    if flavor.topology_aware:
        template["metadata"] = {
            "annotations": {
                "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL_LABEL,
                "kueue.x-k8s.io/podset-slice-size": str(plan.hosts),
            }
        }
    return {
        "parallelism": plan.hosts,
        "completions": plan.hosts,
        "completionMode": "Indexed",
        # A slice fails with any of its hosts: the JobSet restarts as a whole, single pods are not retried.
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": template,
    }


def _placement(flavor: Flavor) -> Manifest:
    """Where a pod may run, and its claim on the chips there under DRA."""
    tolerations = [
        {"key": toleration.key, "effect": toleration.effect}
        | ({"operator": "Exists"} if toleration.value is None else {"operator": "Equal", "value": toleration.value})
        for toleration in flavor.tolerations
    ]
    placement: Manifest = {"nodeSelector": dict(flavor.node_labels), "tolerations": tolerations}
    if flavor.claim_template:
        placement["resourceClaims"] = [{"name": "tpu", "resourceClaimTemplateName": flavor.claim_template}]
    return placement


def _devices(plan: SlicePlan, flavor: Flavor, capabilities: bool) -> Manifest:
    """How a container gets all chips of its host."""
    requests = {
        "cpu": str(int(plan.machine.vcpus * SHARE_OF_HOST)),
        "memory": f"{int(plan.machine.memory_gb * SHARE_OF_HOST)}Gi",
    }
    if flavor.claim_template:
        devices: Manifest = {"resources": {"requests": requests, "claims": [{"name": "tpu"}]}}
        if capabilities:
            # The TPU runtime needs these. GKE grants them only to pods of the device plugin.
            devices["securityContext"] = {"capabilities": {"add": list(TPU_CAPABILITIES)}}
        return devices
    chips = {flavor.resource: plan.chips_per_host}
    return {"resources": {"requests": {**requests, **chips}, "limits": chips}}


def _needs_environment(plan: SlicePlan) -> bool:
    """Whether pods must set their worker id and peers themselves. GKE sets them only for device-plugin pods.

    A single host has no peers; there the device plugin sets the variables (tpu-device-plugin, `initEnvs`).
    """
    return plan.devices == "dra" or plan.backend == "compute"


def _worker_environment(plan: SlicePlan, job: Job) -> list[Manifest]:
    """Worker id and peers' host names, from the names that JobSet gives to pods."""

    def from_label(name: str, label: str) -> Manifest:
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}

    # The slice's number comes first, because the host names below refer to it.
    environment = [
        from_label("TPU_WORKER_ID", "batch.kubernetes.io/job-completion-index"),
        from_label("MEGASCALE_SLICE_ID", "jobset.sigs.k8s.io/job-index"),
    ]
    if job.slices > 1:
        environment += [
            from_label("MEGASCALE_NUM_SLICES", "jobset.sigs.k8s.io/replicatedjob-replicas"),
            from_label("MEGASCALE_COORDINATOR_ADDRESS", "jobset.sigs.k8s.io/coordinator"),
        ]
    if plan.multi_host:
        hosts = (f"{job.name}-{JOB}-$(MEGASCALE_SLICE_ID)-{host}.{job.name}" for host in range(plan.hosts))
        environment.append({"name": "TPU_WORKER_HOSTNAMES", "value": ",".join(hosts)})
    return environment


def inference_server(platform: Platform, plan: SlicePlan, job: Job, model: str) -> list[Manifest]:
    """A vLLM server on one host for each slice of the job: a Job, which Kueue queues and counts, and a Service. The
    model hub's token comes from a Secret the team owns."""
    if plan.multi_host:
        raise WorkloadError(f"{plan.group} has {plan.hosts} hosts a slice; a server of this kind fits on one host")
    _check_fit(platform, plan, job)
    flavor = flavors.flavors(platform)[plan.flavor]
    labels = {"app": job.name}
    container = {
        "name": "vllm",
        "image": job.image,
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": [
            f"--port={VLLM_PORT}",
            f"--model={model}",
            f"--tensor-parallel-size={plan.chips_per_host * plan.generation.tensor_cores_as_devices}",
        ],
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY}}},
        ],
        "ports": [{"containerPort": VLLM_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": VLLM_PORT}, "periodSeconds": 10},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
        **_devices(plan, flavor, platform.software.dra_driver.capabilities),
    }
    pod = {
        # A failed server restarts on its host; it moves only when the host is lost.
        "restartPolicy": "OnFailure",
        **_placement(flavor),
        "containers": [container],
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    metadata = _jobset_metadata(plan, flavor, job)
    metadata["labels"] = {**labels, **metadata.get("labels", {})}
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "parallelism": job.slices,
                "completions": job.slices,
                "backoffLimit": NEVER_GIVE_UP,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": job.name, "namespace": job.namespace, "labels": labels},
            # Reachable inside the cluster only. The team decides who may reach it from outside.
            "spec": {"selector": labels, "ports": [{"name": "http", "port": VLLM_PORT, "targetPort": VLLM_PORT}]},
        },
    ]
