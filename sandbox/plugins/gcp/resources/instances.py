"""Compute Engine instances and the disks they are attached to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.mapping import Field, Json, int64_as_number, link, renamed
from sandbox.plugins.gcp.resources.compute import (
    INITIALIZE,
    MACHINE_FIELDS,
    SET_LABELS,
    ZONE,
    image_link,
    shown_key,
)
from sandbox.plugins.gcp.resources.rest import (
    Context,
    Inputs,
    Rest,
    Setter,
    Variables,
    named_errors,
    refuse_guarded,
    without_markers,
)
from sandbox.plugins.provider import Change, ProviderError


def _smaller(old: Any, new: Any) -> bool:
    """A disk can only grow in place (provider: IsDiskShrinkage)."""
    return isinstance(old, int) and isinstance(new, int) and new < old


@dataclass(frozen=True, kw_only=True)
class Disk(Rest):
    """A disk of its own. Deleting it detaches it first, as the provider does."""

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        body = super().body(context, variables, inputs)
        return {**body, "type": _in_zone(ZONE.format(**variables), "diskTypes", body["type"])}

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        variables = self.parse(context.settings, identity, outputs)
        refuse_guarded(self.guards, context.schema, outputs)
        found = self.fetch(context, variables) or {}
        with named_errors("Error deleting Disk"):
            for user in found.get("users", ()):
                self._detach(context, variables, links.relative(user), str(found["selfLink"]))
        super().delete(context, identity, outputs)

    def _detach(self, context: Context, variables: Variables, instance: str, disk: str) -> None:
        attached = context.client.call("GET", self.api, instance, context.deadline).get("disks", ())
        for device in (d["deviceName"] for d in attached if links.same(d.get("source", ""), disk)):
            url = f"{instance}/detachDisk"
            operation = context.client.call("POST", self.api, url, context.deadline, None, {"deviceName": device})
            self.wait(context, variables, operation, f"{variables['name']} to be detached")


DISK = Disk(
    type="gcp:compute/disk:Disk",
    api="compute",
    collection=f"{ZONE}/disks",
    item=f"{ZONE}/disks/{{name}}",
    fields={
        "diskEncryptionKey.kmsKeySelfLink": renamed("kmsKeyName"),
        "diskId": renamed("id"),
        "interface": None,
        "physicalBlockSizeBytes": int64_as_number(),
        "size": int64_as_number("sizeGb"),
        "type": link(),
    },
    place="zone",
    rules={"size": _smaller},
    setters=(
        SET_LABELS,
        Setter(("size",), "POST", "/resize", lambda news, _body, _olds: {"sizeGb": str(news["size"])}),
    ),
)

# What changes only while a machine is stopped: property -> (method, URL, body). Provider: the update method of
# google_compute_instance stops, sets and starts, where `allowStoppingForUpdate` permits.
_STOPPED: Mapping[str, tuple[str, str, Callable[[Json], Json]]] = {
    "machineType": ("POST", "/setMachineType", lambda body: {"machineType": body["machineType"]}),
    "serviceAccount": (
        "POST",
        "/setServiceAccount",
        lambda body: next(iter(body.get("serviceAccounts", ())), {"email": "", "scopes": []}),
    ),
    "shieldedInstanceConfig": (
        "PATCH",
        "/updateShieldedInstanceConfig",
        lambda body: body.get("shieldedInstanceConfig", {}),
    ),
}
_STOPPING = (
    "Changing the machine_type, min_cpu_platform, service_account, enable_display, shielded_instance_config,"
    " scheduling.node_affinities or network_interface.[#d].(network/subnetwork/subnetwork_project) or"
    " advanced_machine_features on a started instance requires stopping it. To acknowledge this, please set"
    " allow_stopping_for_update = true in your config."
)


@dataclass(frozen=True, kw_only=True)
class Instance(Rest):
    """One VM. Its boot disk is created with it and read separately; others are attached and detached by calls."""

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = self.parse(context.settings, identity)
        changed = {change.top for change in changes}
        with named_errors("Error updating Instance"):
            if "attachedDisks" in changed:
                self._move_disks(context, variables, news)
            if changed & set(_STOPPED):
                self._while_stopped(context, variables, news, changed & set(_STOPPED))
        others = [c for c in changes if c.top not in ("attachedDisks", *_STOPPED)]
        return super().update(context, identity, olds, news, others)

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        """Refused as long as the state says that the machine is protected, whatever the API says of it by now."""
        if outputs.get("deletionProtection"):
            name = self.parse(context.settings, identity, outputs)["name"]
            raise ProviderError(
                f"Cannot delete instance {name}: instance Deletion Protection is enabled. Set deletion_protection to "
                'false for this resource and run "terraform apply" before attempting to delete it.'
            )
        super().delete(context, identity, outputs)

    def _move_disks(self, context: Context, variables: Variables, news: Inputs) -> None:
        """Detach what is not wanted any more or wanted otherwise, then attach what is new."""
        zone = ZONE.format(**variables)
        found = self.fetch(context, variables) or {}
        present = {links.relative(d["source"]): d for d in found.get("disks", ()) if not d.get("boot")}
        asked = [_attached(zone, disk) for disk in news.get("attachedDisks") or ()]
        wanted = {links.relative(disk["source"]): disk for disk in asked}
        same = {s for s, d in wanted.items() if s in present and _is_attached_as(present[s], d)}
        for source in present.keys() - same:
            query = {"deviceName": present[source]["deviceName"]}
            self._call(context, variables, "POST", "/detachDisk", None, query)
        for source in (source for source in wanted if source not in same):
            self._call(context, variables, "POST", "/attachDisk", wanted[source])

    def _while_stopped(self, context: Context, variables: Variables, news: Inputs, changed: set[str]) -> None:
        if not news.get("allowStoppingForUpdate"):
            raise ProviderError(_STOPPING)
        body = self.body(context, variables, news)
        self._call(context, variables, "POST", "/stop")
        for name in sorted(changed):
            method, suffix, content = _STOPPED[name]
            self._call(context, variables, method, suffix, content(body))
        self._call(context, variables, "POST", "/start")

    def _call(
        self,
        context: Context,
        variables: Variables,
        method: str,
        suffix: str,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> None:
        what = f"{suffix.lstrip('/')} of {variables['name']}"
        self.act(context, variables, method, suffix, what, body, query)

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        body = super().body(context, variables, inputs)
        zone = ZONE.format(**variables)
        body["machineType"] = _in_zone(zone, "machineTypes", inputs["machineType"])
        boot = _boot_disk(zone, inputs["bootDisk"])
        body["disks"] = [boot, *(_attached(zone, disk) for disk in inputs.get("attachedDisks") or ())]
        return body

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        boot = next((d for d in found.get("disks", ()) if d.get("boot")), None)
        if boot is not None:
            disk = self._disk(context, variables, boot)
            values["bootDisk"] = _shown_boot_disk(boot, disk, known.get("bootDisk") or {})
        values["attachedDisks"] = _shown_attached(found, known.get("attachedDisks") or [])
        values["machineType"] = links.last(str(found.get("machineType", "")))
        return values

    def _disk(self, context: Context, variables: Variables, boot: Json) -> Json:
        url = f"{ZONE}/disks/{links.last(boot.get('source', ''))}".format(**variables)
        return context.client.find("GET", self.api, url, context.deadline) or {}


def _in_zone(zone: str, collection: str, name: str) -> str:
    return name if links.is_link(name) else f"{zone}/{collection}/{name}"


def _boot_disk(zone: str, given: Mapping[str, Any]) -> Json:
    disk: Json = {k: given[k] for k in ("autoDelete", "deviceName", "mode", "source") if k in given}
    if "kmsKeySelfLink" in given:
        disk["diskEncryptionKey"] = {"kmsKeyName": given["kmsKeySelfLink"]}
    disk["boot"] = True
    asked = without_markers(given.get(INITIALIZE) or {})
    parameters: Json = {}
    if "size" in asked:
        parameters["diskSizeGb"] = str(asked["size"])
    if "type" in asked:
        parameters["diskType"] = _in_zone(zone, "diskTypes", asked["type"])
    if "image" in asked:
        parameters["sourceImage"] = image_link(asked["image"])
    return {**disk, INITIALIZE: parameters} if parameters and "source" not in disk else disk


def _attached(zone: str, given: Mapping[str, Any]) -> Json:
    disk = {k: given[k] for k in ("deviceName", "mode") if k in given}
    return {**disk, "source": links.relative(_in_zone(zone, "disks", given["source"]))}


def _is_attached_as(present: Json, wanted: Json) -> bool:
    return all(present.get(k) == wanted[k] for k in ("deviceName", "mode") if k in wanted)


def _shown_attached(found: Json, known: Sequence[Inputs]) -> list[Json]:
    """The attached disks in the order of the program's, what it does not know last."""
    order = [links.last(str(disk["source"])) for disk in known]
    attached = [d for d in found.get("disks", ()) if not d.get("boot")]
    names = {id(disk): links.last(disk.get("source", "")) for disk in attached}
    attached.sort(key=lambda d: order.index(names[id(d)]) if names[id(d)] in order else len(order))
    return [{k: disk[k] for k in ("deviceName", "mode", "source") if k in disk} for disk in attached]


def _shown_boot_disk(boot: Json, disk: Json, known: Inputs) -> Json:
    asked = known.get(INITIALIZE) or {}
    shown: Json = {k: boot[k] for k in ("autoDelete", "deviceName", "mode", "source") if k in boot}
    shown |= shown_key(boot.get("diskEncryptionKey", {}))
    parameters = without_markers(asked)
    if "sizeGb" in disk:
        parameters["size"] = int(disk["sizeGb"])
    if "type" in disk:
        parameters["type"] = links.last(disk["type"])
    if "image" not in parameters and "sourceImage" in disk:
        parameters["image"] = disk["sourceImage"]
    return {**shown, INITIALIZE: parameters} if parameters else shown


INSTANCE = Instance(
    type="gcp:compute/instance:Instance",
    api="compute",
    collection=f"{ZONE}/instances",
    item=f"{ZONE}/instances/{{name}}",
    fields={
        **MACHINE_FIELDS,
        "allowStoppingForUpdate": None,
        "bootDisk": None,
        "attachedDisks": None,
        "machineType": link(),
        "currentStatus": renamed("status"),
        "instanceId": renamed("id"),
        "tagsFingerprint": renamed("tags.fingerprint"),
        "metadataFingerprint": renamed("metadata.fingerprint"),
        "eraseWindowsVssSignature": Field(send=lambda flag: flag or None, readable=False),
    },
    always={
        "canIpForward": False,
        "deletionProtection": False,
        "params": {},
        "scheduling": {"automaticRestart": True},
        "tags": {},
    },
    query={"view": "FULL"},
    patches="",
    setters=(
        SET_LABELS,
        Setter(
            ("metadata",),
            "POST",
            "/setMetadata",
            lambda _news, body, olds: {**body.get("metadata", {}), "fingerprint": olds.get("metadataFingerprint", "")},
        ),
        Setter(
            ("tags",),
            "POST",
            "/setTags",
            lambda _news, body, olds: {**body.get("tags", {}), "fingerprint": olds.get("tagsFingerprint", "")},
        ),
        Setter(
            ("deletionProtection",),
            "POST",
            "/setDeletionProtection",
            lambda *_: None,
            query=lambda news: {"deletionProtection": str(bool(news.get("deletionProtection"))).lower()},
        ),
    ),
)

ROWS = (DISK, INSTANCE)
