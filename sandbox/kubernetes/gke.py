"""What GKE puts around a control plane: node pools as Nodes, preinstalled objects, the autoscaler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.hosts.hosts import PLAYED, Real, RealHosts
from sandbox.hosts.tpu_webhook import tpu_webhook
from sandbox.kubernetes import addons, assets
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.auto_creation import CLASS, AutoCreation, NodePools
from sandbox.kubernetes.autoscaler import PROVISIONING_REQUEST, Autoscaler, Resize
from sandbox.kubernetes.changes import NODE, POD, Changes
from sandbox.kubernetes.chart_programs import CHART_IMAGES
from sandbox.kubernetes.cluster import REFRESH_SECONDS, RunningCluster
from sandbox.kubernetes.control_plane import STATUS_SECONDS, ControlPlane, Setup
from sandbox.kubernetes.fuse import FuseDriver
from sandbox.kubernetes.fuse_webhook import fuse_webhook
from sandbox.kubernetes.loops import Loop
from sandbox.kubernetes.metadata_server import Cloud
from sandbox.kubernetes.nodes import Nodes, Pool, parse_pool, pool_nodes
from sandbox.kubernetes.plain_programs import provisioner_image
from sandbox.kubernetes.played_mounts import PlayedMounts
from sandbox.kubernetes.secret_sync import SecretSyncs

IDLE_SECONDS = 30.0  # real clusters keep an idle node for ten minutes
PREINSTALLED = Path(__file__).parent / "gke_objects.yaml"
COMPUTE_CLASS = Path(__file__).parent / "compute_class.yaml"


def no_cloud() -> Cloud:
    """Of a cluster that stands alone."""
    raise GoogleError("UNAVAILABLE", "No emulated cloud is around this cluster.")


class GkeCluster:
    """One emulated cluster: a control plane and everything that acts on it. Data lives in `run_dir` (see ControlPlane).

    `resize(pool, nodes_per_zone)` is how the autoscaler changes a pool, `node_pools` gives the cluster's pools in its
    cloud; changes of either must lead to a call of `set_pools`. Without `node_pools` no ComputeClass creates pools.
    `cloud` gives the cloud around the cluster to programs in it that ask for it. `real` says how many of the cluster's
    hosts run containers, `network_policies` whether these hosts enforce NetworkPolicies.
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
        status_seconds: float = STATUS_SECONDS,
        node_pools: Callable[[], NodePools | None] = lambda: None,
        location: str = "",
        cloud: Callable[[], Cloud] = no_cloud,
        real: Real = PLAYED,
        network_policies: bool = True,
    ) -> None:
        self._ref = cluster = ClusterRef(project, location, name)
        images = (*CHART_IMAGES, provisioner_image(cluster, cloud))
        patterns = tuple(each.pattern for each in images)
        setup = Setup(status_seconds=status_seconds, real_hosts=real.hosts)
        self.plane = ControlPlane(run_dir, admin_token, patterns, setup)
        driver = FuseDriver(self.plane.client, cluster, cloud)
        self.hosts: RealHosts | None = None
        if real.hosts:
            self.hosts = RealHosts(self.plane, real.image_names, fuse=driver, network_policies=network_policies)
        changes = Changes(self.plane.client)
        loops = (
            Loop("add-ons", 0.5, addons.Addons(self.plane.client, cluster, cloud, self._brought).step),
            Loop("secret-sync", 1.0, SecretSyncs(self.plane.client, cluster, cloud).step),
            Loop("volumes", 0.5, PlayedMounts(driver).step, changes.of(POD, NODE)),
        )
        self._running = RunningCluster(self.plane, changes, loops, refresh_seconds, images, self.hosts)
        self._nodes = Nodes(self.plane.client, self.hosts)
        self._webhook = tpu_webhook(self.plane.client, self.plane.authority) if real.hosts else None
        self._fuse_webhook = fuse_webhook(self.plane.client, self.plane.authority)
        self._pools: list[Pool] = []
        self._lock = threading.Lock()
        creation = AutoCreation(self.plane.client, node_pools)
        autoscaler = Autoscaler(self.plane.client, lambda: self._pools, resize, idle_seconds, creation)
        self._scale = changes.of(POD, NODE, CLASS, PROVISIONING_REQUEST)
        self._autoscaling = Loop("autoscaler", 0.5, autoscaler.step, self._scale)

    def start(self) -> None:
        """Returns when the API server answers and GKE's own objects are there. Raises as ControlPlane.start."""
        definitions = [assets.provisioning_request_crd(), yaml.safe_load(COMPUTE_CLASS.read_text())]
        preinstalled = [*definitions, *yaml.safe_load_all(PREINSTALLED.read_text())]
        webhook = self._webhook.objects() if self._webhook else []
        if self._webhook:
            self._webhook.start()
        self._fuse_webhook.start()
        self._running.start([*preinstalled, *webhook])
        self._autoscaling.start()

    def stop(self) -> None:
        """Stops everything; the data stays."""
        # Not waited for: its step may wait for a lock of whoever stops this cluster, to resize a pool.
        self._autoscaling.cancel()
        self._running.stop()
        if self._webhook:
            self._webhook.stop()
        self._fuse_webhook.stop()

    def _brought(self, addon: str) -> list[Object]:
        if addon == addons.GATEWAYS:
            return assets.gateway_crds()
        return self._fuse_webhook.objects() if addon == addons.FUSE else []

    def set_pools(self, pools: Sequence[dict[str, Any]]) -> None:
        """Makes the Nodes match these node pools (container v1beta1 JSON with `currentNodeCount`); see parse_pool."""
        with self._lock:
            self._pools = [parse_pool(each) for each in pools]
            self._nodes.reconcile(node for pool in self._pools for node in pool_nodes(pool, self._ref))
        self._scale.set()
