"""Compute Engine's managed instance groups, with bulk mode and resize requests, and unmanaged groups' members."""

from __future__ import annotations

from sandbox.google import machines
from sandbox.google.compute import ALONG, COMPLETE, DERIVED, FOLLOWS, SHOW, change, location, resolve, stored
from sandbox.google.compute_types import COLLECTIONS, IDLE_ACTIONS, TEMPLATES, relative, self_link
from sandbox.google.errors import GoogleError, exists, invalid, not_found
from sandbox.google.group_members import (
    GROUPS,
    is_bulk,
    is_settled,
    last_error,
    members,
    missing_names,
    zone_of,
)
from sandbox.google.instances import MAX_RUN_SECONDS, machine_in
from sandbox.google.operations import Operation, now
from sandbox.google.service import Call, dig, handles, new_id, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import MEMBERS, World, instance_model

REQUESTS = "compute.resizeRequests"
MIN_RUN_SECONDS = 600  # of the machines a resize request asks for


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


def _check_group(call: Call, name: str, group: Resource, properties: Resource) -> None:
    zone = zone_of(group)
    machine = machine_in(properties, call.world, zone)
    old = call.store.get(f"compute.{call.method.split('.')[1]}", name)
    if machine.generation and not machine.generation.on_compute:
        raise invalid(f"Machine type {machine.name} cannot be used to create instances in Compute Engine directly.")
    if old and is_bulk(old) != is_bulk(group):
        raise invalid("Target size policy mode cannot be changed for an existing instance group manager.")
    if is_bulk(group):
        _check_bulk(group, machine, properties, call)
    _check_workload_policy(call, group, machine, properties)
    before = old["targetSize"] if old else 0
    more = max(group["targetSize"] - before, 0)
    if is_bulk(group) and 0 < before < group["targetSize"]:
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


def _shown_group(world: World, name: str, resource: Resource) -> Resource:
    """Actions and status: a group is stable when it has all its instances and nothing is under way.

    A node pool's group counts its instances itself: they are Nodes only.
    """
    present = len(members(world, name))
    stable = is_settled(world, name, resource)
    actions = dict.fromkeys(IDLE_ACTIONS, 0) | {"none": present, "creating": max(resource["targetSize"] - present, 0)}
    status = {
        "isStable": stable,
        "versionTarget": {"isReached": stable},
        "stateful": {"hasStatefulConfig": False, "perInstanceConfigs": {"allEffective": True}},
        "allInstancesConfig": {"effective": True},
    }
    if is_bulk(resource):
        status["bulkInstanceOperation"] = {"inProgress": not stable and present < resource["targetSize"]}
    return {"currentActions": actions, **resource, "status": status}


for _name in GROUPS:
    COMPLETE[_name] = _group
    FOLLOWS[_name] = "group"
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
    """The group's instances, and those still to come with the reason why they are not there."""
    name, group = stored(call, COLLECTIONS[call.method.split(".")[1]])
    running = [call.store.get("compute.instances", instance) or {} for instance in members(call.world, name)]
    coming = [_coming(call, name, group, instance) for instance in missing_names(call.world, name, group)]
    return {"managedInstances": [*(_managed(instance, group) for instance in running), *coming]}


def _managed(instance: Resource, group: Resource) -> Resource:
    return {
        "instance": instance["selfLink"],
        "id": instance["id"],
        "name": instance["name"],
        "instanceStatus": instance["status"],
        "currentAction": "NONE",
        "version": {"instanceTemplate": group["instanceTemplate"]},
    }


def _coming(call: Call, group_name: str, group: Resource, instance: str) -> Resource:
    error = last_error(call.world, group_name)
    url = self_link(f"projects/{call.project}/zones/{zone_of(group)}/instances/{instance}")
    own = {"instance": url, "name": instance, "currentAction": "CREATING"}
    attempt = {"lastAttempt": {"errors": {"errors": [error]}}} if error else {}
    return {**own, **attempt, "version": {"instanceTemplate": group["instanceTemplate"]}}


@handles("compute.instanceGroupManagers.listErrors", "compute.regionInstanceGroupManagers.listErrors")
def list_errors(call: Call) -> Resource:
    name, group = stored(call, COLLECTIONS[call.method.split(".")[1]])
    error = last_error(call.world, name)
    coming = missing_names(call.world, name, group) if error else []
    zone = f"projects/{call.project}/zones/{zone_of(group)}"
    details = [{"action": "CREATING", "instance": self_link(f"{zone}/instances/{instance}")} for instance in coming]
    return {"items": [{"error": error, "instanceActionDetails": each} for each in details]}


def _managed_groups(world: World, prefix: str) -> dict[str, Resource]:
    """The instance groups that managed instance groups own, by full name."""
    found = {}
    for kind in GROUPS:
        for name, manager in world.store.all(f"compute.{kind}").items():
            group = name.replace("/instanceGroupManagers/", "/instanceGroups/")
            if group.startswith(prefix):
                own = {"kind": "compute#instanceGroup", "name": manager["name"], "id": manager["id"]}
                found[group] = {**own, "selfLink": self_link(group)}
    return found


DERIVED["instanceGroups"] = _managed_groups


# Unmanaged groups


def _members_of(world: World, group: str) -> list[str]:
    """The members of an instance group, whoever manages it."""
    return members(world, group.replace("/instanceGroups/", "/instanceGroupManagers/")) or members(world, group)


def _shown_members(world: World, name: str, resource: Resource) -> Resource:
    """A group has its members' network and counts them."""
    own = _members_of(world, name)
    first = world.store.get("compute.instances", own[0]) if own else None
    network = first["networkInterfaces"][0].get("network") if first else resource.get("network")
    return {**resource, "size": len(own), **({"network": network} if network else {})}


def _without_members(world: World, name: str, old: Resource | None, new: Resource | None) -> list[Change]:
    return [] if new else [Change(MEMBERS, name, None)]


SHOW["instanceGroups"] = _shown_members
ALONG["instanceGroups"] = _without_members


@handles("compute.instanceGroups.listInstances")
def list_instances(call: Call) -> Resource:
    name = relative(stored(call, COLLECTIONS["instanceGroups"])[1]["selfLink"])
    found = [call.store.get("compute.instances", member) or {} for member in _members_of(call.world, name)]
    items = [{"instance": instance["selfLink"], "status": instance["status"]} for instance in found]
    return {"kind": "compute#instanceGroupsListInstances", "items": items}


@handles("compute.instanceGroups.addInstances", "compute.instanceGroups.removeInstances")
def change_members(call: Call) -> Operation:
    """Members of an unmanaged group; each must be an instance of the same zone, and be there once."""
    name, old = stored(call, COLLECTIONS["instanceGroups"])
    adding = call.method.endswith(".addInstances")
    present = members(call.world, name)
    names = [relative(row.get("instance", "")) for row in call.body.get("instances", [])]
    for instance in names:
        if call.store.get("compute.instances", instance) is None:
            raise not_found(instance, compute=True)
        if short(instance.rpartition("/instances/")[0]) != call.params["zone"]:
            raise invalid(f"Instance '{instance}' is not in the zone {call.params['zone']} of the instance group.")
        if (instance in present) == adding:
            fact = "already a member" if adding else "not a member"
            raise invalid(f"Resource '{instance}' is {fact} of '{name}'.", reason="memberAlreadyExists")
    kept = [member for member in present if member not in names]
    operation = change(call, COLLECTIONS["instanceGroups"], name, old, old, call.method.rpartition(".")[2])
    operation.changes.append(Change(MEMBERS, name, {"instances": kept + names if adding else kept}))
    return operation


@handles("compute.instanceGroups.setNamedPorts")
def set_named_ports(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["instanceGroups"])
    new = {**old, "namedPorts": call.body.get("namedPorts", [])}
    return change(call, COLLECTIONS["instanceGroups"], name, old, new, "setNamedPorts")


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
    if is_bulk(group):
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
    operation.follow = "group"
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
