"""A cluster with what a platform puts inside: its controllers, queues, policies and claims, without the engine.

It stands for what `up` makes in a GKE cluster. It differs: this module applies the objects of the graph, and node pools
are those that the plan declares. Hosts of a self-managed cluster are node pools here, too, with the same labels and
taints. It has no slices on demand.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from catalogue.labels import NODE_POOL_LABEL
from plan import flavors
from plan.platform import Platform
from plan.slices import SlicePlan
from rules.load import load_platform
from sandbox.cloud import SHORTEST_IDLE_SECONDS
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.tests.kubernetes_support import JOBSET_CHART, KUEUE_API, node_pool
from sandbox_adapter import PROGRAM as ADAPTER
from tests.graph.recording import GraphMonitor, record_main
from tests.sandbox.admission import apply_recorded, install_kueue, within

PATIENCE = 240.0
OWN_SIZES = ("jobset", "kueue")  # installed here with one replica each, and the sizes of their charts
OF_KUEUE = (
    "ResourceFlavor",
    "ProvisioningRequestConfig",
    "AdmissionCheck",
    "Cohort",
    "WorkloadPriorityClass",
    "ClusterQueue",
    "LocalQueue",
)
BESIDES = (
    "DeviceClass",
    "ResourceClaimTemplate",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ConfigMap",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@dataclass
class QueueCluster:
    """The cluster; `kubeconfig` is an administrator's, whose current context is the cluster."""

    platform: Platform
    client: ApiClient
    kubeconfig: Path
    _set_pools: Callable[[list[dict[str, Any]]], None]
    _find_port: Callable[[Object, Object], int | None]
    _pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bring(self, plan: SlicePlan, name: str, nodes: int, labels: Mapping[str, str]) -> None:
        """Adds a node pool of a plan's hosts with these labels; `nodes` are there at once."""
        topology = plan.topology if plan.multi_host else ""
        extra: dict[str, Any] = {}
        if plan.queued:
            extra = {
                "queuedProvisioning": {"enabled": True},
                "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": plan.hosts},
            }
        made = node_pool(name, plan.machine.name, nodes, topology, labels=dict(labels), **extra)
        with self._lock:
            self._pools[name] = made
            self._set_pools(list(self._pools.values()))

    def resize(self, pool: str, nodes: int) -> None:
        """What the autoscaler asks for."""
        with self._lock:
            self._pools[pool] = {**self._pools[pool], "currentNodeCount": nodes}
            self._set_pools(list(self._pools.values()))

    def address(self, service: str, namespace: str) -> str:
        """Where the controller behind a Service is reached on this machine, by the Service's first port."""
        found = self.client.get("v1", "Service", service, namespace)
        assert found
        port = within(PATIENCE, lambda: self._find_port(found, found["spec"]["ports"][0]))
        return f"127.0.0.1:{port}"

    def chips(self, queue: str) -> int:
        """Chips of a ClusterQueue that workloads have reserved."""
        found = self.client.get(KUEUE_API, "ClusterQueue", queue) or {}
        reserved = found.get("status", {}).get("flavorsReservation", [])
        return sum(int(each["total"]) for flavor in reserved for each in flavor["resources"])


def platform_of(config: Mapping[str, str]) -> Platform:
    """The platform of a stack's configuration."""
    return load_platform(json.loads(config["tpu-platform:platform"]), project=config["gcp:project"])


@contextmanager
def queue_cluster(config: dict[str, str]) -> Iterator[QueueCluster]:
    """The cluster of a stack's configuration, whose queues are active and whose declared slices have their hosts."""
    platform = platform_of(config)
    graph = record_main(config)
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        made: list[QueueCluster] = []

        def resize(pool: str, nodes: int) -> None:
            made[0].resize(pool, nodes)

        cluster = GkeCluster(Path(scratch), "lab", platform.project, resize, idle_seconds=SHORTEST_IDLE_SECONDS)
        registry = ChartRegistry(cluster.plane.authority, ADAPTER.charts)
        cluster.start()
        try:
            client, kubeconfig = cluster.plane.client, cluster.plane.kubeconfig_path
            find_port = cluster.plane.egress.find_port
            made.append(QueueCluster(platform, client, kubeconfig, cluster.set_pools, find_port))
            releases = list(_releases(graph))
            _declared_pools(made[0], releases)
            helm = Helm(kubeconfig, registry.variables(cluster.plane.authority.pair.certificate))
            apply_recorded(client, graph, "Namespace")
            version = platform.software.jobset.version
            helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, version, {}, wait=False))
            for release in releases:
                if release.name not in OWN_SIZES:
                    helm.install(release)
            install_kueue(cluster, registry, platform)
            within(PATIENCE, lambda: _taken(lambda: apply_recorded(client, graph, *OF_KUEUE)))
            apply_recorded(client, graph, *BESIDES)
            within(PATIENCE, lambda: _active(client, platform))
            yield made[0]
        finally:
            registry.stop()
            cluster.stop()


def _releases(graph: GraphMonitor) -> Iterator[ReleaseSpec]:
    """The charts that a graph installs, with its values; nothing waits for their pods."""
    for request in graph.requests.values():
        if request.type.endswith(":Release"):
            found = _integers(json_format.MessageToDict(request.object))
            names = (found["name"], found["namespace"], found["chart"], found["version"])
            yield ReleaseSpec(*names, found.get("values", {}), wait=False)


def _integers(value: Any) -> Any:
    """The same with whole numbers as such: what the engine gets has only one kind of number."""
    if isinstance(value, dict):
        return {key: _integers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_integers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _declared_pools(made: QueueCluster, releases: list[ReleaseSpec]) -> None:
    """The pool on which the controllers run, and those of the slices."""
    (jobset,) = (each for each in releases if each.name == "jobset")
    system = jobset.values["controller"]["nodeSelector"][NODE_POOL_LABEL]
    made._pools[system] = node_pool(system, "e2-standard-8", 1)
    for plan in made.platform.slice_plans:
        labels = {**flavors.flavors(made.platform)[plan.flavor].node_labels, **plan.labels}
        for number, pool in enumerate(plan.pools):
            made.bring(plan, f"{plan.name}-{number}", 0 if plan.queued else pool.most_nodes, labels)


def _taken(apply: Callable[[], None]) -> bool:
    """Whether Kueue's webhook takes the objects; it does not answer before it has its certificate."""
    try:
        apply()
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True


def _active(client: ApiClient, platform: Platform) -> bool:
    """Whether every queue takes work, in its namespaces, too."""
    kinds: list[Object] = [*client.list_all(KUEUE_API, "ClusterQueue"), *client.list_all(KUEUE_API, "LocalQueue")]
    return len(kinds) > len(platform.queues) and all(is_true(each, "Active") for each in kinds)
