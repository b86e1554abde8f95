"""A vLLM server: a Job, which Kueue queues and counts, and a Service."""

from plan import flavors, team_pods
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import SlicePlan
from plan.workloads.job import Job, Manifest, WorkloadError, check_fit, metadata
from plan.workloads.pods import devices, placement

VLLM_IMAGE = "vllm/vllm-tpu:v0.19.0"
VLLM_PORT = 8000
NEVER_GIVE_UP = 2**31 - 1  # the most retries that a Job takes
TOKEN, TOKEN_SECRET, TOKEN_KEY = "HF_TOKEN", "hf-secret", "hf_api_token"


def inference_server(platform: Platform, plan: SlicePlan, job: Job, model: str) -> list[Manifest]:
    """A vLLM server on one host for each slice of the job; raises WorkloadError where that does not fit."""
    if plan.provisioning is TPU_PROVISIONER:
        raise WorkloadError(
            f"TPU Provisioner creates hosts of {plan.group} for JobSets only, and a server is none; use slices with"
            " another provisioning"
        )
    if plan.multi_host:
        raise WorkloadError(f"{plan.group} has {plan.hosts} hosts a slice; a server of this kind fits on one host")
    check_fit(platform, plan, job)
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
        **_token(platform, job),
        "ports": [{"containerPort": VLLM_PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": VLLM_PORT}, "periodSeconds": 10},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
        **devices(plan, flavor, platform.software.dra_driver.capabilities),
    }
    pod = {
        # A failed server restarts on its host; it moves only when the host is lost.
        "restartPolicy": "OnFailure",
        **placement(flavor),
        "containers": [container],
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    template: Manifest = {"metadata": {"labels": labels}, "spec": pod}
    team_pods.add_to_pod(platform, job.namespace, plan, template)
    of_job = metadata(plan, job)
    of_job["labels"] = {**labels, **of_job.get("labels", {})}
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": of_job,
            "spec": {
                "parallelism": job.slices,
                "completions": job.slices,
                "backoffLimit": NEVER_GIVE_UP,
                "template": template,
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


def _token(platform: Platform, job: Job) -> Manifest:
    """The model hub's token: from a Secret that somebody made, unless it is among the team's secrets."""
    team = platform.teams.get(job.namespace)
    if team and TOKEN in team.secrets:
        return {}
    return {"env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": {"name": TOKEN_SECRET, "key": TOKEN_KEY}}}]}
