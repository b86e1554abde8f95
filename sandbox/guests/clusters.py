"""The self-managed clusters of a sandbox, each known by the number of the disk that holds its etcd."""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.adapter import MachineNames
from sandbox.hosts.hosts import PLAYED, Real
from sandbox.kubernetes.contexts import Contexts
from sandbox.kubernetes.kubeadm import ClusterSettings, KubeadmCluster
from sandbox.kubernetes.node_agents import Hosts


@dataclass
class _Kept:
    """A cluster that machines keep running; `members` are their numbers."""

    cluster: KubeadmCluster
    members: set[str] = field(default_factory=set)


class Clusters:
    """Starts a cluster with its first machine, stops it with its last one, and forgets it with its disk.

    Each lives in a folder below `run_dir`; `names` are those inside. `token` is the sandbox's administrator token,
    `status_seconds` how often a node writes an unchanged status.
    """

    def __init__(
        self,
        names: MachineNames,
        run_dir: Path,
        token: str,
        contexts: Contexts,
        status_seconds: float,
        real: Real = PLAYED,
    ) -> None:
        self._real = real
        self._names = names
        self._run_dir = run_dir
        self._token = token
        self._contexts = contexts
        self._status_seconds = status_seconds
        self._running: dict[str, _Kept] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def join(self, disk: str, member: str, project: str, settings: ClusterSettings, hosts: Hosts) -> KubeadmCluster:
        """The cluster of a disk, started if need be, with one more member. Raises as ControlPlane.start."""
        with self._locks[disk]:
            kept = self._running.get(disk)
            if kept is None:
                folder, status = self._folder(disk), self._status_seconds
                cluster = KubeadmCluster(folder, settings, self._names, hosts, self._token, status, self._real)
                cluster.start()
                kept = self._running[disk] = _Kept(cluster)
                self._contexts.add(f"gce_{project}_{settings.name}", cluster.plane)
            kept.members.add(member)
            return kept.cluster

    def leave(self, disk: str, member: str) -> None:
        """One member less; the last one stops the cluster and leaves its data."""
        with self._locks[disk]:
            kept = self._running.get(disk)
            if kept is None:
                return
            kept.members.discard(member)
            if not kept.members:
                del self._running[disk]
                self._contexts.remove(kept.cluster.plane)
                kept.cluster.stop()

    def close(self) -> None:
        """Stops all clusters and keeps their data. Nobody may join any more."""
        while self._running:
            _, kept = self._running.popitem()
            self._contexts.remove(kept.cluster.plane)
            kept.cluster.stop()

    def of(self, disk: str) -> KubeadmCluster | None:
        """The running cluster of a disk."""
        kept = self._running.get(disk)
        return kept.cluster if kept else None

    def running(self) -> list[KubeadmCluster]:
        return [kept.cluster for kept in list(self._running.values())]

    def at(self, endpoint: str) -> KubeadmCluster | None:
        """The running cluster with an API server at "address:port"."""
        return next((each for each in self.running() if each.plane.endpoint == endpoint), None)

    def forget(self, disks: Collection[str]) -> None:
        """Removes what stopped clusters have left, unless their disk is among these. Waits for nobody."""
        for folder in self._run_dir.glob("disk-*"):
            disk = folder.name.removeprefix("disk-")
            lock = self._locks[disk]
            if disk in disks or not lock.acquire(blocking=False):
                continue
            try:
                if disk not in self._running:
                    shutil.rmtree(folder)
            finally:
                lock.release()

    def _folder(self, disk: str) -> Path:
        return self._run_dir / f"disk-{disk}"
