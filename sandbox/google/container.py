"""Kubernetes Engine: clusters, node pools, operations and server configuration."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

from sandbox.google import machines, pool_rules
from sandbox.google.backend import ClusterRef, node_base
from sandbox.google.compute import DERIVED
from sandbox.google.compute_types import COLLECTIONS, IDLE_ACTIONS, full_name, self_link
from sandbox.google.errors import GoogleError, exists, invalid, not_found, precondition
from sandbox.google.faults import OPERATION_ERRORS, STOCKOUT
from sandbox.google.networking import has_secondary_range
from sandbox.google.operations import Operation, now
from sandbox.google.service import CONTAINER, Call, dig, filled, fingerprint, handles, render, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import LOST, World, pool_model

CLUSTERS = "container.clusters"
POOLS = "container.nodePools"
SIZES = "container.poolSizes"
METHOD = "container.projects.locations.clusters"
# Answers of Google's that no public source tells: store kind and name. Nothing may depend on either answer.
UNPUBLISHED = ("sandbox.unpublished", "answers")
DEFAULT_SCOPES = [
    f"https://www.googleapis.com/auth/{scope}"
    for scope in (
        "devstorage.read_only",
        "logging.write",
        "monitoring",
        "service.management.readonly",
        "servicecontrol",
        "trace.append",
    )
]
TPU_TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NO_SCHEDULE"}
QUEUED_TAINT = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NO_SCHEDULE"}
METRICS = (
    "SYSTEM_COMPONENTS",
    "STORAGE",
    "POD",
    "DEPLOYMENT",
    "STATEFULSET",
    "DAEMONSET",
    "HPA",
    "CADVISOR",
    "KUBELET",
)

# What Google fills in on every cluster; all of it is optional and computed in the gcp provider's schema.
CLUSTER_DEFAULTS: Resource = {
    "loggingService": "logging.googleapis.com/kubernetes",
    "monitoringService": "monitoring.googleapis.com/kubernetes",
    "loggingConfig": {"componentConfig": {"enableComponents": ["SYSTEM_COMPONENTS", "WORKLOADS"]}},
    "monitoringConfig": {
        "componentConfig": {"enableComponents": list(METRICS)},
        "managedPrometheusConfig": {"enabled": True, "autoMonitoringConfig": {"scope": "NONE"}},
        "advancedDatapathObservabilityConfig": {"enableMetrics": False, "enableRelay": False},
    },
    "addonsConfig": {
        "kubernetesDashboard": {"disabled": True},
        "networkPolicyConfig": {"disabled": True},
        "gcePersistentDiskCsiDriverConfig": {"enabled": True},
        "dnsCacheConfig": {"enabled": False},
    },
    "networkConfig": {
        "datapathProvider": "LEGACY_DATAPATH",
        "serviceExternalIpsConfig": {"enabled": False},
        "defaultSnatStatus": {"disabled": False},
        "defaultEnablePrivateNodes": False,
    },
    "controlPlaneEndpointsConfig": {
        "dnsEndpointConfig": {"allowExternalTraffic": False},
        "ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": True, "globalAccess": False},
    },
    "masterAuth": {"clientCertificateConfig": {}},
    "databaseEncryption": {"state": "DECRYPTED", "currentState": "CURRENT_STATE_DECRYPTED"},
    "defaultMaxPodsConstraint": {"maxPodsPerNode": "110"},
    "autoscaling": {"autoscalingProfile": "BALANCED"},
    "shieldedNodes": {"enabled": True},
    "releaseChannel": {"channel": "REGULAR"},
    "securityPostureConfig": {"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_MODE_UNSPECIFIED"},
    "notificationConfig": {"pubsub": {}},
    "anonymousAuthenticationConfig": {"mode": "ENABLED"},
    "rbacBindingConfig": {
        "enableInsecureBindingSystemAuthenticated": True,
        "enableInsecureBindingSystemUnauthenticated": True,
    },
    "enterpriseConfig": {"clusterTier": "STANDARD"},
    "nodePoolDefaults": {"nodeConfigDefaults": {"loggingConfig": {"variantConfig": {"variant": "DEFAULT"}}}},
    "nodePoolAutoConfig": {"nodeKubeletConfig": {"insecureKubeletReadonlyPortEnabled": False}},
}

# What Google fills in on every node pool. `config.advancedMachineFeatures`, taints and disks depend on the machine.
POOL_DEFAULTS: Resource = {
    "initialNodeCount": 0,
    "management": {},
    "config": {
        "machineType": "e2-medium",
        "imageType": "COS_CONTAINERD",
        "diskSizeGb": 100,
        "serviceAccount": "default",
        "oauthScopes": DEFAULT_SCOPES,
        "metadata": {"disable-legacy-endpoints": "true"},
        "shieldedInstanceConfig": {"enableIntegrityMonitoring": True},
        "kubeletConfig": {"maxParallelImagePulls": 2, "insecureKubeletReadonlyPortEnabled": False},
        "loggingConfig": {"variantConfig": {"variant": "DEFAULT"}},
        "windowsNodeConfig": {},
        "effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2",
    },
}

# Features of a cluster and the APIs behind them: path, value, API. Google's guides want the API enabled first.
# Whether a cluster that goes without is refused or only lacks the feature, no public source tells: here it is refused.
_FEATURES: tuple[tuple[str, object, str], ...] = (
    ("binaryAuthorization.evaluationMode", "PROJECT_SINGLETON_POLICY_ENFORCE", "binaryauthorization"),
    ("nodePoolDefaults.nodeConfigDefaults.gcfsConfig.enabled", True, "artifactregistry"),
    ("nodePoolDefaults.nodeConfigDefaults.gcfsConfig.enabled", True, "containerfilesystem"),
    ("secretManagerConfig.enabled", True, "secretmanager"),
    ("secretSyncConfig.enabled", True, "secretmanager"),
    ("securityPostureConfig.mode", "BASIC", "containersecurity"),
)

# UpdateClusterRequest fields that do not simply set the cluster field of the same name without "desired".
_SPECIAL_UPDATES = {
    "desiredClusterAutoscaling": "autoscaling",
    "desiredDefaultEnablePrivateNodes": "networkConfig.defaultEnablePrivateNodes",
    "desiredGatewayApiConfig": "networkConfig.gatewayApiConfig",
    "desiredDnsConfig": "networkConfig.dnsConfig",
    "desiredDefaultSnatStatus": "networkConfig.defaultSnatStatus",
    "desiredServiceExternalIpsConfig": "networkConfig.serviceExternalIpsConfig",
    "desiredEnableMultiNetworking": "networkConfig.enableMultiNetworking",
    "desiredEnableFqdnNetworkPolicy": "networkConfig.enableFqdnNetworkPolicy",
    "desiredEnableCiliumClusterwideNetworkPolicy": "networkConfig.enableCiliumClusterwideNetworkPolicy",
    "desiredDatapathProvider": "networkConfig.datapathProvider",
    "desiredInTransitEncryptionConfig": "networkConfig.inTransitEncryptionConfig",
    "desiredIntraNodeVisibilityConfig": "networkConfig.enableIntraNodeVisibility",
    "desiredL4ilbSubsettingConfig": "networkConfig.enableL4ilbSubsetting",
    "desiredNodePoolAutoConfigNetworkTags": "nodePoolAutoConfig.networkTags",
    "desiredNodePoolAutoConfigKubeletConfig": "nodePoolAutoConfig.nodeKubeletConfig",
    "desiredNodePoolAutoConfigLinuxNodeConfig": "nodePoolAutoConfig.linuxNodeConfig",
    "desiredNodePoolAutoConfigResourceManagerTags": "nodePoolAutoConfig.resourceManagerTags",
    "desiredNodeKubeletConfig": "nodePoolDefaults.nodeConfigDefaults.nodeKubeletConfig",
    "desiredGcfsConfig": "nodePoolDefaults.nodeConfigDefaults.gcfsConfig",
    "desiredContainerdConfig": "nodePoolDefaults.nodeConfigDefaults.containerdConfig",
    "desiredNodePoolLoggingConfig": "nodePoolDefaults.nodeConfigDefaults.loggingConfig",
    "desiredStackType": "ipAllocationPolicy.stackType",
    "desiredK8sBetaApis": "enableK8sBetaApis",
    "desiredMasterVersion": "currentMasterVersion",
}
# Parts of a cluster update that concern one of its node pools.
_OF_POOLS = frozenset({"desiredNodePoolId", "desiredNodePoolAutoscaling", "desiredNodeVersion", "desiredImageType"})
# Messages whose flags the API can tell apart when they are false and when they are not sent (`optional` in its proto).
_PRESENCE = frozenset({"ipEndpointsConfig", "rbacBindingConfig"})
_FLAGS = frozenset({"desiredIntraNodeVisibilityConfig", "desiredL4ilbSubsettingConfig"})  # {"enabled": x} sets x
_MERGED = frozenset({"desiredAddonsConfig", "desiredControlPlaneEndpointsConfig", "desiredMonitoringConfig"})

# Methods that set one cluster field: method -> (body field or "" for the whole body, cluster field).
_CLUSTER_SETTERS = {
    "setMaintenancePolicy": ("maintenancePolicy", "maintenancePolicy"),
    "setResourceLabels": ("resourceLabels", "resourceLabels"),
    "setLegacyAbac": ("", "legacyAbac"),
    "setNetworkPolicy": ("networkPolicy", "networkPolicy"),
    "setLocations": ("locations", "locations"),
    "setLogging": ("loggingService", "loggingService"),
    "setMonitoring": ("monitoringService", "monitoringService"),
    "setAddons": ("addonsConfig", "addonsConfig"),
}
_ADDRESSING = frozenset({"name", "projectId", "zone", "clusterId", "nodePoolId", "etag", "labelFingerprint"})

# UpdateNodePoolRequest: body field -> where its value belongs in the pool, and the key that wraps it in the request.
_POOL_UPDATES: dict[str, tuple[str, str]] = {
    "labels": ("config.labels", "labels"),
    "taints": ("config.taints", "taints"),
    "tags": ("config.tags", "tags"),
    "resourceLabels": ("config.resourceLabels", "labels"),
    "nodeVersion": ("version", ""),
    "locations": ("locations", ""),
    "upgradeSettings": ("upgradeSettings", ""),
    "nodeDrainConfig": ("nodeDrainConfig", ""),
    "queuedProvisioning": ("queuedProvisioning", ""),
    "maintenancePolicy": ("maintenancePolicy", ""),
    "nodeNetworkConfig": ("networkConfig", ""),
} | {
    field: (f"config.{field}", "")
    for field in (
        "accelerators",
        "bootDisk",
        "confidentialNodes",
        "consolidationDelay",
        "containerdConfig",
        "diskSizeGb",
        "diskType",
        "fastSocket",
        "flexStart",
        "gcfsConfig",
        "gvnic",
        "imageType",
        "kubeletConfig",
        "linuxNodeConfig",
        "loggingConfig",
        "machineType",
        "maxRunDuration",
        "resourceManagerTags",
        "storagePools",
        "taintConfig",
        "windowsNodeConfig",
        "workloadMetadataConfig",
    )
}


def put_at(value: Resource, path: str, item: Any) -> Resource:
    """A copy of `value` with `item` at a dotted path."""
    head, _, rest = path.partition(".")
    return {**value, head: put_at(value.get(head) or {}, rest, item) if rest else item}


def _defaulted(value: Resource, defaults: Resource, kept: bool = True) -> Resource:
    """`value` with absent fields taken from `defaults`, level by level.

    A flag that is not sent is false in a message that is: only where the whole message is missing is it set by default.
    """
    result = dict(value)
    for key, default in defaults.items():
        if key not in result:
            if kept or default is not True:
                result[key] = default
        elif isinstance(default, dict) and isinstance(result[key], dict):
            result[key] = _defaulted(result[key], default, key in _PRESENCE)
    return result


# Clusters


def _location(call: Call) -> str:
    return call.params["locationsId"]


def _cluster_path(call: Call, name: str = "") -> str:
    return f"projects/{call.project}/locations/{_location(call)}/clusters/{name or call.params['clustersId']}"


def _cluster(call: Call) -> tuple[str, Resource]:
    path = _cluster_path(call)
    found = call.store.get(CLUSTERS, path)
    if found is None:
        raise not_found(path)
    return path, found


def _idle(world: World, *targets: str) -> None:
    """400 FAILED_PRECONDITION while an operation is under way on a cluster or pool."""
    for target in targets:
        operation = world.operations.under_way(target)
        if operation:
            raise precondition(f"Cluster is running incompatible operation {operation.name}.")


def _start(call: Call, kind: str, target: str, changes: list[Change], **more: Any) -> Operation:
    return Operation(call.method, call.project, _location(call), kind, target, changes=changes, **more)


def _region(location: str) -> str:
    return location if location.count("-") == 1 else machines.region_of(location)


def _check_location(location: str) -> None:
    region = _region(location)
    if not machines.zones_of(region) or location not in (region, *machines.zones_of(region)):
        raise invalid(f'Location "{location}" does not exist.')


def _subnetwork(call: Call, cluster: Resource) -> Resource:
    """The cluster's subnetwork; 400 unless it, its network and the named secondary ranges exist and belong together."""
    network = full_name(cluster.get("network", "default"), COLLECTIONS["networks"], call.project, "global")
    if call.store.get("compute.networks", network) is None:
        raise invalid(f'Network "{short(network)}" does not exist.')
    place = _region(_location(call))
    reference = cluster.get("subnetwork", short(network))
    name = full_name(reference, COLLECTIONS["subnetworks"], call.project, place)
    found = call.store.get("compute.subnetworks", name)
    if found is None or short(found["region"]) != place:
        raise invalid(f'Subnetwork "{short(name)}" does not exist in region "{place}".')
    if found["network"] != self_link(network):
        raise invalid(f'Subnetwork "{short(name)}" is not in network "{short(network)}".')
    policy = cluster.get("ipAllocationPolicy", {})
    for field, what in (("clusterSecondaryRangeName", "Pod"), ("servicesSecondaryRangeName", "Services")):
        if policy.get(field) and not has_secondary_range(found, policy[field]):
            raise invalid(
                f'{what} secondary range "{policy[field]}" does not exist in network "{short(network)}",'
                f' subnetwork "{short(name)}".'
            )
    return found


def _check_features(call: Call, cluster: Resource) -> None:
    for path, value, api in _FEATURES:
        if dig(cluster, *path.split(".")) == value:
            call.world.require_service(call.project, api)


def _scanned(cluster: Resource) -> Resource:
    """The cluster as Google reads it back: the scan for vulnerabilities is off, even if asked for."""
    posture = cluster.get("securityPostureConfig", {})
    if posture.get("vulnerabilityMode") not in ("VULNERABILITY_BASIC", "VULNERABILITY_ENTERPRISE"):
        return cluster
    return {**cluster, "securityPostureConfig": {**posture, "vulnerabilityMode": "VULNERABILITY_DISABLED"}}


def _check_cluster(call: Call, cluster: Resource) -> None:
    _check_features(call, cluster)
    if not pool_rules.NAME.fullmatch(cluster.get("name", "")):
        raise invalid(
            f"Invalid value for field 'cluster.name': '{cluster.get('name', '')}'. Must be a match of regex"
            f" '(?:{pool_rules.NAME.pattern})' (only alphanumerics and dashes, at most 40 characters)."
        )
    _check_location(_location(call))
    if not cluster.get("initialNodeCount") and not cluster.get("nodePools"):
        raise invalid("Cluster.initial_node_count must be greater than zero.")
    pool = dig(cluster, "workloadIdentityConfig", "workloadPool")
    if pool not in (None, "", f"{call.project}.svc.id.goog"):
        raise invalid(f'Workload pool "{pool}" is invalid, only {call.project}.svc.id.goog is supported.')
    dataplane = dig(cluster, "networkConfig", "datapathProvider")
    if dataplane == "ADVANCED_DATAPATH" and dig(cluster, "networkPolicy", "enabled"):
        raise invalid("Enabling NetworkPolicy for clusters with DatapathProvider=ADVANCED_DATAPATH is not allowed.")
    account = dig(cluster, "nodeConfig", "serviceAccount")
    if account:
        call.world.check_service_account(call.project, account)


def _offered_version(wanted: str, channel: str) -> str:
    version = machines.resolve_version(wanted, channel)
    if version is None and wanted.count(".") < 2:
        raise invalid(f'No valid versions with the prefix "{wanted}" found.')
    if version is None:
        raise invalid(f'Master version "{wanted}" is unsupported.')
    return version


def _new_cluster(call: Call, cluster: Resource) -> Resource:
    """The cluster as it reads from now on, without its node pools."""
    subnetwork = _subnetwork(call, cluster)
    location, region = _location(call), _region(_location(call))
    cluster = _scanned(_defaulted(cluster, CLUSTER_DEFAULTS))
    version = _offered_version(cluster.get("initialClusterVersion", ""), cluster["releaseChannel"].get("channel", ""))
    path = _cluster_path(call, cluster["name"])
    number = hashlib.sha256(f"{path}{now()}".encode()).hexdigest()
    ranges = {r["rangeName"]: r["ipCidrRange"] for r in subnetwork["secondaryIpRanges"]}
    policy = cluster.get("ipAllocationPolicy", {})
    pods = ranges.get(policy.get("clusterSecondaryRangeName", ""), policy.get("clusterIpv4CidrBlock", "10.128.0.0/14"))
    services = ranges.get(policy.get("servicesSecondaryRangeName", ""), "34.118.224.0/20")
    private = cluster["networkConfig"]["defaultEnablePrivateNodes"]
    zonal = location != region
    defaults = {
        "network": cluster.get("network", "default"),
        "subnetwork": subnetwork["name"],
        "locations": [location] if zonal else [z for z in machines.zones_of(region) if "-ai" not in z][:3],
        "networkConfig": {
            "network": cluster.get("network", "default"),
            "subnetwork": cluster.get("subnetwork", subnetwork["name"]),
        },
        "ipAllocationPolicy": {
            "useIpAliases": True,
            "stackType": "IPV4",
            "clusterIpv4CidrBlock": pods,
            "servicesIpv4CidrBlock": services,
            "podCidrOverprovisionConfig": {"disable": False},
        },
        "privateClusterConfig": {"enablePrivateNodes": private, "privateEndpoint": subnetwork["gatewayAddress"]},
        "controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"privateEndpoint": subnetwork["gatewayAddress"]}},
        "addonsConfig": {"networkPolicyConfig": {"disabled": not dig(cluster, "networkPolicy", "enabled")}},
    }
    own = {
        "id": number,
        "selfLink": CONTAINER + path,
        "location": location,
        "zone": location,
        "createTime": now(),
        "status": "PROVISIONING",
        "initialClusterVersion": version,
        "currentMasterVersion": version,
        "currentNodeVersion": version,
        "clusterIpv4Cidr": pods,
        "servicesIpv4Cidr": services,
        "labelFingerprint": fingerprint(cluster.get("resourceLabels", {})),
    }
    result = filled({**cluster, **own}, defaults)
    if "maintenancePolicy" in result:
        result["maintenancePolicy"] = _versioned(result["maintenancePolicy"])
    return {**result, "etag": fingerprint(result)}


def _versioned(policy: Resource) -> Resource:
    bare = {key: value for key, value in policy.items() if key != "resourceVersion"}
    return {**bare, "resourceVersion": hashlib.sha256(repr(bare).encode()).hexdigest()[:8]}


@handles(f"{METHOD}.create")
def create_cluster(call: Call) -> Operation:
    wanted = dict(call.body.get("cluster") or {})
    _check_cluster(call, wanted)
    path = _cluster_path(call, wanted["name"])
    if call.store.get(CLUSTERS, path) or call.world.operations.under_way(path):
        raise exists(path)
    inline = wanted.pop("nodePools", None) or [_default_pool(wanted)]
    cluster = _new_cluster(call, wanted)
    pools = [_new_pool(call, path, cluster, pool) for pool in inline]
    for pool in pools:
        pool_rules.check(call.world, cluster, call.project, pool)
        pool_rules.check_growth(call.world, call.project, pool, pool["initialNodeCount"])
    changes = [change for pool in pools for change in _pool_ready(path, pool)]
    begun = [Change(CLUSTERS, path, cluster), *(Change(POOLS, f"{path}/nodePools/{p['name']}", p) for p in pools)]
    workload_pool = dig(cluster, "workloadIdentityConfig", "workloadPool")
    if workload_pool:
        begun.append(Change("iam.identityPools", workload_pool, {"name": workload_pool}))
    call.store.apply(begun)
    failed = [Change(CLUSTERS, path, {**cluster, "status": "ERROR"})]
    return _start(call, "CREATE_CLUSTER", path, changes, on_error=failed, follow="create", cluster=path)


def _default_pool(cluster: Resource) -> Resource:
    return {
        "name": "default-pool",
        "initialNodeCount": cluster["initialNodeCount"],
        "config": deepcopy(cluster.get("nodeConfig", {})),
        "management": {"autoUpgrade": True, "autoRepair": True},
    }


def _shown(world: World, path: str, cluster: Resource) -> Resource:
    pools = world.pools(path)
    counts = [world.pool_size(name) * len(pool["locations"]) for name, pool in pools.items()]
    groups = [url for pool in pools.values() for url in pool["instanceGroupUrls"]]
    first: Resource = next(iter(pools.values()), {"config": {}})
    derived = {"nodePools": list(pools.values()), "currentNodeCount": sum(counts), "instanceGroupUrls": groups}
    return {"nodeConfig": first["config"], **cluster, **derived, **_shown_endpoints(world, cluster)}


def _shown_endpoints(world: World, cluster: Resource) -> Resource:
    """The endpoints as they are read. What stands in `enablePublicEndpoint` while the IP endpoint is off is set by
    `UNPUBLISHED`."""
    endpoints = cluster["controlPlaneEndpointsConfig"]
    ip = endpoints["ipEndpointsConfig"]
    if ip["enabled"]:
        return {}
    public = (world.store.get(*UNPUBLISHED) or {}).get("public_endpoint_when_off", False)
    return {"controlPlaneEndpointsConfig": {**endpoints, "ipEndpointsConfig": {**ip, "enablePublicEndpoint": public}}}


@handles(f"{METHOD}.get")
def get_cluster(call: Call) -> Resource:
    return _shown(call.world, *_cluster(call))


@handles(f"{METHOD}.list")
def list_clusters(call: Call) -> Resource:
    place = "" if _location(call) == "-" else f"{_location(call)}/"
    found = call.store.all(CLUSTERS, f"projects/{call.project}/locations/{place}")
    return {"clusters": [_shown(call.world, path, cluster) for path, cluster in found.items()]}


@handles(f"{METHOD}.delete")
def delete_cluster(call: Call) -> Operation:
    path, cluster = _cluster(call)
    pools = call.world.pools(path)
    _idle(call.world, path, *pools)
    call.store.put(CLUSTERS, path, {**cluster, "status": "STOPPING"})
    changes = [Change(CLUSTERS, path, None)]
    for name in pools:
        changes += [Change(POOLS, name, None), Change(SIZES, name, None)]
    kept = [Change(CLUSTERS, path, {**cluster, "status": "RUNNING"})]
    return _start(call, "DELETE_CLUSTER", path, changes, on_error=kept, follow="delete", cluster=path)


def _change_cluster(call: Call, kind: str, path: str, old: Resource, new: Resource) -> Operation:
    _idle(call.world, path)
    if old["status"] != "RUNNING":
        raise precondition(f"Cluster {old['name']} is not running (status {old['status']}).")
    call.store.put(CLUSTERS, path, {**old, "status": "RECONCILING"})
    new = {**new, "status": "RUNNING", "labelFingerprint": fingerprint(new.get("resourceLabels", {}))}
    changes = [Change(CLUSTERS, path, {**new, "etag": fingerprint(new)})]
    return _start(call, kind, path, changes, on_error=[Change(CLUSTERS, path, old)])


@handles(f"{METHOD}.update")
def update_cluster(call: Call) -> Operation:
    path, old = _cluster(call)
    new, desired = old, dict(call.body.get("update") or {})
    _check_etag(desired.pop("etag", ""), old["etag"])
    if not _OF_POOLS.isdisjoint(desired):
        return _update_pool_through_cluster(call, path, desired)
    for field, value in desired.items():
        plain = field.removeprefix("desired")
        target = _SPECIAL_UPDATES.get(field, plain[:1].lower() + plain[1:])
        new = put_at(new, target, _desired(field, value, old, target))
    _check_features(call, new)
    return _change_cluster(call, "UPDATE_CLUSTER", path, old, _scanned(new))


def _update_pool_through_cluster(call: Call, path: str, desired: Resource) -> Operation:
    """Some of a pool's fields can also be set with an update of its cluster; the pool may go unnamed if it is alone."""
    only = [short(name) for name in call.world.pools(path)]
    named = desired.get("desiredNodePoolId") or (only[0] if len(only) == 1 else "")
    if not named:
        raise invalid("desired_node_pool_id must be specified if the cluster has more than one node pool.")
    _, pool = _pool(call, named)
    if "desiredNodePoolAutoscaling" in desired:
        pool = {**pool, "autoscaling": desired["desiredNodePoolAutoscaling"]}
    if "desiredNodeVersion" in desired:
        pool = {**pool, "version": _node_version(call, desired["desiredNodeVersion"])}
    if "desiredImageType" in desired:
        pool = put_at(pool, "config.imageType", desired["desiredImageType"])
    return _change_pool(call, "UPDATE_CLUSTER", pool)


def _node_version(call: Call, wanted: str) -> str:
    """An offered version; "-" is the control plane's."""
    _, cluster = _cluster(call)
    if wanted in ("", "-"):
        return str(cluster["currentMasterVersion"])
    return _offered_version(wanted, cluster["releaseChannel"].get("channel", ""))


def _desired(field: str, value: Any, cluster: Resource, target: str) -> Any:
    if field == "desiredMasterVersion":
        return _newer_version(value, cluster)
    if field in _FLAGS:
        return value.get("enabled", False)
    return filled(value, cluster.get(target, {})) if field in _MERGED else value


def _newer_version(wanted: str, cluster: Resource) -> str:
    current = cluster["currentMasterVersion"]
    version = _offered_version(wanted, cluster["releaseChannel"].get("channel", ""))
    if machines.version_key(version) < machines.version_key(current):
        raise invalid(f"Master cannot be downgraded from {current} to {version}.")
    return version


def _check_etag(sent: str, current: str) -> None:
    if sent and sent != current:
        raise GoogleError("ABORTED", f"The etag {sent} does not match the current etag {current}.")


@handles(*(f"{METHOD}.{verb}" for verb in _CLUSTER_SETTERS))
def set_on_cluster(call: Call) -> Operation:
    path, old = _cluster(call)
    verb = call.method.rpartition(".")[2]
    source, target = _CLUSTER_SETTERS[verb]
    if verb == "setResourceLabels" and call.body.get("labelFingerprint") != old["labelFingerprint"]:
        raise precondition("Labels could not be set due to fingerprint mismatch.")
    bare = {key: value for key, value in call.body.items() if key not in _ADDRESSING}
    value = call.body.get(source, {}) if source else bare
    value = _versioned(value) if verb == "setMaintenancePolicy" else value
    return _change_cluster(call, "UPDATE_CLUSTER", path, old, {**old, target: value})


# Node pools


def group_name(pool_path: str, zone: str) -> str:
    """The name of the managed instance group behind a pool in a zone: at most 63 characters, unique per pool."""
    return f"{node_base(ClusterRef.parse(pool_path), short(pool_path), zone)}-grp"


def _new_pool(call: Call, cluster_path: str, cluster: Resource, wanted: Resource) -> Resource:
    """The pool as it reads from now on; rules are checked on this."""
    path = f"{cluster_path}/nodePools/{wanted['name']}"
    pool = _defaulted(wanted, POOL_DEFAULTS)
    channel = cluster["releaseChannel"].get("channel", "")
    master = cluster["currentMasterVersion"]
    wanted_version = pool.get("version") or ""
    version = master if wanted_version in ("", "-") else _offered_version(wanted_version, channel)
    pods: Resource = pool.get("maxPodsConstraint") or cluster["defaultMaxPodsConstraint"]
    zones = pool.get("locations") or cluster["locations"]
    flex = bool(pool["config"].get("flexStart"))
    defaults = {
        "maxPodsConstraint": pods,
        "podIpv4CidrSize": 32 - (2 * int(pods["maxPodsPerNode"]) - 1).bit_length(),
        "upgradeSettings": _upgrades(wanted, flex=flex),
        "management": {} if "management" in wanted else {"autoUpgrade": True, "autoRepair": not flex},
        "networkConfig": _pool_network(cluster),
    }
    own = {
        "selfLink": CONTAINER + path,
        "status": "PROVISIONING",
        "version": version,
        "locations": zones,
        "config": _node_config(cluster, pool["config"], queued=bool(dig(pool, "queuedProvisioning", "enabled"))),
        "instanceGroupUrls": [
            self_link(f"projects/{call.project}/zones/{zone}/instanceGroupManagers/{group_name(path, zone)}")
            for zone in zones
        ],
    }
    pool = filled({**pool, **own}, defaults)
    if dig(pool, "autoscaling", "enabled"):
        pool["autoscaling"] = {"locationPolicy": _location_policy(pool["config"]), **pool["autoscaling"]}
    if dig(pool, "placementPolicy", "policyName"):
        pool["placementPolicy"] = {k: v for k, v in pool["placementPolicy"].items() if k != "type"}
    return {**pool, "etag": fingerprint(pool)}


def _upgrades(wanted: Resource, *, flex: bool) -> Resource:
    """What Google adds to a pool's upgrade settings. Where there are some, a `maxSurge` that is not sent is 0."""
    if "upgradeSettings" not in wanted:
        return {"strategy": "SHORT_LIVED"} if flex else {"strategy": "SURGE", "maxSurge": 1}
    surges = wanted["upgradeSettings"].get("strategy", "SURGE") == "SURGE"
    return {"strategy": "SURGE", "maxSurge": 0} if surges else {}


def _location_policy(config: Resource) -> str:
    return "ANY" if config.get("spot") or config.get("flexStart") else "BALANCED"


def _pool_network(cluster: Resource) -> Resource:
    policy = cluster["ipAllocationPolicy"]
    network = {
        "subnetwork": cluster["networkConfig"]["subnetwork"],
        "podIpv4CidrBlock": cluster["clusterIpv4Cidr"],
        "enablePrivateNodes": bool(cluster["networkConfig"]["defaultEnablePrivateNodes"]),
        "podCidrOverprovisionConfig": {"disable": False},
    }
    if policy.get("clusterSecondaryRangeName"):
        network["podRange"] = policy["clusterSecondaryRangeName"]
    return network


def _node_config(cluster: Resource, config: Resource, *, queued: bool) -> Resource:
    """A node configuration with what depends on the machine type: disks, threads, taints, metadata server."""
    machine = machines.machine_type(config["machineType"])
    generation = machine.generation if machine else None
    kind = dig(config, "bootDisk", "diskType") or config.get("diskType")
    kind = kind or (generation.default_disk if generation else "pd-balanced")
    size = int(dig(config, "bootDisk", "sizeGb") or config["diskSizeGb"])
    taints = [taint for taint in config.get("taints", []) if taint.get("key") not in _OWN_TAINTS]
    taints += [TPU_TAINT] * bool(generation) + [QUEUED_TAINT] * queued
    result = {
        **config,
        "diskType": config.get("diskType", kind),
        "diskSizeGb": size,
        "bootDisk": {**config.get("bootDisk", {}), "diskType": kind, "sizeGb": str(size)},
    }
    if taints:
        result["taints"] = taints
    if machine and machine.threads_per_core:
        features = {"threadsPerCore": str(machine.threads_per_core)}
        result["advancedMachineFeatures"] = {**features, **config.get("advancedMachineFeatures", {})}
    if dig(cluster, "workloadIdentityConfig", "workloadPool") and "workloadMetadataConfig" not in config:
        result["workloadMetadataConfig"] = {"mode": "GKE_METADATA"}
    return result


_OWN_TAINTS = frozenset({TPU_TAINT["key"], QUEUED_TAINT["key"]})


def _pool_ready(cluster_path: str, pool: Resource) -> list[Change]:
    path = f"{cluster_path}/nodePools/{pool['name']}"
    size = {"nodes": pool["initialNodeCount"]}
    return [Change(POOLS, path, {**pool, "status": "RUNNING"}), Change(SIZES, path, size)]


def _pool(call: Call, name: str = "") -> tuple[str, Resource]:
    path = f"{_cluster(call)[0]}/nodePools/{name or call.params['nodePoolsId']}"
    found = call.store.get(POOLS, path)
    if found is None:
        raise not_found(path)
    return path, found


POOL_METHOD = f"{METHOD}.nodePools"


@handles(f"{POOL_METHOD}.create")
def create_pool(call: Call) -> Operation:
    cluster_path, cluster = _cluster(call)
    wanted = call.body.get("nodePool") or {}
    if not wanted.get("name"):
        raise invalid("Required field 'node_pool.name' not specified", reason="required")
    path = f"{cluster_path}/nodePools/{wanted['name']}"
    if call.store.get(POOLS, path):
        raise exists(path)
    _idle(call.world, cluster_path, path)
    pool = _new_pool(call, cluster_path, cluster, wanted)
    pool_rules.check(call.world, cluster, call.project, pool)
    pool_rules.check_growth(call.world, call.project, pool, pool["initialNodeCount"])
    call.store.apply([Change(POOLS, path, pool), Change(SIZES, path, {"nodes": pool["initialNodeCount"]})])
    broken = [Change(POOLS, path, {**pool, "status": "ERROR"}), Change(SIZES, path, {"nodes": 0})]
    changes = _pool_ready(cluster_path, pool)
    return _start(call, "CREATE_NODE_POOL", path, changes, on_error=broken, follow="pools", cluster=cluster_path)


@handles(f"{POOL_METHOD}.get")
def get_pool(call: Call) -> Resource:
    return _pool(call)[1]


@handles(f"{POOL_METHOD}.list")
def list_pools(call: Call) -> Resource:
    return {"nodePools": list(call.world.pools(_cluster(call)[0]).values())}


@handles(f"{POOL_METHOD}.delete")
def delete_pool(call: Call) -> Operation:
    path, pool = _pool(call)
    cluster_path = _cluster_path(call)
    _idle(call.world, cluster_path, path)
    call.store.put(POOLS, path, {**pool, "status": "STOPPING"})
    back = [Change(LOST, host, None) for host in call.store.all(LOST, f"{path}/")]
    changes = [Change(POOLS, path, None), Change(SIZES, path, None), *back]
    kept = [Change(POOLS, path, pool)]
    return _start(call, "DELETE_NODE_POOL", path, changes, on_error=kept, follow="pools", cluster=cluster_path)


def _change_pool(call: Call, kind: str, new: Resource, *rest: Change) -> Operation:
    path, old = _pool(call, new["name"])
    cluster_path, cluster = _cluster(call)
    _idle(call.world, cluster_path, path)
    if old["status"] not in ("RUNNING", "RUNNING_WITH_ERROR"):
        raise precondition(f"Node pool {old['name']} is not running (status {old['status']}).")
    pool_rules.check(call.world, cluster, call.project, new)
    call.store.put(POOLS, path, {**old, "status": "RECONCILING"})
    new = {**new, "status": "RUNNING"}
    changes = [Change(POOLS, path, {**new, "etag": fingerprint(new)}), *rest]
    return _start(call, kind, path, changes, on_error=[Change(POOLS, path, old)], follow="pools", cluster=cluster_path)


@handles(f"{POOL_METHOD}.update")
def update_pool(call: Call) -> Operation:
    _, old = _pool(call)
    _check_etag(call.body.get("etag", ""), old["etag"])
    new = old
    for field, (target, wrapper) in _POOL_UPDATES.items():
        if field in call.body:
            value = call.body[field].get(wrapper, {}) if wrapper else call.body[field]
            new = put_at(new, target, _node_version(call, value) if target == "version" else value)
    if "upgradeSettings" in call.body:
        new = {**new, "upgradeSettings": {**_upgrades(call.body, flex=False), **call.body["upgradeSettings"]}}
    new = {**new, "config": _reconfigured(call, new)}
    zones = [short(url.partition("/instanceGroupManagers/")[0]) for url in old["instanceGroupUrls"]]
    if zones != new["locations"]:
        path = _pool(call)[0]
        base = f"projects/{call.project}/zones"
        groups = [f"{base}/{z}/instanceGroupManagers/{group_name(path, z)}" for z in new["locations"]]
        new["instanceGroupUrls"] = [self_link(group) for group in groups]
    return _change_pool(call, "UPGRADE_NODES", new)


def _reconfigured(call: Call, pool: Resource) -> Resource:
    """The node configuration after an update; boot disk and the older disk fields show the same disk."""
    config = dict(pool["config"])
    if "bootDisk" in call.body:
        boot = call.body["bootDisk"]
        config |= {"diskType": boot.get("diskType", config["diskType"]), "diskSizeGb": int(boot.get("sizeGb", 100))}
    else:
        disk = {"diskType": config["diskType"], "sizeGb": str(config["diskSizeGb"])}
        config["bootDisk"] = {**config["bootDisk"], **disk}
    return _node_config(_cluster(call)[1], config, queued=bool(dig(pool, "queuedProvisioning", "enabled")))


@handles(f"{POOL_METHOD}.setManagement")
def set_management(call: Call) -> Operation:
    _, old = _pool(call)
    return _change_pool(call, "SET_NODE_POOL_MANAGEMENT", {**old, "management": call.body.get("management", {})})


@handles(f"{POOL_METHOD}.setAutoscaling")
def set_autoscaling(call: Call) -> Operation:
    _, old = _pool(call)
    return _change_pool(call, "UPDATE_CLUSTER", {**old, "autoscaling": call.body.get("autoscaling", {})})


@handles(f"{POOL_METHOD}.setSize")
def set_size(call: Call) -> Operation:
    path, old = _pool(call)
    nodes = int(call.body.get("nodeCount", 0))
    check_resize(call.world, path, old, nodes)
    return _change_pool(call, "SET_NODE_POOL_SIZE", old, Change(SIZES, path, {"nodes": nodes}))


def check_resize(world: World, path: str, pool: Resource, nodes: int) -> None:
    """Raises GoogleError unless the pool may have `nodes` nodes per zone: whole slices, in quota and reservation."""
    pool_rules.check_size(world, pool, nodes)
    more = nodes - world.pool_size(path)
    if more > 0:
        pool_rules.check_growth(world, path.split("/")[1], pool, more)


def autoscale(world: World, path: str, nodes: int) -> None:
    """Resizes a pool the way GKE's autoscaler does: at once, within its limits, and without an operation.

    Raises GoogleError when the pool does not exist, is not autoscaled, or cannot have `nodes` nodes per zone; where the
    zone is out of stock, its reason is STOCKOUT. (A stock limits no other change of a pool's size.)
    """
    with world.store.lock:
        pool = world.store.get(POOLS, path)
        if pool is None:
            raise not_found(path)
        scaling = pool.get("autoscaling") or {}
        most = scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount") or 0
        least = scaling.get("minNodeCount") or scaling.get("totalMinNodeCount") or 0
        if not scaling.get("enabled"):
            raise precondition(f"Node pool {pool['name']} is not autoscaled.")
        if not least <= nodes <= most:
            raise precondition(f"Node pool {pool['name']} scales between {least} and {most} nodes, not to {nodes}.")
        check_resize(world, path, pool, nodes)
        _check_stock(world, pool, nodes - world.pool_size(path))
        world.store.put(SIZES, path, {"nodes": nodes})
    world.tell_pools(path.partition("/nodePools/")[0])


def _check_stock(world: World, pool: Resource, more: int) -> None:
    machine, model = pool["config"]["machineType"], pool_model(pool["config"])
    if more > 0 and any(more > world.free_machines(zone, machine, model) for zone in pool["locations"]):
        raise GoogleError("RESOURCE_EXHAUSTED", OPERATION_ERRORS[STOCKOUT][1], reason=STOCKOUT)


def _instance_groups(world: World, prefix: str) -> dict[str, Resource]:
    """The managed instance groups behind node pools, by full name, for lists of a project's or zone's groups."""
    project = prefix.split("/")[1]
    found = {}
    for path, pool in world.store.all(POOLS, f"projects/{project}/").items():
        for url in pool["instanceGroupUrls"]:
            name = url.partition("/v1/")[2]
            if name.startswith(prefix):
                zone = name.split("/")[3]
                found[name] = _instance_group(name, url, world.pool_size(path), len(world.lost_nodes(path, zone)))
    return found


def _instance_group(name: str, url: str, size: int, lost: int) -> Resource:
    zone_url, _, _ = url.partition("/instanceGroupManagers/")
    return {
        "kind": "compute#instanceGroupManager",
        "id": str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16)),
        "name": short(name),
        "selfLink": url,
        "zone": zone_url,
        "instanceGroup": url.replace("/instanceGroupManagers/", "/instanceGroups/"),
        "baseInstanceName": short(name).removesuffix("-grp"),
        "targetSize": size,
        "currentActions": dict.fromkeys(IDLE_ACTIONS, 0) | {"none": size - lost, "recreating": lost},
    }


DERIVED["instanceGroupManagers"] = _instance_groups


# Operations and versions


@handles("container.projects.locations.operations.get")
def get_operation(call: Call) -> Resource:
    name = call.params["operationsId"]
    operation = call.world.operations.get(name)
    if operation is None or operation.api != "container":
        raise not_found(f"projects/{call.project}/locations/{_location(call)}/operations/{name}")
    return render(operation)


@handles("container.projects.locations.operations.list")
def list_operations(call: Call) -> Resource:
    here = (call.project, _location(call))
    found = [o for o in call.world.operations.all() if o.api == "container" and (o.project, o.location) == here]
    return {"operations": [render(operation) for operation in found]}


@handles("container.projects.locations.getServerConfig")
def server_config(call: Call) -> Resource:
    _check_location(_location(call))
    channels = [
        {"channel": name, "defaultVersion": versions[0], "validVersions": list(versions)}
        for name, versions in machines.CHANNELS.items()
    ]
    return {
        "channels": channels,
        "defaultClusterVersion": machines.CHANNELS["REGULAR"][0],
        "validMasterVersions": list(machines.ALL_VERSIONS),
        "validNodeVersions": list(machines.ALL_VERSIONS),
        "defaultImageType": "COS_CONTAINERD",
        "validImageTypes": ["COS_CONTAINERD", "UBUNTU_CONTAINERD"],
    }
