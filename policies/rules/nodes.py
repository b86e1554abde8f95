"""GKE nodes, of node pools and of a default pool that a cluster keeps: addresses, identities, boot, ports."""

import re
from collections.abc import Iterator

from policies import tokens
from policies.nodes import node_configs
from policies.registry import RESOURCE, Resource, Settings
from policies.values import UNKNOWN, Finding, at, expect, is_set, items, refuse

DEFAULT_ACCOUNT = re.compile(r"default|.*-compute@developer\.gserviceaccount\.com")
"""Service accounts that may edit the whole project, unless somebody took their Editor role away."""

POOLS = (tokens.NODE_POOL, tokens.CLUSTER)
"""Resources with settings of nodes: pools, and clusters for their default pool, unless it is removed."""


@RESOURCE.rule(
    "private-nodes",
    tokens.CLUSTER,
    tokens.NODE_POOL,
    reason="Nodes with public addresses can be reached from the internet; a pool can override its cluster.",
    remedy="Set enablePrivateNodes: true; private nodes pull images through Cloud NAT",
    source="CIS GKE Benchmark 5.6.5; GKE hardening guide",
    cis=("5.6.5",),
)
def private_nodes(resource: Resource, settings: Settings) -> Iterator[Finding]:
    if resource.type == tokens.CLUSTER:
        yield from expect(resource.props, "privateClusterConfig.enablePrivateNodes", True)
    else:
        yield from refuse(resource.props, "networkConfig.enablePrivateNodes", False)


@RESOURCE.rule(
    "node-metadata",
    *POOLS,
    reason="Pods could read the node's credentials from the metadata server.",
    remedy="Set workloadMetadataConfig.mode: GKE_METADATA",
    source="CIS GKE Benchmark 5.4.1, 5.2.2; GKE hardening guide",
    cis=("5.2.2", "5.4.1"),
)
def node_metadata(pool: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(pool):
        yield from expect(pool.props, f"{config}.workloadMetadataConfig.mode", "GKE_METADATA")


@RESOURCE.rule(
    "legacy-metadata",
    *POOLS,
    reason="Old metadata endpoints give credentials without a header that a browser or proxy could not forge.",
    remedy='Set metadata: {disable-legacy-endpoints: "true"}, and nothing that changes: it rebuilds the pool',
    source="GKE hardening guide, protect node metadata; Compute Engine documentation",
)
def legacy_metadata(pool: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(pool):
        yield from expect(pool.props, f"{config}.metadata.disable-legacy-endpoints", "true")


ACCOUNT_PATHS = {
    tokens.NODE_POOL: ("nodeConfig.serviceAccount",),
    tokens.CLUSTER: ("nodeConfig.serviceAccount", "clusterAutoscaling.autoProvisioningDefaults.serviceAccount"),
    tokens.TEMPLATE: ("serviceAccount.email",),
    tokens.REGION_TEMPLATE: ("serviceAccount.email",),
    tokens.INSTANCE: ("serviceAccount.email",),
    tokens.INSTANCE_FROM_TEMPLATE: ("serviceAccount.email",),
    tokens.INSTANCE_FROM_IMAGE: ("serviceAccount.email",),
    tokens.TPU_VM: ("serviceAccount.email",),
}


@RESOURCE.rule(
    "node-service-account",
    *ACCOUNT_PATHS,
    reason="The default Compute Engine service account may usually edit the whole project.",
    remedy="Give nodes an account of their own with roles/container.defaultNodeServiceAccount",
    source="CIS GKE Benchmark 5.2.1; the provider's default is the account named default",
    cis=("5.2.1",),
)
def node_service_account(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for path in ACCOUNT_PATHS[resource.type]:
        block = path.rpartition(".")[0]
        if resource.type == tokens.CLUSTER and not (is_set(resource.props, block) or block in node_configs(resource)):
            continue  # no default pool and no auto-provisioning: nothing that an account would be for
        if resource.type in tokens.DERIVED_INSTANCES and not is_set(resource.props, block):
            continue  # that of the template or image
        account = at(resource.props, path)
        if account is UNKNOWN or at(resource.props, block) is UNKNOWN:
            continue
        if account is None:
            yield Finding(path, "is not set, so it is the project's default account")
        elif DEFAULT_ACCOUNT.fullmatch(str(account)):
            yield Finding(path, f"is {account}, the project's default account")


@RESOURCE.rule(
    "node-scopes",
    *POOLS,
    reason="Access scopes are a legacy second lock; partial ones break tools, and a change rebuilds the pool.",
    remedy="Use the one scope cloud-platform, and narrow the account's roles instead",
    source="GKE documentation, access scopes; provider: a change of oauthScopes replaces the pool",
)
def node_scopes(pool: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(pool):
        scopes = [str(scope).rpartition("/")[2] for scope in items(pool.props, f"{config}.oauthScopes")]
        if scopes and scopes != ["cloud-platform"]:
            yield Finding(f"{config}.oauthScopes", f"is {', '.join(scopes)}")


@RESOURCE.rule(
    "secure-boot",
    *POOLS,
    reason="Secure boot keeps tampered kernels and boot loaders off nodes; the API's default is off.",
    remedy="Set enableSecureBoot: true, and do not switch integrity monitoring off",
    source="CIS GKE Benchmark 5.5.6, 5.5.7",
    cis=("5.5.6", "5.5.7"),
)
def secure_boot(pool: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(pool):
        shielded = f"{config}.shieldedInstanceConfig"
        yield from expect(pool.props, f"{shielded}.enableSecureBoot", True)
        yield from refuse(pool.props, f"{shielded}.enableIntegrityMonitoring", False)


READONLY_PORT = "insecureKubeletReadonlyPortEnabled"


@RESOURCE.rule(
    "kubelet-readonly-port",
    *POOLS,
    reason="The kubelet's read-only port tells everybody in the network what runs on a node.",
    remedy='Set insecureKubeletReadonlyPortEnabled: "FALSE", as text',
    source="CIS GKE Benchmark 3.2.4; GKE documentation, kubelet read-only port",
    cis=("3.2.4",),
)
def kubelet_readonly_port(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(resource):
        # What the default of the cluster is, a pool of a cluster follows.
        inherits = resource.type == tokens.CLUSTER
        yield from expect(resource.props, f"{config}.kubeletConfig.{READONLY_PORT}", "FALSE", or_unset=inherits)
    if resource.type == tokens.CLUSTER:
        yield from expect(resource.props, f"nodePoolDefaults.nodeConfigDefaults.{READONLY_PORT}", "FALSE")
        provisioned = f"nodePoolAutoConfig.nodeKubeletConfig.{READONLY_PORT}"
        yield from expect(resource.props, provisioned, "FALSE", or_unset=True)


@RESOURCE.rule(
    "node-image",
    *POOLS,
    reason="Container-Optimized OS is what Google hardens and patches for nodes, and what TPU slices need.",
    remedy="Set imageType: COS_CONTAINERD",
    source="CIS GKE Benchmark 5.5.1; GKE documentation, slice controller",
    cis=("5.5.1",),
)
def node_image(pool: Resource, settings: Settings) -> Iterator[Finding]:
    for config in node_configs(pool):
        yield from expect(pool.props, f"{config}.imageType", "COS_CONTAINERD", "cos_containerd")
