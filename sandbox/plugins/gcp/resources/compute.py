"""Compute Engine resources: networks, addresses, policies, templates, groups, instances."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from sandbox.plugins.gcp import labels, links
from sandbox.plugins.gcp.mapping import (
    Field,
    Json,
    as_list,
    from_rest,
    int64,
    int64_as_number,
    key_values,
    only_entry,
    renamed,
    to_rest,
    with_unset,
    write_only,
)
from sandbox.plugins.gcp.resources.rest import (
    COMMON,
    PLACES,
    Context,
    Inputs,
    Rest,
    Setter,
    Variables,
    kept_if_it_exists,
    named_errors,
    without_markers,
)
from sandbox.plugins.provider import Failure, ProviderError

GLOBAL = "projects/{project}/global"
REGION = "projects/{project}/regions/{region}"
ZONE = "projects/{project}/zones/{zone}"
SET_LABELS = Setter(
    ("labels", labels.EFFECTIVE, labels.PULUMI),
    "POST",
    "/setLabels",
    lambda _news, body, olds: {"labels": body.get("labels", {}), "labelFingerprint": olds.get("labelFingerprint", "")},
)


def _shrinks(old: Any, new: Any) -> bool:
    """A subnetwork's range can only grow in place, around what it was (provider: IsShrinkageIpCidr)."""
    return not isinstance(new, str) or not IPv4Network(old).subnet_of(IPv4Network(new))


NETWORK = Rest(
    type="gcp:compute/network:Network",
    api="compute",
    collection=f"{GLOBAL}/networks",
    item=f"{GLOBAL}/networks/{{name}}",
    fields={
        "bgpAlwaysCompareMed": renamed("routingConfig.bgpAlwaysCompareMed"),
        "bgpBestPathSelectionMode": renamed("routingConfig.bgpBestPathSelectionMode"),
        "bgpInterRegionCost": renamed("routingConfig.bgpInterRegionCost"),
        "deleteBgpAlwaysCompareMed": renamed("routingConfig.deleteBgpAlwaysCompareMed"),
        "routingMode": renamed("routingConfig.routingMode"),
        "deleteDefaultRoutesOnCreate": None,
        "gatewayIpv4": renamed("gatewayIPv4"),
        "networkId": renamed("id"),
        "numericId": renamed("id"),
        "params": write_only("params"),
    },
    always={"routingConfig": {"deleteBgpAlwaysCompareMed": False}},
)

SUBNETWORK = Rest(
    type="gcp:compute/subnetwork:Subnetwork",
    api="compute",
    collection=f"{REGION}/subnetworks",
    item=f"{REGION}/subnetworks/{{name}}",
    fields={
        "subnetworkId": int64("id"),
        "sendSecondaryIpRangeIfEmpty": None,
        "params": write_only("params"),
        "logConfig": Field(
            send=lambda config: {"enable": True, "metadataFields": [], **config},
            receive=lambda config: config if config.get("enable") else None,
        ),
    },
    always={"logConfig": {"enable": False}},
    place="region",
    rules={"ipCidrRange": _shrinks},
    fingerprinted=True,
    setters=(
        Setter(
            ("ipCidrRange",),
            "POST",
            "/expandIpCidrRange",
            lambda news, _body, _olds: {"ipCidrRange": news["ipCidrRange"]},
        ),
        Setter(
            ("privateIpGoogleAccess",),
            "POST",
            "/setPrivateIpGoogleAccess",
            lambda news, _body, _olds: {"privateIpGoogleAccess": bool(news.get("privateIpGoogleAccess"))},
        ),
    ),
)

FIREWALL = Rest(
    type="gcp:compute/firewall:Firewall",
    api="compute",
    collection=f"{GLOBAL}/firewalls",
    item=f"{GLOBAL}/firewalls/{{name}}",
    fields={
        "allows": renamed("allowed"),
        "allows.protocol": renamed("IPProtocol"),
        "denies": renamed("denied"),
        "denies.protocol": renamed("IPProtocol"),
        "enableLogging": None,
        "params": write_only("params"),
        "logConfig": Field(
            send=lambda config: {"enable": True, **config},
            receive=lambda config: config if config.get("enable") else None,
        ),
    },
    always={"logConfig": {"enable": False}},
)

ROUTER = Rest(
    type="gcp:compute/router:Router",
    api="compute",
    collection=f"{REGION}/routers",
    item=f"{REGION}/routers/{{name}}",
    fields={"md5AuthenticationKeys": Field(send=lambda key: [key]), "params": write_only("params")},
    always={"bgp": None},
    place="region",
)


@dataclass(frozen=True, kw_only=True)
class Relabelled(Rest):
    """What gets its labels twice: with the create call, and once more by `setLabels` when it is there."""

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        identity, outputs = super().create(context, inputs)
        if not labels.wanted(context.schema, context.settings, inputs):
            return identity, outputs
        variables = self.variables(context.settings, inputs)
        prefix = f"Error adding labels to {context.schema.title}"
        with kept_if_it_exists(self, context, identity, inputs, prefix):
            self._set(context, variables, SET_LABELS, inputs, self.body(context, variables, inputs), outputs)
            return identity, self.settled(context, identity, variables, inputs)


ADDRESS = Relabelled(
    type="gcp:compute/address:Address",
    api="compute",
    collection=f"{REGION}/addresses",
    item=f"{REGION}/addresses/{{name}}",
    fields={"addressId": renamed("id")},
    place="region",
    patches="",
    setters=(SET_LABELS,),
)

RESOURCE_POLICY = Rest(
    type="gcp:compute/resourcePolicy:ResourcePolicy",
    api="compute",
    collection=f"{REGION}/resourcePolicies",
    item=f"{REGION}/resourcePolicies/{{name}}",
    fields={
        "diskConsistencyGroupPolicy.enabled": None,
        "snapshotSchedulePolicy.snapshotProperties.storageLocations": as_list(),
    },
    always={"diskConsistencyGroupPolicy": None},
    place="region",
)


@dataclass(frozen=True, kw_only=True)
class RouterNat(Rest):
    """A NAT is an entry in its router's `nats`: every change reads the router and writes the whole list back."""

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        with context.client.exclusive(self.item.format(**variables)), named_errors("Error creating RouterNat"):
            present = self._nats(context, variables)
            if any(n["name"] == variables["name"] for n in present):
                raise ProviderError(f"the router {variables['router']} already has a NAT {variables['name']}")
            self._write(context, variables, [*present, self.body(context, variables, inputs)])
        identity = self.id(variables)
        return identity, self.settled(context, identity, variables, inputs)

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Any]) -> Json:
        variables = self.parse(context.settings, identity)
        if changes:
            with context.client.exclusive(self.item.format(**variables)), named_errors("Error updating RouterNat"):
                others = [n for n in self._nats(context, variables) if n["name"] != variables["name"]]
                self._write(context, variables, [*others, self.body(context, variables, news)])
        return self.settled(context, identity, variables, news)

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        variables = self.parse(context.settings, identity)
        with context.client.exclusive(self.item.format(**variables)), named_errors("Error deleting RouterNat"):
            router = super().fetch(context, variables)
            present = (router or {}).get("nats", [])
            others = [n for n in present if n["name"] != variables["name"]]
            if len(others) != len(present):
                self._write(context, variables, others)

    def fetch(self, context: Context, variables: Variables) -> Json | None:
        router = super().fetch(context, variables)
        return next((n for n in (router or {}).get("nats", []) if n["name"] == variables["name"]), None)

    def _nats(self, context: Context, variables: Variables) -> list[Json]:
        router = super().fetch(context, variables)
        if router is None:
            raise ProviderError(f"the router {variables['router']} does not exist")
        return list(router.get("nats", []))

    def _write(self, context: Context, variables: Variables, nats: list[Json]) -> None:
        self.act(context, variables, "PATCH", "", "RouterNat to be written", {"nats": nats})


ROUTER_NAT = RouterNat(
    type="gcp:compute/routerNat:RouterNat",
    api="compute",
    collection=f"{REGION}/routers/{{router}}",
    item=f"{REGION}/routers/{{router}}",
    identity="{project}/{region}/{router}/{name}",
    fields={
        "router": None,
        "region": None,
        "project": None,
        "subnetworks.sourceIpRangesToNats": renamed("sourceIpRangesToNat"),
    },
    always={
        "drainNatIps": [],
        "initialNatIps": [],
        "nat64Subnetworks": [],
        "natIps": [],
        "rules": [],
        "subnetworks": [],
    },
)


# --- disks, network cards and the rest that templates and instances share ---------------------------------------------

INITIALIZE = "initializeParams"


def _full_scopes(account: Json) -> list[Json]:
    return [{**account, "scopes": [links.scope(s) for s in account.get("scopes", ())]}]


MACHINE_FIELDS: Mapping[str, Field | None] = {
    "metadata": key_values(),
    "metadataStartupScript": None,
    "tags": Field(send=lambda tags: {"items": tags}, receive=lambda holder: holder.get("items")),
    "serviceAccount": Field("serviceAccounts", _full_scopes, lambda accounts: accounts[0] if accounts else None),
    "resourcePolicies": as_list(),
    "guestAccelerators.count": renamed("acceleratorCount"),
    "guestAccelerators.type": renamed("acceleratorType"),
    "networkInterfaces.accessConfigs.natIp": renamed("natIP"),
    "networkInterfaces.networkIp": renamed("networkIP"),
    "networkInterfaces.subnetworkProject": None,
    "reservationAffinity.type": renamed("consumeReservationType"),
    "reservationAffinity.specificReservation.key": renamed("/reservationAffinity.key"),
    "reservationAffinity.specificReservation.values": renamed("/reservationAffinity.values"),
    "reservationAffinity.specificReservation": Field(send=lambda _moved: None),
    "networkInterfaces.ipv6AccessConfigs.externalIpv6PrefixLength": Field(send=int, receive=str),
    "scheduling.gracefulShutdown.maxDuration.seconds": int64(),
    "scheduling.localSsdRecoveryTimeout.seconds": int64(),
    "scheduling.localSsdRecoveryTimeouts": only_entry("localSsdRecoveryTimeout"),
    "scheduling.localSsdRecoveryTimeouts.seconds": int64(),
    "scheduling.maxRunDuration.seconds": int64(),
    "scheduling.preemptionNoticeDuration.seconds": int64(),
    "enableDisplay": renamed("displayDevice.enableDisplay"),
    "params": write_only("params"),
}

_names = itertools.count(1)
# Longer prefixes of a generated name get the provider's short suffix, and even longer ones are refused.
LONG_SUFFIX_PREFIX = 37
LONGEST_PREFIX = 54


def unique_name(prefix: str) -> str:
    """A name with the provider's suffix: 26 characters, UTC time to 0.1 ms and a counter (`PrefixedUniqueId`).

    After a prefix longer than 37 characters it is 9: the day and the counter's end (`ReducedPrefixedUniqueId`).
    """
    now = time.time()
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(now)) + f"{int(now % 1 * 10_000):04d}"
    counter = f"{next(_names):08x}"
    return prefix + (stamp[2:8] + counter[-3:] if len(prefix) > LONG_SUFFIX_PREFIX else stamp + counter)


@dataclass(frozen=True, kw_only=True)
class InstanceTemplate(Rest):
    """A template cannot be changed. Its body nests the instance's properties; it is read by its number."""

    def refused(self, olds: Inputs, inputs: Inputs) -> Iterator[Failure]:
        prefix = inputs.get("namePrefix")
        if isinstance(prefix, str) and len(prefix) > LONGEST_PREFIX:
            text = f'"name_prefix" cannot be longer than {LONGEST_PREFIX} characters, name is limited to 63'
            yield Failure("namePrefix", text)

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        prefix = inputs.get("namePrefix") or "terraform-"
        named = inputs if inputs.get("name") else {**inputs, "name": unique_name(prefix)}
        return super().create(context, named)

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        shown = to_rest(
            context.schema.properties, inputs, {**dict.fromkeys(PLACES), **COMMON, **self.fields, "disks": None}
        )
        description = {k: shown.pop(k) for k in ("description",) if k in shown}
        instance_description = (
            {"description": shown.pop("instanceDescription")} if "instanceDescription" in shown else {}
        )
        name = shown.pop("name")
        properties = {
            "tags": {},
            **shown,
            **instance_description,
            "disks": [_template_disk(disk) for disk in inputs["disks"]],
            "labels": labels.wanted(context.schema, context.settings, inputs),
        }
        script = inputs.get("metadataStartupScript")
        if script:
            items = properties.setdefault("metadata", {}).setdefault("items", [])
            items.append({"key": "startup-script", "value": script})
        return {**description, "name": name, "properties": properties}

    def post(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        operation = super().post(context, variables, inputs)
        # Read back by number: a name may be reused, the number may not.
        variables["key"] = str(operation.get("targetId") or variables["name"])
        return operation

    def variables(self, settings: Any, inputs: Inputs) -> Variables:
        variables = super().variables(settings, inputs)
        variables.setdefault("key", str(inputs.get("numericId") or variables.get("name", "")))
        return variables

    def id(self, variables: Variables) -> str:
        return self.identity.format(**variables)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        properties = found.get("properties", {})
        flat = {**properties, "instanceDescription": properties.get("description")}
        for name in ("description", "name", "creationTimestamp", "selfLink", "id"):
            flat[name] = found.get(name)
        values = super().outputs(context, identity, variables, flat, known)
        values["disks"] = [_shown_disk(context, disk) for disk in properties.get("disks", ())]
        values["numericId"] = str(found.get("id", ""))
        base = str(found.get("selfLink", "")).rpartition("/")[0]
        values["selfLinkUnique"] = f"{base}/{found['name']}?uniqueId={found.get('id', '')}"
        return values

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        super().delete(context, identity, {k: v for k, v in outputs.items() if k != "numericId"})


_DISK_PARAMETERS = {
    "sourceImage": "sourceImage",
    "diskType": "diskType",
    "diskName": "diskName",
    "labels": "labels",
    "provisionedIops": "provisionedIops",
    "provisionedThroughput": "provisionedThroughput",
    "resourceManagerTags": "resourceManagerTags",
    "sourceImageEncryptionKey": "sourceImageEncryptionKey",
    "sourceSnapshot": "sourceSnapshot",
    "sourceSnapshotEncryptionKey": "sourceSnapshotEncryptionKey",
    "storagePool": "storagePool",
}
_DISK_64 = ("diskSizeGb", "provisionedIops", "provisionedThroughput")


def _template_disk(given: Mapping[str, Any]) -> Json:
    disk = without_markers(given)
    parameters = {_DISK_PARAMETERS[k]: disk.pop(k) for k in list(disk) if k in _DISK_PARAMETERS}
    if "resourcePolicies" in disk:
        parameters["resourcePolicies"] = [disk.pop("resourcePolicies")]
    if "guestOsFeatures" in disk:
        disk["guestOsFeatures"] = [{"type": f} for f in disk["guestOsFeatures"]]
    if "sourceImage" in parameters:
        parameters["sourceImage"] = image_link(parameters["sourceImage"])
    if "diskSizeGb" in disk and "source" not in disk:
        parameters["diskSizeGb"] = disk["diskSizeGb"]
    if "diskEncryptionKey" in disk:
        disk["diskEncryptionKey"] = _sent_key(disk["diskEncryptionKey"])
    for holder in (disk, parameters):
        holder.update({k: str(holder[k]) for k in _DISK_64 if k in holder})
    return {**disk, INITIALIZE: parameters} if parameters and "source" not in disk else disk


def _sent_key(key: Mapping[str, Any]) -> Json:
    """A disk's encryption key as the API takes it; the key version that Google shows is not part of the name."""
    return {"kmsKeyName" if k == "kmsKeySelfLink" else k: v for k, v in key.items()}


def shown_key(key: Mapping[str, Any]) -> Json:
    name = str(key.get("kmsKeyName", "")).partition("/cryptoKeyVersions/")[0]
    return {"kmsKeySelfLink": name} if name else {}


def _shown_disk(context: Context, found: Json) -> Json:
    schema = context.schema.properties["disks"].properties
    parameters = dict(found.get(INITIALIZE, {}))
    if "resourcePolicies" in parameters:
        parameters["resourcePolicies"] = parameters["resourcePolicies"][0]
    flat = {**{k: v for k, v in found.items() if k != INITIALIZE}, **parameters}
    if "guestOsFeatures" in flat:
        flat["guestOsFeatures"] = [f["type"] for f in flat["guestOsFeatures"]]
    if "diskType" in flat:
        flat["diskType"] = links.last(flat["diskType"])
    if "diskEncryptionKey" in flat:
        flat["diskEncryptionKey"] = shown_key(flat["diskEncryptionKey"])
    return from_rest(schema, flat, {"resourcePolicies": Field()})


def image_link(image: str) -> str:
    """An image or family as the API takes it; the provider's short forms are PROJECT/FAMILY and family/F."""
    if links.is_link(image) or image.startswith("global/"):
        return image
    project, _, family = image.rpartition("/")
    if not project:
        raise ProviderError(f"image {image!r}: write PROJECT/FAMILY or projects/PROJECT/global/images/IMAGE")
    return f"projects/{project}/global/images/family/{family}"


_TEMPLATE_FIELDS: Mapping[str, Field | None] = {
    **MACHINE_FIELDS,
    "scheduling": with_unset(
        {
            "hostErrorTimeoutSeconds": None,
            "instanceTerminationAction": "",
            "nodeAffinities": [None],
            "preemptible": False,
            "skipGuestOsShutdown": False,
        }
    ),
    "namePrefix": None,
    "numericId": None,
    "selfLinkUnique": None,
    "tagsFingerprint": renamed("tags.fingerprint"),
    "metadataFingerprint": renamed("metadata.fingerprint"),
}

INSTANCE_TEMPLATE = InstanceTemplate(
    type="gcp:compute/instanceTemplate:InstanceTemplate",
    api="compute",
    collection=f"{GLOBAL}/instanceTemplates",
    item=f"{GLOBAL}/instanceTemplates/{{key}}",
    identity=f"{GLOBAL}/instanceTemplates/{{name}}",
    fields={**_TEMPLATE_FIELDS, "region": None},
    query={"view": "FULL"},
    patches="",
)

REGION_INSTANCE_TEMPLATE = InstanceTemplate(
    type="gcp:compute/regionInstanceTemplate:RegionInstanceTemplate",
    api="compute",
    collection=f"{REGION}/instanceTemplates",
    item=f"{REGION}/instanceTemplates/{{key}}",
    identity=f"{REGION}/instanceTemplates/{{name}}",
    fields=_TEMPLATE_FIELDS,
    query={"view": "FULL"},
    patches="",
)


def _numbered_template(url: str) -> str:
    """A template link with `?uniqueId=N` names it by its number (provider: ConvertToUniqueIdWhenPresent)."""
    plain, _, number = url.partition("?uniqueId=")
    return f"{plain.rpartition('/')[0]}/{number}" if number else plain


@dataclass(frozen=True, kw_only=True)
class InstanceGroupManager(Rest):
    """A managed instance group. With `waitForInstances` create and update wait until the group is stable."""

    def settled(self, context: Context, identity: str, variables: Variables, inputs: Inputs) -> Json:
        if inputs.get("waitForInstances"):
            context.client.poll(
                lambda: self.fetch(context, variables) or {},
                lambda group: _is_settled(group, str(inputs.get("waitForInstancesStatus"))),
                context.deadline,
                f"the instances of {variables['name']}",
            )
        return super().settled(context, identity, variables, inputs)


def _is_settled(group: Json, wanted: str) -> bool:
    status = group.get("status", {})
    reached = status.get("versionTarget", {}).get("isReached", False)
    return bool(status.get("isStable")) and (wanted != "UPDATED" or bool(reached))


def _leaves_policy(old: Any, new: Any) -> bool:
    """A group keeps the workload policy it was made with (recorded: also an unknown new one replaces the group)."""
    return bool(old)


def _sent_policy(policy: Json) -> Json:
    """The update policy. Of each pair of a number and a percentage one is sent as null."""
    unset = {"minReadySec": 0, "mostDisruptiveAllowedAction": None}
    pairs = {name: _number_or_percent(policy.get(name, {})) for name in ("maxSurge", "maxUnavailable")}
    return {**unset, **policy, **pairs}


def _number_or_percent(given: Json) -> Json:
    if given.get("percent"):
        return {"fixed": None, "percent": given["percent"]}
    return {"fixed": given.get("fixed", 0), "percent": None}


# What a group is sent with whatever the program leaves out.
_UNSET_IN_GROUP: Json = {
    "description": "",
    "params": {},
    "resourcePolicies": {"workloadPolicy": None},
    "standbyPolicy": {},
    "statefulPolicy": {"preservedState": {}},
    "updatePolicy": {},
}
_GROUP_FIELDS: Mapping[str, Field | None] = {
    "waitForInstances": None,
    "waitForInstancesStatus": None,
    "operation": None,
    "instanceGroupManagerId": int64("id"),
    "targetSizePolicies": only_entry("targetSizePolicy"),
    "allInstancesConfig.labels": renamed("properties.labels"),
    "allInstancesConfig.metadata": renamed("properties.metadata"),
    "autoHealingPolicies": as_list(),
    "instanceLifecyclePolicy": with_unset({"onRepair": {}}),
    "versions": Field(send=lambda versions: [{"name": "", "targetSize": {}, **version} for version in versions]),
    "versions.instanceTemplate": Field(send=_numbered_template),
    "statefulDisks": None,
    "statefulExternalIps": None,
    "statefulInternalIps": None,
    "statuses": only_entry("status"),
    "statuses.versionTargets": only_entry("versionTarget"),
    "statuses.statefuls": only_entry("stateful"),
    "statuses.statefuls.perInstanceConfigs": only_entry("perInstanceConfigs"),
    "statuses.allInstancesConfigs": only_entry("allInstancesConfig"),
    "updatePolicy": Field(send=_sent_policy),
    "updatePolicy.maxSurgeFixed": renamed("maxSurge.fixed"),
    "updatePolicy.maxSurgePercent": renamed("maxSurge.percent"),
    "updatePolicy.maxUnavailableFixed": renamed("maxUnavailable.fixed"),
    "updatePolicy.maxUnavailablePercent": renamed("maxUnavailable.percent"),
    "params": write_only("params"),
}
_STATEFUL = ("statefulDisks", "statefulExternalIps", "statefulInternalIps")
_RESIZE = Setter(
    ("targetSize",), "POST", "/resize", lambda *_: None, query=lambda news: {"size": str(news.get("targetSize", 0))}
)

INSTANCE_GROUP_MANAGER = InstanceGroupManager(
    type="gcp:compute/instanceGroupManager:InstanceGroupManager",
    api="compute",
    collection=f"{ZONE}/instanceGroupManagers",
    item=f"{ZONE}/instanceGroupManagers/{{name}}",
    fields=_GROUP_FIELDS,
    always=_UNSET_IN_GROUP,
    rules={"resourcePolicies.workloadPolicy": _leaves_policy},
    unsupported=_STATEFUL,
    fingerprinted=True,
    setters=(_RESIZE,),
)

REGION_INSTANCE_GROUP_MANAGER = InstanceGroupManager(
    type="gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager",
    api="compute",
    collection=f"{REGION}/instanceGroupManagers",
    item=f"{REGION}/instanceGroupManagers/{{name}}",
    fields={
        **_GROUP_FIELDS,
        "distributionPolicyTargetShape": renamed("distributionPolicy.targetShape"),
        "distributionPolicyZones": Field(
            "distributionPolicy.zones",
            lambda zones: [{"zone": f"zones/{links.last(z)}"} for z in zones],
            lambda entries: [links.last(e["zone"]) for e in entries],
        ),
        "instanceFlexibilityPolicy": None,
    },
    always=_UNSET_IN_GROUP,
    rules={"resourcePolicies.workloadPolicy": _leaves_policy},
    unsupported=(*_STATEFUL, "instanceFlexibilityPolicy"),
    fingerprinted=True,
    setters=(_RESIZE,),
)

RESERVATION = Rest(
    type="gcp:compute/reservation:Reservation",
    api="compute",
    collection=f"{ZONE}/reservations",
    item=f"{ZONE}/reservations/{{name}}",
    fields={
        "specificReservation.count": int64_as_number(),
        "specificReservation.inUseCount": int64_as_number(),
        "specificReservation.instanceProperties.localSsds.diskSizeGb": int64_as_number(),
        "shareSettings.projectMaps": Field(
            "projectMap",
            lambda entries: {e["id"]: {"projectId": e.get("projectId", e["id"])} for e in entries},
            lambda found: [{"id": k, "projectId": v.get("projectId", k)} for k, v in found.items()],
        ),
        "params": write_only("params"),
        "resourceStatuses": None,
    },
    place="zone",
    setters=(
        Setter(
            ("specificReservation",),
            "POST",
            "/resize",
            lambda news, _body, _olds: {"specificSkuCount": str(news["specificReservation"]["count"])},
        ),
    ),
)

RESIZE_REQUEST = Rest(
    type="gcp:compute/resizeRequest:ResizeRequest",
    api="compute",
    collection=f"{ZONE}/instanceGroupManagers/{{instanceGroupManager}}/resizeRequests",
    item=f"{ZONE}/instanceGroupManagers/{{instanceGroupManager}}/resizeRequests/{{name}}",
    fields={"instanceGroupManager": None, "statuses": None},
    place="zone",
    patches="",
)

ROWS = (
    NETWORK,
    SUBNETWORK,
    FIREWALL,
    ROUTER,
    ROUTER_NAT,
    ADDRESS,
    RESOURCE_POLICY,
    INSTANCE_TEMPLATE,
    REGION_INSTANCE_TEMPLATE,
    INSTANCE_GROUP_MANAGER,
    REGION_INSTANCE_GROUP_MANAGER,
    RESERVATION,
    RESIZE_REQUEST,
)
