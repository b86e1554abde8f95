"""Ranges of addresses that are too large for a firewall rule, and ports that must not be open to everybody."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Any

from plan.hosts import API_PORT
from policies.values import UNKNOWN, at, items, text

# These addresses are not on the internet.
INTERNAL = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/3",
    )
)
GLOBAL_IPV6 = IPv6Network("2000::/3")

MOST_IPV4, MOST_IPV6 = 2 ** (32 - 8), 2 ** (128 - 19)
"""Most public addresses of one organization: a /8 of IPv4, a /19 of IPv6.
"""

NODE_PORTS = (30000, 32767)
TCP_PORTS = (
    (22, 22),
    (2379, 2380),
    (API_PORT, API_PORT),
    (8431, 8431),
    (8470, 8479),
    (10248, 10259),
    NODE_PORTS,
)
"""SSH; etcd and its peers; the API server; metrics of the TPU runtime; the TPU runtime and JAX's coordinator; the
kubelet with its read-only port and the control plane's other servers; Services of type NodePort."""
UDP_PORTS = ((4789, 4789), (8472, 8472), NODE_PORTS)
"""VXLAN, by which pod networks carry packets between nodes; Services of type NodePort."""

TCP, UDP = ("tcp", "6"), ("udp", "17")
HARMLESS = ("icmp", "1", "icmpv6", "ipv6-icmp", "58", "esp", "50", "ah", "51")
"""Protocols without ports that are safe to open: ICMP, and IPsec, which authenticates its peers."""


def everybody(ranges: Iterable[Any]) -> str | None:
    """A text about ranges that together are larger than one organization can have; None if they are not.

    It adds the ranges up, without overlaps: four ranges of /2 are all addresses.
    """
    networks = [network for network in map(_network, ranges) if network is not None]
    # collapse_addresses accepts only one IP version
    ipv4 = list(collapse_addresses(each for each in networks if isinstance(each, IPv4Network)))
    ipv6 = list(collapse_addresses(each for each in networks if isinstance(each, IPv6Network)))
    public4 = sum(each.num_addresses - sum(_shared(each, inner) for inner in INTERNAL) for each in ipv4)
    public6 = sum(_shared(each, GLOBAL_IPV6) for each in ipv6)
    for public, most, version in ((public4, MOST_IPV4, 4), (public6, MOST_IPV6, 6)):
        if public > most:
            return _words([each for each in networks if each.version == version], public)
    return None


def _network(cidr: Any) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(cidr, strict=False) if isinstance(cidr, str) else None
    except ValueError:
        return None  # the API refuses it


def _shared(one: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> int:
    """Number of addresses in both ranges: if two ranges overlap, one contains the other."""
    return min(one.num_addresses, other.num_addresses) if one.overlaps(other) else 0


def _words(networks: list[IPv4Network | IPv6Network], public: int) -> str:
    widest = min(networks, key=lambda each: each.prefixlen)
    if widest.prefixlen <= 1 or len(networks) == 1:
        return str(widest)
    size = f"{public:,} public addresses" if widest.version == 4 else "more public addresses than a /19"
    return f"{len(networks)} ranges with together {size}"


def opened(rule: Any, protocol_key: str) -> str | None:
    """A text about the sensitive ports that a part of a firewall rule opens; None if it opens none.

    `protocol_key`: property of the protocol. Protocols and ports that are not known yet give None.
    """
    if at(rule, protocol_key) is UNKNOWN or at(rule, "ports") is UNKNOWN:
        return None
    protocol, ports = text(rule, protocol_key).lower(), [*map(str, items(rule, "ports"))]
    if protocol in HARMLESS:
        return None
    if not items(rule, "ports") and not at(rule, "ports"):
        return f"{protocol or 'all protocols'} on all ports"
    refused = TCP_PORTS if protocol in TCP else UDP_PORTS if protocol in UDP else (NODE_PORTS,)
    if protocol == "all":
        refused = TCP_PORTS
    found = [span for span in ports if any(covers(span, first, last) for first, last in refused)]
    return f"{protocol} {', '.join(found)}" if found else None


def covers(span: str, first: int, last: int) -> bool:
    """Whether a port, or ports written as `first-last`, overlap with these."""
    start, _, end = span.partition("-")
    if not start.isdigit():
        return False
    return int(start) <= last and first <= int(end if end.isdigit() else start)
