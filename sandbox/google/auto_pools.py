"""What GKE's autoscaler does with the node pools of a cluster, from inside Google: it makes, resizes and deletes them.

Creating and deleting go the way of a request to the container API, with its checks, defaults, operations and faults.
The caller is GKE's service agent in the project, so a node account of another project needs a grant for it. Where this
differs: these calls are not among the recorded requests, which are those of the program.
"""

from __future__ import annotations

import json

from sandbox.google.backend import ClusterRef
from sandbox.google.container import CLUSTERS, autoscale
from sandbox.google.dispatch import handle, routed
from sandbox.google.errors import GoogleError, not_found
from sandbox.google.roles import service_agent
from sandbox.google.store import Resource
from sandbox.google.world import World


class AutoPools:
    """The node pools of one cluster, as container v1beta1 JSON."""

    def __init__(self, world: World, ref: ClusterRef) -> None:
        self._world = world
        self._ref = ref

    def cluster(self) -> Resource:
        """The cluster without its pools. Raises GoogleError when it is gone."""
        found = self._world.store.get(CLUSTERS, self._ref.path)
        if found is None:
            raise not_found(self._ref.path)
        return found

    def pools(self) -> list[Resource]:
        """All pools, whoever made them, each with its nodes per zone in `currentNodeCount`."""
        found = self._world.pools(self._ref.path)
        return [{**pool, "currentNodeCount": self._world.pool_size(path)} for path, pool in found.items()]

    def create(self, pool: Resource) -> str:
        """Begins to make a pool; the name of the operation. Raises GoogleError when it is refused."""
        return self._call("POST", "", {"nodePool": pool})

    def delete(self, name: str) -> str:
        """Begins to delete a pool; the name of the operation. Raises GoogleError when it is refused."""
        return self._call("DELETE", f"/{name}")

    def resize(self, name: str, nodes: int) -> None:
        """Gives a pool `nodes` nodes in each of its zones, at once. Raises GoogleError; see container.autoscale."""
        autoscale(self._world, f"{self._ref.path}/nodePools/{name}", nodes)

    def is_done(self, operation: str) -> bool:
        """Whether an operation is over, or forgotten. Raises GoogleError when it has failed."""
        found = self._world.operations.get(operation)
        if found is None or not found.done:
            return found is None
        if found.error:
            reason = found.error.get("reason", "INTERNAL_ERROR")
            raise GoogleError("INTERNAL", found.error["message"], reason=reason)
        return True

    def _call(self, method: str, below: str, body: Resource | None = None) -> str:
        path = f"/container/v1beta1/{self._ref.path}/nodePools{below}"
        fault = self._world.faults.strike(method, path, json.dumps(body) if body else "")
        cut = GoogleError("UNAVAILABLE", "The connection was cut.")
        if fault and fault.kind == "status":
            raise fault.refusal()
        if fault and fault.kind == "cut" and not fault.processed:
            raise cut
        answer = handle(self._world, routed(method, path), body or {}, (), service_agent(self._ref.project), fault)
        if fault and fault.kind == "cut":
            raise cut
        return str(answer["name"])
