"""Compute Engine resources: networks, addresses, policies, templates, groups, instances."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Any

from sandbox.plugins.gcp import labels, links
from sandbox.plugins.gcp.mapping import (
    Field,
    Json,
    from_rest,
    int64,
    key_values,
    only_entry,
    renamed,
    to_rest,
    with_unset,
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
        "routingMode": renamed("routingConfig.routingMode"),
        "networkId": renamed("id"),
        "numericId": renamed("id"),
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
    },
    always={"logConfig": {"enable": False}},
)

ROUTER = Rest(
    type="gcp:compute/router:Router",
    api="compute",
    collection=f"{REGION}/routers",
    item=f"{REGION}/routers/{{name}}",
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
    "tags": Field(send=lambda tags: {"items": tags}, receive=lambda holder: holder.get("items")),
    "serviceAccount": Field("serviceAccounts", _full_scopes, lambda accounts: accounts[0] if accounts else None),
    "networkInterfaces.networkIp": renamed("networkIP"),
    "reservationAffinity.type": renamed("consumeReservationType"),
    "reservationAffinity.specificReservation.key": renamed("/reservationAffinity.key"),
    "reservationAffinity.specificReservation.values": renamed("/reservationAffinity.values"),
    "reservationAffinity.specificReservation": Field(send=lambda _moved: None),
    "scheduling.maxRunDuration.seconds": int64(),
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
        name = shown.pop("name")
        properties = {
            "tags": {},
            **shown,
            "disks": [_template_disk(disk) for disk in inputs["disks"]],
            "labels": labels.wanted(context.schema, context.settings, inputs),
        }
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
        flat = dict(properties)
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


_DISK_PARAMETERS = ("sourceImage", "diskType", "labels")


def _template_disk(given: Mapping[str, Any]) -> Json:
    disk = without_markers(given)
    parameters = {k: disk.pop(k) for k in list(disk) if k in _DISK_PARAMETERS}
    if "sourceImage" in parameters:
        parameters["sourceImage"] = image_link(parameters["sourceImage"])
    if "diskSizeGb" in disk:
        disk["diskSizeGb"] = str(disk["diskSizeGb"])
        if "source" not in disk:
            parameters["diskSizeGb"] = disk["diskSizeGb"]
    if "diskEncryptionKey" in disk:
        disk["diskEncryptionKey"] = _sent_key(disk["diskEncryptionKey"])
    return {**disk, INITIALIZE: parameters} if parameters and "source" not in disk else disk


def _sent_key(key: Mapping[str, Any]) -> Json:
    """A disk's encryption key as the API takes it; the key version that Google shows is not part of the name."""
    return {"kmsKeyName" if k == "kmsKeySelfLink" else k: v for k, v in key.items()}


def shown_key(key: Mapping[str, Any]) -> Json:
    name = str(key.get("kmsKeyName", "")).partition("/cryptoKeyVersions/")[0]
    return {"kmsKeySelfLink": name} if name else {}


def _shown_disk(context: Context, found: Json) -> Json:
    schema = context.schema.properties["disks"].properties
    flat = {**{k: v for k, v in found.items() if k != INITIALIZE}, **found.get(INITIALIZE, {})}
    if "diskType" in flat:
        flat["diskType"] = links.last(flat["diskType"])
    if "diskEncryptionKey" in flat:
        flat["diskEncryptionKey"] = shown_key(flat["diskEncryptionKey"])
    return from_rest(schema, flat, {})


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
    "region": None,
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
    fields=_TEMPLATE_FIELDS,
    query={"view": "FULL"},
    patches="",
)

# Only read, by a function.
REGION_INSTANCE_TEMPLATE = replace(
    INSTANCE_TEMPLATE,
    collection=f"{REGION}/instanceTemplates",
    item=f"{REGION}/instanceTemplates/{{key}}",
    identity=f"{REGION}/instanceTemplates/{{name}}",
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


# Each a number or a percentage; percentages are not known here.
_PAIRS = ("maxSurge", "maxUnavailable")


def _sent_policy(policy: Json) -> Json:
    """The update policy. Of each pair of a number and a percentage one is sent as null."""
    unset = {"minReadySec": 0, "mostDisruptiveAllowedAction": None}
    pairs = {name: {"fixed": policy.get(name, {}).get("fixed", 0), "percent": None} for name in _PAIRS}
    return {**unset, **policy, **pairs}


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
    "instanceGroupManagerId": int64("id"),
    "targetSizePolicies": only_entry("targetSizePolicy"),
    "instanceLifecyclePolicy": with_unset({"onRepair": {}}),
    "versions": Field(send=lambda versions: [{"name": "", "targetSize": {}, **version} for version in versions]),
    "versions.instanceTemplate": Field(send=_numbered_template),
    "statuses": only_entry("status"),
    "statuses.versionTargets": only_entry("versionTarget"),
    "statuses.statefuls": only_entry("stateful"),
    "statuses.statefuls.perInstanceConfigs": only_entry("perInstanceConfigs"),
    "statuses.allInstancesConfigs": only_entry("allInstancesConfig"),
    "updatePolicy": Field(send=_sent_policy),
    "updatePolicy.maxSurgeFixed": renamed("maxSurge.fixed"),
    "updatePolicy.maxUnavailableFixed": renamed("maxUnavailable.fixed"),
}
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
    fingerprinted=True,
    setters=(_RESIZE,),
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
    INSTANCE_GROUP_MANAGER,
)
