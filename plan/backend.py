"""What slices are built as, and where."""

from typing import Literal

from platform_config.cluster import GkeCluster
from platform_config.platform import PlatformConfig

Backend = Literal["gke", "compute"]
"""What slices are built as: GKE node pools, or managed instance groups of Compute Engine."""


def backend(platform: PlatformConfig) -> Backend:
    """What slices of a platform are built as."""
    return "gke" if isinstance(platform.cluster, GkeCluster) else "compute"


def region(zone: str) -> str:
    """The region that a zone is in."""
    return zone.rpartition("-")[0]
