"""Edits that the provider plans as an update, and that recreate every host of a node pool or a group.

Paths are Pulumi's, as in a preview; each includes all paths below it. Sources: for the update, the real provider
(sandbox/tests/data/provider_edits.json); for the recreation, the documentation of GKE ("Node upgrade strategies",
changes that recreate nodes) and of managed instance groups ("Apply new VM configurations").
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
    """Whether an update of a resource of this type that changes this path recreates its hosts."""
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in HOSTS_MADE_ANEW.get(type_, ()))
