"""GKE clusters and node pools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.plugins.gcp import labels, links
from sandbox.plugins.gcp.mapping import (
    Field,
    Fields,
    Json,
    get,
    int64,
    inverted,
    merged,
    nonzero,
    only_entry,
    put,
    renamed,
    to_rest,
    with_unset,
    without_empties,
    write_only,
)
from sandbox.plugins.gcp.resources.rest import (
    COMMON,
    PLACES,
    Context,
    Inputs,
    Rest,
    Variables,
    kept_if_it_exists,
    named_errors,
    refuse_guarded,
    without_markers,
)
from sandbox.plugins.gcp.schema import Property, Schema
from sandbox.plugins.gcp.settings import Settings
from sandbox.plugins.provider import Change, Failure, ProviderError

CLUSTERS = "projects/{project}/locations/{location}/clusters"
RESTING = frozenset({"RUNNING", "DEGRADED", "ERROR", "RUNNING_WITH_ERROR"})
BROKEN = frozenset({"ERROR", "RUNNING_WITH_ERROR"})
DEFAULT_SCOPES = [
    links.SCOPE_PREFIX + scope
    for scope in (
        "devstorage.read_only",
        "logging.write",
        "monitoring",
        "service.management.readonly",
        "servicecontrol",
        "trace.append",
    )
]
# GKE marks nodes with labels of its own; the provider does not take them for the program's.
GOOGLE_LABEL = "goog-gke-"


def _upper_text(rest: str = "") -> Field:
    """A tri-state: "TRUE" and "FALSE" in the program, a boolean in the API."""
    return Field(rest, lambda text: text == "TRUE", lambda flag: "TRUE" if flag else "FALSE")


_UNSET_LOGGING: Json = {"loggingConfig": {"variantConfig": {}}}
_NODE_FIELDS: Fields = {
    "effectiveTaints": renamed("taints"),
    "kubeletConfig": with_unset({"cpuCfsQuota": True}),
    "kubeletConfig.insecureKubeletReadonlyPortEnabled": _upper_text(),
    "loggingVariant": renamed("loggingConfig.variantConfig.variant"),
    "bootDisk.sizeGb": int64(),
    "advancedMachineFeatures.threadsPerCore": int64(),
}


def _without_empty_maps(properties: Mapping[str, Property], values: Inputs) -> Json:
    """The inputs without maps that hold nothing: the client of GKE's API leaves them out."""
    kept: Json = {}
    for name, value in values.items():
        each = properties.get(name)
        if each is not None and each.is_object and isinstance(value, Mapping):
            kept[name] = _without_empty_maps(each.properties, value)
        elif each is None or each.kind != "Map" or without_markers(value):
            kept[name] = value
    return kept


def _below(prefix: str, fields: Fields) -> dict[str, Field | None]:
    return {f"{prefix}.{path}": each for path, each in fields.items()}


@dataclass(frozen=True, kw_only=True)
class _Gke(Rest):
    """What clusters and pools share: they settle through statuses, and creating one that exists is refused early."""

    def resting(self, context: Context, variables: Variables, first: Json | None = None) -> Json | None:
        """The resource once it is in a resting state; None if it does not exist."""

        def read() -> Json:
            return self.fetch(context, variables) or {}

        what = f"{context.schema.title} {variables['name']} to settle"
        done = context.client.poll(read, lambda r: not r or r.get("status") in RESTING, context.deadline, what, first)
        return done or None

    def refuse_existing(self, context: Context, variables: Variables) -> None:
        if self.fetch(context, variables) is not None:
            raise ProviderError(f"resource - {self.id(variables)} - already exists; import it to manage it here")

    def refuse_broken(self, context: Context, found: Json) -> None:
        if found.get("status") in BROKEN:
            raise ProviderError(found.get("statusMessage") or f"{context.schema.title} is in state {found['status']}")

    def send(self, context: Context, variables: Variables, method: str, suffix: str, body: Json) -> None:
        """One update call and its operation."""
        with named_errors(f"Error updating {context.schema.title}"):
            self.act(context, variables, method, suffix, f"{context.schema.title} to be updated", body)

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        variables = self.parse(context.settings, identity)
        refuse_guarded(self.guards, context.schema, outputs)
        if self.fetch(context, variables) is not None:
            super().delete(context, identity, {})

    def operation_url(self, variables: Variables, operation: Json) -> str:
        return "projects/{project}/locations/{location}/operations/".format(**variables) + str(operation["name"])


# --- clusters -------------------------------------------------------------------------------------------------------

_IP_ENDPOINTS = "controlPlaneEndpointsConfig.ipEndpointsConfig"

_CLUSTER_FIELDS: Fields = {
    "datapathProvider": renamed("networkConfig.datapathProvider"),
    "defaultMaxPodsPerNode": int64("defaultMaxPodsConstraint.maxPodsPerNode"),
    "deletionProtection": None,
    "enableIntranodeVisibility": renamed("networkConfig.enableIntraNodeVisibility"),
    "enableL4IlbSubsetting": renamed("networkConfig.enableL4ilbSubsetting"),
    "enableLegacyAbac": renamed("legacyAbac.enabled"),
    "enableMultiNetworking": renamed("networkConfig.enableMultiNetworking"),
    "gatewayApiConfig": renamed("networkConfig.gatewayApiConfig"),
    "enableShieldedNodes": renamed("shieldedNodes.enabled"),
    "ipAllocationPolicy.podCidrOverprovisionConfig.disabled": renamed("disable"),
    "loggingConfig.enableComponents": renamed("componentConfig.enableComponents"),
    "masterAuth.clientCertificateConfig.issueClientCertificate": nonzero(),
    "maintenancePolicy.maintenanceExclusions": Field(
        "window.maintenanceExclusions",
        lambda exclusions: {e.pop("exclusionName"): e for e in exclusions},
        lambda named: [{"exclusionName": name, **window} for name, window in named.items()],
    ),
    "maintenancePolicy.maintenanceExclusions.exclusionOptions": renamed("maintenanceExclusionOptions"),
    "maintenancePolicy.recurringWindow": renamed("window.recurringWindow"),
    "maintenancePolicy.recurringWindow.endTime": renamed("window.endTime"),
    "maintenancePolicy.recurringWindow.startTime": renamed("window.startTime"),
    "masterAuthorizedNetworksConfig": Field(
        f"{_IP_ENDPOINTS}.authorizedNetworksConfig",
        lambda networks: {"enabled": True, **networks},
        lambda networks: networks if networks.get("enabled") else None,
    ),
    "masterVersion": renamed("currentMasterVersion"),
    "minMasterVersion": write_only("initialClusterVersion"),
    "monitoringConfig.enableComponents": renamed("componentConfig.enableComponents"),
    "monitoringConfig.managedPrometheus": renamed("managedPrometheusConfig"),
    "networkingMode": Field(
        "ipAllocationPolicy.useIpAliases",
        lambda mode: mode == "VPC_NATIVE",
        lambda aliases: "VPC_NATIVE" if aliases else "ROUTES",
    ),
    "nodeConfig": with_unset(_UNSET_LOGGING),
    **_below("nodeConfig", _NODE_FIELDS),
    "nodeLocations": renamed("locations"),
    "nodePoolAutoConfig.nodeKubeletConfig.insecureKubeletReadonlyPortEnabled": _upper_text(),
    "nodePoolDefaults.nodeConfigDefaults": with_unset(_UNSET_LOGGING),
    "nodePoolDefaults.nodeConfigDefaults.insecureKubeletReadonlyPortEnabled": _upper_text(
        "nodeKubeletConfig.insecureKubeletReadonlyPortEnabled"
    ),
    # Pools in their own resources set node versions; the cluster's is only read.
    "nodeVersion": renamed("currentNodeVersion"),
    "privateClusterConfig": Field(send=lambda left: left or None),
    "privateClusterConfig.enablePrivateEndpoint": inverted(f"/{_IP_ENDPOINTS}.enablePublicEndpoint"),
    "privateClusterConfig.enablePrivateNodes": renamed("/networkConfig.defaultEnablePrivateNodes"),
    "privateClusterConfig.masterGlobalAccessConfig": Field(send=lambda _moved: None),
    "privateClusterConfig.masterGlobalAccessConfig.enabled": renamed(f"/{_IP_ENDPOINTS}.globalAccess"),
    "privateClusterConfig.privateEndpoint": renamed(f"/{_IP_ENDPOINTS}.privateEndpoint"),
    "privateClusterConfig.privateEndpointSubnetwork": renamed(f"/{_IP_ENDPOINTS}.privateEndpointSubnetwork"),
    "privateClusterConfig.publicEndpoint": renamed(f"/{_IP_ENDPOINTS}.publicEndpoint"),
    "removeDefaultNodePool": None,
    "skipNodePoolRefresh": None,
}

# property -> (field of ClusterUpdate, where its value stands in the full body). The API takes one field per PUT. These
# are the properties that the platform sets; the table of schemas refuses others that can change in place.
_DESIRED: Mapping[str, tuple[str, str]] = {
    "addonsConfig": ("desiredAddonsConfig", "addonsConfig"),
    "anonymousAuthenticationConfig": ("desiredAnonymousAuthenticationConfig", "anonymousAuthenticationConfig"),
    "authenticatorGroupsConfig": ("desiredAuthenticatorGroupsConfig", "authenticatorGroupsConfig"),
    "binaryAuthorization": ("desiredBinaryAuthorization", "binaryAuthorization"),
    "controlPlaneEndpointsConfig": ("desiredControlPlaneEndpointsConfig", "controlPlaneEndpointsConfig"),
    "costManagementConfig": ("desiredCostManagementConfig", "costManagementConfig"),
    "databaseEncryption": ("desiredDatabaseEncryption", "databaseEncryption"),
    "enableIntranodeVisibility": (
        "desiredIntraNodeVisibilityConfig.enabled",
        "networkConfig.enableIntraNodeVisibility",
    ),
    "enableL4IlbSubsetting": ("desiredL4ilbSubsettingConfig.enabled", "networkConfig.enableL4ilbSubsetting"),
    "enableMultiNetworking": ("desiredEnableMultiNetworking", "networkConfig.enableMultiNetworking"),
    "enableShieldedNodes": ("desiredShieldedNodes.enabled", "shieldedNodes.enabled"),
    "gatewayApiConfig": ("desiredGatewayApiConfig", "networkConfig.gatewayApiConfig"),
    "loggingConfig": ("desiredLoggingConfig", "loggingConfig"),
    "masterAuthorizedNetworksConfig": ("desiredControlPlaneEndpointsConfig", "controlPlaneEndpointsConfig"),
    "minMasterVersion": ("desiredMasterVersion", "initialClusterVersion"),
    "monitoringConfig": ("desiredMonitoringConfig", "monitoringConfig"),
    "podAutoscaling": ("desiredPodAutoscaling", "podAutoscaling"),
    "rbacBindingConfig": ("desiredRbacBindingConfig", "rbacBindingConfig"),
    "releaseChannel": ("desiredReleaseChannel", "releaseChannel"),
    "secretManagerConfig": ("desiredSecretManagerConfig", "secretManagerConfig"),
    "secretSyncConfig": ("desiredSecretSyncConfig", "secretSyncConfig"),
    "securityPostureConfig": ("desiredSecurityPostureConfig", "securityPostureConfig"),
    "workloadIdentityConfig": ("desiredWorkloadIdentityConfig", "workloadIdentityConfig"),
}
_NODE_DEFAULTS = "nodePoolDefaults.nodeConfigDefaults"
# The same for blocks whose parts go out separately, by path of the change.
_DESIRED_PARTS: Mapping[str, tuple[str, str]] = {
    "privateClusterConfig.enablePrivateNodes": (
        "desiredDefaultEnablePrivateNodes",
        "networkConfig.defaultEnablePrivateNodes",
    ),
    "privateClusterConfig": ("desiredControlPlaneEndpointsConfig", "controlPlaneEndpointsConfig"),
    "ipAllocationPolicy.stackType": ("desiredStackType", "ipAllocationPolicy.stackType"),
    "nodePoolAutoConfig.nodeKubeletConfig": (
        "desiredNodePoolAutoConfigKubeletConfig",
        "nodePoolAutoConfig.nodeKubeletConfig",
    ),
    f"{_NODE_DEFAULTS}.gcfsConfig": ("desiredGcfsConfig", f"{_NODE_DEFAULTS}.gcfsConfig"),
    f"{_NODE_DEFAULTS}.insecureKubeletReadonlyPortEnabled": (
        "desiredNodeKubeletConfig",
        f"{_NODE_DEFAULTS}.nodeKubeletConfig",
    ),
}
_LABEL_PROPERTIES = frozenset({"resourceLabels", labels.EFFECTIVE, labels.PULUMI})


@dataclass(frozen=True, kw_only=True)
class Cluster(_Gke):
    """A GKE cluster. `removeDefaultNodePool` deletes the pool GKE insists on creating."""

    def refused(self, olds: Inputs, inputs: Inputs) -> Iterator[Failure]:
        # Once the cluster exists its version is known to the provider anyway, so only a new cluster is looked at.
        if not olds and inputs.get("nodeVersion") and inputs.get("removeDefaultNodePool"):
            text = "node_version can only be specified if remove_default_node_pool is not true"
            yield Failure("nodeVersion", text)

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        identity = self.id(variables)
        prefix = "Error creating Cluster"
        refuse_own_zone(variables, inputs)
        with named_errors(prefix):
            self.refuse_existing(context, variables)
            operation = self.post(context, variables, inputs)
        # Until the default pool is gone the state says so, and the next update removes it.
        with kept_if_it_exists(self, context, identity, {**inputs, "removeDefaultNodePool": False}, prefix):
            self.wait(context, variables, operation, f"cluster {variables['name']} to be created")
            if inputs.get("removeDefaultNodePool"):
                self._remove_default_pool(context, variables)
        with kept_if_it_exists(self, context, identity, inputs, prefix):
            found = self.resting(context, variables)
            if found is None:
                raise ProviderError(f"{identity} was created but cannot be read")
            self.refuse_broken(context, found)
            return identity, self.outputs(context, identity, variables, found, inputs)

    def _remove_default_pool(self, context: Context, variables: Variables) -> None:
        url = f"{self.item}/nodePools/default-pool".format(**variables)
        operation = context.client.find("DELETE", self.api, url, context.deadline)
        if operation is not None:
            self.wait(context, variables, operation, "the default pool to be deleted")

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        return {"cluster": self._cluster(context, variables, inputs)}

    def _cluster(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        placed: Fields = {**dict.fromkeys(PLACES), **COMMON, **self.fields}
        properties = context.schema.properties
        given = without_empties(to_rest(properties, _without_empty_maps(properties, inputs), placed))
        cluster = merged(self.always, given)
        if get(cluster, f"{_IP_ENDPOINTS}.enabled") is False:
            # Of an IP endpoint that is off the provider sends that, and nothing else.
            cluster["controlPlaneEndpointsConfig"]["ipEndpointsConfig"] = {"enabled": False}
        if "locations" in cluster and is_zone(variables["location"]):
            cluster["locations"] = sorted({*cluster["locations"], variables["location"]})
        if "ipAllocationPolicy" in cluster:
            cluster["ipAllocationPolicy"].setdefault("useIpAliases", True)
        cluster["resourceLabels"] = labels.wanted(context.schema, context.settings, inputs)
        return cluster

    def settled(self, context: Context, identity: str, variables: Variables, inputs: Inputs) -> Json:
        found = self.resting(context, variables)
        if found is None:
            raise ProviderError(f"{identity} does not exist any more")
        return self.outputs(context, identity, variables, found, inputs)

    def read(self, context: Context, identity: str, known: Inputs) -> Json | None:
        self.resting(context, self.parse(context.settings, identity))
        return self.snapshot(context, identity, known)

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = self.parse(context.settings, identity)
        present = self.resting(context, variables)
        if present is None:
            raise ProviderError(f"Error updating Cluster: {identity} does not exist any more; run pulumi refresh")
        changed = {c.top for c in changes}
        if "removeDefaultNodePool" in changed and news.get("removeDefaultNodePool"):
            self._remove_default_pool(context, variables)
        cluster = self._cluster(context, variables, news)
        if "nodeLocations" in changed:
            self._move_nodes(context, variables, news, set(present.get("locations", ())), set(cluster["locations"]))
        for update in _desired_updates(context.schema, changes, cluster):
            self.send(context, variables, "PUT", "", {"update": update})
        for suffix, body in self._set_calls(changed, cluster, present):
            self.send(context, variables, "POST", suffix, body)
        return self.settled(context, identity, variables, news)

    def _move_nodes(self, context: Context, variables: Variables, news: Inputs, old: set[str], new: set[str]) -> None:
        """Zones cannot be added and removed in one call: first there are all of them, then those that are wanted."""
        refuse_own_zone(variables, news)
        for zones in (old | new, new) if old - new else (new,):
            self.send(context, variables, "PUT", "", {"update": {"desiredLocations": sorted(zones)}})

    def _set_calls(self, changed: set[str], cluster: Json, present: Json) -> list[tuple[str, Json]]:
        calls: list[tuple[str, Json]] = []
        if "enableLegacyAbac" in changed:
            calls.append((":setLegacyAbac", {"enabled": bool(get(cluster, "legacyAbac.enabled"))}))
        if "maintenancePolicy" in changed:
            calls.append((":setMaintenancePolicy", {"maintenancePolicy": cluster.get("maintenancePolicy", {})}))
        if changed & _LABEL_PROPERTIES:
            sent = {
                "resourceLabels": cluster["resourceLabels"],
                "labelFingerprint": present.get("labelFingerprint", ""),
            }
            calls.append((":setResourceLabels", sent))
        return calls

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        if "nodeLocations" in values:
            values["nodeLocations"] = [zone for zone in values["nodeLocations"] if zone != found.get("zone")]
        if "privateClusterConfig" in values and get(found, _IP_ENDPOINTS) is not None:
            # The negation of a flag that may be absent, which is false.
            values["privateClusterConfig"].setdefault("enablePrivateEndpoint", True)
        return values


def is_zone(location: str) -> bool:
    return location.count("-") > 1


def refuse_own_zone(variables: Variables, inputs: Inputs) -> None:
    """A zonal cluster names only zones beside its own: the provider adds that one and leaves it out when it reads."""
    if variables["location"] in (inputs.get("nodeLocations") or ()):
        raise ProviderError("when using a multi-zonal cluster, node_locations should not contain the original 'zone'")


def _desired_updates(schema: Schema, changes: Sequence[Change], cluster: Json) -> list[Json]:
    """The ClusterUpdate bodies for the changes, each once; what the program unset goes out as its empty value."""
    updates: list[Json] = []
    for change in changes:
        part = next((p for p in _DESIRED_PARTS if re.match(rf"{re.escape(p)}(\.|\[|$)", change.path)), None)
        path = part or change.top
        found = _DESIRED_PARTS.get(path) or _DESIRED.get(path)
        if found is None:
            continue
        desired, place = found
        value = get(cluster, place)
        update: Json = {}
        put(update, desired, _empty(schema.at(path)) if value is None else value)
        if update not in updates:
            updates.append(update)
    return updates


def _empty(each: Property | None) -> Any:
    if each is None or each.is_object:
        return {}
    return {"Bool": False, "String": "", "Int": 0}.get(each.kind, [])


CLUSTER = Cluster(
    type="gcp:container/cluster:Cluster",
    api="container",
    collection=CLUSTERS,
    item=f"{CLUSTERS}/{{name}}",
    fields=_CLUSTER_FIELDS,
    always={
        "autopilot": {"enabled": False},
        "autoscaling": {"enableNodeAutoprovisioning": False},
        "binaryAuthorization": {"enabled": False},
        "controlPlaneEndpointsConfig": {
            "dnsEndpointConfig": {
                "allowExternalTraffic": False,
                "enableK8sCertsViaDns": False,
                "enableK8sTokensViaDns": False,
            },
            "ipEndpointsConfig": {
                "authorizedNetworksConfig": {},
                "enablePublicEndpoint": True,
                "enabled": True,
                "globalAccess": False,
                "privateEndpointSubnetwork": "",
            },
        },
        "legacyAbac": {"enabled": False},
        "networkPolicy": {},
        "nodeConfig": {"oauthScopes": DEFAULT_SCOPES},
        "notificationConfig": {"pubsub": {}},
    },
    rules={
        "enableL4IlbSubsetting": lambda old, new: bool(old) and not new,
    },
    guards=("deletionProtection",),
)


# --- node pools -----------------------------------------------------------------------------------------------------

_POOL_FIELDS: Fields = {
    "autoscaling": Field(
        send=lambda autoscaling: {"enabled": True, **autoscaling}, receive=lambda a: a if a.get("enabled") else None
    ),
    "cluster": None,
    "ignoreNodeCountChanges": None,
    "maxPodsPerNode": int64("maxPodsConstraint.maxPodsPerNode"),
    "networkConfig.podCidrOverprovisionConfig.disabled": renamed("disable"),
    "management.autoRepair": nonzero(),
    "management.autoUpgrade": nonzero(),
    "nodeConfig": with_unset(_UNSET_LOGGING, "config"),
    **_below("nodeConfig", _NODE_FIELDS),
    "nodeCount": None,
    "nodeDrainConfigs": only_entry("nodeDrainConfig"),
    "nodeLocations": renamed("locations"),
    "managedInstanceGroupUrls": None,
    "upgradeSettings.maxSurge": nonzero(),
    "upgradeSettings.maxUnavailable": nonzero(),
}
_AUTOSCALING_ZEROS = {"totalMinNodeCount": 0, "totalMaxNodeCount": 0, "minNodeCount": 0, "maxNodeCount": 0}


def _config(name: str, empty: Any = None) -> Callable[[Json], Json]:
    """The update body for one part of the node config, `empty` where the program unset it."""
    return lambda pool: {name: pool["config"].get(name, {} if empty is None else empty)}


def _machine(pool: Json) -> Json:
    config = pool["config"]
    sent = {name: config[name] for name in ("machineType", "diskType", "bootDisk") if name in config}
    return {**sent, **({"diskSizeGb": str(config["diskSizeGb"])} if "diskSizeGb" in config else {})}


def _network(pool: Json) -> Json:
    network = pool.get("networkConfig", {})
    names = ("enablePrivateNodes", "networkPerformanceConfig")
    return {"nodeNetworkConfig": {n: network[n] for n in names if n in network}}


# What can change in place: path of the change -> body of PUT nodePools/N. What is not here (topology and type of the
# placementPolicy, maintenancePolicies...) is shown as an update but sends nothing, as in the real provider.
_POOL_UPDATES: Mapping[str, Callable[[Json], Json]] = {
    "nodeConfig.labels": lambda pool: {"labels": {"labels": pool["config"].get("labels", {})}},
    "nodeConfig.taints": lambda pool: {"taints": {"taints": pool["config"].get("taints", [])}},
    "nodeConfig.tags": lambda pool: {"tags": {"tags": pool["config"].get("tags", [])}},
    "nodeConfig.resourceLabels": lambda pool: {"resourceLabels": {"labels": pool["config"].get("resourceLabels", {})}},
    "nodeConfig.machineType": _machine,
    "nodeConfig.diskType": _machine,
    "nodeConfig.diskSizeGb": _machine,
    "nodeConfig.bootDisk": _machine,
    "nodeConfig.imageType": _config("imageType", ""),
    "nodeConfig.gcfsConfig": _config("gcfsConfig"),
    "nodeConfig.gvnic": _config("gvnic"),
    "nodeConfig.workloadMetadataConfig": _config("workloadMetadataConfig"),
    "nodeConfig.kubeletConfig": _config("kubeletConfig"),
    "nodeConfig.loggingVariant": _config("loggingConfig"),
    "nodeLocations": lambda pool: {"locations": pool.get("locations", [])},
    "upgradeSettings": lambda pool: {"upgradeSettings": pool.get("upgradeSettings", {})},
    "version": lambda pool: {"nodeVersion": pool["version"]},
    "nodeDrainConfigs": lambda pool: {"nodeDrainConfig": pool.get("nodeDrainConfig", {})},
    "networkConfig": _network,
}


@dataclass(frozen=True, kw_only=True)
class NodePool(_Gke):
    """A node pool. `cluster` is the cluster's name or id; `nodeCount` is per zone and read from the instance groups."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        match = re.search(
            r"projects/([^/]+)/(?:locations|zones)/([^/]+)/clusters/([^/]+)", str(inputs.get("cluster", ""))
        )
        if match:
            project, location, cluster = match.groups()
            inputs = {**inputs, "project": project, "location": location, "cluster": cluster}
        return super().variables(settings, inputs)

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        identity = self.id(variables)
        prefix = "Error creating NodePool"
        with named_errors(prefix):
            _refuse_surge({}, inputs)
            self.refuse_existing(context, variables)
            operation = self.post(context, variables, inputs)
        with kept_if_it_exists(self, context, identity, inputs, prefix):
            self.wait(context, variables, operation, f"node pool {variables['name']} to be created")
            found, groups = self._settle(context, variables)
            self.refuse_broken(context, found)
            return identity, self._described(context, identity, variables, found, groups, inputs)

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        return {"nodePool": self._pool(context, inputs)}

    def _pool(self, context: Context, inputs: Inputs) -> Json:
        placed: Fields = {**dict.fromkeys(PLACES), **COMMON, **self.fields}
        properties = context.schema.properties
        given = to_rest(properties, _without_empty_maps(properties, inputs), placed)
        if "autoscaling" in given:
            given["autoscaling"] = {**_AUTOSCALING_ZEROS, **given["autoscaling"]}
        given.pop("initialNodeCount", None)
        if count := inputs.get("nodeCount") or inputs.get("initialNodeCount"):
            given["initialNodeCount"] = count
        return merged(self.always, without_empties(given))

    def settled(self, context: Context, identity: str, variables: Variables, inputs: Inputs) -> Json:
        found, groups = self._settle(context, variables)
        return self._described(context, identity, variables, found, groups, inputs)

    def _settle(self, context: Context, variables: Variables) -> tuple[Json, list[Json]]:
        """The pool in a resting state and its instance groups."""
        listed = self._listed(context, variables)
        groups = self._groups(context, listed) if listed else []
        found = self.resting(context, variables) if listed else None
        if found is None:
            raise ProviderError(f"{self.id(variables)} does not exist any more")
        return found, groups

    def read(self, context: Context, identity: str, known: Inputs) -> Json | None:
        self.resting(context, self.parse(context.settings, identity))
        return self.snapshot(context, identity, known)

    def snapshot(self, context: Context, identity: str, known: Inputs) -> Json | None:
        variables = self.parse(context.settings, identity)
        found = self._listed(context, variables)
        if found is None:
            return None
        return self._described(context, self.id(variables), variables, found, self._groups(context, found), known)

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = self.parse(context.settings, identity)
        if self.resting(context, variables) is None:
            raise ProviderError(f"Error updating NodePool: {identity} does not exist any more; run pulumi refresh")
        _refuse_surge(olds, news)
        pool = self._pool(context, news)
        for body in _pool_updates(changes, pool):
            self.send(context, variables, "PUT", "", {**body, "name": variables["name"]})
        changed = {c.top for c in changes}
        if "management" in changed:
            given = news.get("management") or {}
            flags = {name: bool(given.get(name)) for name in ("autoRepair", "autoUpgrade")}
            self.send(context, variables, "POST", ":setManagement", {"management": flags if given else {}})
        if "autoscaling" in changed:
            body = {"autoscaling": pool.get("autoscaling", {"enabled": False})}
            self.send(context, variables, "POST", ":setAutoscaling", body)
        if "nodeCount" in changed and news.get("nodeCount") is not None:
            self.send(context, variables, "POST", ":setSize", {"nodeCount": news["nodeCount"]})
        return self.settled(context, identity, variables, news)

    def _listed(self, context: Context, variables: Variables) -> Json | None:
        """The pool from the cluster's list, as the provider reads it; None if pool or cluster do not exist."""
        answer = context.client.find("GET", self.api, self.collection.format(**variables), context.deadline) or {}
        return next((p for p in answer.get("nodePools", ()) if p["name"] == variables["name"]), None)

    def _groups(self, context: Context, pool: Json) -> list[Json]:
        """The pool's managed instance groups, looked up in the lists of their zones by self link."""
        wanted = {links.relative(url) for url in pool.get("instanceGroupUrls", ())}
        found = []
        for zone_url in sorted({url.rpartition("/")[0] for url in wanted}):
            answer = context.client.call("GET", "compute", zone_url, context.deadline)
            found += [g for g in answer.get("items", ()) if links.relative(g.get("selfLink", "")) in wanted]
        return found

    def _described(
        self, context: Context, identity: str, variables: Variables, pool: Json, groups: list[Json], known: Inputs
    ) -> Json:
        values = self.outputs(context, identity, variables, pool, known)
        values["cluster"] = known.get("cluster") or variables["cluster"]
        zones = max(len(pool.get("instanceGroupUrls", ())), 1)
        values["nodeCount"] = sum(int(g.get("targetSize", 0)) for g in groups) // zones
        values["managedInstanceGroupUrls"] = [g["instanceGroup"] for g in groups if g.get("instanceGroup")]
        values.setdefault("initialNodeCount", 0)
        values["ignoreNodeCountChanges"] = bool(known.get("ignoreNodeCountChanges"))
        config = values.get("nodeConfig", {})
        asked = known.get("nodeConfig") or {}
        _declared_only(config, asked)
        return values


def _refuse_surge(olds: Inputs, news: Inputs) -> None:
    """How many nodes a surge takes can be changed only for upgrades that are surges."""
    old, new = olds.get("upgradeSettings") or {}, news.get("upgradeSettings") or {}
    changed = any((old.get(name) or 0) != (new.get(name) or 0) for name in ("maxSurge", "maxUnavailable"))
    if new and changed and new.get("strategy", "SURGE") != "SURGE":
        raise ProviderError("Surge upgrade settings may not be changed when surge strategy is not enabled")


def _declared_only(config: Json, asked: Inputs) -> None:
    """Leave out what GKE adds to a pool's taints and labels: the provider reads back only what the program declares."""
    keys = {taint["key"] for taint in asked.get("taints") or ()}
    if "taints" in config:
        config["taints"] = [t for t in config["taints"] if t["key"] in keys]
    for name in ("labels", "resourceLabels"):
        if name in config:
            declared = asked.get(name) or {}
            config[name] = {k: v for k, v in config[name].items() if k in declared or not k.startswith(GOOGLE_LABEL)}


def _pool_updates(changes: Sequence[Change], pool: Json) -> list[Json]:
    """The PUT bodies for the changes, each once (machine type and disks go out together)."""
    bodies: list[Json] = []
    for change in changes:
        make = next((m for p, m in _POOL_UPDATES.items() if re.match(rf"{re.escape(p)}(\.|\[|$)", change.path)), None)
        body = make(pool) if make else None
        if body is not None and body not in bodies:
            bodies.append(body)
    return bodies


NODE_POOL = NodePool(
    type="gcp:container/nodePool:NodePool",
    api="container",
    collection=f"{CLUSTERS}/{{cluster}}/nodePools",
    item=f"{CLUSTERS}/{{cluster}}/nodePools/{{name}}",
    fields=_POOL_FIELDS,
    always={"config": {"oauthScopes": DEFAULT_SCOPES}, "networkConfig": {}},
)

ROWS = (CLUSTER, NODE_POOL)
