"""Compute Engine's machines: instances and instance templates."""

from __future__ import annotations

from sandbox.google import machines
from sandbox.google.compute import (
    ALONG,
    COMPLETE,
    FOLLOWS,
    change,
    check_token,
    location,
    stored,
)
from sandbox.google.compute_types import COLLECTIONS, TEMPLATES, relative, self_link
from sandbox.google.disks import attached, boot_disk, check_disk, image_name
from sandbox.google.errors import invalid
from sandbox.google.guests import SERIAL
from sandbox.google.networking import AddressPlan, in_range, instance_addresses
from sandbox.google.operations import Operation, now
from sandbox.google.service import Call, dig, filled, fingerprint, handles, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import MEMBERS, World, instance_model

MAX_RUN_SECONDS = 604_800  # a flex-start machine lives seven days at most
SHIELDED = {"enableSecureBoot": False, "enableVtpm": True, "enableIntegrityMonitoring": True}


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


def _nic(world: World, nic: Resource, index: int) -> Resource:
    """An interface with its network taken from the subnetwork."""
    subnetwork = world.store.get("compute.subnetworks", relative(nic.get("subnetwork", "")))
    own = {"kind": "compute#networkInterface", "name": f"nic{index}"}
    return {**nic, **own, **({"network": subnetwork["network"]} if subnetwork else {})}


def _nics(world: World, properties: Resource) -> list[Resource]:
    return [_nic(world, nic, i) for i, nic in enumerate(properties.get("networkInterfaces", []))]


def addressed(world: World, plan: AddressPlan, nics: list[Resource]) -> list[Resource]:
    """The interfaces of an instance with addresses and alias ranges of their own. Raises 400 when none are left."""
    return [_addressed(world, plan, nic) for nic in nics]


def _addressed(world: World, plan: AddressPlan, nic: Resource) -> Resource:
    subnetwork = world.store.get("compute.subnetworks", relative(nic.get("subnetwork", "")))
    result = {"stackType": "IPV4_ONLY", **nic, "fingerprint": fingerprint(nic)}
    if subnetwork is None:
        return result
    if "networkIP" not in nic:
        result["networkIP"] = plan.address(subnetwork)
    elif not in_range(subnetwork, nic["networkIP"]) or nic["networkIP"] in instance_addresses(world):
        raise invalid(
            f"Invalid value for field 'resource.networkInterfaces[].networkIP': '{nic['networkIP']}'. The address is"
            f" outside the range {subnetwork['ipCidrRange']} or already used by another instance."
        )
    if "aliasIpRanges" in nic:
        result["aliasIpRanges"] = [
            {**a, "ipCidrRange": plan.alias(subnetwork, a.get("subnetworkRangeName", ""), a["ipCidrRange"])}
            for a in nic["aliasIpRanges"]
        ]
    return result


def _instance(call: Call, name: str, resource: Resource) -> Resource:
    if "status" in resource:  # an update of an instance that exists
        return _shared(resource, machines.machine_type(short(resource["machineType"])))
    zone = location(call)
    machine = machine_in(resource, call.world, zone)
    _check_capacity(resource, machine)
    for disk in resource.get("disks", []):
        check_disk(disk, machine)
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
        "disks": [attached(call, name, disk, i) for i, disk in enumerate(resource.get("disks", []))],
        "networkInterfaces": addressed(call.world, AddressPlan(call.world), _nics(call.world, resource)),
    }
    return _shared({**resource, **own}, machine)


def _instance_rest(world: World, name: str, old: Resource | None, new: Resource | None) -> list[Change]:
    """An instance brings its new disks with it and takes the auto-delete ones away, and its place in a group."""
    if new is None:
        disks = [relative(d["source"]) for d in (old or {}).get("disks", []) if d.get("autoDelete") and "source" in d]
        gone = [Change("compute.disks", disk, None) for disk in disks]
        return [*gone, Change(SERIAL, name, None), *without_member(world, name)]
    _, project, _, zone, _, _ = name.split("/")
    changes = [Change("compute.instances", name, {**new, "status": "RUNNING" if old is None else new["status"]})]
    for disk in new["disks"] if old is None else []:
        if "initializeParams" in disk:
            record = boot_disk(project, zone, short(disk["source"]), disk["initializeParams"])
            changes.append(Change("compute.disks", relative(disk["source"]), record))
    return changes


def without_member(world: World, instance: str) -> list[Change]:
    """The groups, managed or not, that an instance is a member of, without it."""
    return [
        Change(MEMBERS, group, {**row, "instances": [member for member in row["instances"] if member != instance]})
        for group, row in world.store.all(MEMBERS).items()
        if instance in row["instances"]
    ]


COMPLETE["instances"] = _instance
ALONG["instances"] = _instance_rest
FOLLOWS["instances"] = "repair"

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


@handles("compute.instances.getSerialPortOutput")
def serial_port(call: Call) -> Resource:
    """What the machine wrote to its first serial port; the other three stay empty."""
    name, instance = stored(call, COLLECTIONS["instances"])
    text = (call.store.get(SERIAL, name) or {}).get("text", "") if call.query.get("port", "1") == "1" else ""
    start = int(call.query.get("start", "0"))
    own = {"kind": "compute#serialPortOutput", "selfLink": f"{instance['selfLink']}/serialPort"}
    return {**own, "contents": text[start:], "start": str(start), "next": str(len(text))}


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
        check_disk(disk, machine)
        if dig(disk, "initializeParams", "sourceImage"):
            image_name(disk["initializeParams"]["sourceImage"], call.project)
    for account in properties.get("serviceAccounts", []):
        call.world.check_service_account(call.project, account.get("email", ""))
    shapes = {
        "disks": [filled(disk, _template_disk(i)) for i, disk in enumerate(properties.get("disks", []))],
        "networkInterfaces": _nics(call.world, properties),
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
