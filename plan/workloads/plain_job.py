"""A plain Job on one host, for whoever has no use for a JobSet."""

from plan import flavors
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import SlicePlan
from plan.workloads.job import Job, Manifest, WorkloadError, check_fit, metadata
from plan.workloads.jobset import worker


def plain_job(platform: Platform, plan: SlicePlan, job: Job) -> Manifest:
    """A batch/v1 Job of one pod. Raises WorkloadError where that does not fit: several hosts need a JobSet."""
    if plan.multi_host or job.slices > 1:
        raise WorkloadError(f"a plain Job has one host, and {job.slices} of {plan.group} are more: use a JobSet")
    if plan.provisioning is TPU_PROVISIONER:
        raise WorkloadError(f"TPU Provisioner creates hosts of {plan.group} for JobSets only")
    check_fit(platform, plan, job)
    flavor = flavors.flavors(platform)[plan.flavor]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(plan, job),
        "spec": {
            "backoffLimit": job.restarts,
            "ttlSecondsAfterFinished": job.keep_seconds,
            "template": worker(platform, plan, flavor, job, has_peers=False),
        },
    }
