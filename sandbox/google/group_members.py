"""The instances of managed instance groups: when they come, when they go, and why they do not come.

A group's own operation is over soon; its instances follow in a second step that takes the time machines take. In BULK
mode all of them come or none; FLEX_START machines stand in a queue first. What the zone has no machines for stays
missing until the zone's stock changes: the real service tries again on its own time.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

from sandbox.google import machines
from sandbox.google.compute import find
from sandbox.google.compute_types import COLLECTIONS, TEMPLATES, relative, self_link
from sandbox.google.errors import GoogleError
from sandbox.google.faults import OPERATION_ERRORS, STOCKOUT
from sandbox.google.instances import addressed
from sandbox.google.networking import AddressPlan
from sandbox.google.operations import Operation, now
from sandbox.google.project_numbers import project_number
from sandbox.google.service import dig, fingerprint, new_id, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import AFTER, LAST, LOST, MEMBERS, World, instance_model

GROUPS = ("instanceGroupManagers", "regionInstanceGroupManagers")
CREATE, QUEUE = "compute.groupMembers.create", "compute.groupMembers.queue"


def is_bulk(group: Resource) -> bool:
    return bool(dig(group, "targetSizePolicy", "mode") == "BULK")


def zone_of(group: Resource) -> str:
    """The zone of a group's machines; a regional group uses the first of its zones."""
    if "zone" in group:
        return short(group["zone"])
    zones = dig(group, "distributionPolicy", "zones") or []
    return short(zones[0]["zone"]) if zones else machines.zones_of(short(group["region"]))[0]


def members(world: World, group: str) -> list[str]:
    """Full names of the instances that a group, given by its full name, has."""
    record = world.store.get(MEMBERS, group)
    return record["instances"] if record else []


def last_error(world: World, group: str) -> Resource | None:
    """{"code", "message"} of why the group's missing instances could not be made, None when nothing failed."""
    return (world.store.get(MEMBERS, group) or {}).get("error")


def is_settled(world: World, group: str, value: Resource) -> bool:
    """Whether a group has all its instances and nothing is under way."""
    busy = world.operations.under_way(group) or world.operations.under_way(_step(group))
    return busy is None and len(members(world, group)) == value["targetSize"]


def missing_names(world: World, group: str, value: Resource) -> list[str]:
    """The short names of the instances that are still to come."""
    present = {short(member) for member in members(world, group)}
    return _new_names(value, present, value["targetSize"] - len(present))


def _step(group: str) -> str:
    """What the operations on a group's instances are said to change; the group itself stays free for others."""
    return f"{group}/members"


def _groups(world: World) -> Iterator[tuple[str, Resource]]:
    for kind in GROUPS:
        yield from world.store.all(f"compute.{kind}").items()


def _group(world: World, name: str) -> Resource | None:
    kinds = (f"compute.{kind}" for kind in GROUPS)
    return next((found for kind in kinds if (found := world.store.get(kind, name))), None)


# What follows the operations


def _after_change(world: World, operation: Operation) -> list[Change]:
    """A group that is gone takes its instances along."""
    name = _owner(operation.target)
    if _group(world, name) is not None:
        return []
    gone = [Change("compute.instances", instance, None) for instance in members(world, name)]
    back = [Change(LOST, host, None) for host in world.store.all(LOST, f"{name}/")]
    return [*gone, *back, Change(MEMBERS, name, None)]


def _owner(target: str) -> str:
    """The group that an operation on it, or on a part of it, is about."""
    return "/".join(target.split("/")[:6])


def unsettled(world: World, operation: Operation | None = None) -> list[Operation]:
    """Operations for all groups whose instances are not what the groups want and can be made so."""
    found = []
    for name, group in _groups(world):
        if world.store.all(LOST, f"{name}/"):
            continue  # its hosts do not come back yet
        record = world.store.get(MEMBERS, name) or {}
        repaired = dig(group, "instanceLifecyclePolicy", "defaultActionOnFailure") == "REPAIR"
        changed = record.get("size") != group["targetSize"]
        lost = repaired and len(record.get("instances", [])) < group["targetSize"]
        if (changed or lost) and world.operations.under_way(_step(name)) is None:
            found.append(_operation(world, name, group, queues=not record.get("queued")))
    return found


def _operation(world: World, name: str, group: Resource, *, queues: bool) -> Operation:
    """`queues`: flex-start machines have yet to stand in their queue."""
    flex = instance_model(_template(world, group)["properties"]) == "flex"
    method = QUEUE if flex and queues and group["targetSize"] else CREATE
    place = name.split("/")[3]
    return Operation(method, name.split("/")[1], place, "compute.instances.bulkInsert", _step(name), follow="members")


def _settle(world: World, operation: Operation) -> list[Change]:
    """Makes a group's instances match its target size as far as there are machines."""
    name = _owner(operation.target)
    group = _group(world, name)
    if group is None:
        return []
    present, size = members(world, name), group["targetSize"]
    record: Resource = {"instances": present[:size], "size": size, "queued": size > 0}
    gone = [Change("compute.instances", instance, None) for instance in present[size:]]
    try:
        new, error = _made(world, name, group, size - len(present))
    except GoogleError as refusal:  # no address left, or the reservation is used up
        new, error = {}, {"code": refusal.reason, "message": refusal.message}
    record["instances"] = [*record["instances"], *new]
    if error:
        record |= {"error": error, "size": None}
    added = [Change("compute.instances", instance, value) for instance, value in new.items()]
    return [*gone, *added, Change(MEMBERS, name, record)]


LAST |= {"group": _after_change, "members": _settle}
AFTER |= {"group": unsettled, "repair": unsettled}


# Making instances


def _made(world: World, name: str, group: Resource, wanted: int) -> tuple[dict[str, Resource], Resource | None]:
    """Up to `wanted` new instances by full name, and why there are not more."""
    if wanted <= 0:
        return {}, None
    template = _template(world, group)
    properties, zone, project = template["properties"], zone_of(group), name.split("/")[1]
    machine = short(properties["machineType"])
    world.check_reservation(project, zone, properties.get("reservationAffinity", {}), machine, wanted)
    free = world.free_machines(zone, machine, instance_model(properties))
    possible = wanted if free >= wanted else 0 if is_bulk(group) else int(free)
    plan = AddressPlan(world)
    present = {short(member) for member in members(world, name)}
    made = {}
    for short_name in _new_names(group, present, possible):
        full = f"projects/{project}/zones/{zone}/instances/{short_name}"
        made[full] = _instance(world, plan, name, template, full)
    message = OPERATION_ERRORS[STOCKOUT][1]
    return made, {"code": STOCKOUT, "message": message} if possible < wanted else None


def _template(world: World, group: Resource) -> Resource:
    for target in (TEMPLATES, "regionInstanceTemplates"):
        found = find(world, COLLECTIONS[target], relative(group["instanceTemplate"]))
        if found:
            return found
    raise GoogleError("NOT_FOUND", f"The resource '{group['instanceTemplate']}' was not found")


def _new_names(group: Resource, present: set[str], count: int) -> list[str]:
    """The first free names of a group. "name-###[start]" numbers instances, otherwise four characters are added."""
    names: dict[str, None] = {}
    numbers = itertools.count()
    while len(names) < count:
        name = _instance_name(group, next(numbers))
        if name not in present:
            names[name] = None
    return list(names)


def _instance_name(group: Resource, number: int) -> str:
    base = group["baseInstanceName"]
    pattern = re.fullmatch(r"(.*?)(#+)\[(\d+)\](.*)", base)
    if pattern:
        return f"{pattern[1]}{number + int(pattern[3]):0{len(pattern[2])}d}{pattern[4]}"
    suffix = hashlib.sha256(f"{group['id']}/{number}".encode()).hexdigest()[:4]
    return f"{base}-{suffix}"


def _instance(world: World, plan: AddressPlan, group: str, template: Resource, name: str) -> Resource:
    """A group's instance. Its boot disk is not among the disks of the project."""
    _, project, place, location, *_ = group.split("/")
    zone_url = self_link("/".join(name.split("/")[:4]))
    properties: Any = template["properties"]
    own_items = {
        "created-by": f"projects/{project_number(project)}/{place}/{location}/instanceGroupManagers/{short(group)}",
        "instance-template": f"projects/{project_number(project)}/{relative(template['selfLink']).split('/', 2)[2]}",
    }
    items = [*properties["metadata"].get("items", []), *({"key": k, "value": v} for k, v in own_items.items())]
    return {
        **properties,
        "kind": "compute#instance",
        "id": new_id(),
        "name": short(name),
        "selfLink": self_link(name),
        "zone": zone_url,
        "status": "RUNNING",
        "creationTimestamp": now(),
        "machineType": f"{zone_url}/machineTypes/{short(properties['machineType'])}",
        "metadata": {**properties["metadata"], "items": items},
        "networkInterfaces": addressed(world, plan, properties.get("networkInterfaces", [])),
        "fingerprint": fingerprint(name),
        "labelFingerprint": fingerprint(properties.get("labels", {})),
    }
