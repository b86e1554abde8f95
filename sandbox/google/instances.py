"""Compute Engine's machines: images, disks, instances and instance templates."""

from __future__ import annotations

from sandbox.google import machines
from sandbox.google.compute import (
    ALONG,
    COMPLETE,
    change,
    check_token,
    location,
    stored,
)
from sandbox.google.compute_types import COLLECTIONS, TEMPLATES, relative, self_link
from sandbox.google.errors import invalid, not_found
from sandbox.google.networking import free_address
from sandbox.google.operations import Operation, now
from sandbox.google.service import Call, dig, filled, fingerprint, handles, new_id, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import World, instance_model

GROUPS = ("instanceGroupManagers", "regionInstanceGroupManagers")
MAX_RUN_SECONDS = 604_800  # a flex-start machine lives seven days at most
SHIELDED = {"enableSecureBoot": False, "enableVtpm": True, "enableIntegrityMonitoring": True}


# Images and disks


def _image(reference: str, project: str) -> str:
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


def _check_disk(disk: Resource, machine: machines.MachineType | None) -> None:
    kind = short(dig(disk, "initializeParams", "diskType") or "")
    generation = machine.generation if machine else None
    if kind and generation and kind not in generation.disks:
        allowed = ", ".join(sorted(generation.disks))
        raise invalid(
            f"[{kind}] features and [instance_type: {machine.name if machine else ''}] are not compatible for creating"
            f" instance. Allowed disk types: {allowed}."
        )


def _disk_record(project: str, zone: str, name: str, parameters: Resource, image: str, user: str) -> Resource:
    kind = short(parameters.get("diskType", "pd-standard"))
    zone_url = self_link(f"projects/{project}/zones/{zone}")
    size = str(parameters.get("diskSizeGb", 10))
    return {
        "kind": "compute#disk",
        "id": new_id(),
        "name": name,
        "sizeGb": size,
        "status": "READY",
        "type": f"{zone_url}/diskTypes/{kind}",
        "sourceImage": self_link(image) if image else "",
        "zone": zone_url,
        "selfLink": f"{zone_url}/disks/{name}",
        "creationTimestamp": now(),
        "labels": parameters.get("labels", {}),
        "labelFingerprint": fingerprint(parameters.get("labels", {})),
        "physicalBlockSizeBytes": "4096",
        "users": [user],
    }


# Instances


def machine_in(properties: Resource, world: World, zone: str) -> machines.MachineType:
    return world.machine(short(properties.get("machineType", "")), zone)


def _check_capacity(properties: Resource, machine: machines.MachineType | None) -> None:
    """Scheduling and reservation affinity have to tell the same story."""
    model = instance_model(properties)
    scheduling = properties.get("scheduling", {})
    affinity = dig(properties, "reservationAffinity", "consumeReservationType") or ""
    seconds = int(dig(scheduling, "maxRunDuration", "seconds") or 0)
    if (model == "reserved") != (affinity == "SPECIFIC_RESERVATION") and model in ("reserved", "flex", "spot"):
        raise invalid(
            f"Reservation affinity {affinity or 'unset'} is incompatible with provisioning model"
            f" {scheduling.get('provisioningModel')}."
        )
    if model == "flex" and not 0 < seconds <= MAX_RUN_SECONDS:
        raise invalid(f"FLEX_START requires max run duration between 1 and {MAX_RUN_SECONDS} seconds.")
    if model == "spot" and scheduling.get("automaticRestart"):
        raise invalid("Scheduling must have automatic restart set to false with provisioning model SPOT.")
    if machine and machine.generation and scheduling.get("onHostMaintenance", "TERMINATE") != "TERMINATE":
        raise invalid(f"Instances with machine type {machine.name} must have onHostMaintenance set to TERMINATE.")


def _shared(properties: Resource, machine: machines.MachineType | None) -> Resource:
    """What Google fills in on instances and templates alike."""
    tpu = machine is not None and machine.generation is not None
    spot = instance_model(properties) == "spot"
    defaults = {
        "canIpForward": False,
        "scheduling": {
            "onHostMaintenance": "TERMINATE" if tpu or spot else "MIGRATE",
            "automaticRestart": not spot,
            "preemptible": spot,
            "provisioningModel": "STANDARD",
        },
        "shieldedInstanceConfig": SHIELDED,
        "tags": {},
        "metadata": {},
    }
    result = filled(properties, defaults)
    tags, metadata = result["tags"].get("items", []), result["metadata"].get("items", [])
    result["tags"] = {**result["tags"], "fingerprint": fingerprint(tags)}
    result["metadata"] = {**result["metadata"], "kind": "compute#metadata", "fingerprint": fingerprint(metadata)}
    return result


def _nic(world: World, nic: Resource, index: int, *, addressed: bool) -> Resource:
    """An interface with its network taken from the subnetwork; instances also get an address."""
    subnetwork = world.store.get("compute.subnetworks", relative(nic.get("subnetwork", "")))
    result = {**nic, "kind": "compute#networkInterface", "name": f"nic{index}"}
    if subnetwork:
        result["network"] = subnetwork["network"]
    if addressed:
        result = {"stackType": "IPV4_ONLY", **result, "fingerprint": fingerprint(nic)}
        if subnetwork and "networkIP" not in result:
            result["networkIP"] = free_address(world, subnetwork)
    return result


def _attached(call: Call, owner: str, disk: Resource, index: int) -> Resource:
    """A disk as an instance shows it; the disk itself is made by `_instance_rest`."""
    name = dig(disk, "initializeParams", "diskName") or short(owner) + (f"-{index}" if index else "")
    zone_url = self_link(f"projects/{call.project}/zones/{location(call)}")
    size = dig(disk, "initializeParams", "diskSizeGb") or disk.get("diskSizeGb") or "10"
    own = {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "interface": "SCSI",
        "deviceName": f"persistent-disk-{index}",
        "index": index,
        "boot": index == 0,
        "autoDelete": False,
        "diskSizeGb": str(size),
        "source": f"{zone_url}/disks/{name}",
        "architecture": "X86_64",
    }
    return filled(disk, own)


def _instance(call: Call, name: str, resource: Resource) -> Resource:
    if "status" in resource:  # an update of an instance that exists
        return _shared(resource, machines.machine_type(short(resource["machineType"])))
    zone = location(call)
    machine = machine_in(resource, call.world, zone)
    _check_capacity(resource, machine)
    for disk in resource.get("disks", []):
        _check_disk(disk, machine)
    for account in resource.get("serviceAccounts", []):
        call.world.check_service_account(call.project, account.get("email", ""))
    model = instance_model(resource)
    call.world.check_reservation(call.project, zone, resource.get("reservationAffinity", {}), machine.name, 1)
    call.world.check_quota(call.project, zone, machine.name, model, 1)
    own = {
        "machineType": self_link(f"projects/{call.project}/zones/{zone}/machineTypes/{machine.name}"),
        "status": "PROVISIONING",
        "cpuPlatform": "Intel Cascade Lake",
        "startRestricted": False,
        "lastStartTimestamp": now(),
        "deletionProtection": resource.get("deletionProtection", False),
        "shieldedInstanceIntegrityPolicy": {"updateAutoLearnPolicy": True},
        "disks": [_attached(call, name, disk, i) for i, disk in enumerate(resource.get("disks", []))],
        "networkInterfaces": [
            _nic(call.world, nic, i, addressed=True) for i, nic in enumerate(resource.get("networkInterfaces", []))
        ],
    }
    return _shared({**resource, **own}, machine)


def _instance_rest(world: World, name: str, old: Resource | None, new: Resource | None) -> list[Change]:
    """An instance brings its new disks with it and takes the auto-delete ones away."""
    if new is None:
        disks = [relative(d["source"]) for d in (old or {}).get("disks", []) if d.get("autoDelete")]
        return [Change("compute.disks", disk, None) for disk in disks]
    _, project, _, zone, _, _ = name.split("/")
    changes = [Change("compute.instances", name, {**new, "status": "RUNNING" if old is None else new["status"]})]
    for disk in new["disks"] if old is None else []:
        if "initializeParams" in disk:
            parameters = disk["initializeParams"]
            image = _image(parameters["sourceImage"], project) if parameters.get("sourceImage") else ""
            record = _disk_record(project, zone, short(disk["source"]), parameters, image, new["selfLink"])
            changes.append(Change("compute.disks", relative(disk["source"]), record))
    return changes


COMPLETE["instances"] = _instance
ALONG["instances"] = _instance_rest

# method -> (fields the body sets, where the body carries its fingerprint, the fingerprint it must equal)
_SETTERS: dict[str, tuple[str, bool]] = {
    "setMetadata": ("metadata", True),
    "setTags": ("tags", True),
    "setScheduling": ("scheduling", False),
    "setShieldedInstanceIntegrityPolicy": ("shieldedInstanceIntegrityPolicy", False),
    "updateShieldedInstanceConfig": ("shieldedInstanceConfig", False),
}


@handles(*(f"compute.instances.{verb}" for verb in _SETTERS))
def set_field(call: Call) -> Operation:
    """The body is the new value of one field, with the fingerprint that was read where the field has one."""
    verb = call.method.rpartition(".")[2]
    field, has_token = _SETTERS[verb]
    name, old = stored(call, COLLECTIONS["instances"])
    if has_token:
        check_token(call.body.get("fingerprint"), old[field]["fingerprint"])
    return change(call, COLLECTIONS["instances"], name, old, {**old, field: call.body}, verb)


@handles("compute.instances.setServiceAccount")
def set_service_account(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instances"])
    call.world.check_service_account(call.project, call.body.get("email", ""))
    new = {**old, "serviceAccounts": [call.body] if call.body.get("email") else []}
    return change(call, COLLECTIONS["instances"], name, old, new, "setServiceAccount")


@handles("compute.instances.setMachineType")
def set_machine_type(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instances"])
    if old["status"] != "TERMINATED":
        raise invalid("Instance is starting or running. It must be stopped before its machine type can be changed.")
    machine = machine_in(call.body, call.world, location(call))
    url = self_link(f"projects/{call.project}/zones/{location(call)}/machineTypes/{machine.name}")
    return change(call, COLLECTIONS["instances"], name, old, {**old, "machineType": url}, "setMachineType")


@handles("compute.instances.setDeletionProtection")
def set_deletion_protection(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instances"])
    new = {**old, "deletionProtection": call.query.get("deletionProtection", "true") == "true"}
    return change(call, COLLECTIONS["instances"], name, old, new, "setDeletionProtection")


@handles("compute.instances.start", "compute.instances.stop")
def start_or_stop(call: Call) -> Operation:
    verb = call.method.rpartition(".")[2]
    name, old = stored(call, COLLECTIONS["instances"])
    new = {**old, "status": "RUNNING" if verb == "start" else "TERMINATED"}
    return change(call, COLLECTIONS["instances"], name, old, new, verb)


# Instance templates


def _template(call: Call, name: str, resource: Resource) -> Resource:
    properties = resource.get("properties", {})
    machine = machines.machine_type(short(properties.get("machineType", "")))
    if machine is None:
        raise invalid(
            f"Invalid value for field 'resource.properties.machineType': '{properties.get('machineType', '')}'."
            " The machine type does not exist."
        )
    _check_capacity(properties, machine)
    for disk in properties.get("disks", []):
        _check_disk(disk, machine)
        if dig(disk, "initializeParams", "sourceImage"):
            _image(disk["initializeParams"]["sourceImage"], call.project)
    for account in properties.get("serviceAccounts", []):
        call.world.check_service_account(call.project, account.get("email", ""))
    shapes = {
        "disks": [filled(disk, _template_disk(i)) for i, disk in enumerate(properties.get("disks", []))],
        "networkInterfaces": [
            _nic(call.world, nic, i, addressed=False) for i, nic in enumerate(properties.get("networkInterfaces", []))
        ],
    }
    return {**resource, "properties": _shared({**properties, **shapes}, machine)}


def _template_disk(index: int) -> Resource:
    return {
        "kind": "compute#attachedDisk",
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        "deviceName": f"persistent-disk-{index}",
        "index": index,
        "boot": index == 0,
    }


COMPLETE |= {TEMPLATES: _template, "regionInstanceTemplates": _template}
