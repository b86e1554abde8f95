"""What a machine's packets reach: the internet through NAT, the API server through its load balancer, and each other,
as firewalls let them.

Stands for the network between machines. A passthrough load balancer keeps the client's address, so the firewall rules
of the machines behind it decide. Health checks are not simulated: with no healthy backend Google sends to all of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from sandbox.google.compute_types import relative
from sandbox.google.guests import GuestCloud, Machine
from sandbox.google.service import short
from sandbox.google.store import Resource

API_PORT = 6443
ETCD_PORTS = (2379, 2380)  # for clients, and for members of the same etcd
DEFAULT_PRIORITY = 1000


class UnreachableError(Exception):
    """Nothing answers; the message says what the network lacks."""


def require_internet(cloud: GuestCloud, machine: Machine) -> None:
    """Packages come from the internet: through the machine's own external address, or its network's NAT.

    Raises UnreachableError.
    """
    nic = machine.record["networkInterfaces"][0]
    if nic.get("accessConfigs"):
        return
    for router in cloud.records("compute.routers", f"projects/{machine.project}/regions/{machine.region}/").values():
        if _same(router["network"], nic["network"]) and any(_translates(nat, nic) for nat in router.get("nats", [])):
            return
    raise UnreachableError("no route to the internet: the machine has no external address and its subnetwork no NAT")


def require_connection(cloud: GuestCloud, source: Machine, address: str, port: int) -> None:
    """A TCP connection from a machine to an address of the load balancer's. Raises UnreachableError with the reason."""
    targets = _behind(cloud, source, address, port)
    if not any(_admitted(cloud, source, target, port, source.address) for target in targets):
        raise UnreachableError(f"{address}:{port} does not answer: no firewall rule lets {source.address} through")


def require_machine(cloud: GuestCloud, source: Machine, target: Machine, port: int, *, pod: str = "") -> None:
    """A TCP connection from a machine to another one, or from the pod with that address on it.

    Raises UnreachableError where no firewall rule lets it through.
    """
    address = pod or source.address
    if not _admitted(cloud, source, target.record, port, address):
        raise UnreachableError(f"{target.address}:{port} does not answer: no firewall rule lets {address} through")


def _behind(cloud: GuestCloud, source: Machine, address: str, port: int) -> list[Resource]:
    """The instances that a forwarding rule leads to."""
    rules = cloud.records("compute.forwardingRules").values()
    rule = next((each for each in rules if each.get("IPAddress") == address and _takes(each, source, port)), None)
    if rule is None:
        raise UnreachableError(f"{address}:{port} does not answer: no forwarding rule in {source.region} takes it")
    service = cloud.records("compute.regionBackendServices").get(relative(rule.get("backendService", "")), {})
    groups = [relative(each["group"]) for each in service.get("backends", [])]
    members = cloud.records("compute.groupInstances")
    names = [name for group in groups for name in members.get(group, {}).get("instances", [])]
    instances = cloud.records("compute.instances")
    found = [instances[name] for name in names if name in instances and instances[name]["status"] == "RUNNING"]
    if not found:
        raise UnreachableError(f"{address}:{port} does not answer: no running instance is behind {rule['name']}")
    return found


def _takes(rule: Resource, source: Machine, port: int) -> bool:
    """Whether a forwarding rule takes connections of the machine to the port. Internal ones are for their region."""
    internal = rule.get("loadBalancingScheme") == "INTERNAL"
    if internal and not rule.get("allowGlobalAccess") and short(rule["region"]) != source.region:
        return False
    if rule.get("allPorts"):
        return True
    given = [*rule.get("ports", []), *filter(None, [rule.get("portRange")])]
    return rule.get("IPProtocol", "TCP") == "TCP" and _in_ranges(port, given)


def _admitted(cloud: GuestCloud, source: Machine, target: Resource, port: int, address: str) -> bool:
    """What the firewall rule of the lowest number says that fits; a denial goes before a permission of its number."""
    verdicts = [
        (rule.get("priority", DEFAULT_PRIORITY), allowed)
        for rule in cloud.records("compute.firewalls").values()
        for allowed in _verdicts(rule, source, target, port, address)
    ]
    return bool(verdicts) and min(verdicts)[1]


def _verdicts(rule: Resource, source: Machine, target: Resource, port: int, address: str) -> Iterator[bool]:
    nic = target["networkInterfaces"][0]
    fits = (
        rule.get("direction", "INGRESS") == "INGRESS"
        and not rule.get("disabled")
        and _same(rule["network"], nic["network"])
        and _named(rule, target, "target", otherwise=True)
        and (_from(rule, address) or _named(rule, source.record, "source", otherwise=False))
    )
    if fits:
        for allowed, key in ((True, "allowed"), (False, "denied")):
            if any(_covers(each, port) for each in rule.get(key, [])):
                yield allowed


def _from(rule: Resource, address: str) -> bool:
    named = rule.get("sourceTags") or rule.get("sourceServiceAccounts")
    ranges = rule.get("sourceRanges") or ([] if named else ["0.0.0.0/0"])
    return any(ipaddress.ip_address(address) in ipaddress.ip_network(each) for each in ranges)


def _named(rule: Resource, instance: Resource, side: str, *, otherwise: bool) -> bool:
    """Whether the rule names the instance by tag or service account; `otherwise` where it names nobody."""
    tags, accounts = set(rule.get(f"{side}Tags", [])), set(rule.get(f"{side}ServiceAccounts", []))
    if not tags and not accounts:
        return otherwise
    own_tags = set(instance.get("tags", {}).get("items", []))
    own_accounts = {each["email"] for each in instance.get("serviceAccounts", [])}
    return bool(tags & own_tags or accounts & own_accounts)


def _covers(protocol: Resource, port: int) -> bool:
    if protocol["IPProtocol"] not in ("tcp", "all", "6"):
        return False
    return not protocol.get("ports") or _in_ranges(port, protocol["ports"])


def _in_ranges(port: int, ranges: Iterable[str]) -> bool:
    for each in ranges:
        first, _, last = str(each).partition("-")
        if int(first) <= port <= int(last or first):
            return True
    return False


def _translates(nat: Resource, nic: Resource) -> bool:
    if nat.get("sourceSubnetworkIpRangesToNat", "").startswith("ALL_SUBNETWORKS"):
        return True
    return any(_same(each["name"], nic["subnetwork"]) for each in nat.get("subnetworks", []))


def _same(left: str, right: str) -> bool:
    return relative(left) == relative(right)
