"""The whole graph, read top to bottom: services, network, cluster, slices, access, and what runs inside."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.built_cluster import Built
from components.compute.drain_hook import drain_hook
from components.foundation import Foundation
from components.gcp.enabled_apis import Services
from components.gcp.node_identity import NODES, NodeIdentity
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
from components.protection import Protection, protected
from plan import created_pools, monitoring, multikueue, pod_security, queue_metrics, queues, unqueued_tpus
from plan.charts import DRA_DRIVER, JOBSET, KUEUE, LWS
from plan.federation import federated_namespaces
from plan.platform import Platform


def build(platform: Platform, foundation: Foundation) -> dict[str, Any]:
    """Register every resource of the platform and return the stack's exports."""
    services = foundation.services
    drain = drain_hook(platform)
    identity = NodeIdentity(
        "node-identity",
        platform=platform,
        account=NODES[platform.backend],
        after=services.enabled,
        opts=protected(platform),
    )
    # Only the back end in use is imported: each loads large parts of the provider SDK that the other does not need.
    if platform.backend == "gke":
        from components.gke.back_end import build_gke

        built = build_gke(platform, services, identity)
    else:
        from components.compute.back_end import build_compute

        built = build_compute(platform, services, identity, drain)
    access = built.access
    namespaces = install_namespaces(platform, access)
    if platform.compute_classes:
        ComputeClasses(
            "compute-classes", platform=platform, access=access, node_email=identity.email, policies=built.policies
        )
    left_pools = left_pools_hook(platform, access.kubeconfig)
    jobs = provisioner_identity(platform, identity, built, left_pools)
    kueue = install_controllers(platform, access, namespaces, jobs)
    exported = exports(platform, built)
    pool = None
    if federated_namespaces(platform):
        from components.federation import identity_pool

        pool = identity_pool(platform, services, built)
    if platform.teams or platform.images:
        # Imported where it is used, as the back ends: it loads further parts of the provider SDK.
        from components.teams import install_teams

        exported |= install_teams(platform, services, built, namespaces, pool)
    install_monitoring(platform, services)
    if queue_metrics.installed(platform):
        from components.collector import install_collector

        install_collector(platform, services, built, pool, kueue)
    if platform.is_worker:
        worker = MultiKueueWorker("multikueue", platform=platform, access=access, namespaces=namespaces, after=kueue)
        exported[multikueue.STACK_OUTPUT] = worker.kubeconfig
    Protection("protection", platform=platform, everything=foundation.everything)
    return exported


def install_monitoring(platform: Platform, services: Services) -> None:
    """What is shown and told about the platform, and its budget."""
    addresses: Sequence[pulumi.Input[str]] = ()
    if monitoring.watched(platform):
        from components.gcp.monitoring import Monitoring

        addresses = Monitoring("monitoring", platform=platform, after=services.enabled).addresses
    if platform.monitoring.budget:
        from components.gcp.budget import Budget

        Budget("budget", platform=platform, addresses=addresses, enabled=services.enabled)


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


def exports(platform: Platform, built: Built) -> dict[str, Any]:
    """What a person or a script needs next: how to reach the cluster, where its slices are, what it costs."""
    return {
        "cluster": {
            "name": built.name,
            "location": platform.location,
            "endpoint": built.access.endpoint,
            "connect": built.connect,
        },
        "kubeconfig": built.access.kubeconfig,
        "slices": {plan.name: plan.summary() for plan in platform.slice_plans},
        "queues": {
            queue.name: {"namespaces": list(queue.namespaces), "slices": dict(queue.spec.slices)}
            for queue in queues.cluster_queues(platform)
        },
        "totals": platform.totals,
        **built.facts,
    }
