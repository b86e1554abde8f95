"""Finds the settings of GKE nodes: in node pools, and in the default pool that a cluster keeps."""

from policies import tokens
from policies.registry import Resource
from policies.values import UNKNOWN, at, items

CONFIG = "nodeConfig"


def keeps_default_pool(cluster: Resource) -> bool:
    """Whether a cluster keeps its default pool; if the option is not known yet, the pool counts as removed."""
    if at(cluster.props, "enableAutopilot") is True or items(cluster.props, "nodePools"):
        return False
    removed = at(cluster.props, "removeDefaultNodePool")
    return removed is not UNKNOWN and removed is not True


def node_configs(resource: Resource) -> list[str]:
    """Paths of node settings: of a pool, of a default pool that is kept, of pools inside a cluster."""
    if resource.type == tokens.NODE_POOL:
        return [CONFIG]
    inline = [f"nodePools.{index}.{CONFIG}" for index in range(len(items(resource.props, "nodePools")))]
    return [CONFIG, *inline] if keeps_default_pool(resource) else inline
