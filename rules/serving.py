"""What load balancers and autoscaling of servers need."""

from collections.abc import Iterator
from ipaddress import IPv4Network

from catalogue import versions
from plan.platform import Platform
from platform_config.network import CreatedNetwork
from rules.registry import PLATFORM, Finding

SMALLEST_PROXY_RANGE = 26
"""Prefix length of the smallest range that Google takes for proxies."""


@PLATFORM.rule(
    "gateway-proxies",
    backend="gke",
    reason="Regional load balancers run in a subnet of their own. In an existing network its owner makes it.",
    source="GKE documentation, deploying Gateways; Cloud Load Balancing documentation, proxy-only subnets",
)
def gateway_proxies(platform: Platform) -> Iterator[Finding]:
    proxies = platform.network.proxy_only_cidr
    if platform.gke.gateway and isinstance(platform.network, CreatedNetwork) and proxies is None:
        yield Finding(
            "network.proxy_only_cidr",
            "is missing: cluster.gateway makes load balancers, whose proxies need addresses",
            "for example 10.0.64.0/23",
        )
    if proxies and not platform.gke.gateway:
        yield Finding(
            "network.proxy_only_cidr", "would do nothing: cluster.gateway is false", "set cluster.gateway: true as well"
        )


@PLATFORM.rule(
    "proxy-range-size",
    backend="gke",
    reason="Google takes no smaller range for proxies.",
    source="Cloud Load Balancing documentation, proxy-only subnets",
)
def proxy_range_size(platform: Platform) -> Iterator[Finding]:
    proxies = platform.network.proxy_only_cidr
    if proxies and IPv4Network(proxies).prefixlen > SMALLEST_PROXY_RANGE:
        yield Finding(
            "network.proxy_only_cidr",
            f"{proxies} is too small: a range of proxies is a /{SMALLEST_PROXY_RANGE} or larger",
            "for example 10.0.64.0/23",
        )


@PLATFORM.rule(
    "proxies-without-gke",
    backend="compute",
    reason="Only GKE makes the load balancers for which the range is.",
    source="this program",
)
def proxies_without_gke(platform: Platform) -> Iterator[Finding]:
    if platform.network.proxy_only_cidr:
        yield Finding(
            "network.proxy_only_cidr",
            "needs GKE, which makes load balancers for Gateways",
            "leave it out, and reach servers by kubectl port-forward or a load balancer of your own",
        )


@PLATFORM.rule(
    "metric-autoscaling-version",
    backend="gke",
    reason="Older versions of GKE have no AutoscalingMetric.",
    source="GKE documentation, autoscale using metrics",
)
def metric_autoscaling_version(platform: Platform) -> Iterator[Finding]:
    version, floor = platform.gke.version, versions.METRIC_AUTOSCALING
    if platform.gke.metric_autoscaling and version and not versions.reaches(version, floor.version):
        yield Finding(
            "cluster.metric_autoscaling",
            f"needs GKE {floor.version} or newer, and cluster.version is {version}",
            'set cluster.version: "1.36" or leave it out',
        )
