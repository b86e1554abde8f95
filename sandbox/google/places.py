"""Compute Engine's read-only catalogue: zones, regions, machine types, images, and operations."""

from __future__ import annotations

import hashlib
import time

from sandbox.google import machines
from sandbox.google.compute_types import self_link
from sandbox.google.errors import not_found
from sandbox.google.service import Call, handles, render
from sandbox.google.store import Resource

WAIT_SECONDS = 120.0  # how long ".../operations/X/wait" may take, as on the real service
POLL_SECONDS = 0.02


def _number(name: str) -> str:
    return str(int(hashlib.sha256(name.encode()).hexdigest()[:12], 16))


def _place(project: str, kind: str, name: str) -> Resource:
    url = self_link(f"projects/{project}/{kind}s/{name}")
    return {"kind": f"compute#{kind}", "id": _number(name), "name": name, "status": "UP", "selfLink": url}


def _zone(project: str, zone: str) -> Resource:
    region = self_link(f"projects/{project}/regions/{machines.region_of(zone)}")
    return {**_place(project, "zone", zone), "region": region}


def _region(call: Call, region: str) -> Resource:
    """A region with its quotas; the metrics of TPU families are not shown here, as on the real service."""
    used = call.world.usage(call.project, region)
    shown = ("CPUS", machines.GENERATIONS["v5e"].quota, machines.GENERATIONS["v5e"].spot_quota)
    quotas = [{"metric": m, "limit": call.world.quota(region, m), "usage": used.get(m, 0.0)} for m in shown]
    zones = [self_link(f"projects/{call.project}/zones/{zone}") for zone in machines.zones_of(region)]
    return {**_place(call.project, "region", region), "zones": zones, "quotas": quotas}


@handles("compute.zones.get")
def get_zone(call: Call) -> Resource:
    zone = call.params["zone"]
    if zone not in machines.zones_of(machines.region_of(zone)):
        raise not_found(f"projects/{call.project}/zones/{zone}", compute=True)
    return _zone(call.project, zone)


@handles("compute.zones.list")
def list_zones(call: Call) -> Resource:
    zones = [zone for region in machines.REGIONS for zone in machines.zones_of(region)]
    return {"kind": "compute#zoneList", "items": [_zone(call.project, zone) for zone in zones]}


@handles("compute.regions.get")
def get_region(call: Call) -> Resource:
    region = call.params["region"]
    if region not in machines.REGIONS:
        raise not_found(f"projects/{call.project}/regions/{region}", compute=True)
    return _region(call, region)


@handles("compute.regions.list")
def list_regions(call: Call) -> Resource:
    return {"kind": "compute#regionList", "items": [_region(call, region) for region in machines.REGIONS]}


@handles("compute.projects.get")
def get_project(call: Call) -> Resource:
    own = {"kind": "compute#project", "id": _number(call.project), "name": call.project}
    return {**own, "defaultNetworkTier": "PREMIUM", "selfLink": self_link(f"projects/{call.project}")}


def _machine(project: str, zone: str, machine: machines.MachineType) -> Resource:
    shown: Resource = {
        "kind": "compute#machineType",
        "id": _number(machine.name),
        "name": machine.name,
        "guestCpus": machine.vcpus,
        "memoryMb": machine.memory_gb * 1024,
        "zone": zone,
        "selfLink": self_link(f"projects/{project}/zones/{zone}/machineTypes/{machine.name}"),
    }
    if machine.generation:
        kind = machine.generation.family.lower()
        shown["accelerators"] = [{"guestAcceleratorType": kind, "guestAcceleratorCount": machine.chips}]
    return shown


@handles("compute.machineTypes.get")
def get_machine_type(call: Call) -> Resource:
    zone, name = call.params["zone"], call.params["machineType"]
    machine = machines.offered(name, zone, call.world.zones())
    if machine is None:
        raise not_found(f"projects/{call.project}/zones/{zone}/machineTypes/{name}", compute=True)
    return _machine(call.project, zone, machine)


@handles("compute.machineTypes.list")
def list_machine_types(call: Call) -> Resource:
    zone = call.params["zone"]
    found = machines.machines_in(zone, call.world.zones())
    items = [_machine(call.project, zone, machine) for machine in found]
    return {"kind": "compute#machineTypeList", "items": items}


def _image(project: str, name: str, family: str) -> Resource:
    return {
        "kind": "compute#image",
        "id": _number(name),
        "name": name,
        "family": family,
        "status": "READY",
        "architecture": "X86_64",
        "diskSizeGb": "10",
        "selfLink": self_link(f"projects/{project}/global/images/{name}"),
    }


@handles("compute.images.getFromFamily")
def image_from_family(call: Call) -> Resource:
    family = call.params["family"]
    name = machines.image_in_family(call.project, family)
    if name is None:
        raise not_found(f"projects/{call.project}/global/images/family/{family}", compute=True)
    return _image(call.project, name, family)


@handles("compute.images.get")
def get_image(call: Call) -> Resource:
    name = call.params["image"]
    family = machines.image_family(call.project, name)
    if family is None:
        raise not_found(f"projects/{call.project}/global/images/{name}", compute=True)
    return _image(call.project, name, family)


@handles(*(f"compute.{scope}Operations.get" for scope in ("global", "region", "zone")))
def get_operation(call: Call) -> Resource:
    operation = call.world.operations.get(call.params["operation"])
    if operation is None or operation.api != "compute":
        raise not_found(f"projects/{call.project}/operations/{call.params['operation']}", compute=True)
    return render(operation)


@handles(*(f"compute.{scope}Operations.wait" for scope in ("global", "region", "zone")), locked=False)
def wait_for_operation(call: Call) -> Resource:
    """Answers when the operation is done, or with its state after two minutes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (shown := get_operation(call))["status"] != "DONE" and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return shown
