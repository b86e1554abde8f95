"""Each rule on its own: what it finds fault with, and what it lets pass."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from policies import tokens
from policies.registry import Resource
from policies.rules import RESOURCE_RULES, STACK_RULES
from policies.values import UNKNOWN
from tests.policies.sound import KUBE_LABELS, REMOVED, Changes, findings, stack, urn

RULES = (*RESOURCE_RULES, *STACK_RULES)


@dataclass(frozen=True)
class Case:
    """Changes of the sound stack after which a rule finds fault with `at` (a resource), in `words`; or after which,
    being `passing`, it finds none. `settings` are the rule's."""

    rule: str
    changes: Changes
    at: str | None = None
    words: str = ""
    passing: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    extra: tuple[Resource, ...] = ()
    stack: str = "prod"


def bad(rule: str, path: str, value: Any = REMOVED, words: str = "", **more: Any) -> Case:
    """One changed property, which is found at its resource."""
    return Case(rule, {path: value}, at=path.partition(".")[0], words=words, **more)


def good(rule: str, path: str = "", value: Any = REMOVED, **more: Any) -> Case:
    """One changed property, or none, which is let pass."""
    return Case(rule, {path: value} if path else {}, passing=True, **more)


def added(type_: str, name: str, props: dict[str, Any], **more: Any) -> Resource:
    return Resource(type_, name, urn(name), props, **more)


CONFIG = "nodeConfig"
AFFINITY = f"{CONFIG}.reservationAffinity"
EXPOSED = {"ipEndpointsConfig": {"enabled": True}}
TPU_LIMITS = {"resourceLimits": [{"resourceType": "tpu-v6e-slice", "maximum": 4096.0}]}
AUTOSCALER = added(tokens.AUTOSCALER, "scaler", {"target": "mig"}, property_dependencies={"target": (urn("mig"),)})
KEY = added(tokens.SERVICE_ACCOUNT_KEY, "key", {"serviceAccountId": "nodes"})
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


DNS = "cluster.controlPlaneEndpointsConfig.dnsEndpointConfig"
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
TOKEN = {"name": "HF_TOKEN", "value": "a-token-of-mine"}


def workload(image: str, namespace: str = "team", **pod: Any) -> Resource:
    spec = {"template": {"spec": {"initContainers": [{"image": image}], "containers": []} | pod}}
    props = {"metadata": {"namespace": namespace}, "spec": spec}
    return added(DEPLOYMENT, "server", props, provider=urn("provider"))


FIREWALL_SPAN = [{"protocol": "tcp", "ports": ["1-65535"]}]
FIREWALL_WEB = [{"protocol": "tcp", "ports": ["443"]}]

CASES = [
    # Clusters
    bad("private-nodes", "cluster.privateClusterConfig.enablePrivateNodes", False, "has to be true"),
    bad("private-nodes", "slice.networkConfig.enablePrivateNodes", False),
    good("private-nodes", "slice.networkConfig"),
    bad("control-plane-access", "cluster.controlPlaneEndpointsConfig", EXPOSED, "while the IP endpoint is on"),
    Case(
        "control-plane-access",
        {
            "cluster.controlPlaneEndpointsConfig": EXPOSED,
            "cluster.masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "0.0.0.0/0"}]},
        },
        at="cluster",
        words="everybody",
    ),
    Case(
        "control-plane-access",
        {
            "cluster.controlPlaneEndpointsConfig": EXPOSED,
            "cluster.masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "192.0.2.0/24"}]},
        },
        passing=True,
    ),
    Case(
        "control-plane-private",
        {"cluster.controlPlaneEndpointsConfig": EXPOSED, "cluster.privateClusterConfig.enablePrivateEndpoint": False},
        at="cluster",
    ),
    good("control-plane-private", "cluster.controlPlaneEndpointsConfig", EXPOSED),
    bad("dns-endpoint-tokens", DNS, {"enableK8sTokensViaDns": True, "allowExternalTraffic": True}),
    good("dns-endpoint-tokens", DNS, {"enableK8sTokensViaDns": True, "allowExternalTraffic": False}),
    bad("workload-identity", "cluster.workloadIdentityConfig"),
    good("workload-identity", "cluster.workloadIdentityConfig.workloadPool", UNKNOWN),
    bad("node-metadata", f"system.{CONFIG}.workloadMetadataConfig.mode", "GCE_METADATA"),
    good("node-metadata"),
    bad("node-service-account", f"slice.{CONFIG}.serviceAccount", words="default account"),
    bad("node-service-account", f"slice.{CONFIG}.serviceAccount", "12-compute@developer.gserviceaccount.com"),
    bad("node-service-account", "template.serviceAccount.email"),
    bad("node-service-account", "machine.serviceAccount"),
    bad("node-service-account", "cluster.clusterAutoscaling.autoProvisioningDefaults", {"diskSize": 100.0}),
    good("node-service-account", f"slice.{CONFIG}.serviceAccount", UNKNOWN),
    good("node-service-account", "cluster.nodeConfig"),
    bad("node-scopes", f"slice.{CONFIG}.oauthScopes", ["https://www.googleapis.com/auth/devstorage.read_only"]),
    good("node-scopes"),
    bad("secure-boot", f"slice.{CONFIG}.shieldedInstanceConfig.enableSecureBoot"),
    bad("secure-boot", f"slice.{CONFIG}.shieldedInstanceConfig.enableIntegrityMonitoring", False),
    good("secure-boot", f"slice.{CONFIG}.shieldedInstanceConfig.enableIntegrityMonitoring"),
    bad("shielded-nodes", "cluster.enableShieldedNodes", False),
    good("shielded-nodes", "cluster.enableShieldedNodes"),
    bad("legacy-authentication", "cluster.enableLegacyAbac", True),
    bad("legacy-authentication", "cluster.masterAuth.clientCertificateConfig.issueClientCertificate", True),
    good("legacy-authentication", "cluster.masterAuth"),
    bad("anonymous-access", "cluster.anonymousAuthenticationConfig"),
    bad("anonymous-access", "cluster.rbacBindingConfig.enableInsecureBindingSystemAuthenticated", True),
    good("anonymous-access"),
    bad("secrets-encryption", "cluster.databaseEncryption.state", "DECRYPTED"),
    good("secrets-encryption", "cluster.databaseEncryption", stack="dev"),
    bad("secrets-encryption", "cluster.databaseEncryption", settings={"stacks": ["d*"]}, stack="dev"),
    bad("network-policy", "cluster.datapathProvider", "LEGACY_DATAPATH"),
    Case(
        "network-policy",
        {"cluster.datapathProvider": "LEGACY_DATAPATH", "cluster.networkPolicy": {"enabled": True}},
        passing=True,
    ),
    bad("vpc-native", "cluster.networkingMode", "ROUTES"),
    bad("vpc-native", "cluster.ipAllocationPolicy.clusterSecondaryRangeName"),
    good("vpc-native"),
    bad("intranode-visibility", "cluster.enableIntranodeVisibility"),
    good("intranode-visibility"),
    bad("observability", "cluster.loggingConfig.enableComponents", ["SYSTEM_COMPONENTS"], "lacks WORKLOADS"),
    bad("observability", "cluster.monitoringConfig.managedPrometheus.enabled", False),
    good("observability", "cluster.loggingConfig", UNKNOWN),
    bad("security-posture", "cluster.securityPostureConfig.mode", "DISABLED"),
    good("security-posture", "cluster.securityPostureConfig"),
    bad("kubelet-readonly-port", "cluster.nodePoolDefaults"),
    bad("kubelet-readonly-port", f"slice.{CONFIG}.kubeletConfig.insecureKubeletReadonlyPortEnabled", "TRUE"),
    bad(
        "kubelet-readonly-port",
        "cluster.nodePoolAutoConfig.nodeKubeletConfig",
        {"insecureKubeletReadonlyPortEnabled": "TRUE"},
    ),
    good("kubelet-readonly-port"),
    bad("node-image", f"slice.{CONFIG}.imageType", "UBUNTU_CONTAINERD"),
    good("node-image", f"slice.{CONFIG}.imageType", "cos_containerd"),
    bad("no-release-channel", "cluster.releaseChannel.channel", "UNSPECIFIED"),
    good("no-release-channel", "cluster.releaseChannel.channel", "STABLE"),
    bad("release-channel", "cluster.releaseChannel", words="not set"),
    good("release-channel", "cluster.releaseChannel.channel", "STABLE"),
    bad("maintenance-window", "cluster.maintenancePolicy.recurringWindow", words="no window"),
    bad("maintenance-window", "cluster.maintenancePolicy.dailyMaintenanceWindow", {"startTime": "03:00"}, "one"),
    good("maintenance-window"),
    bad("maintenance-exclusion", "cluster.maintenancePolicy.maintenanceExclusions", [], "holds no node upgrades"),
    bad(
        "maintenance-exclusion",
        "cluster.maintenancePolicy.maintenanceExclusions",
        [{"exclusionOptions": {"scope": "NO_UPGRADES"}}] * 21,
        "21 entries",
    ),
    good(
        "maintenance-exclusion",
        "cluster.maintenancePolicy.maintenanceExclusions",
        [{"exclusionOptions": {"scope": "NO_UPGRADES"}}],
    ),
    bad("regional-control-plane", "cluster.location", "us-east5-b"),
    good("regional-control-plane", "cluster.location", "us-east5-b", stack="dev"),
    bad("binary-authorization", "cluster.binaryAuthorization"),
    good("binary-authorization", "cluster.binaryAuthorization", stack="dev"),
    bad("legacy-features", "cluster.enableKubernetesAlpha", True),
    bad("legacy-features", "cluster.nodePools", [{"name": "inline"}]),
    good("legacy-features", "cluster.enableTpu", False),
    bad("cost-allocation", "cluster.costManagementConfig.enabled", False),
    good("cost-allocation"),
    bad("autoprovisioning-limits", "cluster.clusterAutoscaling", TPU_LIMITS, "4096"),
    bad(
        "autoprovisioning-limits",
        "cluster.clusterAutoscaling",
        {"resourceLimits": [{"resourceType": "tpu-v6e-slice"}]},
        "not set",
    ),
    good("autoprovisioning-limits", "cluster.clusterAutoscaling", TPU_LIMITS, settings={"maxChips": 4096}),
    bad("default-network", "cluster.network", "projects/p/global/networks/default"),
    bad("default-network", "cluster.subnetwork"),
    good("default-network", "cluster.network", UNKNOWN),
    # Node pools
    bad("pool-name", "slice.name", "Slice_1"),
    bad("pool-name", "slice.name", "s" * 41),
    bad("pool-name", "slice.name", words="not set"),
    good("pool-name", "slice.name", "s" * 40),
    bad("pool-management", "system.management.autoUpgrade", False),
    bad("pool-management", "slice.management.autoRepair", False),
    good("pool-management"),
    bad("pool-size", "slice.initialNodeCount", 4.0, "together"),
    bad("pool-size", "queued.autoscaling.totalMaxNodeCount", 4.0, "in total"),
    good("pool-size"),
    bad("legacy-metadata", f"slice.{CONFIG}.metadata", {}),
    good("legacy-metadata"),
    Case(
        "pool-networks",
        {
            "slice.networkConfig.acceleratorNetworkProfile": "auto",
            "slice.networkConfig.additionalNodeNetworkConfigs": [{"network": "n"}],
        },
        at="slice",
    ),
    good("pool-networks", "slice.networkConfig.acceleratorNetworkProfile", "auto"),
    bad("tpu-machine", f"single.{CONFIG}.machineType", "ct5l-hightpu-8t"),
    good("tpu-machine", f"system.{CONFIG}.machineType", "n2-standard-8"),
    bad("tpu-topology", "slice.placementPolicy.tpuTopology", "3x4", "no topology 3x4"),
    bad("tpu-topology", "slice.placementPolicy.tpuTopology", "all", "not a topology"),
    bad("tpu-topology", f"slice.{CONFIG}.machineType", "ct6e-standard-1t", "never part of one"),
    good("tpu-topology", "slice.placementPolicy.tpuTopology", "8x8"),
    bad("tpu-placement", "slice.placementPolicy.type", ""),
    bad("tpu-placement", "slice.placementPolicy.tpuTopology", "2x2", "one host"),
    bad("tpu-placement", "ironwood.placementPolicy.type", "COMPACT"),
    bad("tpu-placement", "ironwood.placementPolicy.policyName"),
    good("tpu-placement", "ironwood.placementPolicy.policyName", UNKNOWN),
    bad("tpu-whole-slices", "slice.nodeCount", 3.0, "4x4 takes 4 hosts"),
    bad("tpu-whole-slices", "queued.autoscaling.maxNodeCount", 8.0, "0 to 8"),
    bad("tpu-whole-slices", "queued.autoscaling", {"totalMaxNodeCount": 4.0}, "in total"),
    good("tpu-whole-slices", "slice.nodeCount", 0.0),
    good("tpu-whole-slices", "single.nodeCount", 3.0),
    bad("tpu-one-zone", "slice.nodeLocations", ["us-east5-a", "us-east5-b"]),
    bad("tpu-one-zone", "slice.nodeLocations", words="not set"),
    good("tpu-one-zone", "system.nodeLocations", ["us-east5-a", "us-east5-b"]),
    bad("tpu-reservation", f"slice.{AFFINITY}", words="NO_RESERVATION"),
    bad("tpu-reservation", f"slice.{AFFINITY}", {"consumeReservationType": "SPECIFIC_RESERVATION"}, "0 entries"),
    bad(
        "tpu-reservation",
        f"slice.{AFFINITY}",
        {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["my reservation"],
        },
        "not the name",
    ),
    good(
        "tpu-reservation",
        f"slice.{AFFINITY}",
        {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["projects/o/reservations/r/reservationBlocks/b/reservationSubBlocks/s"],
        },
    ),
    bad("tpu-capacity", f"queued.{CONFIG}.spot", True, "spot and flexStart"),
    bad("tpu-capacity", f"queued.{CONFIG}.flexStart", False, "without flexStart"),
    good("tpu-capacity", f"slice.{CONFIG}.spot", True),
    bad("tpu-lent-hosts", "queued.management.autoRepair", True),
    bad("tpu-lent-hosts", f"queued.{CONFIG}.maxRunDuration", "604801s", "seven days"),
    bad("tpu-lent-hosts", "queued.nodeCount", 4.0, "fixed"),
    bad("tpu-lent-hosts", "queued.autoscaling.locationPolicy", "BALANCED"),
    bad("tpu-lent-hosts", f"queued.{CONFIG}.machineType", "ct4p-hightpu-4t", "no flex-start"),
    good("tpu-lent-hosts", f"queued.{CONFIG}.maxRunDuration", "604800s"),
    bad("tpu-queued-label", f"queued.{CONFIG}.labels", {}),
    good("tpu-queued-label", f"slice.{CONFIG}.labels", {}),
    bad("tpu-boot-disk", f"slice.{CONFIG}.bootDisk.diskType", "pd-standard", "hyperdisk-balanced"),
    bad("tpu-boot-disk", f"slice.{CONFIG}.diskType", "pd-ssd"),
    good("tpu-boot-disk", f"system.{CONFIG}.bootDisk.diskType", "pd-ssd"),
    bad("tpu-version", "slice.version", "1.30.5-gke.100", "1.31.1"),
    bad("tpu-version", "single.version", "1.33.5-gke.100", "1.34.1"),
    bad("tpu-version", "queued.version", "1.32.9-gke.100", "flex-start on TPUs needs 1.33.0"),
    good("tpu-version", "slice.version", "1.34.1-gke.2000"),
    good("tpu-version", "queued.version", "1.33.0-gke.1712000"),
    good("tpu-version", "slice.version", "1.32.9-gke.100"),
    bad("tpu-device-driver", f"ironwood.{CONFIG}.labels", {"cloud.google.com/gke-tpu-dra-driver": "true"}),
    good("tpu-device-driver"),
    bad("tpu-upgrades", "slice.upgradeSettings.maxSurge", 1.0),
    bad("tpu-upgrades", "slice.upgradeSettings.strategy", "BLUE_GREEN"),
    good("tpu-upgrades", "system.upgradeSettings.maxSurge", 1.0),
    bad("boot-disk-key", f"slice.{CONFIG}.bootDiskKmsKey"),
    bad("boot-disk-key", "template.disks", [{"boot": True, "diskType": "hyperdisk-balanced"}]),
    good("boot-disk-key", f"slice.{CONFIG}.bootDiskKmsKey", stack="dev"),
    bad("boot-disk-key", "regional.disks", [{"boot": True, "diskType": "hyperdisk-balanced"}]),
    Case(
        "default-pool",
        {"cluster.removeDefaultNodePool": False, "cluster.nodeConfig.machineType": "ct6e-standard-4t"},
        at="cluster",
    ),
    good("default-pool", "cluster.nodeConfig.machineType", "ct6e-standard-4t"),
    # Compute Engine
    bad("vm-external-address", "template.networkInterfaces.0.accessConfigs", [{}]),
    bad("vm-external-address", "machine.networkInterfaces.0.accessConfigs", [{"natIp": "192.0.2.1"}]),
    good("vm-external-address", "machine.networkInterfaces.0.accessConfigs", []),
    bad("vm-shielded", "machine.shieldedInstanceConfig.enableVtpm", False),
    good("vm-shielded", "template.shieldedInstanceConfig.enableSecureBoot", False),
    bad("vm-logins", "template.metadata.block-project-ssh-keys", words="not set"),
    bad("vm-logins", "template.metadata.serial-port-enable", "TRUE"),
    bad("vm-logins", "machine.metadata.ssh-keys", "me:ssh-ed25519 AAAA"),
    good("vm-logins", "machine.metadata.block-project-ssh-keys", "true"),
    bad("vm-startup-script", "machine.metadataStartupScript", "echo"),
    bad("vm-startup-script", "template.metadataStartupScript", "echo"),
    Case(
        "vm-startup-script",
        {"template.metadataStartupScript": "echo", "template.metadata.startup-script": REMOVED},
        passing=True,
    ),
    bad("vm-tpu-machine", "template.machineType", "ct5lp-hightpu-4t", "GKE and the Cloud TPU API only"),
    bad("vm-tpu-machine", "template.machineType", "tpu8-standard-4t", "catalogue"),
    bad("vm-tpu-machine", "template.metadata.kube-labels", KUBE_LABELS.replace("4x4", "4x5"), "no topology"),
    good("vm-tpu-machine", "template.machineType", "zones/us-east5-b/machineTypes/ct6e-standard-4t"),
    bad("vm-tpu-labels", "template.metadata.kube-labels"),
    bad("vm-tpu-labels", "template.metadata.kube-labels", KUBE_LABELS.replace("count=4", "count=8")),
    good("vm-tpu-labels", "template.metadata", UNKNOWN),
    bad("vm-boot-disk", "template.disks.0.diskType", "pd-balanced"),
    good("vm-boot-disk", "template.disks.0.boot", False),
    bad("vm-host-settings", "template.scheduling.onHostMaintenance", "MIGRATE"),
    bad("vm-host-settings", "template.advancedMachineFeatures", {"threadsPerCore": 1.0}, "takes none"),
    bad("vm-host-settings", "template.machineType", "ct6e-standard-8t", "takes 1"),
    bad("vm-host-settings", "template.networkInterfaces.0.nicType", "VIRTIO_NET"),
    good("vm-host-settings"),
    bad("vm-capacity", "template.scheduling.provisioningModel", "FLEXSTART"),
    bad("vm-capacity", "template.reservationAffinity", {"type": "NO_RESERVATION"}, "RESERVATION_BOUND"),
    bad("vm-capacity", "template.scheduling.preemptible", True, "SPOT"),
    bad("vm-capacity", "template.scheduling.maxRunDuration", {"seconds": 60.0}, "reserved"),
    Case(
        "vm-capacity",
        {
            "template.reservationAffinity": {"type": "NO_RESERVATION"},
            "template.scheduling.provisioningModel": "FLEX_START",
            "template.scheduling.maxRunDuration": {"seconds": 604801.0},
        },
        at="template",
        words="seven days",
    ),
    Case(
        "vm-capacity",
        {
            "template.reservationAffinity": {"type": "NO_RESERVATION"},
            "template.scheduling.provisioningModel": "SPOT",
            "template.scheduling.preemptible": True,
        },
        passing=True,
    ),
    bad("mig-bulk", "mig.instanceLifecyclePolicy.defaultActionOnFailure", "REPAIR"),
    bad("mig-bulk", "mig.resourcePolicies"),
    bad("mig-bulk", "mig.versions", [{"instanceTemplate": "a"}, {"instanceTemplate": "b"}]),
    bad("mig-bulk", "mig.autoHealingPolicies", {"healthCheck": "h"}),
    bad("mig-bulk", "mig.updatePolicy", {"type": "PROACTIVE"}),
    Case(
        "mig-bulk",
        {"mig.targetSizePolicies": [{"mode": "INDIVIDUAL"}], "mig.instanceLifecyclePolicy": REMOVED},
        passing=True,
    ),
    bad("mig-whole-slices", "mig.targetSize", 3.0, "4x4 takes 4 hosts"),
    bad("mig-whole-slices", "mig.targetSizePolicies", [{"mode": "INDIVIDUAL"}], "4 hosts"),
    Case(
        "mig-whole-slices",
        {"template.metadata.kube-labels": KUBE_LABELS.replace("4x4", "2x2")},
        at="mig",
        words="1 host",
    ),
    good("mig-whole-slices", "mig.targetSize", 0.0),
    Case(
        "mig-workload-policy",
        {"policy.workloadPolicy.acceleratorTopology": "4x8"},
        at="mig",
        words="is for 4x8, the hosts for 4x4",
    ),
    Case("mig-workload-policy", {"policy.region": "us-east1"}, at="mig", words="us-east1"),
    good("mig-workload-policy", "policy.region", UNKNOWN),
    Case("mig-fixed-size", {}, at="scaler", words="bulk", extra=(AUTOSCALER,)),
    good("mig-fixed-size", "mig.targetSizePolicies", [], extra=(AUTOSCALER,)),
    bad("workload-policy", "policy.workloadPolicy.type", "HIGH_AVAILABILITY"),
    bad("workload-policy", "policy.workloadPolicy.acceleratorTopology", "many", "no topology"),
    bad("workload-policy", "policy.workloadPolicy.maxTopologyDistance", "BLOCK"),
    good("workload-policy", "policy.workloadPolicy", {"type": "HIGH_AVAILABILITY"}),
    # Networks and access
    bad("subnet-audit", "subnet.logConfig"),
    bad("subnet-audit", "subnet.privateIpGoogleAccess", False),
    good("subnet-audit"),
    good("subnet-audit", extra=(added(tokens.SUBNETWORK, "proxies", {"purpose": "REGIONAL_MANAGED_PROXY"}),)),
    bad("nat-audit", "nat.logConfig.enable", False),
    good("nat-audit"),
    bad("automatic-subnets", "network.autoCreateSubnetworks"),
    good("automatic-subnets"),
    bad("firewall-open", "firewall.sourceRanges", ["0.0.0.0/0"], "tcp 6443"),
    bad("firewall-open", "firewall.sourceRanges", ["::/0"]),
    bad("firewall-open", "firewall.sourceRanges", ["128.0.0.0/1", "0.0.0.0/1"]),
    bad("firewall-open", "firewall.sourceRanges", words="no source"),
    Case(
        "firewall-open",
        {"firewall.sourceRanges": ["0.0.0.0/0"], "firewall.allows": FIREWALL_SPAN},
        at="firewall",
        words="1-65535",
    ),
    Case("firewall-open", {"firewall.sourceRanges": ["0.0.0.0/0"], "firewall.allows": FIREWALL_WEB}, passing=True),
    Case("firewall-open", {"firewall.sourceRanges": ["0.0.0.0/0"], "firewall.direction": "EGRESS"}, passing=True),
    bad("service-exposed", "service.spec.type", "LoadBalancer"),
    Case(
        "service-exposed",
        {
            "service.spec.type": "LoadBalancer",
            "service.metadata": {"annotations": {"networking.gke.io/load-balancer-type": "Internal"}},
        },
        passing=True,
    ),
    bad("api-exposed", "front.loadBalancingScheme", "EXTERNAL"),
    bad("api-exposed", "front.loadBalancingScheme"),
    Case("api-exposed", {"front.loadBalancingScheme": "EXTERNAL", "front.ports": ["6000-7000"]}, at="front"),
    Case("api-exposed", {"front.loadBalancingScheme": "EXTERNAL", "front.ports": ["443"]}, passing=True),
    bad("broad-roles", "grant.role", "roles/editor"),
    good("broad-roles", "grant.role", "roles/logging.logWriter"),
    bad("project-wide-grant", "grant.role", "roles/secretmanager.secretAccessor"),
    good("project-wide-grant"),
    bad("custom-roles", "grant.role", "projects/p/roles/mine", "not in the stack"),
    good("custom-roles", "grant.role", "projects/p/roles/mine", settings={"roles": ["projects/p/roles/*"]}),
    bad("public-grant", "grant.member", "allUsers"),
    Case(
        "public-grant",
        {},
        at="readers",
        extra=(
            added(
                "gcp:storage/bucketIAMBinding:BucketIAMBinding",
                "readers",
                {"members": ["group:a@example.com", "allAuthenticatedUsers"]},
            ),
        ),
    ),
    good("public-grant", "grant.member", "group:everybody@example.com"),
    Case("service-account-key", {}, at="key", extra=(KEY,)),
    good("service-account-key"),
    bad("bucket-private", "bucket.publicAccessPrevention", "inherited"),
    bad("bucket-private", "bucket.uniformBucketLevelAccess"),
    good("bucket-private"),
    bad("secret-in-plain-text", "template.metadata.token", "abcdef.0123456789abcdef", "bootstrap token"),
    bad("secret-in-plain-text", "settings.data.key", "-----BEGIN RSA PRIVATE KEY-----", "private key"),
    bad("secret-in-plain-text", "driver.values.token", "hf_" + "a" * 34, "Hugging Face"),
    bad("secret-in-plain-text", "regional.metadata.token", "abcdef.0123456789abcdef", "bootstrap token"),
    Case(
        "secret-in-plain-text",
        {},
        at="regional-group",
        extra=(
            added(tokens.REGION_MIG, "regional-group", {"allInstancesConfig": {"metadata": {"t": "hf_" + "a" * 34}}}),
        ),
    ),
    good("secret-in-plain-text", "template.metadata.tpu-join-secret", "projects/p/secrets/tpu-join"),
    bad("secret-in-state", "version.secretData", "payload"),
    good("secret-in-state"),
    # Kubernetes
    bad("explicit-provider", "namespace.@provider", None),
    good("explicit-provider"),
    bad("provider-identity", "provider.clusterIdentifier"),
    bad("provider-identity", "provider.kubeconfig"),
    good("provider-identity", "provider.kubeconfig", UNKNOWN),
    bad("provider-credential", "provider.kubeconfig", "users: [{name: a, user: {token: abc}}]"),
    good("provider-credential", "provider.kubeconfig", "/home/me/.kube/config"),
    bad("chart-pinned", "driver.version"),
    bad("chart-pinned", "driver.version", ">=0.1.0"),
    good("chart-pinned", "driver.version", "v0.19.2-rc.1"),
    Case("image-pinned", {}, at="server", extra=(workload("vllm/vllm-tpu:latest"),)),
    Case("image-pinned", {}, at="server", extra=(workload("registry.example.com:5000/vllm-tpu"),)),
    good("image-pinned", extra=(workload("vllm-tpu@sha256:" + "0" * 64),)),
    Case("image-registry", {}, at="server", extra=(workload("k8s.gcr.io/pause:3.9"),)),
    good("image-registry", extra=(workload("registry.k8s.io/pause:3.9"),)),
    bad("pod-security", "namespace.metadata.labels"),
    good("pod-security", "namespace.metadata.labels", {"pod-security.kubernetes.io/warn": "baseline"}),
    bad("default-namespace", "local.metadata.namespace"),
    Case("default-namespace", {}, at="server", extra=(workload("a:1", namespace="default"),)),
    good("default-namespace"),
    bad("privileged-namespace", "namespace.metadata.labels", {"pod-security.kubernetes.io/enforce": "privileged"}),
    Case(
        "privileged-namespace",
        {"namespace.metadata.name": "gpu", "namespace.metadata.labels": PRIVILEGED},
        settings={"namespaces": ["gpu"]},
        passing=True,
    ),
    Case("pod-privileges", {}, at="server", extra=(workload("a:1", hostNetwork=True),)),
    good("pod-privileges", extra=(workload("a:1", hostNetwork=False),)),
    bad("pod-privileges", "plugin.spec.template.spec.hostNetwork", True, settings={"namespaces": []}),
    good("pod-privileges", "plugin.spec.template.spec.hostNetwork", True),
    Case("secret-in-pod", {}, at="server", extra=(workload("a:1", containers=[{"env": [TOKEN]}]),), words="HF_TOKEN"),
    good("secret-in-pod", extra=(workload("a:1", containers=[{"env": [TOKEN | {"value": UNKNOWN}]}]),)),
    bad("unnamed-subjects", "binding.subjects", [{"kind": "Group", "name": "system:authenticated"}]),
    good("unnamed-subjects"),
    bad("cluster-admin", "binding.roleRef.name", "cluster-admin"),
    bad("cluster-admin", "binding.subjects", [{"kind": "Group", "name": "system:masters"}]),
    good("cluster-admin"),
    Case(
        "pods-administer",
        {"binding.roleRef.name": "cluster-admin", "binding.subjects.0.name": "system:nodes"},
        at="binding",
    ),
    good("pods-administer", "binding.subjects.0.name", "system:nodes"),
    bad("wide-role", "role.rules.0.verbs", ["*"]),
    bad("wide-role", "role.rules.0.verbs", ["escalate"]),
    good("wide-role"),
    bad("release-after-nodes", "driver.@dependencies", (urn("cluster"), urn("slice"))),
    bad("release-after-nodes", "driver.@dependencies", (urn("mig"),)),
    Case(
        "release-after-nodes",
        {"driver.@dependencies": (urn("mig"),), "template.machineType": "e2-standard-4"},
        passing=True,
    ),
    bad("one-device-driver", "driver.values"),
    bad("one-device-driver", "plugin.spec.template.spec.affinity"),
    good("one-device-driver"),
    bad("queue-flavors", "queue.spec.resourceGroups.0.flavors.0.name", "v5p-2x2x2", "v5p-2x2x2"),
    good("queue-flavors", "flavor.metadata", UNKNOWN),
    bad("queue-namespaces", "queue.spec.namespaceSelector", {}, "everybody"),
    bad("queue-namespaces", "queue.spec.namespaceSelector"),
    good("queue-namespaces"),
    bad("flavor-selects", "flavor.spec.nodeLabels"),
    good("flavor-selects"),
    # Limits
    Case("chips-limit", {}, words="64 chips when all run; 63", settings={"maxChips": 63}),
    good("chips-limit", settings={"maxChips": 64}),
    Case("cost-limit", {}, words="140 USD an hour when all run; 140 are", settings={"maxUsdPerHour": 140}),
    good("cost-limit", settings={"maxUsdPerHour": 141}),
    Case(
        "cost-limit",
        {},
        words="220 USD an hour",
        settings={"maxUsdPerHour": 200, "prices": {"tpu7x": 10}},
    ),
    Case("price-unknown", {}, words="tpu7x"),
    good("price-unknown", "ironwood.nodeCount", UNKNOWN),
    good("price-unknown", settings={"prices": {"tpu7x": 10}}),
    bad("allowed-zones", "mig.zone", "us-east5-a", settings={"zones": ["us-east5-b", "us-central1-c"]}),
    good("allowed-zones", settings={"zones": ["us-east5-b", "us-central1-c"]}),
    bad(
        "allowed-generations",
        f"slice.{CONFIG}.machineType",
        "ct5p-hightpu-4t",
        settings={"generations": ["v6e", "tpu7x"]},
    ),
    bad("allowed-generations", "template.machineType", "ct5p-hightpu-4t", settings={"generations": ["v6e", "tpu7x"]}),
    good("allowed-generations", settings={"generations": ["v6e", "tpu7x"]}),
    bad("required-labels", "disk.labels", {}, "lacks team", settings={"labels": ["team"]}),
    bad("required-labels", "regional.labels", {}, "lacks team", settings={"labels": ["team"]}),
    good("required-labels", settings={"labels": ["team"]}),
    bad("tpu-zone-offers", "slice.nodeLocations", ["us-west1-c"], "v6e"),
    bad("tpu-zone-offers", "mig.zone", "us-west1-c", "v6e"),
    good("tpu-zone-offers", "system.nodeLocations", ["us-west1-c"]),
    bad("production-protected", "slice.@protect", False),
    bad("production-protected", "mig.@protect", False),
    bad("production-protected", "disk.@protect", False),
    good("production-protected", "system.@protect", False),
    good("production-protected", "slice.@protect", False, stack="dev"),
    bad("deletion-protection", "cluster.deletionProtection", False),
    bad("deletion-protection", "machine.deletionProtection"),
    good("deletion-protection", "cluster.deletionProtection"),
    bad("delete-before-replace", "slice.@delete_before_replace", False),
    good("delete-before-replace", "slice.@delete_before_replace", None),
    Case(
        "queue-quota",
        {"queue.spec.resourceGroups.0.flavors.0.resources.0.nominalQuota": "17"},
        words="queues own 17 chips of v6e-4x4; there are 16",
    ),
    good("queue-quota"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{'passes' if case.passing else 'finds'}")
def test_case(case: Case) -> None:
    found = [
        (where, f"{path} {message}")
        for _, where, path, message in findings(
            stack(case.changes, name=case.stack, extra=case.extra), case.rule, {case.rule: case.settings}
        )
    ]
    if case.passing:
        assert found == []
        return
    assert found, "the rule found nothing"
    assert {where for where, _ in found} == {urn(case.at, case.stack) if case.at else None}
    assert any(case.words in text for _, text in found), found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_failing_and_a_passing_case(rule: Any) -> None:
    assert {case.passing for case in CASES if case.rule == rule.id} == {True, False}


@pytest.mark.parametrize("rule", RESOURCE_RULES, ids=lambda rule: rule.id)
def test_every_rule_looks_at_something_in_the_sound_stack(rule: Any) -> None:
    """Else a passing case would pass for want of a resource; keys are made by no sound stack."""
    looked_at = [each.type for each in stack().resources if rule.applies_to(each.type)]
    assert looked_at or rule.id in ("service-account-key",)


def test_nothing_is_wrong_with_the_sound_stack_but_an_unpublished_price() -> None:
    assert {rule for rule, *_ in findings(stack())} == {"price-unknown"}


def test_no_rule_decides_on_what_is_not_known_yet() -> None:
    """A first preview knows few values; each block and value in turn, and all at once."""
    plain = stack()
    decided = {
        f"{resource.name}.{path}": found
        for resource in plain.resources
        for path in paths(resource.props)
        if (found := {rule for rule, *_ in findings(stack({f"{resource.name}.{path}": UNKNOWN}))} - {"price-unknown"})
    }
    assert decided == {}
    everything = {f"{resource.name}.{key}": UNKNOWN for resource in plain.resources for key in resource.props}
    assert list(findings(stack(everything))) == []


def paths(value: Any, below: str = "") -> Iterator[str]:
    """Every path below a value whose keys hold no dot, blocks and elements of lists included."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if "." not in str(key):
            yield f"{below}{key}"
            yield from paths(inner, f"{below}{key}.")


def test_ids_are_unique_and_texts_complete() -> None:
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
    for rule in RULES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
        assert rule.reason.endswith("."), rule.id
        assert not rule.remedy.endswith("."), rule.id
        assert rule.source, rule.id
        for control in rule.controls:
            assert re.fullmatch(r"[2-5]\.[0-9]{1,2}\.[0-9]{1,2}", control), rule.id
        for setting in rule.settings:
            assert {"type", "default", "description"} <= setting.schema.keys(), rule.id
