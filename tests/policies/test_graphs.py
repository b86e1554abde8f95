"""The program's own plans pass every mandatory rule; one broken property is found by exactly its rule."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest

from catalogue.labels import DRA_LABEL, FLAVOR_LABEL
from platform_config.platform import PLATFORM_KEY
from policies.registry import Stack
from policies.rules import RESOURCE_RULES, STACK_RULES
from tests.graph.conftest import recorded
from tests.graph.recording import ROOT, STACK_FILES, GraphMonitor, Update, record_main, stack_config
from tests.policies.recorded import planned
from tests.policies.sound import REMOVED, changed, findings

RULES = {rule.id: rule for rule in (*RESOURCE_RULES, *STACK_RULES)}
STACKS = [path.name.split(".")[1] for path in STACK_FILES]


# Platforms with parts that no stack file has.
FURTHER: dict[str, dict[str, Any]] = {
    "ironwood": {
        "zone": "us-central1-c",
        "slices": {"train": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}},
        "queues": {},
    },
    "worker": {"multikueue": {"role": "worker"}},
    "told": {
        "monitoring": {
            "notify": ["ops@example.com"],
            "queue_metrics": "install",
            "budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000},
        }
    },
    "read": {
        "cluster": {"kind": "self-managed"},
        "slices": {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}},
        "queues": {"serve": {"namespaces": ["serve"], "slices": {"serve": 1}}},
        "monitoring": {"queue_metrics": "install", "device_metrics": True},
    },
    "federated": {
        "cluster": {"kind": "self-managed"},
        "slices": {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1"}},
        "queues": {},
        "teams": {"research": {"members": ["user:eva@example.com"], "storage": {"data": {}}}},
    },
    "fallback": {
        "slices": {"serve": {"generation": "v6e", "chips": 1, "capacity": ["spot", "flex-start"]}},
        "queues": {},
    },
}


# What a cluster puts into the Secret of a worker's account.
MADE_IN_CLUSTER = {"kubernetes:core/v1:Secret": {"data": {"token": "dG9rZW4="}}}


@cache
def monitor(name: str, preview: bool = False) -> GraphMonitor:
    """The recorded graph of a stack file, or of the dev stack changed into one of `FURTHER`."""
    if name not in FURTHER:
        return recorded(ROOT / f"Pulumi.{name}.yaml", preview)
    with patch.dict(Update.COMPUTED, MADE_IN_CLUSTER):
        return record_main(configured(FURTHER[name]), stack=name, preview=preview)


def configured(platform: dict[str, Any], base: str = "dev") -> dict[str, str]:
    """The configuration of a stack file with other settings of its platform."""
    config = stack_config(ROOT / f"Pulumi.{base}.yaml")
    changed = json.loads(config[PLATFORM_KEY]) | platform
    return {**config, PLATFORM_KEY: json.dumps(changed)}


def graph(name: str, *, preview: bool = False) -> Stack:
    return planned(monitor(name, preview))


def mandatory(stack: Stack) -> list[tuple[str, str | None, str, str]]:
    return [found for found in findings(stack) if RULES[found[0]].level == "mandatory"]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
@pytest.mark.parametrize("name", [*STACKS, *FURTHER])
def test_plans_pass_every_mandatory_rule(name: str, preview: bool) -> None:
    assert mandatory(graph(name, preview=preview)) == []


@pytest.mark.parametrize("base", STACKS)
def test_a_protected_platform_may_be_called_production_and_an_unprotected_one_not(base: str) -> None:
    protected = record_main(configured({"protect": True}, base), stack="prod")
    assert mandatory(planned(protected)) == []
    unprotected = record_main(configured({"protect": False}, base), stack="prod")
    assert {found[0] for found in mandatory(planned(unprotected))} == {"production-protected"}


@dataclass(frozen=True)
class Break:
    """One property broken in the resource `name` of a stack file's graph, and the rule that has to find it."""

    stack: str
    name: str
    path: str
    value: Any
    rule: str


RESERVED = {
    "consumeReservationType": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
    "values": ["res-a"],
}

# The disk that etcd lies on, unprotected as it is, in a stack of another name.
PRODUCTION_DISK = "urn:pulumi:prod::tpu-platform::gcp:compute/disk:Disk::control-plane-disk-0"

ONLY_FLAVOR = {FLAVOR_LABEL: "v5p-2x2x2-4t-queued"}

BREAKS = [
    Break("dev", "network-vpc", "autoCreateSubnetworks", True, "automatic-subnets"),
    Break("dev", "network-subnet", "privateIpGoogleAccess", False, "subnet-audit"),
    Break("dev", "network-nat", "logConfig", REMOVED, "nat-audit"),
    Break("dev", "network-internal", "sourceRanges", ["0.0.0.0/0"], "firewall-open"),
    Break("dev", "node-identity-role", "role", "roles/editor", "broad-roles"),
    Break("dev", "node-identity-role", "member", "allAuthenticatedUsers", "public-grant"),
    Break("dev", "cluster-gke", "privateClusterConfig.enablePrivateNodes", False, "private-nodes"),
    Break("dev", "cluster-gke", "controlPlaneEndpointsConfig.ipEndpointsConfig.enabled", True, "control-plane-access"),
    Break("dev", "cluster-gke", "workloadIdentityConfig", REMOVED, "workload-identity"),
    Break("dev", "cluster-gke", "nodeConfig.serviceAccount", "default", "node-service-account"),
    Break("dev", "cluster-gke", "enableShieldedNodes", False, "shielded-nodes"),
    Break("dev", "cluster-gke", "enableLegacyAbac", True, "legacy-authentication"),
    Break("dev", "cluster-gke", "anonymousAuthenticationConfig", REMOVED, "anonymous-access"),
    Break("dev", "cluster-gke", "datapathProvider", REMOVED, "network-policy"),
    Break("dev", "cluster-gke", "networkingMode", "ROUTES", "vpc-native"),
    Break("dev", "cluster-gke", "enableIntranodeVisibility", REMOVED, "intranode-visibility"),
    Break("dev", "cluster-gke", "loggingConfig.enableComponents", ["SYSTEM_COMPONENTS"], "observability"),
    Break("dev", "cluster-gke", "securityPostureConfig.mode", "DISABLED", "security-posture"),
    Break("dev", "cluster-gke", "nodePoolDefaults", REMOVED, "kubelet-readonly-port"),
    Break("dev", "cluster-gke", "releaseChannel", REMOVED, "release-channel"),
    Break("dev", "cluster-gke", "maintenancePolicy.recurringWindow", REMOVED, "maintenance-window"),
    Break("dev", "cluster-gke", "maintenancePolicy.maintenanceExclusions", [], "maintenance-exclusion"),
    Break("dev", "cluster-gke", "enableKubernetesAlpha", True, "legacy-features"),
    Break("dev", "cluster-gke", "costManagementConfig", REMOVED, "cost-allocation"),
    Break("dev", "cluster-gke", "network", "default", "default-network"),
    Break("dev", "cluster-gke", "@protect", True, "deletion-protection"),
    Break("dev", "cluster-gke", "@delete_before_replace", False, "delete-before-replace"),
    Break("dev", "cpu-pools-system", "nodeConfig.workloadMetadataConfig", REMOVED, "node-metadata"),
    Break("dev", "cpu-pools-system", "nodeConfig.shieldedInstanceConfig.enableSecureBoot", False, "secure-boot"),
    Break("dev", "cpu-pools-system", "nodeConfig.oauthScopes", ["compute"], "node-scopes"),
    Break("dev", "cpu-pools-system", "nodeConfig.imageType", "UBUNTU_CONTAINERD", "node-image"),
    Break("dev", "cpu-pools-system", "nodeConfig.metadata", {}, "legacy-metadata"),
    Break("dev", "cpu-pools-system", "management.autoUpgrade", False, "pool-management"),
    Break("dev", "cpu-pools-system", "nodeCount", 2, "pool-size"),
    Break("dev", "slices-serve-0", "name", "Serve", "pool-name"),
    Break("dev", "slices-serve-0", "nodeConfig.machineType", "ct5l-hightpu-1t", "tpu-machine"),
    Break("dev", "slices-serve-0", "nodeLocations", [], "tpu-one-zone"),
    Break("dev", "slices-serve-0", "nodeLocations", ["us-west1-c"], "tpu-zone-offers"),
    Break("dev", "slices-serve-0", "nodeConfig.reservationAffinity", REMOVED, "tpu-reservation"),
    Break("dev", "slices-serve-0", "nodeConfig.reservationAffinity", RESERVED, "tpu-capacity"),
    Break("dev", "slices-serve-0", "nodeConfig.bootDisk.diskType", "pd-ssd", "tpu-boot-disk"),
    Break("dev", "slices-serve-0", "version", "1.33.1-gke.100", "tpu-version"),
    Break("dev", "slices-serve-0", "upgradeSettings.maxSurge", 1, "tpu-upgrades"),
    Break("dev", "slices-serve-0", "placementPolicy", {"type": "COMPACT"}, "tpu-placement"),
    Break("dev", "slices-serve-0", "nodeCount", 2000, "chips-limit"),
    Break("recipe", "slices-large-0", "nodeCount", 5, "tpu-whole-slices"),
    Break("recipe", "slices-large-0", "placementPolicy.tpuTopology", "3x4", "tpu-topology"),
    Break("recipe", "slices-large-0", "nodeCount", 0, "queue-quota"),
    Break("blueprint", "slices-train-0", "management.autoRepair", True, "tpu-lent-hosts"),
    Break("blueprint", "slices-train-0", "nodeConfig.labels", ONLY_FLAVOR, "tpu-queued-label"),
    Break("ironwood", "slices-train-0", "placementPolicy.type", "COMPACT", "tpu-placement"),
    Break("ironwood", "slices-train-0", "nodeConfig.labels", {DRA_LABEL: "true"}, "tpu-device-driver"),
    Break("ironwood", "workload-policies-tpu-dev-2x2x2", "workloadPolicy.type", "HIGH_AVAILABILITY", "workload-policy"),
    Break("worker", "multikueue-role", "rules.0.verbs", ["*"], "wide-role"),
    Break("worker", "multikueue-role-binding", "roleRef.name", "cluster-admin", "cluster-admin"),
    Break("worker", "multikueue-role-binding", "subjects.0.name", "system:authenticated", "unnamed-subjects"),
    Break("fallback", "compute-classes-tpu-dev-serve", "@provider", None, "explicit-provider"),
    Break("provisioner", "tpu-provisioner-identity-role", "permissions", ["iam.roles.create"], "custom-roles"),
    Break("provisioner", "tpu-provisioner-identity-act-as", "member", "allUsers", "public-grant"),
    Break("provisioner", "created-pools-binding", "@provider", None, "explicit-provider"),
    Break("provisioner", "tpu-provisioner-role", "rules.0.verbs", ["*"], "wide-role"),
    Break("provisioner", "tpu-provisioner-deployment", "metadata.namespace", "team-a", "no-release-channel"),
    Break("team", "account-tokens-binding", "@provider", None, "explicit-provider"),
    Break("team", "buckets-research.checkpoints", "publicAccessPrevention", REMOVED, "bucket-private"),
    Break("team", "images-ml/nodes", "member", "allUsers", "public-grant"),
    Break("team", "secret-grants-research/my-project/hf-token", "member", "allUsers", "public-grant"),
    Break("team", "storage-grants-acme-c4/objectViewer/pods.research", "member", "allUsers", "public-grant"),
    Break("team", "team-members-user:eva@example.com", "role", "roles/editor", "broad-roles"),
    Break("team", "team-limits-research", "@provider", None, "explicit-provider"),
    Break("team", "team-networks-research", "@provider", None, "explicit-provider"),
    Break("team", "team-rights-role", "rules.0.verbs", ["*"], "wide-role"),
    Break("team", "team-secrets-research", "@provider", None, "explicit-provider"),
    Break("team", "team-volumes-research.data-claim", "@provider", None, "explicit-provider"),
    Break("federated", "federated-credentials-research", "data.key", '"private_key_id": 1', "secret-in-plain-text"),
    Break("federated", "buckets-research.data", "uniformBucketLevelAccess", False, "bucket-private"),
    Break("gce", "control-plane-machine-0", "networkInterfaces.0.accessConfigs", [{}], "vm-external-address"),
    Break("gce", "control-plane-machine-0", "shieldedInstanceConfig.enableVtpm", False, "vm-shielded"),
    Break("gce", "control-plane-machine-0", "metadata.serial-port-enable", "true", "vm-logins"),
    Break("gce", "control-plane-machine-0", "metadataStartupScript", "echo", "vm-startup-script"),
    Break("gce", "control-plane-machine-0", "serviceAccount", REMOVED, "node-service-account"),
    Break("gce", "control-plane-disk-0", "@urn", PRODUCTION_DISK, "production-protected"),
    Break("gce", "control-plane-balancer-internal-rule", "loadBalancingScheme", "EXTERNAL", "api-exposed"),
    Break("gce", "control-plane-identity-machines", "role", "roles/compute.admin", "broad-roles"),
    Break("gce", "control-plane-identity-logs", "role", "roles/iam.serviceAccountUser", "project-wide-grant"),
    Break("gce", "bootstrap-secrets-access-writer", "member", "allUsers", "public-grant"),
    Break("gce", "join-grants-nodes", "member", "allAuthenticatedUsers", "public-grant"),
    Break("gce", "network-health-checks", "sourceRanges", ["0.0.0.0/0"], "firewall-open"),
    Break("gce", "cpu-pools-template-system", "metadata.block-project-ssh-keys", REMOVED, "vm-logins"),
    Break("gce", "slices-train-template-train", "machineType", "tpu9-standard-4t", "vm-tpu-machine"),
    Break("gce", "slices-train-template-train", "metadata.kube-labels", REMOVED, "vm-tpu-labels"),
    Break("gce", "slices-train-template-train", "metadata.join", "abcdef.0123456789abcdef", "secret-in-plain-text"),
    Break("gce", "slices-train-template-train", "disks.0.diskType", "pd-ssd", "vm-boot-disk"),
    Break("gce", "slices-train-template-train", "scheduling.onHostMaintenance", "MIGRATE", "vm-host-settings"),
    Break("gce", "slices-train-template-train", "scheduling.provisioningModel", "SPOT", "vm-capacity"),
    Break("gce", "slices-train-0", "targetSize", 3, "mig-whole-slices"),
    Break("gce", "slices-train-0", "instanceLifecyclePolicy", REMOVED, "mig-bulk"),
    Break("gce", "slices-train-0", "@delete_before_replace", False, "delete-before-replace"),
    Break("gce", "workload-policies-tpu-gce-2x2x2", "region", "us-east5", "mig-workload-policy"),
    Break("gce", "cloud-controller-daemons", "spec.template.spec.containers.0.image", "ccm:latest", "image-pinned"),
    Break("gce", "device-plugin-daemons", "spec.template.spec.containers.0.image", "k8s.gcr.io/p:1", "image-registry"),
    Break("dev", "kueue-release", "version", "latest", "chart-pinned"),
    Break("dev", "access-provider", "clusterIdentifier", REMOVED, "provider-identity"),
    Break("dev", "access-provider", "kubeconfig", "users: [{user: {token: a}}]", "provider-credential"),
    Break("dev", "namespaces-team", "@provider", None, "explicit-provider"),
    Break("dev", "namespaces-team", "metadata.labels", {}, "pod-security"),
    Break("dev", "pod-security-policy", "@provider", None, "explicit-provider"),
    Break("dev", "unqueued-tpus-binding", "@provider", None, "explicit-provider"),
    Break("dev", "jobset-release", "version", REMOVED, "chart-pinned"),
    Break("dev", "jobset-release", "@dependencies", (), "release-after-nodes"),
    Break("dev", "lws-release", "version", REMOVED, "chart-pinned"),
    Break("dev", "jobset-release", "values.token", "abcdef.0123456789abcdef", "secret-in-plain-text"),
    Break("dev", "dra-driver-release", "values.kubeletPlugin.affinity", REMOVED, "one-device-driver"),
    Break("dev", "queues-resourceflavor-v6e-1x1-1t-spot-dra", "spec.nodeLabels", REMOVED, "flavor-selects"),
    Break("dev", "queues-clusterqueue-team", "spec.namespaceSelector", {}, "queue-namespaces"),
    Break("dev", "queues-clusterqueue-team", "spec.resourceGroups.0.flavors.0.name", "another", "queue-flavors"),
    Break("dev", "claims-tpu-v6e-1-team", "metadata.namespace", "default", "default-namespace"),
]


def broken(each: Break) -> Stack:
    """The graph with one resource broken."""
    stack = graph(each.stack)
    names = [resource.name for resource in stack.resources]
    assert names.count(each.name) == 1, f"{each.name} is none of {sorted(names)}"
    return Stack(
        tuple(
            changed(resource, each.path, each.value) if resource.name == each.name else resource
            for resource in stack.resources
        )
    )


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: f"{each.name}-{each.path}")
def test_a_broken_property_is_found_by_exactly_its_rule(each: Break) -> None:
    before = Counter(found[0] for found in findings(graph(each.stack)))
    after = Counter(found[0] for found in findings(broken(each)))
    assert set(after - before) == {each.rule}


# Kinds that no rule is about: whether an API is on, or who an account is, is the cloud's own to check.
BEYOND_RULES = {
    "gcp:artifactregistry/repository:Repository",  # private unless somebody is granted it, which a rule looks at
    "gcp:billing/budget:Budget",
    "gcp:compute/address:Address",
    "gcp:compute/instanceGroup:InstanceGroup",
    "gcp:compute/regionBackendService:RegionBackendService",
    "gcp:compute/regionHealthCheck:RegionHealthCheck",
    "gcp:compute/router:Router",
    "gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
    "gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
    "gcp:logging/metric:Metric",
    "gcp:logging/projectExclusion:ProjectExclusion",
    "gcp:monitoring/alertPolicy:AlertPolicy",
    "gcp:monitoring/dashboard:Dashboard",
    "gcp:monitoring/notificationChannel:NotificationChannel",
    "gcp:projects/iAMCustomRole:IAMCustomRole",  # a rule looks at its permissions where it is granted
    "gcp:projects/service:Service",
    "gcp:serviceaccount/account:Account",
    "pulumi:index:Stash",
}


@pytest.mark.parametrize("name", [*STACKS, *FURTHER])
def test_every_kind_of_resource_is_looked_at_by_a_rule(name: str) -> None:
    kinds = {resource.type for resource in graph(name).resources} - BEYOND_RULES
    assert not [kind for kind in kinds if not any(rule.applies_to(kind) for rule in RESOURCE_RULES)]


def test_something_is_broken_in_every_component() -> None:
    """Every kind of component with resources that rules are about has one of its resources in the table above."""
    broken_names = {(each.stack, each.name) for each in BREAKS}
    found: dict[str, bool] = {}
    for name in {each.stack for each in BREAKS}:
        requests = monitor(name).requests
        for request in requests.values():
            if request.custom and request.parent in requests and request.type not in BEYOND_RULES:
                component = requests[request.parent].type
                found[component] = found.get(component, False) or (name, request.name) in broken_names
    assert len(found) > 10
    assert [component for component, is_broken in found.items() if not is_broken] == []
