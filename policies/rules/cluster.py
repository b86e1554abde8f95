"""GKE clusters: who reaches the control plane, what identities nodes get, when Google may upgrade."""

import re
from collections.abc import Iterator
from ipaddress import ip_network

from policies import tokens
from policies.registry import PRODUCTION, RESOURCE, Resource, Setting, Settings, in_production
from policies.tpu import looks_like_tpu
from policies.values import UNKNOWN, Finding, at, expect, is_set, items, number, refuse, require, settled, text
from spec.cluster import MAX_EXCLUSIONS

DEFAULT_ACCOUNT = re.compile(r"default|.*-compute@developer\.gserviceaccount\.com")
"""Service accounts that may edit the whole project, unless somebody took their Editor role away."""

HELD_SCOPES = ("NO_MINOR_OR_NODE_UPGRADES", "NO_UPGRADES")


def open_ranges(ranges: list[str]) -> list[str]:
    """Ranges that mean everybody, such as 0.0.0.0/0, also split in two halves."""
    return [each for each in ranges if _prefix(each) <= 1]


def _prefix(cidr: str) -> int:
    try:
        return ip_network(cidr, strict=False).prefixlen
    except ValueError:
        return 128  # the API refuses what is no range


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
    "control-plane-access",
    tokens.CLUSTER,
    reason="Everybody on the internet may knock at a control plane whose IP endpoint names no networks.",
    remedy="Turn the IP endpoint off (the DNS endpoint is guarded by IAM), or name the networks that may use it",
    source="CIS GKE Benchmark 5.6.3; GKE documentation, control plane access",
    cis=("5.6.3",),
)
def control_plane_access(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if not _has_ip_endpoint(cluster):
        return
    networks = at(cluster.props, "masterAuthorizedNetworksConfig")
    if networks is None:
        yield Finding("masterAuthorizedNetworksConfig", "is not set while the IP endpoint is on")
    ranges = [text(block, "cidrBlock") for block in items(networks, "cidrBlocks")]
    for open_range in open_ranges(ranges):
        yield Finding("masterAuthorizedNetworksConfig.cidrBlocks", f"holds {open_range}, which is everybody")
    yield from refuse(cluster.props, "masterAuthorizedNetworksConfig.gcpPublicCidrsAccessEnabled", True)


def _has_ip_endpoint(cluster: Resource) -> bool:
    """Whether the IP endpoint is known to be on, as it is by default."""
    enabled = at(cluster.props, "controlPlaneEndpointsConfig.ipEndpointsConfig.enabled")
    return enabled is not False and enabled is not UNKNOWN


@RESOURCE.rule(
    "control-plane-private",
    tokens.CLUSTER,
    level="advisory",
    reason="A public IP endpoint is only as closed as its list of networks.",
    remedy="Set privateClusterConfig.enablePrivateEndpoint: true, or turn the IP endpoint off",
    source="CIS GKE Benchmark 5.6.4",
    cis=("5.6.4",),
)
def control_plane_private(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if _has_ip_endpoint(cluster):
        yield from expect(cluster.props, "privateClusterConfig.enablePrivateEndpoint", True)


@RESOURCE.rule(
    "workload-identity",
    tokens.CLUSTER,
    reason="Without it pods act with the rights of the node they happen to run on.",
    remedy="Set workloadIdentityConfig.workloadPool to PROJECT.svc.id.goog",
    source="CIS GKE Benchmark 5.2.2; GKE hardening guide",
    cis=("5.2.2",),
)
def workload_identity(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(cluster.props, "workloadIdentityConfig.workloadPool")


@RESOURCE.rule(
    "node-metadata",
    tokens.NODE_POOL,
    reason="Pods could read the node's credentials from the metadata server.",
    remedy="Set workloadMetadataConfig.mode: GKE_METADATA",
    source="CIS GKE Benchmark 5.4.1, 5.2.2; GKE hardening guide",
    cis=("5.2.2", "5.4.1"),
)
def node_metadata(pool: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(pool.props, "nodeConfig.workloadMetadataConfig.mode", "GKE_METADATA")


ACCOUNT_PATHS = {
    tokens.NODE_POOL: ("nodeConfig.serviceAccount",),
    tokens.CLUSTER: ("nodeConfig.serviceAccount", "clusterAutoscaling.autoProvisioningDefaults.serviceAccount"),
    tokens.TEMPLATE: ("serviceAccount.email",),
    tokens.REGION_TEMPLATE: ("serviceAccount.email",),
    tokens.INSTANCE: ("serviceAccount.email",),
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
        if resource.type == tokens.CLUSTER and not is_set(resource.props, block):
            continue  # no default pool and no auto-provisioning: nothing that an account would be for
        account = at(resource.props, path)
        if account is UNKNOWN or at(resource.props, block) is UNKNOWN:
            continue
        if account is None:
            yield Finding(path, "is not set, so it is the project's default account")
        elif DEFAULT_ACCOUNT.fullmatch(str(account)):
            yield Finding(path, f"is {account}, the project's default account")


@RESOURCE.rule(
    "node-scopes",
    tokens.NODE_POOL,
    reason="Access scopes are a legacy second lock; partial ones break tools, and a change rebuilds the pool.",
    remedy="Use the one scope cloud-platform, and narrow the account's roles instead",
    source="GKE documentation, access scopes; provider: a change of oauthScopes replaces the pool",
)
def node_scopes(pool: Resource, settings: Settings) -> Iterator[Finding]:
    scopes = [str(scope).rpartition("/")[2] for scope in items(pool.props, "nodeConfig.oauthScopes")]
    if scopes and scopes != ["cloud-platform"]:
        yield Finding("nodeConfig.oauthScopes", f"is {', '.join(scopes)}")


@RESOURCE.rule(
    "secure-boot",
    tokens.NODE_POOL,
    reason="Secure boot keeps tampered kernels and boot loaders off nodes; the API's default is off.",
    remedy="Set enableSecureBoot: true, and do not switch integrity monitoring off",
    source="CIS GKE Benchmark 5.5.6, 5.5.7",
    cis=("5.5.6", "5.5.7"),
)
def secure_boot(pool: Resource, settings: Settings) -> Iterator[Finding]:
    shielded = "nodeConfig.shieldedInstanceConfig"
    yield from expect(pool.props, f"{shielded}.enableSecureBoot", True)
    yield from refuse(pool.props, f"{shielded}.enableIntegrityMonitoring", False)


@RESOURCE.rule(
    "shielded-nodes",
    tokens.CLUSTER,
    reason="Shielded nodes prove who they are when they join.",
    remedy="Leave enableShieldedNodes at its default, true",
    source="CIS GKE Benchmark 5.5.5",
    cis=("5.5.5",),
)
def shielded_nodes(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(cluster.props, "enableShieldedNodes", False)


@RESOURCE.rule(
    "legacy-authentication",
    tokens.CLUSTER,
    reason="Client certificates cannot be revoked, and legacy ABAC gives static rights beside RBAC.",
    remedy="Leave enableLegacyAbac and issueClientCertificate false",
    source="CIS GKE Benchmark 2.1.1, 5.8.1, 5.8.3; GKE hardening guide",
    cis=("2.1.1", "5.8.1", "5.8.3"),
)
def legacy_authentication(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(cluster.props, "enableLegacyAbac", True)
    yield from refuse(cluster.props, "masterAuth.clientCertificateConfig.issueClientCertificate", True)


@RESOURCE.rule(
    "anonymous-access",
    tokens.CLUSTER,
    reason="Bindings to everybody, or to every Google account, open a cluster to people nobody named.",
    remedy="Set anonymousAuthenticationConfig.mode: LIMITED and both insecure bindings to false",
    source="google/skills, GKE cluster baseline; CIS GKE Benchmark 4.1.8 to 4.1.10",
    cis=("4.1.8", "4.1.9", "4.1.10"),
)
def anonymous_access(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(cluster.props, "anonymousAuthenticationConfig.mode", "LIMITED")
    for who in ("Authenticated", "Unauthenticated"):
        yield from expect(cluster.props, f"rbacBindingConfig.enableInsecureBindingSystem{who}", False)


@RESOURCE.rule(
    "secrets-encryption",
    tokens.CLUSTER,
    level="advisory",
    reason="Kubernetes secrets in etcd are readable by whoever gets at its disks, beside Google's own encryption.",
    remedy="Set databaseEncryption: {state: ENCRYPTED, keyName: ...}; in a stack file it is cluster.kms_key",
    source="CIS GKE Benchmark 5.3.1",
    cis=("5.3.1",),
    settings=[PRODUCTION],
)
def secrets_encryption(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if in_production(cluster, settings):
        yield from expect(cluster.props, "databaseEncryption.state", "ENCRYPTED")
        yield from require(cluster.props, "databaseEncryption.keyName")


@RESOURCE.rule(
    "network-policy",
    tokens.CLUSTER,
    reason="Without enforcement every NetworkPolicy is ignored, in silence.",
    remedy="Set datapathProvider: ADVANCED_DATAPATH",
    source="CIS GKE Benchmark 4.3.1",
    cis=("4.3.1",),
)
def network_policy(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if at(cluster.props, "networkPolicy.enabled") is not True:
        yield from expect(cluster.props, "datapathProvider", "ADVANCED_DATAPATH")


@RESOURCE.rule(
    "vpc-native",
    tokens.CLUSTER,
    reason="Routes-based clusters share the VPC's route quota; unnamed ranges are chosen by Google and drift.",
    remedy="Set networkingMode: VPC_NATIVE and name both secondary ranges",
    source="CIS GKE Benchmark 5.6.2",
    cis=("5.6.2",),
)
def vpc_native(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(cluster.props, "networkingMode", "VPC_NATIVE")
    for name in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        yield from require(cluster.props, f"ipAllocationPolicy.{name}")


@RESOURCE.rule(
    "intranode-visibility",
    tokens.CLUSTER,
    level="advisory",
    reason="Traffic between pods of one node is missing from flow logs.",
    remedy="Set enableIntranodeVisibility: true",
    source="CIS GKE Benchmark 5.6.1",
    cis=("5.6.1",),
)
def intranode_visibility(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(cluster.props, "enableIntranodeVisibility", True)


NEEDED_COMPONENTS = {
    "loggingConfig.enableComponents": ("SYSTEM_COMPONENTS", "WORKLOADS"),
    "monitoringConfig.enableComponents": ("SYSTEM_COMPONENTS", "JOBSET"),
}


@RESOURCE.rule(
    "observability",
    tokens.CLUSTER,
    reason="Without these logs and metrics nobody can tell afterwards why a slice stood idle.",
    remedy="Enable the components, and managedPrometheus",
    source="CIS GKE Benchmark 5.7.1; GKE documentation, TPU and JobSet metrics",
    cis=("5.7.1",),
)
def observability(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    for path, needed in NEEDED_COMPONENTS.items():
        if not settled(cluster.props, path):
            continue
        missing = [component for component in needed if component not in items(cluster.props, path)]
        if missing:
            yield Finding(path, f"lacks {', '.join(missing)}")
    yield from expect(cluster.props, "monitoringConfig.managedPrometheus.enabled", True)


@RESOURCE.rule(
    "security-posture",
    tokens.CLUSTER,
    level="advisory",
    reason="Google's scan of workload configuration and known vulnerabilities costs nothing at level BASIC.",
    remedy="Leave securityPostureConfig.mode at BASIC",
    source="CIS GKE Benchmark 5.10.5; GKE hardening guide",
    cis=("5.10.5",),
)
def security_posture(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(cluster.props, "securityPostureConfig.mode", "DISABLED")


READONLY_PORT_PATHS = {
    tokens.NODE_POOL: "nodeConfig.kubeletConfig.insecureKubeletReadonlyPortEnabled",
    tokens.CLUSTER: "nodePoolDefaults.nodeConfigDefaults.insecureKubeletReadonlyPortEnabled",
}


@RESOURCE.rule(
    "kubelet-readonly-port",
    *READONLY_PORT_PATHS,
    reason="The kubelet's read-only port tells everybody in the network what runs on a node.",
    remedy='Set insecureKubeletReadonlyPortEnabled: "FALSE", as text',
    source="CIS GKE Benchmark 3.2.4; GKE documentation, kubelet read-only port",
    cis=("3.2.4",),
)
def kubelet_readonly_port(resource: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(resource.props, READONLY_PORT_PATHS[resource.type], "FALSE")
    provisioned = "nodePoolAutoConfig.nodeKubeletConfig.insecureKubeletReadonlyPortEnabled"
    yield from expect(resource.props, provisioned, "FALSE", or_unset=True)


@RESOURCE.rule(
    "node-image",
    tokens.NODE_POOL,
    reason="Container-Optimized OS is what Google hardens and patches for nodes, and what TPU slices need.",
    remedy="Set imageType: COS_CONTAINERD",
    source="CIS GKE Benchmark 5.5.1; GKE documentation, slice controller",
    cis=("5.5.1",),
)
def node_image(pool: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(pool.props, "nodeConfig.imageType", "COS_CONTAINERD", "cos_containerd")


@RESOURCE.rule(
    "release-channel",
    tokens.CLUSTER,
    reason="Off the channels there are no maintenance exclusions, and upgrades are forced at end of support.",
    remedy="Choose RAPID, REGULAR, STABLE or EXTENDED",
    source="CIS GKE Benchmark 5.5.4; GKE documentation, release channels",
    cis=("5.5.4",),
)
def release_channel(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(cluster.props, "releaseChannel.channel")
    yield from refuse(cluster.props, "releaseChannel.channel", "UNSPECIFIED")


@RESOURCE.rule(
    "maintenance-window",
    tokens.CLUSTER,
    reason="Without a window Google upgrades at any hour of any day.",
    remedy="Set one of recurringWindow, recurringMaintenanceWindow and dailyMaintenanceWindow",
    source="google/gke-policy-automation; GKE documentation, maintenance windows",
)
def maintenance_window(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    windows = ("recurringWindow", "recurringMaintenanceWindow", "dailyMaintenanceWindow")
    given = [window for window in windows if is_set(cluster.props, f"maintenancePolicy.{window}")]
    policy = at(cluster.props, "maintenancePolicy")
    if policy is not UNKNOWN and len(given) != 1:
        yield Finding("maintenancePolicy", f"has {' and '.join(given) or 'no window'}; it takes exactly one")


@RESOURCE.rule(
    "maintenance-exclusion",
    tokens.CLUSTER,
    reason="A node upgrade recreates all hosts of a slice in one step, and ends the job that runs on them.",
    remedy="Add a maintenance exclusion of scope NO_MINOR_OR_NODE_UPGRADES; upgrade when a slice is free",
    source="GKE documentation: node upgrades of multi-host TPU slices; cluster-toolkit's TPU blueprints",
)
def maintenance_exclusion(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    path = "maintenancePolicy.maintenanceExclusions"
    if not settled(cluster.props, path):
        return
    exclusions = items(cluster.props, path)
    if not any(text(exclusion, "exclusionOptions.scope") in HELD_SCOPES for exclusion in exclusions):
        yield Finding(path, "holds no node upgrades back")
    if len(exclusions) > MAX_EXCLUSIONS:
        yield Finding(path, f"has {len(exclusions)} entries; GKE takes {MAX_EXCLUSIONS}")


@RESOURCE.rule(
    "regional-control-plane",
    tokens.CLUSTER,
    level="advisory",
    reason="A zonal control plane is away during its own upgrades, and with its zone.",
    remedy="Set location to the region",
    source="google/gke-policy-automation, control plane redundancy",
    settings=[PRODUCTION],
)
def regional_control_plane(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    location = text(cluster.props, "location")
    if in_production(cluster, settings) and location.count("-") > 1:
        yield Finding("location", f"is the zone {location}")


@RESOURCE.rule(
    "binary-authorization",
    tokens.CLUSTER,
    level="advisory",
    reason="Anybody who may create pods may run any image.",
    remedy="Set binaryAuthorization.evaluationMode: PROJECT_SINGLETON_POLICY_ENFORCE",
    source="CIS GKE Benchmark 5.10.4, 5.1.4; GKE hardening guide",
    cis=("4.5.1", "5.1.4", "5.10.4"),
    settings=[PRODUCTION],
)
def binary_authorization(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    if in_production(cluster, settings):
        path = "binaryAuthorization.evaluationMode"
        yield from expect(cluster.props, path, "PROJECT_SINGLETON_POLICY_ENFORCE")


@RESOURCE.rule(
    "legacy-features",
    tokens.CLUSTER,
    reason="Alpha clusters are deleted after 30 days; enableTpu is of another age; inline pools replace the cluster.",
    remedy="Leave these out, and make node pools resources of their own",
    source="CIS GKE Benchmark 5.10.2 (alpha clusters); provider: nodePools replaces the cluster",
    cis=("5.10.2",),
)
def legacy_features(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    for path in ("enableKubernetesAlpha", "enableTpu", "tpuConfig", "nodePools"):
        if is_set(cluster.props, path):
            yield Finding(path, "is set")


@RESOURCE.rule(
    "cost-allocation",
    tokens.CLUSTER,
    level="advisory",
    reason="Bills cannot be split by namespace afterwards.",
    remedy="Set costManagementConfig.enabled: true",
    source="GKE documentation, cost allocation",
)
def cost_allocation(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(cluster.props, "costManagementConfig.enabled", True)


MOST_PROVISIONED = Setting(
    "maxChips",
    {"type": "integer", "minimum": 0, "default": 256, "description": "Chips auto-provisioning may make, by TPU type."},
)


@RESOURCE.rule(
    "autoprovisioning-limits",
    tokens.CLUSTER,
    reason="Auto-provisioning makes TPU pools for whatever pods ask for, up to the limit it is given.",
    remedy="Give each TPU type in resourceLimits a maximum that you would pay for",
    source="GKE documentation, node auto-provisioning: resource limits",
    settings=[MOST_PROVISIONED],
)
def autoprovisioning_limits(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    path = "clusterAutoscaling.resourceLimits"
    most = settings[MOST_PROVISIONED.name]
    for index, limit in enumerate(items(cluster.props, path)):
        kind, maximum = text(limit, "resourceType"), number(limit, "maximum")
        if not looks_like_tpu(kind):
            continue
        if maximum is None and at(limit, "maximum") is not UNKNOWN:
            yield Finding(f"{path}.{index}.maximum", f"is not set for {kind}")
        elif maximum is not None and maximum > most:
            yield Finding(f"{path}.{index}.maximum", f"is {maximum} for {kind}, more than {most:g}")
