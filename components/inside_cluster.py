"""What runs inside the cluster: namespaces, drivers, controllers, queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.built_cluster import Built
from components.gcp.node_identity import NodeIdentity
from components.gcp.tpu_provisioner_identity import TpuProvisionerIdentity
from components.kubernetes.admission_policy import CREATED_POOLS, POD_SECURITY, UNQUEUED_TPUS, AdmissionPolicy
from components.kubernetes.chart import InstalledChart
from components.kubernetes.claims import Claims
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.compute_classes import ComputeClasses
from components.kubernetes.device_plugin import DevicePlugin
from components.kubernetes.left_pools import left_pools_hook
from components.kubernetes.multikueue_manager import MultiKueueManager
from components.kubernetes.multikueue_worker import MultiKueueWorker
from components.kubernetes.namespaces import Namespaces
from components.kubernetes.queues import Queues
from components.kubernetes.tpu_provisioner import TpuProvisioner
from components.kubernetes.webhook_retry import webhook_gate
from components.protection import protected
from plan import created_pools, multikueue, pod_security, unqueued_tpus
from plan.charts import DRA_DRIVER, JOBSET, KUEUE, LWS
from plan.platform import Platform


@dataclass(frozen=True)
class Inside:
    """What others wait for: by namespace what must exist before anything in it; before any other Kueue object."""

    namespaces: Mapping[str, Sequence[pulumi.Resource]]
    kueue: Sequence[pulumi.Resource]
    worker: MultiKueueWorker | None


def build_inside(platform: Platform, identity: NodeIdentity, built: Built) -> Inside:
    """Register everything inside the cluster but what teams and the collector of metrics need."""
    access = built.access
    namespaces = install_namespaces(platform, access)
    if platform.compute_classes:
        ComputeClasses(
            "compute-classes", platform=platform, access=access, node_email=identity.email, policies=built.policies
        )
    left_pools = left_pools_hook(platform, access.kubeconfig)
    jobs = provisioner_identity(platform, identity, built, left_pools)
    kueue = install_controllers(platform, access, namespaces, jobs)
    worker = None
    if platform.is_worker:
        worker = MultiKueueWorker("multikueue", platform=platform, access=access, namespaces=namespaces, after=kueue)
    return Inside(namespaces, kueue, worker)


def install_namespaces(platform: Platform, access: ClusterAccess) -> Mapping[str, Sequence[pulumi.Resource]]:
    """For each namespace, what must exist before anything in it: the Namespace, unless the cluster provides it."""
    if not platform.installs("namespaces"):
        return dict.fromkeys(platform.workload_namespaces, ())
    made = Namespaces("namespaces", platform=platform, access=access).by_name
    if security := pod_security.policy(platform):
        AdmissionPolicy(POD_SECURITY, "pod-security", policy=security, access=access)
    return {name: [namespace] for name, namespace in made.items()}


def provisioner_identity(
    platform: Platform, nodes: NodeIdentity, built: Built, before_delete: pulumi.ResourceHook
) -> TpuProvisionerIdentity | None:
    """What TPU Provisioner is in Google Cloud, where the platform has slices whose node pools it creates."""
    if not platform.job_plans:
        return None
    return TpuProvisionerIdentity(
        "tpu-provisioner-identity",
        platform=platform,
        node_email=nodes.email,
        after=[*nodes.ready, *built.policies.values()],
        cluster=built.access.identity,
        before_delete=before_delete,
        opts=protected(platform),
    )


def install_controllers(
    platform: Platform,
    access: ClusterAccess,
    namespaces: Mapping[str, Sequence[pulumi.Resource]],
    jobs: TpuProvisionerIdentity | None,
) -> Sequence[pulumi.Resource]:
    """Device drivers, JobSet and LeaderWorkerSet in parallel; then Kueue, which queues what they serve; then queues.

    Returns what must exist before any other Kueue object; empty without queues.
    """
    if platform.installs("device-plugin"):
        metrics = platform.monitoring.device_metrics
        DevicePlugin("device-plugin", access=access, metrics=metrics, opts=protected(platform))
    driver: list[pulumi.Resource] = []
    if platform.installs("dra-driver"):
        driver = [InstalledChart(DRA_DRIVER, platform=platform, access=access, opts=protected(platform)).release]
    after: list[pulumi.Resource] = []
    if any(plan.devices == "dra" for plan in platform.shared_plans):
        # Also on a manager, which has no driver: Kueue counts a job's devices there before it dispatches the job.
        after += Claims("claims", platform=platform, access=access, namespaces=namespaces, after=driver).device_classes
    if platform.installs("jobset"):
        after.append(InstalledChart(JOBSET, platform=platform, access=access, opts=protected(platform)).release)
    if platform.installs("lws"):
        after.append(InstalledChart(LWS, platform=platform, access=access, opts=protected(platform)).release)
    if limits := created_pools.policy(platform):
        AdmissionPolicy(CREATED_POOLS, "created-pools", policy=limits, access=access)
    if jobs:
        TpuProvisioner(
            "tpu-provisioner", platform=platform, identity=jobs, access=access, after=after, opts=protected(platform)
        )
    if not platform.queues:
        return []
    if platform.installs("kueue"):
        after = [InstalledChart(KUEUE, platform=platform, access=access, after=after, opts=protected(platform)).release]
    gate, checks = webhook_gate(), {}
    if platform.multikueue and platform.is_manager:
        manager = MultiKueueManager(
            "multikueue",
            platform=platform,
            access=access,
            workers=platform.multikueue.workers,
            after=after,
            gate=gate,
        )
        checks[multikueue.CHECK] = manager.check
    if refusal := unqueued_tpus.policy(platform):
        AdmissionPolicy(UNQUEUED_TPUS, "unqueued-tpus", policy=refusal, access=access)
    Queues("queues", platform=platform, access=access, namespaces=namespaces, after=after, gate=gate, checks=checks)
    return after
