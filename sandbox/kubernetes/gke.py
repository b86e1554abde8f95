"""What GKE puts around a control plane: node pools as Nodes, preinstalled objects, the autoscaler."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.autoscaler import Autoscaler, Resize
from sandbox.kubernetes.cluster import REFRESH_SECONDS, RunningCluster
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.controllers import HOSTED
from sandbox.kubernetes.loops import Loop
from sandbox.kubernetes.nodes import Nodes, Pool, parse_pool, pool_nodes

IDLE_SECONDS = 30.0  # real clusters keep an idle node for ten minutes
PREINSTALLED = Path(__file__).parent / "gke_objects.yaml"


class GkeCluster:
    """One emulated cluster: a control plane and everything that acts on it. Data lives in `run_dir` (see ControlPlane).

    `resize(pool, nodes_per_zone)` is how the autoscaler changes a pool; it must lead to a call of `set_pools`.
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        project: str,
        resize: Resize,
        admin_token: str = "",
        idle_seconds: float = IDLE_SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self.name, self.project = name, project
        self.plane = ControlPlane(run_dir, admin_token, hosted_images=tuple(HOSTED))
        self._running = RunningCluster(self.plane, refresh_seconds=refresh_seconds)
        self._nodes = Nodes(self.plane.client)
        self._pools: list[Pool] = []
        self._lock = threading.Lock()
        autoscaler = Autoscaler(self.plane.client, lambda: self._pools, resize, idle_seconds)
        self._autoscaling = Loop("autoscaler", 0.5, autoscaler.step)

    def start(self) -> None:
        """Returns when the API server answers and GKE's own objects are there. Raises as ControlPlane.start."""
        self._running.start([assets.provisioning_request_crd(), *yaml.safe_load_all(PREINSTALLED.read_text())])
        self._autoscaling.start()

    def stop(self) -> None:
        """Stops everything; the data stays."""
        # Not waited for: its step may wait for a lock of whoever stops this cluster, to resize a pool.
        self._autoscaling.cancel()
        self._running.stop()

    def set_pools(self, pools: Sequence[dict[str, Any]]) -> None:
        """Makes the Nodes match these node pools (container v1beta1 JSON with `currentNodeCount`); see parse_pool."""
        with self._lock:
            self._pools = [parse_pool(each) for each in pools]
            self._nodes.reconcile(node for pool in self._pools for node in pool_nodes(pool, self.name, self.project))
