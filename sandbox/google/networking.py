"""Compute Engine's network types: what Google fills in and refuses for subnetworks, addresses, routers and policies."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from sandbox.google import machines
from sandbox.google.compute import COMPLETE, SHOW, USERS, change, stored
from sandbox.google.compute_types import COLLECTIONS, relative, self_link
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
        return {**resource, "address": resource.get("address") or external_address(call.world)}
    resource = {**resource, "purpose": resource.get("purpose", "GCE_ENDPOINT")}
    link = resource.get("subnetwork")
    if not link:
        return resource
    subnetwork = call.store.get("compute.subnetworks", relative(link)) or {}
    own = (call.store.get("compute.addresses", name) or {}).get("address")
    address = resource.get("address") or internal_address(call.world, subnetwork)
    if address != own:
        check_free(call.world, subnetwork, address)
    return {**resource, "address": address}


def external_address(world: World) -> str:
    return _free(IPv4Network("203.0.113.0/24"), _reserved(world), 0)


def internal_address(world: World, subnetwork: Resource) -> str:
    """The lowest address of a subnetwork that no reservation, forwarding rule or instance holds."""
    return AddressPlan(world).address(subnetwork)


def in_range(subnetwork: Resource, address: str) -> bool:
    return IPv4Address(address) in _range(subnetwork["ipCidrRange"], "ipCidrRange")


def instance_addresses(world: World) -> set[str]:
    """The internal addresses that instances hold."""
    return {nic.get("networkIP", "") for nic in _nics(world)}


def _nics(world: World) -> list[Resource]:
    return [nic for instance in _all(world, "instances") for nic in instance.get("networkInterfaces", [])]


def check_free(world: World, subnetwork: Resource, address: str) -> None:
    """400 unless an internal address is in its subnetwork's range and nothing holds it."""
    if not in_range(subnetwork, address):
        raise invalid(
            f"Requested internal IP address {address} is outside the range {subnetwork['ipCidrRange']} of subnetwork"
            f" '{subnetwork['name']}'.",
        )
    if address in AddressPlan(world).held:
        raise invalid(f"IP '{address}' is already being used by another resource.", reason="ipInUseByAnotherResource")


class AddressPlan:
    """The addresses that are free in a world at one moment; hands each out once.

    For a batch of instances made at once, under the store's lock.
    """

    def __init__(self, world: World) -> None:
        self.held = instance_addresses(world) | _reserved(world)
        aliases = (alias["ipCidrRange"] for nic in _nics(world) for alias in nic.get("aliasIpRanges", []))
        self._aliases = [IPv4Network(alias) for alias in aliases]
        self._next: dict[tuple[str, str, int], Iterator[IPv4Network]] = {}

    def address(self, subnetwork: Resource) -> str:
        """The lowest free address of a subnetwork's primary range. Raises 400 when there is none."""
        address = _free(_range(subnetwork["ipCidrRange"], "ipCidrRange"), self.held, 2)
        self.held.add(address)
        return address

    def alias(self, subnetwork: Resource, name: str, wanted: str) -> str:
        """A free alias range: `wanted` itself, or for "/24" the lowest free one of that size.

        `name` is the secondary range to take it from, "" the primary range.
        """
        own = {r["rangeName"]: r["ipCidrRange"] for r in subnetwork.get("secondaryIpRanges", [])}
        if name and name not in own:
            raise invalid(f"Secondary range '{name}' does not exist in subnetwork '{subnetwork['name']}'.")
        whole = _range(own[name] if name else subnetwork["ipCidrRange"], "ipCidrRange")
        if not wanted.startswith("/"):
            return self._taken_alias(whole, _range(wanted, "aliasIpRanges[].ipCidrRange"))
        size = int(wanted.removeprefix("/"))
        if not whole.prefixlen <= size <= whole.max_prefixlen:
            raise invalid(f"Alias IP range {wanted} does not fit into the range {whole}.")
        key = (subnetwork["selfLink"], name, size)
        candidates = self._next.setdefault(key, self._free_aliases(whole, size))
        found = next(candidates, None)
        if found is None:
            raise invalid(f"IP space of '{whole}' is exhausted.", reason="ipSpaceExhausted")
        self._aliases.append(found)
        return str(found)

    def _taken_alias(self, whole: IPv4Network, wanted: IPv4Network) -> str:
        if not wanted.subnet_of(whole) or any(wanted.overlaps(alias) for alias in self._aliases):
            raise invalid(f"Alias IP range {wanted} is not in the range {whole} or already in use.")
        self._aliases.append(wanted)
        return str(wanted)

    def _free_aliases(self, whole: IPv4Network, size: int) -> Iterator[IPv4Network]:
        """Free ranges of one size, lowest first; what was held when the plan was made is not looked at twice."""
        held = [alias for alias in self._aliases if alias.overlaps(whole)]
        same_size = {alias for alias in held if alias.prefixlen == size}
        others = [alias for alias in held if alias.prefixlen != size]
        for candidate in whole.subnets(new_prefix=size):
            if candidate not in same_size and not any(candidate.overlaps(alias) for alias in others):
                yield candidate


def _reserved(world: World) -> set[str]:
    """The addresses that reservations and forwarding rules hold."""
    fields = {"addresses": "address", "globalAddresses": "address", "forwardingRules": "IPAddress"}
    return {resource.get(field, "") for kind, field in fields.items() for resource in _all(world, kind)}


def _all(world: World, collection: str) -> list[Resource]:
    return list(world.store.all(f"compute.{collection}").values())


def _free(network: IPv4Network, taken: set[str], skip: int) -> str:
    for i in range(skip, network.num_addresses - 1):
        candidate = str(network[i])
        if candidate not in taken:
            return candidate
    raise invalid(f"IP space of '{network}' is exhausted.", reason="ipSpaceExhausted")


def _shown_address(world: World, name: str, resource: Resource) -> Resource:
    users = [self_link(user) for user in _address_users(world, resource)]
    return {**resource, "status": "IN_USE", "users": users} if users else resource


def _address_users(world: World, resource: Resource) -> list[str]:
    address = resource.get("address", "")
    holders = [i for i in _all(world, "instances") if _holds(i, address)]
    holders += [rule for rule in _all(world, "forwardingRules") if rule.get("IPAddress") == address]
    return [relative(holder["selfLink"]) for holder in holders]


def _holds(instance: Resource, address: str) -> bool:
    return any(nic.get("networkIP") == address for nic in instance.get("networkInterfaces", []))


def _check_ports(nat: Resource) -> None:
    """Ports of a machine: powers of two, the least from 32; a most that is more, and no fixed mapping, if dynamic."""
    least, most = nat.get("minPortsPerVm"), nat.get("maxPortsPerVm")
    if not nat.get("enableDynamicPortAllocation"):
        if most is not None:
            raise invalid("Invalid value for field 'resource.nats[0].maxPortsPerVm': needs dynamic port allocation.")
        return
    if nat["enableEndpointIndependentMapping"]:
        raise invalid("Dynamic Port Allocation and Endpoint-Independent Mapping cannot be enabled at the same time.")
    for field, ports in (("minPortsPerVm", least), ("maxPortsPerVm", most)):
        if ports is not None and (ports < 32 or ports & (ports - 1)):
            raise invalid(f"Invalid value for field 'resource.nats[0].{field}': '{ports}'. Must be a power of two.")
    if most is not None and most <= (least or 32):
        raise invalid(f"Invalid value for field 'resource.nats[0].maxPortsPerVm': '{most}': not more than the least.")


def _router(call: Call, name: str, resource: Resource) -> Resource:
    nats = [filled(nat, NAT_DEFAULTS) for nat in resource.get("nats", [])]
    names = [nat.get("name") for nat in nats]
    if len(set(names)) < len(names):
        raise invalid("Invalid value for field 'resource.nats': duplicate NAT name.")
    for nat in nats:
        _check_ports(nat)
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
    if topology and not any(machine.hosts(topology) for machine in machines.TPU_MACHINES.values()):
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
USERS["addresses"] = _address_users


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
