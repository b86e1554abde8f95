"""The network that follows from a platform: addresses of pods, and full names of what is referenced."""

from math import ceil, log2

from plan.platform import Platform
from platform_config.network import ExistingNetwork


def pod_block(max_pods: int) -> int:
    """Addresses set aside for a node's pods: a power of two, at least twice its pods, as GKE does it."""
    return int(2 ** ceil(log2(2 * max_pods)))


def pod_prefix(max_pods: int) -> int:
    """Length of the prefix of a range with that many addresses."""
    return 32 - int(log2(pod_block(max_pods)))


def subnetwork_name(platform: Platform) -> str:
    """Name of the platform's own subnet."""
    return f"{platform.name}-{platform.region}"


def network_id(platform: Platform, network: ExistingNetwork) -> str:
    """Full resource name of a VPC that exists."""
    return f"projects/{network.project or platform.project}/global/networks/{network.network}"


def subnetwork_id(platform: Platform, network: ExistingNetwork) -> str:
    """Full resource name of a subnet that exists, in the platform's region."""
    project = network.project or platform.project
    return f"projects/{project}/regions/{platform.region}/subnetworks/{network.subnetwork}"
