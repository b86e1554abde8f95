"""Where pods of workloads run, how they get all chips of their host, and how they learn who they are.

Forms: TPU variables as JAX's `GkeTpuCluster` reads them; claims as the TPU DRA driver prepares them (all chips of a
host or none).
"""

from plan.flavors import Flavor
from plan.pod_security import TPU_CAPABILITIES
from plan.slices import SlicePlan
from plan.workloads.job import JOB, Job, Manifest

# More than half of a host's cpu and memory, so that no two pods of a job ever share a host.
SHARE_OF_HOST = 0.55
PORTS = (8471, 8080, 8476, 8431)  # TPU runtime, MEGASCALE, JAX coordinator, metrics
SET_BY_WORKLOAD = (
    "TPU_WORKER_ID",
    "TPU_WORKER_HOSTNAMES",
    "MEGASCALE_SLICE_ID",
    "MEGASCALE_NUM_SLICES",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
)
"""Environment variables that a job gets from here."""


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
    """Whether pods must set their worker id and peers themselves. GKE sets them only for device-plugin pods.

    A single host has no peers; there the device plugin sets the variables (tpu-device-plugin, `initEnvs`).
    """
    return plan.devices == "dra" or plan.backend == "compute"


def worker_environment(plan: SlicePlan, job: Job) -> list[Manifest]:
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
