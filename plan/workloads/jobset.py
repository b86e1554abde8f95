"""JobSets that fit a platform's slices. Data to apply, never infrastructure: Kueue changes a job when it admits it.

Form: JobSet v1alpha2.
"""

from catalogue.labels import JOBSET_LABEL, NODE_POOL_LABEL
from plan import flavors, team_pods
from plan.flavors import Flavor
from plan.platform import Platform
from plan.provisioning import TPU_PROVISIONER
from plan.slices import SlicePlan
from plan.tpu_provisioner import own_pools
from plan.workloads.job import JOB, Job, Manifest, check_fit, metadata
from plan.workloads.pods import PORTS, devices, needs_environment, placement, worker_environment

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def jobset(platform: Platform, plan: SlicePlan, job: Job) -> Manifest:
    """A JobSet with one Job for each slice and one pod for each host."""
    flavor = flavors.flavors(platform)[plan.flavor]
    check_fit(platform, plan, job)
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": _metadata(plan, flavor, job),
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


def _metadata(plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    # One Job = one slice = one node pool, unless Kueue's topology-aware scheduling ensures it. TPU Provisioner also
    # needs it for single hosts: without it pods do not follow the leader for which it creates the pool.
    made = metadata(plan, job)
    if plan.provisioning is TPU_PROVISIONER or (plan.multi_host and not flavor.topology_aware):
        made["annotations"] = {EXCLUSIVE: NODE_POOL_LABEL, **made.get("annotations", {})}
    return made


def _job_spec(platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job) -> Manifest:
    container = {
        "name": "worker",
        "image": job.image,
        "command": list(job.command),
        "ports": [{"containerPort": port} for port in PORTS],
        **devices(plan, flavor, platform.software.dra_driver.capabilities),
    }
    if needs_environment(plan) and (plan.multi_host or job.slices > 1):
        container["env"] = worker_environment(plan, job)
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
