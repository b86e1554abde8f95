"""Networks: logs of traffic, subnets, and the default network."""

from collections.abc import Iterator

from policies import tokens
from policies.registry import RESOURCE, Resource, Settings
from policies.values import Finding, expect, refuse, require, text


@RESOURCE.rule(
    "subnet-audit",
    tokens.SUBNETWORK,
    level="advisory",
    reason="Without flow logs nobody knows where data went; without Google access APIs are reached through NAT.",
    remedy="Set logConfig and privateIpGoogleAccess: true",
    source="CIS GKE Benchmark 5.6.1; Google Cloud documentation, Private Google Access",
    cis=("5.6.1",),
)
def subnet_audit(subnet: Resource, settings: Settings) -> Iterator[Finding]:
    if text(subnet.props, "purpose") == "REGIONAL_MANAGED_PROXY":
        return  # for proxies of load balancers: it can have neither
    yield from require(subnet.props, "logConfig")
    yield from expect(subnet.props, "privateIpGoogleAccess", True)


@RESOURCE.rule(
    "nat-audit",
    tokens.ROUTER_NAT,
    level="advisory",
    reason="NAT hides which host spoke to the internet, and that its ports ran out.",
    remedy="Set logConfig: {enable: true, filter: ERRORS_ONLY} or more",
    source="Google Cloud documentation, Cloud NAT logging",
)
def nat_audit(nat: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(nat.props, "logConfig.enable", True)


@RESOURCE.rule(
    "automatic-subnets",
    tokens.NETWORK,
    reason="Automatic subnets take a range in every region, where no pod or service ranges are.",
    remedy="Set autoCreateSubnetworks: false",
    source="CIS Google Cloud Foundation Benchmark 3.1; GKE documentation, VPC-native clusters",
)
def automatic_subnets(network: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(network.props, "autoCreateSubnetworks", False)


@RESOURCE.rule(
    "default-network",
    tokens.CLUSTER,
    reason="The default network is open to all of 10.128.0.0/9, and to SSH from everywhere.",
    remedy="Name a network and subnetwork of the platform's own",
    source="CIS Google Cloud Foundation Benchmark 3.1; provider: network defaults to default",
)
def default_network(cluster: Resource, settings: Settings) -> Iterator[Finding]:
    for path in ("network", "subnetwork"):
        yield from require(cluster.props, path)
    network = text(cluster.props, "network")
    if network.rpartition("/")[2] == "default":
        yield from refuse(cluster.props, "network", network)
