"""The network of a platform: sizes of pod ranges, and full names of existing networks."""

from math import ceil, log2

from plan.platform import Platform
from platform_config.network import ExistingNetwork

HEALTH_CHECKS = ("35.191.0.0/16", "130.211.0.0/22")
"""Where Google's health checks come from: of load balancers for HTTP, and of internal ones (Cloud Load Balancing
documentation)."""


def pod_block(max_pods: int) -> int:
    """Addresses reserved for a node's pods: a power of two, at least twice the number of pods, as on GKE."""
    return int(2 ** ceil(log2(2 * max_pods)))


def pod_prefix(max_pods: int) -> int:
    """Prefix length of a node's range for that many pods."""
    return 32 - int(log2(pod_block(max_pods)))


def subnetwork_name(platform: Platform) -> str:
    """Name of the platform's own subnet."""
    return f"{platform.name}-{platform.region}"


def proxies_name(platform: Platform) -> str:
    """Name of the platform's own subnet for proxies of load balancers."""
    return f"{subnetwork_name(platform)}-proxies"


def network_id(platform: Platform, network: ExistingNetwork) -> str:
    """Full resource name of an existing VPC."""
    return f"projects/{network.project or platform.project}/global/networks/{network.network}"


def subnetwork_id(platform: Platform, network: ExistingNetwork) -> str:
    """Full resource name of an existing subnet, in the platform's region."""
    project = network.project or platform.project
    return f"projects/{project}/regions/{platform.region}/subnetworks/{network.subnetwork}"
