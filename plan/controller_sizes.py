"""CPU and memory of controllers, by the size of the cluster."""

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Size:
    """Requests and limits of a controller: `cpu` in cores, `memory_mib` in MiB."""

    cpu: float
    memory_mib: int

    def resources(self) -> dict[str, dict[str, str]]:
        """The `resources` of a container."""
        amounts = {"cpu": f"{self.cpu:g}", "memory": f"{self.memory_mib}Mi"}
        return {"requests": amounts, "limits": amounts}


KUEUE_REPLICAS = 2
"""They serve the webhooks of all queued namespaces, so one is there while the other goes."""
ON_EVERY_NODE_MIB = 1024
"""What pods that every node has ask for, rounded up."""


def kueue_size(nodes: int) -> Size:
    """Kueue's size for that many nodes, as AI-Hypercomputer/xpk measured it (`utils/kueue.py`)."""
    return Size(max(2, round(0.004 * nodes, 1)), max(4096, 32 * nodes))


def jobset_size(nodes: int) -> Size:
    """JobSet's size for that many nodes, from the same source."""
    return Size(1, max(4096, ceil(1.2 * nodes)))


def lws_size() -> Size:
    """LeaderWorkerSet's size. Its chart asks for 1 GiB whatever the size of the cluster; it handles only servers."""
    return Size(0.5, 1024)
