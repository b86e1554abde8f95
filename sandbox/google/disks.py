"""Compute Engine's disks: made with their instance or on their own, written by one instance at a time.

A Hyperdisk ML is read by many once its access mode is READ_ONLY_MANY. The texts of these refusals are the emulator's
own, and so is the refusal to go back: no source says what Google does then.
"""

from __future__ import annotations

from sandbox.google import machines
from sandbox.google.compute import COMPLETE, SHOW, change, location, stored
from sandbox.google.compute_types import COLLECTIONS, relative, self_link
from sandbox.google.errors import GoogleError, exists, in_use, invalid, not_found
from sandbox.google.operations import Operation, now
from sandbox.google.service import Call, dig, filled, fingerprint, handles, new_id, short
from sandbox.google.store import Resource
from sandbox.google.world import World

# Disk type -> smallest and largest size in GB.
DISK_TYPES = {
    "hyperdisk-balanced": (4, 65_536),
    "hyperdisk-extreme": (64, 65_536),
    "hyperdisk-ml": (4, 65_536),
    "hyperdisk-throughput": (2_048, 32_768),
    "pd-balanced": (10, 65_536),
    "pd-extreme": (500, 65_536),
    "pd-ssd": (10, 65_536),
    "pd-standard": (10, 65_536),
}
HYPERDISK_ML, READ_ONLY_MANY = "hyperdisk-ml", "READ_ONLY_MANY"
DEFAULT_TYPE = "pd-standard"
IMAGE_SIZE_GB = 10


def image_name(reference: str, project: str) -> str:
    """The full name of a boot image given by name or family; 404 when the emulator knows no such image."""
    name = relative(reference)
    name = name if name.startswith("projects/") else f"projects/{project}/{name}"
    _, owner, *_, last = name.split("/")
    in_family = machines.image_in_family(owner, last)
    if "/family/" in name and in_family:
        return f"projects/{owner}/global/images/{in_family}"
    if "/family/" not in name and (in_family or machines.image_family(owner, last)):
        return f"projects/{owner}/global/images/{in_family or last}"
    raise not_found(name, compute=True)


def check_disk(disk: Resource, machine: machines.MachineType | None) -> None:
    """400 for a new disk of a type that the machine cannot have."""
    kind = short(dig(disk, "initializeParams", "diskType") or "")
    generation = machine.generation if machine else None
    if kind and generation and kind not in generation.disks:
        allowed = ", ".join(sorted(generation.disks))
        raise invalid(
            f"[{kind}] features and [instance_type: {machine.name if machine else ''}] are not compatible for creating"
            f" instance. Allowed disk types: {allowed}."
        )


def boot_disk(project: str, zone: str, name: str, parameters: Resource) -> Resource:
    """The record of a disk that an instance brings with it."""
    zone_url = self_link(f"projects/{project}/zones/{zone}")
    labels = parameters.get("labels", {})
    image = parameters.get("sourceImage")
    return {
        "kind": "compute#disk",
        "id": new_id(),
        "name": name,
        "sizeGb": str(parameters.get("diskSizeGb", IMAGE_SIZE_GB)),
        "status": "READY",
        "type": f"{zone_url}/diskTypes/{short(parameters.get('diskType', DEFAULT_TYPE))}",
        "sourceImage": self_link(image_name(image, project)) if image else "",
        "zone": zone_url,
        "selfLink": f"{zone_url}/disks/{name}",
        "creationTimestamp": now(),
        "labels": labels,
        "labelFingerprint": fingerprint(labels),
        "physicalBlockSizeBytes": "4096",
    }


def check_type(kind: str, zone: str) -> str:
    """The URL-less name of a disk type; 404 in Google's words for one that does not exist."""
    if kind not in DISK_TYPES:
        raise GoogleError("NOT_FOUND", f"The disk type '{kind}' does not exist in zone '{zone}'.")
    return kind


def _disk(call: Call, name: str, resource: Resource) -> Resource:
    """A disk has a type and a size that go together; it may start from an image, never smaller than that."""
    zone = location(call)
    kind = check_type(short(resource.get("type", DEFAULT_TYPE)), zone)
    least, most = DISK_TYPES[kind]
    own = {"type": self_link(f"projects/{call.project}/zones/{zone}/diskTypes/{kind}")}
    if resource.get("sourceImage"):
        own["sourceImage"] = self_link(image_name(resource["sourceImage"], call.project))
        least = max(least, IMAGE_SIZE_GB)
    size = int(resource.get("sizeGb") or max(least, IMAGE_SIZE_GB))
    if not least <= size <= most:
        raise invalid(f"Disk size: '{size} GB' is not valid for {kind}: it must be between {least} and {most} GB.")
    return {**resource, **own, **_access_mode(call, name, kind, resource), "sizeGb": str(size)}


def _access_mode(call: Call, name: str, kind: str, resource: Resource) -> Resource:
    """How many instances a Hyperdisk may have, and for what; other types have no access mode."""
    asked = resource.get("accessMode")
    if not kind.startswith("hyperdisk-"):
        if asked:
            raise invalid(f"Access mode {asked} is not supported for disk type {kind}.")
        return {}
    if asked == READ_ONLY_MANY and kind != HYPERDISK_ML:
        raise invalid(f"Access mode {asked} is not supported for disk type {kind}.")
    old = call.store.get("compute.disks", name) or {}
    if old.get("accessMode") == READ_ONLY_MANY and asked not in (None, READ_ONLY_MANY):
        raise invalid(f"Access mode cannot be changed from {READ_ONLY_MANY} to {asked}.")
    return {"accessMode": asked or "READ_WRITE_SINGLE"}


def users(world: World, disk: str) -> list[str]:
    """Full names of the instances that a disk is attached to."""
    return [
        name
        for name, instance in world.store.all("compute.instances", f"{disk.partition('/disks/')[0]}/").items()
        if any(relative(attached.get("source", "")) == disk for attached in instance.get("disks", []))
    ]


def _shown_disk(world: World, name: str, resource: Resource) -> Resource:
    attached_to = [self_link(user) for user in users(world, name)]
    return {**resource, "users": attached_to} if attached_to else resource


COMPLETE["disks"] = _disk
SHOW["disks"] = _shown_disk


@handles("compute.disks.resize")
def resize(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["disks"])
    size = int(call.body.get("sizeGb", 0))
    if size <= int(old["sizeGb"]):
        raise invalid(
            f"Requested disk size cannot be smaller than or equal to the current size. Requested: {size} GB, current:"
            f" {old['sizeGb']} GB."
        )
    return change(call, COLLECTIONS["disks"], name, old, {**old, "sizeGb": str(size)}, "resizeDisk")


# Attached disks


def attached(call: Call, owner: str, disk: Resource, index: int) -> Resource:
    """A disk as an instance shows it: one that exists and is free, or a new one named after the instance."""
    zone_url = self_link(f"projects/{call.project}/zones/{location(call)}")
    present = _present(call, owner, disk) if disk.get("source") else {}
    name = dig(disk, "initializeParams", "diskName") or short(owner) + (f"-{index}" if index else "")
    if "initializeParams" in disk:
        _check_new(call, name)
    size = present.get("sizeGb") or dig(disk, "initializeParams", "diskSizeGb") or disk.get("diskSizeGb")
    own = {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "interface": "SCSI",
        "deviceName": f"persistent-disk-{index}",
        "index": index,
        "boot": index == 0,
        "autoDelete": False,
        "diskSizeGb": str(size or IMAGE_SIZE_GB),
        "source": f"{zone_url}/disks/{name}",
        "architecture": "X86_64",
    }
    return filled(disk, own)


def _check_new(call: Call, name: str) -> None:
    """409 for a new disk of a name that is taken, as by a data disk that is called like its instance."""
    full = f"projects/{call.project}/zones/{location(call)}/disks/{name}"
    if call.store.get("compute.disks", full):
        raise exists(full, compute=True)


def _present(call: Call, owner: str, disk: Resource) -> Resource:
    """The disk that an instance is to have attached; 400 while another one writes to it."""
    name = relative(disk["source"])
    found = call.store.get("compute.disks", name)
    if found is None:
        raise not_found(name, compute=True)
    other = next((user for user in users(call.world, name) if user != owner), None)
    writes = disk.get("mode", "READ_WRITE") == "READ_WRITE"
    if writes and found.get("accessMode") == READ_ONLY_MANY:
        raise invalid(f"The disk {name} has the access mode {READ_ONLY_MANY}: attach it in mode READ_ONLY.")
    if other and (writes or found.get("accessMode") == "READ_WRITE_SINGLE"):
        raise in_use("disk", name, other)
    return found


@handles("compute.instances.attachDisk")
def attach(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instances"])
    present = old.get("disks", [])
    index = 1 + max((disk["index"] for disk in present), default=-1)
    shown = attached(call, name, call.body, index)
    if any(disk["deviceName"] == shown["deviceName"] for disk in present):
        raise invalid(f"Invalid value for field 'resource.deviceName': '{shown['deviceName']}' is already in use.")
    new = {**old, "disks": [*present, {**shown, "boot": False}]}
    return change(call, COLLECTIONS["instances"], name, old, new, "attachDisk")


@handles("compute.instances.detachDisk")
def detach(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instances"])
    device = call.query.get("deviceName", "")
    kept = [disk for disk in old.get("disks", []) if disk["deviceName"] != device]
    if len(kept) == len(old.get("disks", [])):
        raise invalid(f"No attached disk found with device name '{device}'.")
    return change(call, COLLECTIONS["instances"], name, old, {**old, "disks": kept}, "detachDisk")


# The catalogue


def _disk_type(call: Call, kind: str) -> Resource:
    zone = f"projects/{call.project}/zones/{call.params['zone']}"
    least, most = DISK_TYPES[kind]
    own = {"kind": "compute#diskType", "name": kind, "zone": self_link(zone), "validDiskSize": f"{least}GB-{most}GB"}
    return {**own, "selfLink": self_link(f"{zone}/diskTypes/{kind}")}


@handles("compute.diskTypes.get")
def get_disk_type(call: Call) -> Resource:
    kind = call.params["diskType"]
    if kind not in DISK_TYPES:
        raise not_found(f"projects/{call.project}/zones/{call.params['zone']}/diskTypes/{kind}", compute=True)
    return _disk_type(call, kind)


@handles("compute.diskTypes.list")
def list_disk_types(call: Call) -> Resource:
    return {"kind": "compute#diskTypeList", "items": [_disk_type(call, kind) for kind in DISK_TYPES]}
