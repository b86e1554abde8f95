"""JobSets that fit a platform's slices. Data to apply, never infrastructure: Kueue changes a job when it admits it.

Form: JobSet v1alpha2.
"""

from catalogue.labels import JOBSET_LABEL, LABEL_VALUE_LIMIT, NODE_POOL_LABEL
from plan import flavors, team_pods
from plan.flavors import Flavor
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import SlicePlan
from plan.tpu_provisioner import own_pools
from plan.workloads.device_check import device_check
from plan.workloads.job import JOB, Job, Manifest, WorkloadError, check_fit, metadata
from plan.workloads.pods import (
    PORTS,
    add_variables,
    devices,
    host_environment,
    needs_environment,
    placement,
    worker_environment,
)

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def jobset(platform: Platform, plan: SlicePlan, job: Job) -> Manifest:
    """A JobSet with one Job for each slice and one pod for each host.

    Raises WorkloadError where the job does not fit the platform.
    """
    flavor = flavors.flavors(platform)[plan.flavor]
    check_fit(platform, plan, job)
    _check_coordinator(job)
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": _metadata(plan, flavor, job),
        "spec": {
            "ttlSecondsAfterFinished": job.keep_seconds,
            "coordinator": {"replicatedJob": JOB, "jobIndex": 0, "podIndex": 0},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": job.name},
            "failurePolicy": {
                "maxRestarts": job.restarts,
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


def _check_coordinator(job: Job) -> None:
    """JobSet writes the address of the first worker into a label of every pod."""
    address = f"{job.name}-{JOB}-0-0.{job.name}"
    if (excess := len(address) - LABEL_VALUE_LIMIT) > 0:
        longest = len(job.name) - (excess + 1) // 2
        raise WorkloadError(
            f"the name {job.name} has {len(job.name)} characters, and JobSet takes {longest}; use --name"
        )


def _metadata(plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    # One Job = one slice = one node pool, unless Kueue's topology-aware scheduling ensures it. TPU Provisioner also
    # needs it for single hosts: without it pods do not follow the leader for which it creates the pool.
    made = metadata(plan, job)
    if plan.provisioning is TPU_PROVISIONER or (plan.multi_host and not flavor.topology_aware):
        made["annotations"] = {EXCLUSIVE: NODE_POOL_LABEL, **made.get("annotations", {})}
    return made


def _job_spec(platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    return {
        "parallelism": plan.hosts,
        "completions": plan.hosts,
        "completionMode": "Indexed",
        # A slice fails with any of its hosts: the JobSet restarts as a whole, single pods are not retried.
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": worker(platform, plan, flavor, job, has_peers=True),
    }


def worker(platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job, *, has_peers: bool) -> Manifest:
    """The pod template of a worker with all chips of its host. `has_peers`: JobSet names it and its peers.

    Raises WorkloadError for variables that the job may not set.
    """
    command = device_check(plan, job.slices) if job.command is None else job.command
    container: Manifest = {
        "name": "worker",
        "image": job.image,
        **({"command": list(command)} if command else {}),
        **({"args": list(job.arguments)} if job.arguments else {}),
        "ports": [{"containerPort": port} for port in PORTS],
        **devices(plan, flavor, platform.software.dra_driver.capabilities),
    }
    if needs_environment(plan):
        container["env"] = [*(worker_environment(plan, job) if has_peers else []), *host_environment(plan)]
    template: Manifest = {"spec": {"restartPolicy": "Never", **placement(flavor), "containers": [container]}}
    if plan.provisioning is TPU_PROVISIONER:
        template["spec"]["nodeSelector"][JOBSET_LABEL] = own_pools(job.namespace, job.name)
    if flavor.topology_aware:
        template["metadata"] = {
            "annotations": {
                "kueue.x-k8s.io/podset-slice-required-topology": NODE_POOL_LABEL,
                "kueue.x-k8s.io/podset-slice-size": str(plan.hosts),
            }
        }
    team_pods.add_to_pod(platform, job.namespace, plan, template)
    add_variables(platform, job, container)
    return template
