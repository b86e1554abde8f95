"""Compute Engine's network types: what Google fills in and refuses for subnetworks, addresses, routers and policies."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network

from sandbox.google import machines
from sandbox.google.compute import COMPLETE, SHOW, change, stored
from sandbox.google.compute_types import COLLECTIONS, relative
from sandbox.google.errors import invalid
from sandbox.google.operations import Operation
from sandbox.google.service import Call, dig, filled, handles, short
from sandbox.google.store import Resource
from sandbox.google.world import World

NAT_DEFAULTS = {
    "type": "PUBLIC",
    "autoNetworkTier": "PREMIUM",
    "enableEndpointIndependentMapping": False,
    "endpointTypes": ["ENDPOINT_TYPE_VM"],
    "icmpIdleTimeoutSec": 30,
    "tcpEstablishedIdleTimeoutSec": 1200,
    "tcpTransitoryIdleTimeoutSec": 30,
    "tcpTimeWaitTimeoutSec": 120,
    "udpIdleTimeoutSec": 30,
}


def _range(text: str, field: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as problem:
        raise invalid(f"Invalid value for field '{field}': '{text}'. {problem}.") from problem


def _ranges(subnetwork: Resource) -> Iterator[tuple[str, IPv4Network]]:
    yield "ipCidrRange", _range(subnetwork.get("ipCidrRange", ""), "resource.ipCidrRange")
    for i, secondary in enumerate(subnetwork.get("secondaryIpRanges", [])):
        field = f"resource.secondaryIpRanges[{i}].ipCidrRange"
        yield field, _range(secondary.get("ipCidrRange", ""), field)


def _subnetwork(call: Call, name: str, resource: Resource) -> Resource:
    """No range of a subnetwork may overlap another one of its network."""
    ranges = [found for _, found in _ranges(resource)]
    seen = [
        (other, found)
        for other, subnetwork in call.store.all("compute.subnetworks").items()
        if other != name and subnetwork["network"] == resource.get("network")
        for _, found in _ranges(subnetwork)
    ]
    for mine in ranges:
        clash = next((other for other, found in seen if found.overlaps(mine)), None)
        if clash:
            raise invalid(
                f"Invalid IPCidrRange: {mine} conflicts with existing subnetwork '{short(clash)}' in region"
                f" '{clash.split('/')[3]}'."
            )
        seen.append((name, mine))
    gateway = str(ranges[0].network_address + 1)
    return filled({**resource, "gatewayAddress": gateway}, {"secondaryIpRanges": [], "logConfig": {"enable": False}})


def _network(world: World, name: str, resource: Resource) -> Resource:
    subnetworks = world.store.all("compute.subnetworks").values()
    inside = [s["selfLink"] for s in subnetworks if relative(s["network"]) == name]
    return {**resource, "subnetworks": inside} if inside else resource


def _address(call: Call, name: str, resource: Resource) -> Resource:
    """Internal addresses come from their subnetwork, external ones from a documentation range (RFC 5737)."""
    if resource["addressType"] != "INTERNAL":
        taken = _taken(call.world, "address")
        return {**resource, "address": resource.get("address") or _free(IPv4Network("203.0.113.0/24"), taken, 0)}
    resource = {**resource, "purpose": resource.get("purpose", "GCE_ENDPOINT")}
    link = resource.get("subnetwork")
    if resource.get("address") or not link:
        return resource
    subnetwork = call.store.get("compute.subnetworks", relative(link)) or {}
    return {**resource, "address": free_address(call.world, subnetwork)}


def free_address(world: World, subnetwork: Resource) -> str:
    """The lowest address of a subnetwork that no reserved address or instance holds."""
    instances = world.store.all("compute.instances").values()
    held = {nic.get("networkIP", "") for instance in instances for nic in instance.get("networkInterfaces", [])}
    return _free(_range(subnetwork["ipCidrRange"], "ipCidrRange"), held | _taken(world, "address"), 2)


def _taken(world: World, field: str) -> set[str]:
    return {address.get(field, "") for kind in ("addresses", "globalAddresses") for address in _all(world, kind)}


def _all(world: World, collection: str) -> list[Resource]:
    return list(world.store.all(f"compute.{collection}").values())


def _free(network: IPv4Network, taken: set[str], skip: int) -> str:
    for i in range(skip, network.num_addresses - 1):
        candidate = str(network[i])
        if candidate not in taken:
            return candidate
    raise invalid(f"IP space of '{network}' is exhausted.", reason="ipSpaceExhausted")


def _shown_address(world: World, name: str, resource: Resource) -> Resource:
    users = [i["selfLink"] for i in _all(world, "instances") if _holds(i, resource.get("address", ""))]
    users += [r["selfLink"] for r in _all(world, "forwardingRules") if r.get("IPAddress") == resource.get("address")]
    return {**resource, "status": "IN_USE", "users": users} if users else resource


def _holds(instance: Resource, address: str) -> bool:
    return any(nic.get("networkIP") == address for nic in instance.get("networkInterfaces", []))


def _router(call: Call, name: str, resource: Resource) -> Resource:
    nats = [filled(nat, NAT_DEFAULTS) for nat in resource.get("nats", [])]
    names = [nat.get("name") for nat in nats]
    if len(set(names)) < len(names):
        raise invalid("Invalid value for field 'resource.nats': duplicate NAT name.")
    return {**resource, "nats": nats} if "nats" in resource else resource


def _resource_policy(call: Call, name: str, resource: Resource) -> Resource:
    """A workload policy's topology needs HIGH_THROUGHPUT, excludes a distance, and must be one that exists."""
    policy = resource.get("workloadPolicy")
    if policy is None:
        return resource
    if not policy.get("type"):
        raise invalid("Required field 'resource.workloadPolicy.type' not specified", reason="required")
    topology = policy.get("acceleratorTopology")
    mode = policy.get("acceleratorTopologyMode")
    if (topology or mode) and policy["type"] != "HIGH_THROUGHPUT":
        raise invalid("Accelerator topology can only be specified with workload policy type HIGH_THROUGHPUT.")
    if topology and policy.get("maxTopologyDistance"):
        raise invalid("Accelerator topology and max topology distance cannot be specified together.")
    if topology and not any(machine.hosts(topology) for machine in machines.TPU_MACHINES):
        raise invalid(f"Invalid value for field 'resource.workloadPolicy.acceleratorTopology': '{topology}'.")
    return resource


COMPLETE |= {
    "subnetworks": _subnetwork,
    "addresses": _address,
    "globalAddresses": _address,
    "routers": _router,
    "resourcePolicies": _resource_policy,
}
SHOW |= {"networks": _network, "addresses": _shown_address}


@handles("compute.subnetworks.expandIpCidrRange")
def expand(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["subnetworks"])
    wider = _range(call.body.get("ipCidrRange", ""), "ipCidrRange")
    if not _range(old["ipCidrRange"], "ipCidrRange").subnet_of(wider):
        raise invalid(f"Invalid IPCidrRange: {wider} does not contain the current range {old['ipCidrRange']}.")
    return change(call, COLLECTIONS["subnetworks"], name, old, {**old, "ipCidrRange": str(wider)}, "expandIpCidrRange")


@handles("compute.subnetworks.setPrivateIpGoogleAccess")
def set_private_access(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["subnetworks"])
    new = {**old, "privateIpGoogleAccess": call.body.get("privateIpGoogleAccess", False)}
    return change(call, COLLECTIONS["subnetworks"], name, old, new, "setPrivateIpGoogleAccess")


def has_secondary_range(subnetwork: Resource, name: str) -> bool:
    return any(r.get("rangeName") == name for r in dig(subnetwork, "secondaryIpRanges") or [])
