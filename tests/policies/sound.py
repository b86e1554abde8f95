"""A small stack that no rule finds fault with, and ways to break it. Written by hand: rules must stand on their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from policies import tokens
from policies.registry import Resource, Stack
from policies.rules import RESOURCE_RULES, STACK_RULES

ACCOUNT = "nodes@my-project.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
KUBE_LABELS = (
    "cloud.google.com/gke-accelerator-count=4,cloud.google.com/gke-tpu-accelerator=tpu-v6e-slice,"
    "cloud.google.com/gke-tpu-topology=4x4"
)
KUBECONFIG = """
apiVersion: v1
kind: Config
users:
- name: dev
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: gke-gcloud-auth-plugin}}
"""

NODE_CONFIG: dict[str, Any] = {
    "machineType": "e2-standard-4",
    "serviceAccount": ACCOUNT,
    "oauthScopes": [SCOPE],
    "imageType": "COS_CONTAINERD",
    "bootDisk": {"diskType": "pd-balanced", "sizeGb": 100.0},
    "bootDiskKmsKey": "projects/p/locations/us-east5/keyRings/r/cryptoKeys/k",
    "labels": {},
    "resourceLabels": {"team": "a"},
    "metadata": {"disable-legacy-endpoints": "true"},
    "workloadMetadataConfig": {"mode": "GKE_METADATA"},
    "shieldedInstanceConfig": {"enableSecureBoot": True, "enableIntegrityMonitoring": True},
    "kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "FALSE"},
}


def _pool(name: str, node_config: Mapping[str, Any], **props: Any) -> dict[str, Any]:
    return {
        "name": name,
        "nodeLocations": ["us-east5-b"],
        "management": {"autoRepair": True, "autoUpgrade": True},
        "networkConfig": {"enablePrivateNodes": True},
        "upgradeSettings": {"strategy": "SURGE", "maxSurge": 0.0, "maxUnavailable": 1.0},
        "nodeConfig": NODE_CONFIG | node_config,
    } | props


def _v6e(**config: Any) -> dict[str, Any]:
    affinity = {"consumeReservationType": "NO_RESERVATION"}
    disk = {"diskType": "hyperdisk-balanced", "sizeGb": 100.0}
    return {"machineType": "ct6e-standard-4t", "bootDisk": disk, "reservationAffinity": affinity} | config


CLUSTER: dict[str, Any] = {
    "name": "tpu",
    "location": "us-east5",
    "deletionProtection": True,
    "resourceLabels": {"team": "a"},
    "network": "projects/p/global/networks/tpu",
    "subnetwork": "projects/p/regions/us-east5/subnetworks/tpu",
    "networkingMode": "VPC_NATIVE",
    "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
    "datapathProvider": "ADVANCED_DATAPATH",
    "enableIntranodeVisibility": True,
    "privateClusterConfig": {"enablePrivateNodes": True, "enablePrivateEndpoint": True},
    "controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}},
    "removeDefaultNodePool": True,
    "initialNodeCount": 1.0,
    "nodeConfig": {"serviceAccount": ACCOUNT},
    "nodePoolDefaults": {"nodeConfigDefaults": {"insecureKubeletReadonlyPortEnabled": "FALSE"}},
    "releaseChannel": {"channel": "REGULAR"},
    "maintenancePolicy": {
        "recurringWindow": {"startTime": "2026-01-03T00:00:00Z", "endTime": "2026-01-03T08:00:00Z"},
        "maintenanceExclusions": [{"exclusionOptions": {"scope": "NO_MINOR_OR_NODE_UPGRADES"}}],
    },
    "workloadIdentityConfig": {"workloadPool": "p.svc.id.goog"},
    "enableShieldedNodes": True,
    "enableLegacyAbac": False,
    "masterAuth": {"clientCertificateConfig": {"issueClientCertificate": False}},
    "anonymousAuthenticationConfig": {"mode": "LIMITED"},
    "rbacBindingConfig": {
        "enableInsecureBindingSystemAuthenticated": False,
        "enableInsecureBindingSystemUnauthenticated": False,
    },
    "databaseEncryption": {"state": "ENCRYPTED", "keyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k"},
    "binaryAuthorization": {"evaluationMode": "PROJECT_SINGLETON_POLICY_ENFORCE"},
    "securityPostureConfig": {"mode": "BASIC"},
    "loggingConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]},
    "monitoringConfig": {
        "enableComponents": ["SYSTEM_COMPONENTS", "JOBSET"],
        "managedPrometheus": {"enabled": True},
    },
    "costManagementConfig": {"enabled": True},
}

TEMPLATE: dict[str, Any] = {
    "machineType": "ct6e-standard-4t",
    "labels": {"team": "a"},
    "disks": [{"boot": True, "diskType": "hyperdisk-balanced", "diskEncryptionKey": {"kmsKeySelfLink": "k"}}],
    "networkInterfaces": [{"subnetwork": "s", "nicType": "GVNIC"}],
    "scheduling": {
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": True,
        "provisioningModel": "RESERVATION_BOUND",
        "instanceTerminationAction": "DELETE",
    },
    "reservationAffinity": {
        "type": "SPECIFIC_RESERVATION",
        "specificReservation": {"key": "compute.googleapis.com/reservation-name", "values": ["res-a"]},
    },
    "serviceAccount": {"email": ACCOUNT, "scopes": [SCOPE]},
    "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
    "metadata": {
        "kube-labels": KUBE_LABELS,
        "tpu-node-labels": "tpu-platform/flavor=v6e-4x4-mig",
        "startup-script": "echo ready",
        "block-project-ssh-keys": "TRUE",
    },
}

DRA_AFFINITY = {"nodeAffinity": {"key": "cloud.google.com/gke-tpu-dra-driver", "operator": "In"}}
PLUGIN_AFFINITY = {"nodeAffinity": {"key": "cloud.google.com/gke-tpu-dra-driver", "operator": "DoesNotExist"}}

PROPS: dict[str, tuple[str, dict[str, Any]]] = {
    "network": (tokens.NETWORK, {"autoCreateSubnetworks": False}),
    "subnet": (tokens.SUBNETWORK, {"logConfig": {"flowSampling": 0.1}, "privateIpGoogleAccess": True}),
    "nat": (tokens.ROUTER_NAT, {"logConfig": {"enable": True, "filter": "ERRORS_ONLY"}}),
    "firewall": (
        tokens.FIREWALL,
        {
            "direction": "INGRESS",
            "sourceRanges": ["10.0.0.0/20"],
            "allows": [{"protocol": "tcp", "ports": ["6443"]}, {"protocol": "icmp"}],
        },
    ),
    "grant": (
        "gcp:projects/iAMMember:IAMMember",
        {"role": "roles/container.defaultNodeServiceAccount", "member": f"serviceAccount:{ACCOUNT}"},
    ),
    "bucket": (
        tokens.BUCKET,
        {"uniformBucketLevelAccess": True, "publicAccessPrevention": "enforced", "labels": {"team": "a"}},
    ),
    "secret": (tokens.SECRET, {"secretId": "tpu-join", "labels": {"team": "a"}}),
    "version": (tokens.SECRET_VERSION, {"secretDataWo": "", "secretDataWoVersion": 1.0}),
    "cluster": (tokens.CLUSTER, CLUSTER),
    "system": (
        tokens.NODE_POOL,
        _pool("system", {}, autoscaling={"totalMinNodeCount": 2.0, "totalMaxNodeCount": 4.0}),
    ),
    "slice": (
        tokens.NODE_POOL,
        _pool(
            "slice",
            _v6e(labels={"tpu-platform/flavor": "v6e-4x4"}),
            placementPolicy={"type": "COMPACT", "tpuTopology": "4x4"},
            nodeCount=4.0,
        ),
    ),
    "queued": (
        tokens.NODE_POOL,
        _pool(
            "queued",
            _v6e(flexStart=True, maxRunDuration="86400s", labels={"cloud.google.com/gke-queued": "true"}),
            placementPolicy={"type": "COMPACT", "tpuTopology": "4x4"},
            queuedProvisioning={"enabled": True},
            management={"autoRepair": False, "autoUpgrade": True},
            autoscaling={"minNodeCount": 0.0, "maxNodeCount": 4.0, "locationPolicy": "ANY"},
        ),
    ),
    "single": (
        tokens.NODE_POOL,
        _pool(
            "single",
            _v6e(
                machineType="ct6e-standard-1t",
                spot=True,
                labels={"cloud.google.com/gke-tpu-dra-driver": "true"},
            ),
            nodeCount=8.0,
        ),
    ),
    "ironwood": (
        tokens.NODE_POOL,
        _pool(
            "ironwood",
            _v6e(machineType="tpu7x-standard-4t"),
            nodeLocations=["us-central1-c"],
            placementPolicy={"type": "", "tpuTopology": "2x2x2", "policyName": "tpu-2x2x2"},
            nodeCount=2.0,
        ),
    ),
    "policy": (
        tokens.RESOURCE_POLICY,
        {
            "region": "us-east5",
            "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4"},
        },
    ),
    "template": (tokens.TEMPLATE, TEMPLATE),
    "regional": (tokens.REGION_TEMPLATE, TEMPLATE),
    "mig": (
        tokens.MIG,
        {
            "zone": "us-east5-b",
            "targetSize": 4.0,
            "targetSizePolicies": [{"mode": "BULK"}],
            "versions": [{"instanceTemplate": "template"}],
            "resourcePolicies": {"workloadPolicy": "policy"},
            "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
        },
    ),
    "machine": (
        tokens.INSTANCE,
        {
            "zone": "us-east5-b",
            "deletionProtection": True,
            "labels": {"team": "a"},
            "networkInterfaces": [{"subnetwork": "s", "networkIp": "10.0.0.5"}],
            "serviceAccount": {"email": ACCOUNT, "scopes": [SCOPE]},
            "shieldedInstanceConfig": {"enableVtpm": True, "enableIntegrityMonitoring": True},
            "metadata": {"startup-script": "echo ready", "block-project-ssh-keys": "TRUE"},
        },
    ),
    "disk": (tokens.DISK, {"type": "pd-ssd", "labels": {"team": "a"}}),
    "front": (tokens.FORWARDING_RULE, {"loadBalancingScheme": "INTERNAL", "ports": ["6443"]}),
    "provider": (tokens.KUBERNETES_PROVIDER, {"kubeconfig": KUBECONFIG, "clusterIdentifier": "tpu-platform/dev"}),
    "namespace": (
        tokens.NAMESPACE,
        {"metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    ),
    "driver": (
        tokens.RELEASE,
        {
            "chart": "oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu",
            "version": "0.1.0",
            "values": {"kubeletPlugin": {"affinity": DRA_AFFINITY}},
        },
    ),
    "plugin": (
        tokens.DAEMON_SET,
        {
            "metadata": {"namespace": "kube-system"},
            "spec": {
                "template": {
                    "spec": {
                        "affinity": PLUGIN_AFFINITY,
                        "containers": [{"image": "gcr.io/gke-release/tpu-device-plugin:1.35.7-gke.0"}],
                    }
                }
            },
        },
    ),
    "service": (tokens.SERVICE, {"spec": {"type": "ClusterIP"}}),
    "settings": (tokens.CONFIG_MAP, {"data": {"zone": "us-east5-b"}}),
    "role": (
        tokens.CLUSTER_ROLE,
        {"rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]}]},
    ),
    "binding": (
        tokens.CLUSTER_ROLE_BINDING,
        {"roleRef": {"name": "reader"}, "subjects": [{"kind": "Group", "name": "team@example.com"}]},
    ),
    "flavor": (
        "kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor",
        {
            "metadata": {"name": "v6e-4x4"},
            "spec": {"nodeLabels": {"cloud.google.com/gke-tpu-topology": "4x4"}},
        },
    ),
    "queue": (
        "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue",
        {
            "metadata": {"name": "team"},
            "spec": {
                "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name"}]},
                "resourceGroups": [
                    {"flavors": [{"name": "v6e-4x4", "resources": [{"name": "google.com/tpu", "nominalQuota": "16"}]}]}
                ],
            },
        },
    ),
    "local": (
        "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue",
        {"metadata": {"name": "team", "namespace": "team"}, "spec": {"clusterQueue": "team"}},
    ),
}
# What the engine knows of each resource beside its inputs.
DEPENDENCIES = {"driver": ("system",), "mig": ("template", "policy")}
PROPERTY_DEPENDENCIES = {"mig": {"versions": ("template",), "resourcePolicies": ("policy",)}}

REMOVED = object()
"""Stands for a property that is taken away."""

Changes = Mapping[str, Any]
"""New values by path below a resource, as `cluster.location`; options as `cluster.@protect`."""


def urn(name: str, stack: str = "prod") -> str:
    return f"urn:pulumi:{stack}::tpu-platform::type::{name}"


def stack(changes: Changes | None = None, *, name: str = "prod", extra: tuple[Resource, ...] = ()) -> Stack:
    """The sound stack with some changes, and further resources. Its name makes it production."""
    resources = {
        key: Resource(
            type=type_,
            name=key,
            urn=urn(key, name),
            props=copy.deepcopy(props),
            protect=True,
            delete_before_replace=True,
            provider=urn("provider", name) if type_.startswith("kubernetes:") else None,
            dependencies=tuple(urn(each, name) for each in DEPENDENCIES.get(key, ())),
            property_dependencies={
                property_: tuple(urn(each, name) for each in sources)
                for property_, sources in PROPERTY_DEPENDENCIES.get(key, {}).items()
            },
        )
        for key, (type_, props) in PROPS.items()
    }
    for path, value in (changes or {}).items():
        key, _, below = path.partition(".")
        resources[key] = changed(resources[key], below, value)
    return Stack((*resources.values(), *extra))


def changed(resource: Resource, path: str, value: Any) -> Resource:
    """A resource with another value at a path below its properties, or of an option such as `@protect`."""
    if path.startswith("@"):
        return replace(resource, **{path.removeprefix("@"): value})
    props = copy.deepcopy(dict(resource.props))
    *above, last = path.split(".")
    target: Any = props
    for part in above:
        target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
    if value is REMOVED:
        del target[last]
    elif isinstance(target, list):
        target[int(last)] = value
    else:
        target[last] = value
    return replace(resource, props=props)


def findings(
    stack: Stack, only: str | None = None, settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[tuple[str, str | None, str, str]]:
    """Rule, URN, path and message of everything the rules find in a stack; `only` one rule."""
    for rule in RESOURCE_RULES:
        if only not in (None, rule.id):
            continue
        configured = rule.configured((settings or {}).get(rule.id))
        for resource in stack.resources:
            if rule.applies_to(resource.type):
                for path, message in rule.check(resource, configured):
                    yield rule.id, resource.urn, path, message
    for stack_rule in STACK_RULES:
        if only in (None, stack_rule.id):
            configured = stack_rule.configured((settings or {}).get(stack_rule.id))
            for found in stack_rule.check(stack, configured):
                yield stack_rule.id, *found
