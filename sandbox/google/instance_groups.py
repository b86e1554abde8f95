"""Compute Engine's managed instance groups, with bulk mode and resize requests, and unmanaged groups' members."""

from __future__ import annotations

import re
import uuid
from ipaddress import ip_address
from typing import Any

from sandbox.google import machines
from sandbox.google.compute import ALONG, COMPLETE, DERIVED, SHOW, change, find, location, resolve, stored
from sandbox.google.compute_types import COLLECTIONS, TEMPLATES, relative, self_link
from sandbox.google.errors import GoogleError, exists, invalid, not_found
from sandbox.google.instances import MAX_RUN_SECONDS, machine_in
from sandbox.google.networking import free_address
from sandbox.google.operations import Operation, now
from sandbox.google.service import Call, dig, fingerprint, handles, new_id, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import World, instance_model

GROUPS = ("instanceGroupManagers", "regionInstanceGroupManagers")
REQUESTS = "compute.resizeRequests"
MIN_RUN_SECONDS = 600  # of the machines a resize request asks for


def _bulk(group: Resource) -> bool:
    return bool(dig(group, "targetSizePolicy", "mode") == "BULK")


def _group(call: Call, name: str, resource: Resource) -> Resource:
    versions = resource.get("versions") or [{"instanceTemplate": resource.get("instanceTemplate", "")}]
    if not versions[0].get("instanceTemplate"):
        raise invalid("Required field 'resource.instanceTemplate' not specified", reason="required")
    template = _group_template(call, versions[0]["instanceTemplate"])
    resource = {
        **resource,
        "versions": [{"name": "", **v, "targetSize": _version_size(resource, v)} for v in versions],
        "instanceTemplate": template["selfLink"],
        "baseInstanceName": resource.get("baseInstanceName") or short(name),
        "instanceGroup": self_link(name.replace("/instanceGroupManagers/", "/instanceGroups/")),
    }
    _check_group(call, name, resource, template["properties"])
    return resource


def _version_size(group: Resource, version: Resource) -> Resource:
    """How many instances get a version; all of them unless it says otherwise."""
    size: Resource = version.get("targetSize") or {}
    return size if "fixed" in size or "percent" in size else {"calculated": group["targetSize"]}


def _group_template(call: Call, reference: str) -> Resource:
    targets = (TEMPLATES, "regionInstanceTemplates")
    return resolve(call.world, reference, targets, call.project, location(call))[1]


def _group_zone(call: Call, group: Resource) -> str:
    """The zone a group's machines are in; a regional group uses the first of its zones."""
    if "zone" in call.params:
        return call.params["zone"]
    zones = dig(group, "distributionPolicy", "zones") or []
    return short(zones[0]["zone"]) if zones else machines.zones_of(call.params["region"])[0]


def _check_group(call: Call, name: str, group: Resource, properties: Resource) -> None:
    zone = _group_zone(call, group)
    machine = machine_in(properties, call.world, zone)
    old = call.store.get(f"compute.{call.method.split('.')[1]}", name)
    if machine.generation and not machine.generation.on_compute:
        raise invalid(f"Machine type {machine.name} cannot be used to create instances in Compute Engine directly.")
    if old and _bulk(old) != _bulk(group):
        raise invalid("Target size policy mode cannot be changed for an existing instance group manager.")
    if _bulk(group):
        _check_bulk(group, machine, properties, call)
    _check_workload_policy(call, group, machine, properties)
    before = len(group_instances(call.world, name))
    more = max(group["targetSize"] - before, 0)
    if _bulk(group) and 0 < before < group["targetSize"]:
        raise invalid("A managed instance group in BULK mode can only grow when its target size is 0.")
    if more:
        affinity = properties.get("reservationAffinity", {})
        call.world.check_reservation(call.project, zone, affinity, machine.name, more)
        call.world.check_quota(call.project, zone, machine.name, instance_model(properties), more)


def _check_bulk(group: Resource, machine: machines.MachineType, properties: Resource, call: Call) -> None:
    if machine.generation is None:
        raise invalid("Target size policy mode BULK is supported only for TPU machine types.")
    if len(group["versions"]) > 1:
        raise invalid("Target size policy mode BULK does not support multiple versions.")
    if dig(group, "standbyPolicy", "mode") == "SCALE_OUT_POOL":
        raise invalid("Target size policy mode BULK does not support standby pools.")
    flex = instance_model(properties) == "flex"
    if flex and group["instanceLifecyclePolicy"]["defaultActionOnFailure"] != "DO_NOTHING":
        raise invalid(
            "Instance lifecycle policy defaultActionOnFailure must be DO_NOTHING with FLEX_START in BULK mode."
        )
    shape = dig(group, "distributionPolicy", "targetShape")
    if "region" in call.params and shape != "ANY_SINGLE_ZONE":
        raise invalid("Target size policy mode BULK requires distribution policy target shape ANY_SINGLE_ZONE.")


def _check_workload_policy(call: Call, group: Resource, machine: machines.MachineType, properties: Resource) -> None:
    """A group with a workload policy is a whole slice or empty, of a topology its machines can form."""
    link = dig(group, "resourcePolicies", "workloadPolicy")
    if not link:
        return
    policy = call.store.get("compute.resourcePolicies", relative(link)) or {}
    place = location(call)
    region = machines.region_of(place) if place.count("-") > 1 else place
    if short(policy["region"]) != region:
        raise invalid(f"Workload policy {policy['name']} is not in the region {region} of the instance group manager.")
    if "workloadPolicy" not in policy:
        raise invalid(f"Resource policy {policy['name']} is not a workload policy.")
    topology = policy["workloadPolicy"].get("acceleratorTopology")
    if not topology:
        return
    hosts = machine.hosts(topology)
    if hosts is None or (topology == "2x4" and hosts > 1):  # two-host 2x4 slices exist in Kubernetes Engine only
        raise invalid(f"Accelerator topology {topology} is not supported for machine type {machine.name}.")
    if group["targetSize"] not in (0, hosts):
        raise gang_mode(group["targetSize"], hosts)
    mode = policy["workloadPolicy"].get("acceleratorTopologyMode")
    if mode == "PROVISION_ONLY" and instance_model(properties) != "reserved":
        raise invalid("Accelerator topology mode PROVISION_ONLY requires a specific reservation.")


def gang_mode(size: int, hosts: int) -> GoogleError:
    return invalid(
        f"Requested invalid target size '{size}' for a Managed Instance Group in the gang mode of size '{hosts}'"
    )


def group_instances(world: World, group: str) -> list[str]:
    """Full names of the instances a managed instance group has."""
    record = world.store.get("compute.groupInstances", group)
    return record["instances"] if record else []


def _instance_name(base: str, number: int) -> str:
    """Google's pattern "name-###[start]" numbers the instances; otherwise four random characters are added."""
    pattern = re.fullmatch(r"(.*?)(#+)\[(\d+)\](.*)", base)
    if pattern:
        return f"{pattern[1]}{number + int(pattern[3]):0{len(pattern[2])}d}{pattern[4]}"
    return f"{base}-{uuid.uuid4().hex[:4]}"


def _group_rest(world: World, name: str, old: Resource | None, new: Resource | None) -> list[Change]:
    """A group's instances follow its target size; those that stay keep their template."""
    present = group_instances(world, name)
    wanted = new["targetSize"] if new else 0
    changes = [Change("compute.instances", instance, None) for instance in present[wanted:]]
    kept = present[:wanted]
    for number in range(len(kept), wanted):
        instance, record = _group_instance(world, name, new or {}, number)
        kept.append(instance)
        changes.append(Change("compute.instances", instance, record))
    return [*changes, Change("compute.groupInstances", name, {"instances": kept} if new else None)]


def _group_instance(world: World, group: str, value: Resource, number: int) -> tuple[str, Resource]:
    project = group.split("/")[1]
    zone = short(value["zone"]) if "zone" in value else _first_zone(value)
    template: Any = {}
    for target in (TEMPLATES, "regionInstanceTemplates"):
        template = template or find(world, COLLECTIONS[target], relative(value["instanceTemplate"])) or {}
    properties = template["properties"]
    name = _instance_name(value["baseInstanceName"], number)
    full = f"projects/{project}/zones/{zone}/instances/{name}"
    zone_url = self_link(f"projects/{project}/zones/{zone}")
    items = properties["metadata"].get("items", [])
    created_by = {"key": "created-by", "value": group}
    template_item = {"key": "instance-template", "value": relative(template["selfLink"])}
    record = {
        **properties,
        "kind": "compute#instance",
        "id": new_id(),
        "name": name,
        "selfLink": self_link(full),
        "zone": zone_url,
        "status": "RUNNING",
        "creationTimestamp": now(),
        "machineType": f"{zone_url}/machineTypes/{short(properties['machineType'])}",
        "metadata": {**properties["metadata"], "items": [*items, created_by, template_item]},
        "networkInterfaces": [
            {**nic, "networkIP": _nth_address(world, nic, number)} for nic in properties.get("networkInterfaces", [])
        ],
        "fingerprint": fingerprint(full),
        "labelFingerprint": fingerprint(properties.get("labels", {})),
    }
    return full, record


def _first_zone(group: Resource) -> str:
    zones = dig(group, "distributionPolicy", "zones") or []
    return short(zones[0]["zone"]) if zones else machines.zones_of(short(group["region"]))[0]


def _nth_address(world: World, nic: Resource, number: int) -> str:
    """The address of the n-th machine of a batch that is created at once, counted from the first free one."""
    subnetwork = world.store.get("compute.subnetworks", relative(nic.get("subnetwork", "")))
    return str(ip_address(free_address(world, subnetwork)) + number) if subnetwork else ""


def _shown_group(world: World, name: str, resource: Resource) -> Resource:
    """Actions and status: a group is stable when it has all its instances and nothing is under way."""
    present = len(group_instances(world, name))
    stable = present == resource["targetSize"] and world.operations.under_way(name) is None
    idle = ("abandoning", "deleting", "recreating", "refreshing", "restarting", "verifying", "creatingWithoutRetries")
    actions = dict.fromkeys(idle, 0) | {"none": present, "creating": max(resource["targetSize"] - present, 0)}
    status = {
        "isStable": stable,
        "versionTarget": {"isReached": stable},
        "stateful": {"hasStatefulConfig": False, "perInstanceConfigs": {"allEffective": True}},
        "allInstancesConfig": {"effective": True},
    }
    return {**resource, "currentActions": actions, "status": status}


for _name in GROUPS:
    COMPLETE[_name] = _group
    ALONG[_name] = _group_rest
    SHOW[_name] = _shown_group


@handles("compute.instanceGroupManagers.resize", "compute.regionInstanceGroupManagers.resize")
def resize(call: Call) -> Operation:
    collection = COLLECTIONS[call.method.split(".")[1]]
    name, old = stored(call, collection)
    size = call.query.get("size", "")
    if not size.isdigit():
        raise invalid(f"Invalid value for field 'size': '{size}'. Must be a non-negative integer.")
    return change(call, collection, name, old, {**old, "targetSize": int(size)}, "compute.instanceGroupManagers.resize")


@handles(
    "compute.instanceGroupManagers.listManagedInstances", "compute.regionInstanceGroupManagers.listManagedInstances"
)
def list_managed_instances(call: Call) -> Resource:
    name, group = stored(call, COLLECTIONS[call.method.split(".")[1]])
    running = [call.store.get("compute.instances", instance) or {} for instance in group_instances(call.world, name)]
    return {"managedInstances": [_managed(instance, group) for instance in running]}


def _managed(instance: Resource, group: Resource) -> Resource:
    return {
        "instance": instance["selfLink"],
        "id": instance["id"],
        "name": instance["name"],
        "instanceStatus": instance["status"],
        "currentAction": "NONE",
        "version": {"instanceTemplate": group["instanceTemplate"]},
    }


def _managed_groups(world: World, prefix: str) -> dict[str, Resource]:
    """The instance groups that managed instance groups own, by full name."""
    found = {}
    for kind in GROUPS:
        for name, manager in world.store.all(f"compute.{kind}").items():
            group = name.replace("/instanceGroupManagers/", "/instanceGroups/")
            if group.startswith(prefix):
                size = len(group_instances(world, name))
                own = {"kind": "compute#instanceGroup", "name": manager["name"], "id": manager["id"], "size": size}
                found[group] = {**own, "selfLink": self_link(group)}
    return found


DERIVED["instanceGroups"] = _managed_groups


@handles("compute.instanceGroups.listInstances")
def list_instances(call: Call) -> Resource:
    name = relative(stored(call, COLLECTIONS["instanceGroups"])[1]["selfLink"])
    manager = name.replace("/instanceGroups/", "/instanceGroupManagers/")
    own = (call.store.get("compute.groupInstances", name) or {}).get("instances", [])
    instances = group_instances(call.world, manager) or own
    items = [{"instance": self_link(instance), "status": "RUNNING"} for instance in instances]
    return {"kind": "compute#instanceGroupsListInstances", "items": items}


@handles("compute.instanceGroups.addInstances", "compute.instanceGroups.removeInstances")
def change_members(call: Call) -> Operation:
    """Members of an unmanaged group; each must be an instance of the same zone."""
    name, old = stored(call, COLLECTIONS["instanceGroups"])
    names = [relative(row.get("instance", "")) for row in call.body.get("instances", [])]
    for instance in names:
        if call.store.get("compute.instances", instance) is None:
            raise not_found(instance, compute=True)
    present = (call.store.get("compute.groupInstances", name) or {}).get("instances", [])
    verb = call.method.rpartition(".")[2]
    kept = [member for member in present if member not in names]
    now_in = kept + names if verb == "addInstances" else kept
    operation = change(call, COLLECTIONS["instanceGroups"], name, old, {**old, "size": len(now_in)}, verb)
    operation.changes.append(Change("compute.groupInstances", name, {"instances": now_in}))
    return operation


# Resize requests


REQUEST_METHODS = ("compute.instanceGroupManagerResizeRequests", "compute.regionInstanceGroupManagerResizeRequests")


def _group_of(call: Call) -> tuple[str, str, Resource]:
    """Collection, full name and value of the group a resize request belongs to."""
    collection = GROUPS[call.method.startswith(REQUEST_METHODS[1])]
    place = f"zones/{call.params['zone']}" if "zone" in call.params else f"regions/{call.params['region']}"
    name = f"projects/{call.project}/{place}/instanceGroupManagers/{call.params['instanceGroupManager']}"
    found = call.store.get(f"compute.{collection}", name)
    if found is None:
        raise not_found(name, compute=True)
    return collection, name, found


def _request(call: Call) -> tuple[str, Resource]:
    name = f"{_group_of(call)[1]}/resizeRequests/{call.params['resizeRequest']}"
    found = call.store.get(REQUESTS, name)
    if found is None:
        raise not_found(name, compute=True)
    return name, found


@handles(*(f"{method}.insert" for method in REQUEST_METHODS))
def request_resize(call: Call) -> Operation:
    """Adds machines to a group all at once; here capacity is always there, so the request succeeds with the call."""
    collection, group_name, group = _group_of(call)
    if _bulk(group):
        raise invalid("Resize requests are not supported with target size policy mode BULK.")
    more = int(call.body.get("resizeBy", 0))
    if more < 1:
        raise invalid(f"Invalid value for field 'resource.resizeBy': '{more}'. Must be a positive integer.")
    seconds = int(dig(call.body, "requestedRunDuration", "seconds") or MIN_RUN_SECONDS)
    if not MIN_RUN_SECONDS <= seconds <= MAX_RUN_SECONDS:
        raise invalid(f"Requested run duration must be between {MIN_RUN_SECONDS} and {MAX_RUN_SECONDS} seconds.")
    name = f"{group_name}/resizeRequests/{call.body.get('name', '')}"
    if call.store.get(REQUESTS, name):
        raise exists(name, compute=True)
    grown = {**group, "targetSize": group["targetSize"] + more}
    operation = change(call, COLLECTIONS[collection], group_name, group, grown, "insert")
    own = {"kind": "compute#instanceGroupManagerResizeRequest", "id": new_id(), "creationTimestamp": now()}
    request = {**call.body, **own, "state": "SUCCEEDED", "selfLink": self_link(name)}
    operation.target_id = own["id"]
    operation.changes.append(Change(REQUESTS, name, request))
    return operation


@handles(*(f"{method}.get" for method in REQUEST_METHODS))
def get_request(call: Call) -> Resource:
    return _request(call)[1]


@handles(*(f"{method}.list" for method in REQUEST_METHODS))
def list_requests(call: Call) -> Resource:
    return {"items": list(call.store.all(REQUESTS, f"{_group_of(call)[1]}/resizeRequests/").values())}


@handles(*(f"{method}.cancel" for method in REQUEST_METHODS))
def cancel_request(call: Call) -> Operation:
    """Only a request that still waits can be cancelled; the emulator's never wait."""
    name, found = _request(call)
    raise invalid(f"Resize request {short(name)} is in state {found['state']} and cannot be cancelled.")


@handles(*(f"{method}.delete" for method in REQUEST_METHODS))
def delete_request(call: Call) -> Operation:
    """Removes the record of the request; the machines stay."""
    name, found = _request(call)
    gone = [Change(REQUESTS, name, None)]
    return Operation(call.method, call.project, location(call), "delete", name, found["id"], gone)
