"""Edits that the provider plans as an update, and that make every host of a node pool or a group anew.

Paths are Pulumi's, as in a preview; each stands for itself and for all below it. That the provider plans an update was
recorded with the real one (sandbox/tests/data/provider_edits.json); that hosts are made anew is from the documentation
of GKE ("Node upgrade strategies", changes that recreate nodes) and of managed instance groups ("Apply new VM
configurations").
"""

from collections.abc import Mapping

NODE_POOL = (
    "nodeConfig.bootDisk",
    "nodeConfig.diskSizeGb",
    "nodeConfig.diskType",
    "nodeConfig.gcfsConfig",
    "nodeConfig.gvnic",
    "nodeConfig.imageType",
    "nodeConfig.kubeletConfig",
    "nodeConfig.linuxNodeConfig",
    "nodeConfig.machineType",
    "nodeConfig.workloadMetadataConfig",
    "nodeLocations",
    "version",
)
HOST_GROUP = ("versions",)
CLUSTER = ("addonsConfig.dnsCacheConfig",)

HOSTS_MADE_ANEW: Mapping[str, tuple[str, ...]] = {
    "gcp:container/nodePool:NodePool": NODE_POOL,
    "gcp:compute/instanceGroupManager:InstanceGroupManager": HOST_GROUP,
    "gcp:compute/regionInstanceGroupManager:RegionInstanceGroupManager": HOST_GROUP,
    "gcp:container/cluster:Cluster": CLUSTER,
}
"""By Pulumi type."""


def makes_hosts_anew(type_: str, path: str) -> bool:
    """Whether an update of a resource of this type that changes this path makes its hosts anew."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in HOSTS_MADE_ANEW.get(type_, ()))
