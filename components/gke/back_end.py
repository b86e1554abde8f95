"""Platforms on GKE: cluster, node pools, slices as node pools."""

import pulumi

from components.built_cluster import Built
from components.gcp.enabled_apis import Services
from components.gcp.network import Machines, Network
from components.gcp.node_identity import NodeIdentity
from components.gcp.workload_policies import WorkloadPolicies
from components.gke.cluster import Cluster
from components.gke.cpu_pools import CpuPools
from components.gke.slices import Slices
from components.kubernetes.cluster_access import Access, gke_kubeconfig
from components.protection import protected
from plan.platform import Platform


def build_gke(platform: Platform, services: Services, identity: NodeIdentity) -> Built:
    """Register a GKE cluster with its slices."""
    network = Network(
        "network",
        platform=platform,
        machines=Machines([identity.email]),
        after=services.enabled,
        opts=protected(platform),
    )
    made = Cluster(
        "cluster",
        platform=platform,
        network=network,
        node_email=identity.email,
        after=[*services.enabled, *identity.ready, *network.ready],
        opts=protected(platform),
    )
    cluster = made.cluster
    cpu_pools = CpuPools(
        "cpu-pools", platform=platform, cluster=cluster, node_email=identity.email, before_create=[made.works]
    )
    policies = {}
    if platform.workload_policies:
        policies = WorkloadPolicies("workload-policies", platform=platform, after=services.enabled).by_name
    for plan in platform.slice_plans:
        if not plan.provisioning.declared:
            continue
        Slices(
            f"slices-{plan.name}",
            platform=platform,
            plan=plan,
            cluster=cluster,
            node_email=identity.email,
            policies=policies,
            before_create=[made.works],
            opts=pulumi.ResourceOptions(protect=plan.protect),
        )
    access = Access(
        "access",
        kubeconfig=gke_kubeconfig(made.endpoint, platform.cluster_name),
        endpoint=made.endpoint,
        identity=cluster,
        generation=made.endpoint,
        opts=protected(platform),
    )
    # Controllers wait for the system pool, where they run, and not for slices.
    return Built(
        access.cluster.behind(cpu_pools.system),
        cluster.name,
        _connect(platform),
        policies,
        _hosts(platform, identity),
        None,
        {},
    )


def _hosts(platform: Platform, nodes: NodeIdentity) -> dict[str, pulumi.Input[str]]:
    given = {plan.spec.service_account for plan in platform.slice_plans if plan.spec.service_account}
    return {"nodes": nodes.member, **{email: f"serviceAccount:{email}" for email in sorted(given)}}


def _connect(platform: Platform) -> str:
    return (
        f"gcloud container clusters get-credentials {platform.cluster_name} "
        f"--location {platform.location} --project {platform.project} --dns-endpoint"
    )
