"""The resources of a stack's state, found by type and name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GKE_CLUSTER = "tpu:gke:Cluster$gcp:container/cluster:Cluster"
DATA_DISKS = "tpu:compute:DataDisks$gcp:compute/disk:Disk"
NETWORK = "tpu:gcp:Network$gcp:compute/network:Network"
SUBNET = "tpu:gcp:Network$gcp:compute/subnetwork:Subnetwork"
PROVIDER = "tpu:kubernetes:Access$pulumi:providers:kubernetes"
FIRST = "-0"
"""End of the logical name of the first data disk, the identity of a self-managed cluster."""

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Standing:
    """The resources of a stack's state: outputs by URN."""

    resources: Mapping[str, Outputs]

    def found(self, types: str, name: str = "") -> Outputs | None:
        """The outputs of the first resource whose types (parents' and own) end with `types`, and whose name ends with
        `name`."""
        for urn, outputs in self.resources.items():
            _, _, chain, own = urn.split("::", 3)
            if chain.endswith(types) and own.endswith(name):
                return outputs
        return None

    @property
    def kind(self) -> str | None:
        """The kind of the existing cluster. None where there is none, or where the state does not tell."""
        if self.found(GKE_CLUSTER) is not None:
            return "gke"
        if self.found(DATA_DISKS, FIRST) is not None:
            return "self-managed"
        # The endpoint of a self-managed cluster stays in the state after the cluster was lost.
        own = any(self.found(types.partition("$")[0]) is not None for types in (GKE_CLUSTER, DATA_DISKS))
        return "existing" if not own and self.found(PROVIDER) is not None else None
