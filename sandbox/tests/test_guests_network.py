"""Which packets of a machine arrive: NAT, load balancer and firewall rules, on records as the emulator keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from sandbox.google.guests import GuestCloud, Machine, machine
from sandbox.google.world import World
from sandbox.guests.network import UnreachableError, require_connection, require_internet

NETWORK = "https://www.googleapis.com/compute/v1/projects/p/global/networks/net"
REGION = "https://www.googleapis.com/compute/v1/projects/p/regions/r-1"
SUBNETWORK = f"{REGION}/subnetworks/sub"
MASTER, NODE = "projects/p/zones/r-1-a/instances/master", "projects/p/zones/r-1-a/instances/node"
GROUP = "projects/p/zones/r-1-a/instanceGroups/masters"
ADDRESS, PORT = "10.0.0.5", 6443
TCP = {"IPProtocol": "tcp", "ports": ["6443"]}


def instance(address: str, tag: str, **nic: Any) -> dict[str, Any]:
    interface = {"network": NETWORK, "subnetwork": SUBNETWORK, "networkIP": address, **nic}
    accounts = [{"email": f"{tag}@p", "scopes": []}]
    own = {"id": address, "status": "RUNNING", "tags": {"items": [tag]}, "serviceAccounts": accounts}
    return {**own, "networkInterfaces": [interface], "disks": []}


def firewall(**rule: Any) -> dict[str, Any]:
    return {"network": NETWORK, "direction": "INGRESS", "sourceRanges": ["10.0.0.0/24"], "allowed": [TCP], **rule}


@pytest.fixture
def world() -> Iterator[World]:
    """A node and a master behind a load balancer, and nothing that lets packets through."""
    made = World()
    put = made.store.put
    put("compute.instances", MASTER, instance("10.0.0.2", "master"))
    put("compute.instances", NODE, instance("10.0.0.3", "node"))
    put("compute.groupInstances", GROUP, {"instances": [MASTER]})
    put("compute.regionBackendServices", "projects/p/regions/r-1/backendServices/api", {"backends": [{"group": GROUP}]})
    forward()(made)
    yield made
    made.close()


def forward(**changes: Any) -> Any:
    rule = {
        "name": "api",
        "region": REGION,
        "IPAddress": ADDRESS,
        "IPProtocol": "TCP",
        "ports": ["6443"],
        "loadBalancingScheme": "INTERNAL",
        "backendService": f"{REGION}/backendServices/api",
        **changes,
    }
    return lambda world: world.store.put("compute.forwardingRules", "projects/p/regions/r-1/forwardingRules/api", rule)


def node(world: World) -> Machine:
    found = world.store.get("compute.instances", NODE)
    assert found
    return machine(world, NODE, found)


def connect(world: World) -> None:
    require_connection(GuestCloud(world), node(world), ADDRESS, PORT)


@pytest.mark.parametrize(
    "rules",
    [
        [firewall()],
        [firewall(targetTags=["master"])],
        [firewall(targetServiceAccounts=["master@p"], sourceRanges=[], sourceServiceAccounts=["node@p"])],
        [firewall(sourceRanges=[], sourceTags=["node"])],
        [firewall(allowed=[{"IPProtocol": "all"}])],
        [firewall(allowed=[{"IPProtocol": "tcp", "ports": ["6000-7000"]}])],
        [firewall(priority=900), firewall(priority=1000, allowed=[], denied=[{"IPProtocol": "all"}])],
    ],
)
def test_a_rule_that_fits_lets_a_node_through(world: World, rules: list[dict[str, Any]]) -> None:
    for number, rule in enumerate(rules):
        world.store.put("compute.firewalls", f"projects/p/global/firewalls/{number}", rule)
    connect(world)


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [firewall(targetTags=["other"])],
        [firewall(sourceRanges=["10.1.0.0/24"])],
        [firewall(sourceRanges=[], sourceTags=["master"])],
        [firewall(direction="EGRESS")],
        [firewall(disabled=True)],
        [firewall(network=f"{NETWORK}-2")],
        [firewall(allowed=[{"IPProtocol": "tcp", "ports": ["443"]}])],
        [firewall(allowed=[{"IPProtocol": "udp"}])],
        [firewall(), firewall(allowed=[], denied=[TCP])],
        [firewall(), firewall(priority=10, allowed=[], denied=[{"IPProtocol": "all"}])],
    ],
)
def test_without_such_a_rule_nothing_comes_through(world: World, rules: list[dict[str, Any]]) -> None:
    for number, rule in enumerate(rules):
        world.store.put("compute.firewalls", f"projects/p/global/firewalls/{number}", rule)
    with pytest.raises(
        UnreachableError, match=r"10.0.0.5:6443 does not answer: no firewall rule lets 10.0.0.3 through"
    ):
        connect(world)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"IPAddress": "10.0.0.6"}, "no forwarding rule in r-1 takes it"),
        ({"ports": ["443"]}, "no forwarding rule in r-1 takes it"),
        ({"region": f"{REGION[:-1]}2"}, "no forwarding rule in r-1 takes it"),
        ({"backendService": f"{REGION}/backendServices/none"}, "no running instance is behind api"),
    ],
)
def test_a_load_balancer_has_to_lead_to_the_control_plane(world: World, change: dict[str, Any], reason: str) -> None:
    world.store.put("compute.firewalls", "projects/p/global/firewalls/0", firewall())
    forward(**change)(world)
    with pytest.raises(UnreachableError, match=reason):
        connect(world)


def test_other_regions_reach_an_address_with_global_access(world: World) -> None:
    world.store.put("compute.firewalls", "projects/p/global/firewalls/0", firewall())
    forward(region=f"{REGION[:-1]}2", allowGlobalAccess=True)(world)
    connect(world)


@pytest.mark.parametrize(
    ("router", "reached"),
    [
        ({"network": NETWORK, "nats": [{"sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}]}, True),
        ({"network": NETWORK, "nats": [{"subnetworks": [{"name": SUBNETWORK}]}]}, True),
        ({"network": NETWORK, "nats": [{"subnetworks": [{"name": f"{SUBNETWORK}-2"}]}]}, False),
        ({"network": NETWORK}, False),
        (
            {"network": f"{NETWORK}-2", "nats": [{"sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}]},
            False,
        ),
    ],
)
def test_packages_come_through_the_subnetworks_nat(world: World, router: dict[str, Any], reached: bool) -> None:
    world.store.put("compute.routers", "projects/p/regions/r-1/routers/nat", router)
    outcome = nullcontext() if reached else pytest.raises(UnreachableError, match="no route to the internet")
    with outcome:
        require_internet(GuestCloud(world), node(world))


def test_an_external_address_needs_no_nat(world: World) -> None:
    with pytest.raises(UnreachableError, match="no route to the internet"):
        require_internet(GuestCloud(world), node(world))
    world.store.put("compute.instances", NODE, instance("10.0.0.3", "node", accessConfigs=[{"type": "ONE_TO_ONE_NAT"}]))
    require_internet(GuestCloud(world), node(world))
