"""Where pods of workloads run, how they get all chips of their host, and how they learn who they are.

Forms: TPU variables as JAX's `GkeTpuCluster` reads them; claims as the TPU DRA driver prepares them (all chips of a
host or none).
"""

import re
from collections.abc import Collection, Iterator

from plan.flavors import Flavor
from plan.platform import Platform
from plan.pod_security import TPU_CAPABILITIES
from plan.slices import SlicePlan
from plan.workloads.job import JOB, Job, Manifest, WorkloadError

# More than half of a host's cpu and memory, so that no two pods of a job ever share a host.
SHARE_OF_HOST = 0.55
METRICS_PORT = 8431  # of a host's first chip; each further chip has the next
PORTS = (8471, 8080, 8476, 8482, METRICS_PORT)  # TPU runtime, MEGASCALE, JAX coordinator before and from 0.8.1, metrics
SET_FOR_WORKERS = (
    "TPU_WORKER_ID",
    "TPU_WORKER_HOSTNAMES",
    "TPU_RUNTIME_METRICS_PORTS",
    "TPU_SKIP_MDS_QUERY",
    "MEGASCALE_SLICE_ID",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_COORDINATOR_ADDRESS",
)
"""Variables that tell a worker of its host and its peers, from here, the device plugin, the DRA driver or GKE."""
SET_BY_WORKLOAD = (*SET_FOR_WORKERS, "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT")
"""Environment variables that a job gets from here."""
VARIABLE = "[-._a-zA-Z][-._a-zA-Z0-9]*"
"""Names of variables that the API server takes."""


def placement(flavor: Flavor) -> Manifest:
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


def devices(plan: SlicePlan, flavor: Flavor, capabilities: bool) -> Manifest:
    """How a container gets all chips of its host."""
    requests = {
        "cpu": str(int(plan.machine.vcpus * SHARE_OF_HOST)),
        "memory": f"{int(plan.machine.memory_gb * SHARE_OF_HOST)}Gi",
    }
    if flavor.claim_template:
        held: Manifest = {"resources": {"requests": requests, "claims": [{"name": "tpu"}]}}
        if capabilities:
            # The TPU runtime needs these. GKE grants them only to pods of the device plugin.
            held["securityContext"] = {"capabilities": {"add": list(TPU_CAPABILITIES)}}
        return held
    chips = {flavor.resource: plan.chips_per_host}
    return {"resources": {"requests": {**requests, **chips}, "limits": chips}}


def needs_environment(plan: SlicePlan) -> bool:
    """Whether pods must set their worker id and peers themselves. GKE sets them only for device-plugin pods."""
    return plan.devices == "dra" or plan.backend == "compute"


def worker_environment(plan: SlicePlan, job: Job) -> list[Manifest]:
    """What a worker must know, from the names and labels that JobSet gives to pods.

    `jax.distributed.initialize()` looks for each unset MEGASCALE variable at the metadata server, also in a job of one
    slice (jax#40854), where pods cannot reach it. So all three are always set. A single host has no peers: there the
    device plugin and the DRA driver set the worker's id and name.
    """
    # The slice's number comes first, because the host names below refer to it.
    environment = [
        _from_label("MEGASCALE_SLICE_ID", "jobset.sigs.k8s.io/job-index"),
        _from_label("MEGASCALE_NUM_SLICES", "jobset.sigs.k8s.io/replicatedjob-replicas"),
        _from_label("MEGASCALE_COORDINATOR_ADDRESS", "jobset.sigs.k8s.io/coordinator"),
    ]
    if plan.multi_host:
        hosts = (f"{job.name}-{JOB}-$(MEGASCALE_SLICE_ID)-{host}.{job.name}" for host in range(plan.hosts))
        environment += [
            _from_label("TPU_WORKER_ID", "batch.kubernetes.io/job-completion-index"),
            {"name": "TPU_WORKER_HOSTNAMES", "value": ",".join(hosts)},
        ]
    return environment


def host_environment(plan: SlicePlan) -> list[Manifest]:
    """What the DRA driver leaves out and the device plugin sets: the ports at which each chip's metrics are served. And
    where pods cannot reach the metadata server: that JAX must not ask it where it runs."""
    environment: list[Manifest] = []
    if plan.devices == "dra":
        ports = ",".join(str(METRICS_PORT + chip) for chip in range(plan.chips_per_host))
        environment.append({"name": "TPU_RUNTIME_METRICS_PORTS", "value": ports})
    if plan.backend == "compute":
        environment.append({"name": "TPU_SKIP_MDS_QUERY", "value": "true"})
    return environment


def add_variables(platform: Platform, job: Job, container: Manifest) -> None:
    """Adds the person's own variables after those that the container has, so that they may refer to them.

    Raises WorkloadError, with every variable that the job may not set.
    """
    given = {each["name"] for each in container.get("env", [])}
    team = platform.teams.get(job.namespace)
    secrets = team.secrets if team else ()
    refused = [problem for name in job.environment for problem in _refused(name, given, secrets)]
    if refused:
        raise WorkloadError("; ".join(refused))
    if job.environment:
        own = [{"name": name, "value": value} for name, value in job.environment.items()]
        container["env"] = [*container.get("env", []), *own]


def _refused(name: str, given: Collection[str], secrets: Collection[str]) -> Iterator[str]:
    if not re.fullmatch(VARIABLE, name):
        yield f"{name or 'an empty text'} is no name of a variable: only letters, digits, ., - and _, no digit first"
    elif name in SET_FOR_WORKERS or name in given:
        yield f"{name} is set for the job already: leave it out"
    elif name in secrets:
        yield f"{name} is a secret of the job's team already: leave it out"


def _from_label(name: str, label: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
