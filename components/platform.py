"""The whole graph, read top to bottom: services, network, cluster, slices, access, and what runs inside."""

from collections.abc import Sequence
from typing import Any

import pulumi

from components.access import ClusterAccess
from components.claims import Claims
from components.cluster import Cluster
from components.compute_classes import ComputeClasses
from components.dra_driver import DraDriver
from components.identity import NodeIdentity
from components.jobset import JobSet
from components.kueue import Kueue
from components.multikueue import MultiKueueManager
from components.multikueue_worker import MultiKueueWorker
from components.namespaces import Namespaces
from components.network import Network
from components.queues import Queues
from components.readiness import webhook_gate
from components.services import Services
from components.slices import Slices
from components.system_pools import CpuPools
from components.workload_policies import WorkloadPolicies
from spec import multikueue, queueing
from spec.platform import Platform


def build(platform: Platform) -> dict[str, Any]:
    """Register every resource of the platform and return the stack's exports."""
    services = Services("services", platform=platform)
    identity = NodeIdentity("node-identity", platform=platform, after=services.enabled)
    network = Network("network", platform=platform, node_email=identity.email, after=services.enabled)
    cluster = Cluster(
        "cluster",
        platform=platform,
        network=network,
        node_email=identity.email,
        after=[*services.enabled, *identity.ready, *network.ready],
        opts=pulumi.ResourceOptions(protect=platform.protect),
    )
    cpu_pools = CpuPools("cpu-pools", platform=platform, cluster=cluster.cluster, node_email=identity.email)
    policy_names = {}
    if platform.workload_policies:
        policy_names = WorkloadPolicies("workload-policies", platform=platform, after=services.enabled).names
    for plan in platform.slice_plans:
        Slices(
            f"slices-{plan.name}",
            platform=platform,
            plan=plan,
            cluster=cluster.cluster,
            node_email=identity.email,
            policy_names=policy_names,
            opts=pulumi.ResourceOptions(protect=plan.protect),
        )
    # Controllers need somewhere to run, and they run on the system pool: slices and controllers start side by side.
    access = ClusterAccess("access", platform=platform, cluster=cluster.cluster, after=[cpu_pools.system])
    namespaces = Namespaces("namespaces", platform=platform, access=access)
    if platform.compute_classes:
        ComputeClasses("compute-classes", platform=platform, access=access)
    kueue = install_controllers(platform, access, namespaces)
    exported = exports(platform, cluster, access)
    if platform.is_worker:
        worker = MultiKueueWorker("multikueue", platform=platform, access=access, after=kueue)
        exported[multikueue.STACK_OUTPUT] = worker.kubeconfig
    return exported


def install_controllers(platform: Platform, access: ClusterAccess, namespaces: Namespaces) -> Sequence[pulumi.Resource]:
    """DRA driver and JobSet side by side; Kueue after them, since it queues what they serve; then the queues.

    Returns what must be there before anything else of Kueue; empty without queues.
    """
    driver: list[pulumi.Resource] = []
    if any(plan.devices == "dra" for plan in platform.slice_plans):
        driver = [DraDriver("dra-driver", platform=platform, access=access).release]
    claims: list[pulumi.Resource] = []
    if any(plan.devices == "dra" for plan in platform.shared_plans):
        # Also on a manager, which has no driver: Kueue counts a job's devices there before it hands the job out.
        claims = Claims("claims", platform=platform, access=access, namespaces=namespaces, after=driver).device_classes
    jobset = JobSet("jobset", platform=platform, access=access)
    if not platform.queues:
        return []
    kueue = Kueue("kueue", platform=platform, access=access, after=[jobset.release, *claims])
    after, gate = [kueue.release], webhook_gate()
    checks = {}
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
    Queues("queues", platform=platform, access=access, namespaces=namespaces, after=after, gate=gate, checks=checks)
    return after


def exports(platform: Platform, cluster: Cluster, access: ClusterAccess) -> dict[str, Any]:
    """What a person or a script needs next: how to reach the cluster, what stands where, what it costs."""
    return {
        "cluster": {
            "name": cluster.cluster.name,
            "location": platform.location,
            "endpoint": access.endpoint,
            "connect": (
                f"gcloud container clusters get-credentials {platform.cluster_name} "
                f"--location {platform.location} --project {platform.project} --dns-endpoint"
            ),
        },
        "kubeconfig": access.kubeconfig,
        "slices": {plan.name: plan.summary() for plan in platform.slice_plans},
        "queues": {
            queue.name: {"namespaces": list(queue.namespaces), "slices": dict(queue.spec.slices)}
            for queue in queueing.cluster_queues(platform)
        },
        "totals": platform.totals,
    }
