"""What GKE puts around a control plane: node pools as Nodes, preinstalled objects, the autoscaler, run controllers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.autoscaler import Autoscaler, Resize
from sandbox.kubernetes.control_plane import START_SECONDS, ControlPlane
from sandbox.kubernetes.controllers import HOSTED, ControllerHost
from sandbox.kubernetes.dra import SlicePublisher
from sandbox.kubernetes.loops import Loop, wait_until
from sandbox.kubernetes.nodes import Nodes, Pool, parse_pool, pool_nodes

IDLE_SECONDS = 30.0  # real clusters keep an idle node for ten minutes
REFRESH_SECONDS = 20.0  # a kubelet takes up to a minute or so to refresh a mounted Secret
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
        self._nodes = Nodes(self.plane.client)
        self._pools: list[Pool] = []
        self._lock = threading.Lock()
        self._host = ControllerHost(self.plane, refresh_seconds)
        self.plane.egress.find_port = self._host.find_port
        publisher = SlicePublisher(self.plane.client)
        autoscaler = Autoscaler(self.plane.client, lambda: self._pools, resize, idle_seconds)
        self._loops = [Loop("controllers", 0.25, self._host.step), Loop("dra-driver", 0.5, publisher.step)]
        self._autoscaling = Loop("autoscaler", 0.5, autoscaler.step)

    def start(self) -> None:
        """Returns when the API server answers and GKE's own objects are there. Raises as ControlPlane.start."""
        self.plane.start()
        try:
            self._preinstall()
        except BaseException:
            self.plane.stop()
            raise
        for loop in (*self._loops, self._autoscaling):
            loop.start()

    def _preinstall(self) -> None:
        preinstalled = [assets.provisioning_request_crd(), *yaml.safe_load_all(PREINSTALLED.read_text())]
        for each in preinstalled:
            self.plane.client.apply(each)
        for each in preinstalled:
            if each["kind"] == "CustomResourceDefinition":
                self._wait_established(each)

    def _wait_established(self, definition: Object) -> None:
        """Kueue looks for some kinds only once, when it starts."""
        client, name = self.plane.client, definition["metadata"]["name"]

        def established() -> bool:
            return is_true(client.get(definition["apiVersion"], definition["kind"], name) or {}, "Established")

        wait_until(f"{name} established", established, START_SECONDS)

    def stop(self) -> None:
        """Stops everything; the data stays."""
        # Not waited for: its step may wait for a lock of whoever stops this cluster, to resize a pool.
        self._autoscaling.cancel()
        for loop in self._loops:
            loop.stop()
        self._host.stop()
        self.plane.stop()

    def set_pools(self, pools: Sequence[dict[str, Any]]) -> None:
        """Makes the Nodes match these node pools (container v1beta1 JSON with `currentNodeCount`); see parse_pool."""
        with self._lock:
            self._pools = [parse_pool(each) for each in pools]
            self._nodes.reconcile(node for pool in self._pools for node in pool_nodes(pool, self.name, self.project))
