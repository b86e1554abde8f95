"""The resources of a stack's state, by what the program calls them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GKE_CLUSTER = "tpu:gke:Cluster$gcp:container/cluster:Cluster"
DATA_DISKS = "tpu:compute:DataDisks$gcp:compute/disk:Disk"
NETWORK = "tpu:gcp:Network$gcp:compute/network:Network"
SUBNET = "tpu:gcp:Network$gcp:compute/subnetwork:Subnetwork"
PROVIDER = "tpu:kubernetes:Access$pulumi:providers:kubernetes"
FIRST = "-0"
"""How the name of the first data disk ends, which makes a self-managed cluster that cluster."""

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """The resources of a stack's state: outputs by URN."""

    resources: Mapping[str, Outputs]

    def found(self, types: str, name: str = "") -> Outputs | None:
        """The outputs of the first resource whose own and parents' types end so, and whose name does."""
        for urn, outputs in self.resources.items():
            _, _, chain, own = urn.split("::", 3)
            if chain.endswith(types) and own.endswith(name):
                return outputs
        return None

    @property
    def kind(self) -> str | None:
        """The kind of the cluster that stands. None where none does, or nobody can tell."""
        if self.found(GKE_CLUSTER) is not None:
            return "gke"
        if self.found(DATA_DISKS, FIRST) is not None:
            return "self-managed"
        # The way into a cluster of the platform's own outlives a cluster that was lost.
        own = any(self.found(types.partition("$")[0]) is not None for types in (GKE_CLUSTER, DATA_DISKS))
        return "existing" if not own and self.found(PROVIDER) is not None else None
