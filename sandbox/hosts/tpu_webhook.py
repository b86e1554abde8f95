"""Stands for GKE's admission webhook for TPU pods, which tells a slice's workers of each other.

As GKE documents it, a pod that asks the device plugin for chips (`google.com/tpu`) and belongs to an indexed Job with a
subdomain gets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, and where it belongs to a JobSet of several slices the
MEGASCALE_* variables. Pods with DRA claims get nothing, and a variable that a container has set stays. Real: the API
server calls it for each new pod. Different: GKE's rules for more than this are not published, and here a pod is refused
while the webhook does not answer.
"""

from __future__ import annotations

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.nodes import TPU_RESOURCE
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.webhooks import PodWebhook

NAME = "tpu-webhook.gke.io"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOB_LABEL = "batch.kubernetes.io/job-name"
_JOBSET = "jobset.sigs.k8s.io"
REPLICAS_LABEL, SLICE_LABEL = f"{_JOBSET}/replicatedjob-replicas", f"{_JOBSET}/job-index"
COORDINATOR_LABEL, JOBSET_LABEL, REPLICATED_LABEL = (
    f"{_JOBSET}/{name}" for name in ("coordinator", "jobset-name", "replicatedjob-name")
)


def tpu_webhook(client: ApiClient, authority: CertificateAuthority) -> PodWebhook:
    """The webhook of a cluster."""
    condition = (
        "object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && "
        f"'{TPU_RESOURCE}' in c.resources.limits)"
    )

    def of_job(pod: Object, namespace: str) -> list[Object]:
        job = pod["metadata"].get("labels", {}).get(JOB_LABEL, "")
        return changes(pod, client.get("batch/v1", "Job", job, namespace) if job else None)

    return PodWebhook(NAME, condition, of_job, authority, required=True)


def changes(pod: Object, job: Object | None) -> list[Object]:
    """A JSON patch that gives the containers with chips their variables; `job` is the pod's Job."""
    wanted = environment(pod, job)
    patch: list[Object] = []
    for number, container in enumerate(pod["spec"]["containers"]):
        if TPU_RESOURCE not in container.get("resources", {}).get("limits", {}):
            continue
        given = container.get("env", [])
        missing = [each for each in wanted if each["name"] not in {known["name"] for known in given}]
        if missing:
            patch.append({"op": "add", "path": f"/spec/containers/{number}/env", "value": [*given, *missing]})
    return patch


def environment(pod: Object, job: Object | None) -> list[Object]:
    """The variables of a worker; none for a pod that is not one of several of an indexed Job with a subdomain."""
    labels, subdomain = pod["metadata"].get("labels", {}), pod["spec"].get("subdomain", "")
    if not (job and subdomain and job["spec"].get("completionMode") == "Indexed"):
        return []
    workers = int(job["spec"].get("parallelism", 1))
    variables: list[Object] = []
    if workers > 1:
        name = job["metadata"]["name"]
        hosts = ",".join(f"{name}-{number}.{subdomain}" for number in range(workers))
        variables = [_from_label("TPU_WORKER_ID", INDEX_LABEL), {"name": "TPU_WORKER_HOSTNAMES", "value": hosts}]
    if int(labels.get(REPLICAS_LABEL, 1)) > 1:
        coordinator = labels.get(COORDINATOR_LABEL) or (
            f"{labels[JOBSET_LABEL]}-{labels[REPLICATED_LABEL]}-0-0.{subdomain}"
        )
        variables += [
            {"name": "MEGASCALE_COORDINATOR_ADDRESS", "value": coordinator},
            _from_label("MEGASCALE_NUM_SLICES", REPLICAS_LABEL),
            _from_label("MEGASCALE_SLICE_ID", SLICE_LABEL),
        ]
    return variables


def _from_label(name: str, label: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}
