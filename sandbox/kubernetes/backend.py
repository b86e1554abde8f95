"""Gives the Google Cloud emulator's clusters real control planes: one per cluster, started and removed with it."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.google.backend import ClusterEndpoint, ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.hosts.hosts import PLAYED, Real
from sandbox.kubernetes.auto_creation import NodePools
from sandbox.kubernetes.contexts import Contexts
from sandbox.kubernetes.control_plane import PKI, STATUS_SECONDS
from sandbox.kubernetes.gke import IDLE_SECONDS, GkeCluster, no_cloud
from sandbox.kubernetes.metadata_server import Cloud
from sandbox.kubernetes.pki import CertificateAuthority

AUTHORITY = "authority"
"""Folder below `run_dir` with the CA of all clusters: whoever trusts it trusts every cluster, as with Google's own."""

KUBECONFIG = "kubeconfig"
"""File below `run_dir` for kubectl: a context for every running cluster, GKE's named as gcloud names them."""

# How the simulated autoscaler changes a pool of the emulator: cluster, pool, nodes per zone.
ResizePool = Callable[[ClusterRef, str, int], None]


def _not_connected(ref: ClusterRef, pool: str, nodes: int) -> None:
    raise GoogleError("UNAVAILABLE", f"No emulator is there to give {ref.name}/{pool} {nodes} nodes.")


class KubernetesBackend:
    """The emulator's ClusterBackend with real API servers. Everything lives below `run_dir`; close() stops everything.

    `idle_seconds`: how long an autoscaled pool stays unused before it shrinks. `status_seconds`: how often a node
    writes an unchanged status. `real`: the real hosts of each cluster.

    The emulator needs its backend before it exists itself: whoever makes both sets `resize_pool`, `cloud`, and
    `node_pools` for classes that create pools, afterwards. All clusters share one administrator token, kept in
    `<run_dir>/admin-token`, for the credential program that kubeconfigs name. After a restart of the emulator `create`
    continues with the kept data under the old address.
    """

    def __init__(
        self,
        run_dir: Path,
        idle_seconds: float = IDLE_SECONDS,
        status_seconds: float = STATUS_SECONDS,
        real: Real = PLAYED,
    ) -> None:
        self.resize_pool: ResizePool = _not_connected
        self.node_pools: Callable[[ClusterRef], NodePools | None] = lambda ref: None
        self.cloud: Callable[[], Cloud] = no_cloud
        self._run_dir = run_dir
        self._idle_seconds = idle_seconds
        self._real = real
        self._status_seconds = status_seconds
        self._clusters: dict[ClusterRef, GkeCluster] = {}
        self._lock = threading.Lock()
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._authority = CertificateAuthority(run_dir / AUTHORITY)
        self._token_file = run_dir / "admin-token"
        if not self._token_file.exists():
            self._token_file.touch(mode=0o600)
            self._token_file.write_text(secrets.token_urlsafe(24))
        self.contexts = Contexts(run_dir / KUBECONFIG, self.admin_token)

    @property
    def admin_token(self) -> str:
        """Bearer token of a cluster administrator, the same for every cluster."""
        return self._token_file.read_text()

    def cluster(self, ref: ClusterRef) -> GkeCluster:
        """The running cluster. Raises KeyError when there is none."""
        return self._clusters[ref]

    def create(self, ref: ClusterRef, cluster: dict[str, Any]) -> ClusterEndpoint:
        """Starts the cluster's control plane, or continues a kept one. Raises as ControlPlane.start."""
        running = self._clusters.get(ref)
        if not running:
            folder = self._folder(ref)
            self._authority.share(folder / PKI)
            running = GkeCluster(
                folder,
                ref.name,
                ref.project,
                lambda pool, nodes: self.resize_pool(ref, pool, nodes),
                self.admin_token,
                self._idle_seconds,
                real=self._real,
                status_seconds=self._status_seconds,
                node_pools=lambda: self.node_pools(ref),
                location=ref.location,
                cloud=self._present_cloud,
                network_policies=enforces_policies(cluster),
            )
            running.start()
            with self._lock:
                self._clusters[ref] = running
            self.contexts.add(f"gke_{ref.project}_{ref.location}_{ref.name}", running.plane)
        return ClusterEndpoint(running.plane.endpoint, running.plane.ca_certificate)

    def _present_cloud(self) -> Cloud:
        return self.cloud()

    def delete(self, ref: ClusterRef) -> None:
        """Stops the control plane and removes its data."""
        with self._lock:
            running = self._clusters.pop(ref, None)
        if running:
            self.contexts.remove(running.plane)
            running.stop()
        shutil.rmtree(self._folder(ref), ignore_errors=True)

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        """Makes the cluster's nodes match its pools. Raises PartialSliceError or ValueError for what cannot be."""
        if running := self._clusters.get(ref):
            running.set_pools(pools)

    def close(self) -> None:
        """Stops all control planes and keeps their data."""
        with self._lock:
            running, self._clusters = list(self._clusters.values()), {}
        for each in running:
            each.stop()

    def _folder(self, ref: ClusterRef) -> Path:
        return self._run_dir / f"{ref.name}-{hashlib.sha256(ref.path.encode()).hexdigest()[:8]}"


def enforces_policies(cluster: dict[str, Any]) -> bool:
    """Whether a cluster of GKE (container v1beta1 JSON) enforces NetworkPolicies: by Dataplane V2, else by Calico.

    Source: cloud.google.com/kubernetes-engine/docs/how-to/network-policy.
    """
    dataplane = cluster.get("networkConfig", {}).get("datapathProvider")
    return dataplane == "ADVANCED_DATAPATH" or bool(cluster.get("networkPolicy", {}).get("enabled"))
