"""A LeaderWorkerSet that fits a platform's slices: a group of pods for each slice, one pod for each host.

Form: LeaderWorkerSet v1 (kubernetes-sigs/lws v0.9.0). Its first pod of a group is the leader. Its controller makes a
headless Service of the set's name, and gives every pod LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX. To
containers that request `google.com/tpu` it also gives TPU_WORKER_ID and TPU_WORKER_HOSTNAMES, but not under DRA.
"""

from dataclasses import dataclass

from catalogue.labels import LABEL_VALUE_LIMIT, NAMESPACE_NAME_LABEL, NODE_POOL_LABEL
from plan import team_pods
from plan.flavors import Flavor
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.workloads.job import Job, Manifest, WorkloadError, metadata
from plan.workloads.pods import placement

API = "leaderworkerset.x-k8s.io/v1"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_LABEL = "server"
"""Label of our own on first pods, with the set's name: GKE's autoscaling selects pods by labels without prefix only."""
GROUP_KEY = "leaderworkerset.sigs.k8s.io/group-key"
JOB_KEY = "jobset.sigs.k8s.io/job-key"
"""Labels that the controllers give to all their pods, and by which their exclusive placement knows them."""
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
PODSET_GROUP = "kueue.x-k8s.io/podset-group-name"
"""Annotation of two sets of pods, one of them a single pod, that Kueue places together (v0.19,
`ValidatePodSetGroupingTopology`). Without it Kueue chooses a slice for the leader and another for the others."""
NAME_LIMIT = 51
"""Its controller makes StatefulSets of the name, and their controller labels of theirs."""


@dataclass(frozen=True)
class Group:
    """The containers of a group: of its first pod, and of the others. One without others has a single host."""

    leader: Manifest
    worker: Manifest | None


def leader_worker_set(
    platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job, group: Group, volumes: list[Manifest]
) -> Manifest:
    """The set. `job`: its name, queue and number of slices. Raises WorkloadError where its name is too long."""
    _check_name(plan, job)
    made = metadata(plan, job)
    if plan.multi_host:
        # A group is a slice. Topology-aware scheduling of Kueue, where a platform has it, only chooses among slices.
        made["annotations"] = {EXCLUSIVE: NODE_POOL_LABEL, **made.get("annotations", {})}
    first = _template(platform, plan, flavor, job, group.leader, volumes)
    first["metadata"] = {**first.get("metadata", {}), "labels": {LEADER_LABEL: job.name}}
    if plan.multi_host:
        first["spec"]["affinity"] = _alone(job.namespace)
    templates = {"workerTemplate": first}
    if group.worker:
        others = _template(platform, plan, flavor, job, group.worker, volumes)
        templates = {"leaderTemplate": first, "workerTemplate": others}
    return {
        "apiVersion": API,
        "kind": "LeaderWorkerSet",
        "metadata": made,
        "spec": {
            "replicas": job.slices,
            # A new group before the old one is gone would need a spare slice.
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "leaderWorkerTemplate": {
                "size": plan.hosts,
                # A group fails with any of its pods. A pod that is alone restarts its container, on the same host.
                "restartPolicy": "RecreateGroupOnPodRestart" if plan.multi_host else "None",
                **templates,
            },
        },
    }


def leaders(name: str) -> dict[str, str]:
    """Selects the first pods of all groups of a set: those that answer requests."""
    return {SET_LABEL: name, INDEX_LABEL: "0"}


def worker_environment(plan: SlicePlan, job: Job) -> list[Manifest]:
    """Worker id and peers' host names under DRA; empty for a slice of one host, which has no peers.

    The controller gives containers with claims neither (pkg/utils/accelerators/tpu.go).
    """
    if plan.devices != "dra" or not plan.multi_host:
        return []
    leader = f"{job.name}-$(SERVER_GROUP)"
    hosts = [leader, *(f"{leader}-{host}" for host in range(1, plan.hosts))]
    return [
        _from_label("SERVER_GROUP", GROUP_LABEL),
        _from_label("TPU_WORKER_ID", INDEX_LABEL),
        {"name": "TPU_WORKER_HOSTNAMES", "value": ",".join(f"{host}.{job.name}" for host in hosts)},
    ]


def _from_label(name: str, label: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def _template(
    platform: Platform, plan: SlicePlan, flavor: Flavor, job: Job, container: Manifest, volumes: list[Manifest]
) -> Manifest:
    template: Manifest = {"spec": {**placement(flavor), "containers": [dict(container)], "volumes": list(volumes)}}
    if flavor.topology_aware:
        template["metadata"] = {"annotations": {REQUIRED_TOPOLOGY: NODE_POOL_LABEL, PODSET_GROUP: job.name}}
    team_pods.add_to_pod(platform, job.namespace, plan, template)
    return template


def _alone(namespace: str) -> Manifest:
    """Keeps a group off the slices of JobSets and of other namespaces' servers, and these off the group's: the
    scheduler also holds new pods against what standing ones refuse. Exclusive placement of LeaderWorkerSet knows only
    its own pods, of one namespace; that of JobSet only JobSets.
    """
    elsewhere = {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": [namespace]}
    return {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                _refused(JOB_KEY, {}),
                _refused(GROUP_KEY, {"matchExpressions": [elsewhere]}),
            ]
        }
    }


def _refused(label: str, namespaces: Manifest) -> Manifest:
    """No pod with the label on the same slice."""
    pods = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    return {"labelSelector": pods, "namespaceSelector": namespaces, "topologyKey": NODE_POOL_LABEL}


def _check_name(plan: SlicePlan, job: Job) -> None:
    """Kueue writes the name of a group's workload into a label of its pods."""
    longest = f"leaderworkerset-{job.name}-{plan.count - 1}-abcde"
    limits = (NAME_LIMIT, LABEL_VALUE_LIMIT - (len(longest) - len(job.name)) if job.queue else NAME_LIMIT)
    if (excess := len(job.name) - min(limits)) > 0:
        raise WorkloadError(
            f"the name {job.name} is {excess} characters too long: a server's has {min(limits)} at most"
        )
