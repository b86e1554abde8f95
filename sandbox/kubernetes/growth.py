"""Nodes that a pool is to get: what one round of the autoscaler plans, and what is on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.kubernetes import fitting
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.nodes import POOL_LABEL, Pool

BACK_OFF_SECONDS = 30.0  # how long a pool that could not grow is passed over
SETTLE_SECONDS = 5.0  # how long a pod that caused growth is left alone, until the new nodes are there
# Annotations by which pods that belong together have a node pool for themselves, and the label that says who they are:
# the pods of a Job of a JobSet, and those of a group of a LeaderWorkerSet.
_EXCLUSIVE = {
    "alpha.jobset.sigs.k8s.io/exclusive-topology": "jobset.sigs.k8s.io/job-key",
    "leaderworkerset.sigs.k8s.io/exclusive-topology": "leaderworkerset.sigs.k8s.io/group-key",
}


@dataclass
class Growth:
    """Nodes to add to a pool, each with the room left on it, and the pods they are for.

    `owner` is the Job or group that has the pool for itself, "" for pods that share; a `closed` growth takes no more
    nodes.
    """

    pool: Pool
    owner: str = ""
    nodes: list[fitting.Resources] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    closed: bool = False

    def take(self, pod: Object, requests: fitting.Resources) -> bool:
        """Gives the pod a place on one of the nodes, if one has room."""
        for room in self.nodes:
            if self.owner == exclusive_job(pod) and fitting.fits(requests, room):
                room.subtract(requests)
                self.pods.append(pod)
                return True
        return False

    def grow(self, pod: Object) -> bool:
        """Adds a node, or all hosts of a slice, for the pod; False where the pool cannot have more."""
        if not self._can_grow() or (self.nodes and self.owner != exclusive_job(pod)):
            return False
        self.owner = exclusive_job(pod)
        self.nodes += [fitting.node_resources(self.pool) for _ in range(self.pool.hosts)]
        return True

    def _can_grow(self) -> bool:
        pool = self.pool
        if self.closed:
            return False
        if pool.multi_host:
            return pool.size == 0 and not self.nodes and pool.max_nodes >= pool.hosts
        return pool.size * len(pool.zones) + len(self.nodes) < pool.max_nodes * len(pool.zones)

    @property
    def size(self) -> int:
        """Nodes that the pool will have in each of its zones."""
        return self.pool.size + -(-len(self.nodes) // len(self.pool.zones))


def exclusive_job(pod: Object) -> str:
    """The Job of a JobSet, or the group of a LeaderWorkerSet, that has a pool for itself; "" for any other pod."""
    annotations, labels = pod["metadata"].get("annotations", {}), pod["metadata"].get("labels", {})
    own = (key for annotation, key in _EXCLUSIVE.items() if annotations.get(annotation) == POOL_LABEL)
    return next((str(labels.get(key, "")) for key in own), "")


def is_leader(pod: Object) -> bool:
    """Whether a pod brings its Job or group to a pool: controllers send the other pods to where this one runs."""
    return bool(exclusive_job(pod)) and POOL_LABEL not in pod["spec"].get("nodeSelector", {})
