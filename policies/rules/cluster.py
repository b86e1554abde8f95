"""GKE clusters: identities, networks, encryption, logs, scans and bills."""

from collections.abc import Iterator

from policies import tokens
from policies.registry import PRODUCTION, RESOURCE, Resource, Setting, Settings, in_production
from policies.tpu import looks_like_tpu
from policies.values import UNKNOWN, Finding, at, expect, is_set, items, number, refuse, require, settled, text


@RESOURCE.rule(
    "workload-identity",
    tokens.CLUSTER,
    reason="Without it pods have the rights of their node.",
    remedy="Set workloadIdentityConfig.workloadPool to PROJECT.svc.id.goog",
    source="CIS GKE Benchmark 5.2.2; GKE hardening guide",
    cis=("5.2.2",),
)
def workload_identity(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from require(cluster.props, "workloadIdentityConfig.workloadPool")


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
    "secrets-encryption",
    tokens.CLUSTER,
    level="advisory",
    reason="Without a key of your own only Google's encryption protects Kubernetes secrets in etcd.",
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
    reason="Without enforcement every NetworkPolicy is silently ignored.",
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
    reason="Without these logs and metrics nobody can find out later why a slice was idle.",
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
    reason="Google's scan of workload configuration costs nothing at level BASIC.",
    remedy="Leave securityPostureConfig.mode at BASIC",
    source="CIS GKE Benchmark 5.10.5; GKE hardening guide",
    cis=("5.10.5",),
)
def security_posture(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    yield from refuse(cluster.props, "securityPostureConfig.mode", "DISABLED")


@RESOURCE.rule(
    "regional-control-plane",
    tokens.CLUSTER,
    level="advisory",
    reason="A zonal control plane is unavailable during its own upgrades, and when its zone fails.",
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
    reason="Alpha clusters are deleted after 30 days; enableTpu is obsolete; inline pools replace the cluster.",
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
    reason="Auto-provisioning creates TPU pools for any pods that request them, up to its limit.",
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
