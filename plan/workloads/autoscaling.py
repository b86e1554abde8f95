"""Servers that come and go with the requests that wait: GKE's autoscaling by a metric of the servers themselves.

Forms: HorizontalPodAutoscaler v2; AutoscalingMetric autoscaling.gke.io/v1beta1 (GKE documentation, autoscale using
metrics). It reads gauges only, and selects pods by labels without prefix only.
"""

from plan.platform import Platform
from plan.slices import SlicePlan
from plan.workloads.job import Job, Manifest, WorkloadError, check_number
from plan.workloads.leader_worker_set import API as SET_API
from plan.workloads.leader_worker_set import LEADER_LABEL
from platform_config.cluster import GkeCluster

METRIC_API = "autoscaling.gke.io/v1beta1"
WAITING, WAITING_OF_VLLM = "requests-waiting", "vllm:num_requests_waiting"
MOST_WAITING = 5
"""Requests that wait for each server, on average: with more of them another server is wanted."""


def autoscaling(platform: Platform, plan: SlicePlan, job: Job, port: int, most: int) -> list[Manifest]:
    """The metric, and the autoscaler that sets the number of replicas between the job's and `most`.

    Raises WorkloadError where the platform cannot scale so, or the server's queue not so far.
    """
    if not isinstance(platform.cluster, GkeCluster):
        raise WorkloadError("--max-replicas needs GKE, whose autoscaler reads the metric: scale by kubectl scale")
    if not platform.cluster.metric_autoscaling:
        raise WorkloadError("--max-replicas needs cluster.metric_autoscaling: true in the stack file")
    if most <= job.slices:
        raise WorkloadError(f"--max-replicas {most} is not above --replicas {job.slices}")
    check_number(platform, plan, job.queue, most, "lower --max-replicas")
    metadata = {"name": job.name, "namespace": job.namespace}
    gauge = {"gauge": {"name": WAITING, "prometheusMetricName": WAITING_OF_VLLM}}
    container = {"endpoint": {"port": port, "path": "/metrics"}, "metrics": [gauge]}
    metric = {"name": f"autoscaling.gke.io|{job.name}|{WAITING}"}
    return [
        {
            "apiVersion": METRIC_API,
            "kind": "AutoscalingMetric",
            "metadata": metadata,
            "spec": {
                "metrics": [{"pod": {"selector": {"matchLabels": {LEADER_LABEL: job.name}}, "containers": [container]}}]
            },
        },
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": {"apiVersion": SET_API, "kind": "LeaderWorkerSet", "name": job.name},
                "minReplicas": job.slices,
                "maxReplicas": most,
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": metric,
                            "target": {"type": "AverageValue", "averageValue": str(MOST_WAITING)},
                        },
                    }
                ],
            },
        },
    ]
