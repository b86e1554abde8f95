"""Nodes of GKE node pools: the labels, taints and capacity that GKE gives them, without machines behind them.

Sources: GKE's documentation of node labels and reserved resources, GKE's autoscaler (TPU labels and taint).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox.google.backend import ClusterRef, node_name
from sandbox.google.machines import MachineType, machine_type
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.control_plane import FAKE_NODE
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION

POOL_LABEL = "cloud.google.com/gke-nodepool"
ACCELERATOR_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
CHIPS_LABEL = "cloud.google.com/gke-accelerator-count"
DRA_LABEL = "cloud.google.com/gke-tpu-dra-driver"
TPU_RESOURCE = "google.com/tpu"
QUEUED_TAINT = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}
TPU_TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
DEFAULT_MAX_PODS = 110
METADATA_LABEL = "iam.gke.io/gke-metadata-server-enabled"
_MANAGED = "sandbox/managed"  # annotation: labels and taints as last written, to tell a change from other writers' work
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


class PartialSliceError(ValueError):
    """A multi-host pool was given a size other than 0 or one whole slice."""


@dataclass(frozen=True)
class Pool:
    """One GKE node pool with its present size, as the Kubernetes side needs to know it.

    `hosts` is the number of hosts of a slice, 1 for single-host and CPU pools. `size`, `min_nodes` and `max_nodes`
    count nodes in each zone; the bounds are 0 when the pool is not autoscaled. `lost`: names of nodes that Google has
    taken away for a while.
    """

    name: str
    machine: MachineType
    size: int
    zones: tuple[str, ...]
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    hosts: int = 1
    autoscaled: bool = False
    min_nodes: int = 0
    max_nodes: int = 0
    queued: bool = False
    max_pods: int = DEFAULT_MAX_PODS
    disk_gb: int = 100
    lost: frozenset[str] = frozenset()

    @property
    def multi_host(self) -> bool:
        return self.hosts > 1

    @property
    def dra(self) -> bool:
        """Whether chips are handed out through claims instead of the device plugin."""
        return bool(self.machine.chips) and self.labels.get(DRA_LABEL) == "true"

    @property
    def capacity(self) -> dict[str, str]:
        """Capacity of one node: cpu, memory, disk, pods, and chips where the device plugin runs."""
        return self._resources(self.machine.vcpus * 1000, self.machine.memory_gb * 1024, self.disk_gb * 1000)

    @property
    def allocatable(self) -> dict[str, str]:
        """Capacity less what GKE keeps for the system."""
        memory = self.machine.memory_gb * 1024
        return self._resources(
            self.machine.vcpus * 1000 - _reserved_cpu(self.machine.vcpus),
            memory - _reserved_memory(memory),
            self.disk_gb * 1000 - _reserved_disk(self.disk_gb * 1000),
        )

    def _resources(self, milli_cpu: int, memory_mib: int, disk_mb: int) -> dict[str, str]:
        resources = {
            "cpu": f"{milli_cpu}m",
            "memory": f"{memory_mib}Mi",
            "ephemeral-storage": f"{disk_mb}M",
            "pods": str(self.max_pods),
        }
        if self.machine.chips and not self.dra:
            resources[TPU_RESOURCE] = str(self.machine.chips)
        return resources


def parse_pool(pool: Mapping[str, Any]) -> Pool:
    """A Pool from a container v1beta1 NodePool with its present nodes per zone in `currentNodeCount`.

    A pool that names only a workload policy has its topology from there, in `policyTopology`.

    Raises PartialSliceError for a size that is neither zero nor a whole slice, ValueError for a machine type that does
    not exist or cannot form the topology.
    """
    config = pool.get("config", {})
    kind = machine_type(config.get("machineType", "e2-medium"))
    if kind is None:
        raise ValueError(f"node pool {pool['name']}: there is no machine type {config['machineType']}")
    placement = pool.get("placementPolicy", {})
    topology = placement.get("tpuTopology") or pool.get("policyTopology") or kind.single_host
    hosts = kind.hosts(topology) if kind.chips else 1
    if hosts is None:
        raise ValueError(f"node pool {pool['name']}: machines of type {kind.name} form no {topology} slice")
    size = int(pool["currentNodeCount"])
    if hosts > 1 and size not in (0, hosts):
        raise PartialSliceError(
            f"node pool {pool['name']}: {size} nodes are no {topology} slice, which has {hosts} hosts"
        )
    zones = tuple(pool.get("locations", ()))
    autoscaling = pool.get("autoscaling", {})
    queued = bool(pool.get("queuedProvisioning", {}).get("enabled"))
    return Pool(
        name=pool["name"],
        machine=kind,
        size=size,
        zones=zones,
        labels={**_pool_labels(pool["name"], config, kind, topology), **config.get("labels", {})},
        taints=_taints(config, kind, queued),
        hosts=hosts,
        autoscaled=bool(autoscaling.get("enabled")),
        min_nodes=_bound(autoscaling, "min", len(zones)),
        max_nodes=_bound(autoscaling, "max", len(zones)),
        queued=queued,
        disk_gb=int(config.get("diskSizeGb") or 100),
        lost=frozenset(pool.get("lostNodes", ())),
        max_pods=int(pool.get("maxPodsConstraint", {}).get("maxPodsPerNode", DEFAULT_MAX_PODS)),
    )


def _bound(autoscaling: Mapping[str, Any], side: str, zones: int) -> int:
    total = int(autoscaling.get(f"total{side.capitalize()}NodeCount", 0))
    return -(-total // max(zones, 1)) if total else int(autoscaling.get(f"{side}NodeCount", 0))


def _pool_labels(name: str, config: Mapping[str, Any], kind: MachineType, topology: str) -> dict[str, str]:
    labels = {
        POOL_LABEL: name,
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/machine-family": kind.name.split("-")[0],
        "cloud.google.com/gke-cpu-scaling-level": str(kind.vcpus),
        "cloud.google.com/gke-provisioning": "spot" if config.get("spot") else "standard",
        METADATA_LABEL: "true",
        "node.kubernetes.io/instance-type": kind.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    if kind.generation:
        labels |= {ACCELERATOR_LABEL: kind.generation.label, TOPOLOGY_LABEL: topology, CHIPS_LABEL: str(kind.chips)}
    if config.get("spot"):
        labels["cloud.google.com/gke-spot"] = "true"
    if config.get("flexStart"):
        labels |= {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "flex-start"}
    return labels


def _taints(config: Mapping[str, Any], kind: MachineType, queued: bool) -> tuple[dict[str, str], ...]:
    """GKE's own taints and the pool's; GKE shows its own among the pool's, so each key and effect counts once."""
    taints = [*([TPU_TAINT] if kind.chips else []), *([QUEUED_TAINT] if queued else [])]
    for each in config.get("taints", []):
        taints.append({"key": each["key"], "value": each.get("value", ""), "effect": _EFFECTS[each["effect"]]})
    return tuple({(each["key"], each["effect"]): each for each in taints}.values())


def _reserved_cpu(vcpus: int) -> int:
    """Milli-CPUs: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest."""
    return round(_tiered(vcpus, ((1, 60), (1, 10), (2, 5), (math.inf, 2.5))))


def _reserved_memory(mib: int) -> int:
    """MiB: 25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % up to 128, 2 % beyond, and 100 MiB."""
    gib = 1024
    tiers = ((4 * gib, 0.25), (4 * gib, 0.20), (8 * gib, 0.10), (112 * gib, 0.06), (math.inf, 0.02))
    return round(100 + _tiered(mib, tiers))


def _reserved_disk(mb: int) -> int:
    """MB: a tenth for eviction, and half of the disk or 6 GB and 35 %, whichever is less, up to 100 GB."""
    return round(mb * 0.1 + min(mb * 0.5, 6000 + mb * 0.35, 100_000))


def _tiered(amount: float, tiers: Iterable[tuple[float, float]]) -> float:
    """The sum over consecutive tiers (width, share) of what falls into each, times its share."""
    total = 0.0
    for width, share in tiers:
        total += min(amount, width) * share
        amount = max(amount - width, 0)
    return total


@dataclass(frozen=True)
class NodeSpec:
    """One Node to be: what makes it differ from others. `slice_hosts` is the number of hosts of its slice."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    provider_id: str
    slice_hosts: int = 1

    @property
    def slice(self) -> str:
        """Equal for all hosts of one slice."""
        return self.labels[POOL_LABEL] if self.slice_hosts > 1 else self.name

    @property
    def chips(self) -> int:
        return int(self.labels.get(CHIPS_LABEL, 0))

    @property
    def managed(self) -> str:
        return json.dumps({"labels": dict(self.labels), "taints": [dict(each) for each in self.taints]}, sort_keys=True)


def pool_nodes(pool: Pool, cluster: ClusterRef) -> list[NodeSpec]:
    """The nodes of a pool at its present size in each zone, without those that are lost."""
    nodes = []
    for zone, index in itertools.product(pool.zones, range(pool.size)):
        name = node_name(cluster, pool.name, zone, index)
        if name in pool.lost:
            continue
        region = zone.rpartition("-")[0]
        place = {
            "kubernetes.io/hostname": name,
            "topology.gke.io/zone": zone,
            "topology.kubernetes.io/zone": zone,
            "topology.kubernetes.io/region": region,
        }
        provider = f"gce://{cluster.project}/{zone}/{name}"
        labels = {**pool.labels, **place}
        nodes.append(NodeSpec(name, labels, pool.taints, pool.capacity, pool.allocatable, provider, pool.hosts))
    return nodes


class Hosts(Protocol):
    """Real hosts, for Nodes that kwok does not answer for."""

    def accept(self, spec: NodeSpec) -> bool:
        """Whether a new Node is to be real."""

    def has(self, name: str) -> bool:
        """Whether a Node has a host."""

    def begin(self, spec: NodeSpec) -> None:
        """Starts the host of a Node."""

    def end(self, name: str) -> None:
        """Ends the host of a Node; for other names nothing happens."""


class Nodes:
    """Keeps the Node objects of one cluster equal to a wanted list."""

    def __init__(self, client: ApiClient, hosts: Hosts | None = None) -> None:
        self._client = client
        self._hosts = hosts

    def reconcile(self, wanted: Iterable[NodeSpec]) -> None:
        """Adds, relabels and removes Nodes; removal takes the pods on them along, as a deleted machine does."""
        specs = {each.name: each for each in wanted}
        present = {each["metadata"]["name"]: each for each in self._managed_nodes()}
        for name in present.keys() - specs.keys():
            if self._hosts:
                self._hosts.end(name)
            remove_node(self._client, present[name])
        for name, spec in specs.items():
            if name not in present:
                self._add(spec)
                continue
            self._find_who_answers(present[name], spec)
            if present[name]["metadata"]["annotations"][_MANAGED] != spec.managed:
                self._client.patch(present[name], _relabelling(present[name], spec))

    def _add(self, spec: NodeSpec) -> None:
        if self._hosts and self._hosts.accept(spec):
            self._client.create(_real_node(spec), "kubelet")
            self._hosts.begin(spec)
        else:
            self._client.create(_node(spec), "kubelet")

    def _find_who_answers(self, node: Object, spec: NodeSpec) -> None:
        """After a restart of the cluster the hosts of its real Nodes are gone: they begin again, or kwok takes over."""
        if FAKE_NODE.items() <= node["metadata"]["annotations"].items() or (self._hosts and self._hosts.has(spec.name)):
            return
        if self._hosts and self._hosts.accept(spec):
            self._hosts.begin(spec)
        else:
            self._client.patch(node, {"metadata": {"annotations": FAKE_NODE}})

    def _managed_nodes(self) -> list[Object]:
        nodes = self._client.list_all("v1", "Node")
        return [each for each in nodes if _MANAGED in each["metadata"].get("annotations", {})]


def remove_node(client: ApiClient, node: Object) -> None:
    """Removes a Node and the pods on it, as a deleted machine does."""
    client.delete(node)
    remove_pods(client, node["metadata"]["name"])


def remove_pods(client: ApiClient, node: str) -> None:
    """Removes the pods of a node that nobody can stop any more, as the controller manager's garbage collector of pods
    does a minute later: first each counts as failed, because a Job may wait for that before it ends or replaces one."""
    for pod in client.list_all("v1", "Pod", fieldSelector=f"spec.nodeName={node}"):
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            _fail(client, pod)
        client.delete(pod, grace_seconds=0)


def _fail(client: ApiClient, pod: Object) -> None:
    why = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    status = {"phase": "Failed", "conditions": [{**why, "message": "PodGC: node no longer exists"}]}
    try:
        client.patch(pod, {"status": status}, "strategic", subresource="status")
    except ApiError as error:
        if error.status != 404:  # it is gone already
            raise


def node_info(os_image: str, version: str, system_uuid: str = "") -> Object:
    """A Node's status.nodeInfo; `version` is the kubelet's, "v1.36.3"."""
    return {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "osImage": os_image,
        "kubeletVersion": version,
        "kubeProxyVersion": version,
        "containerRuntimeVersion": "containerd://2.0",
        "kernelVersion": "kwok",
        "machineID": "",
        "systemUUID": system_uuid,
        "bootID": "",
    }


def _node(spec: NodeSpec) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": spec.name,
            "labels": dict(spec.labels),
            "annotations": {**FAKE_NODE, _MANAGED: spec.managed},
        },
        "spec": {"taints": [dict(each) for each in spec.taints], "providerID": spec.provider_id},
        "status": {
            "capacity": dict(spec.capacity),
            "allocatable": dict(spec.allocatable),
            "nodeInfo": node_info("Container-Optimized OS from Google", f"v{KUBERNETES_VERSION}"),
        },
    }


def _real_node(spec: NodeSpec) -> Object:
    """What a kubelet finds when it comes up. What its machine has, its device plugin's chips too, it says itself."""
    node = _node(spec)
    node["metadata"]["annotations"] = {_MANAGED: spec.managed}
    del node["status"]
    return node


def _relabelling(node: Object, spec: NodeSpec) -> Object:
    """A merge patch that leaves labels of other writers alone."""
    before = json.loads(node["metadata"]["annotations"][_MANAGED])["labels"]
    gone = dict.fromkeys(before.keys() - spec.labels.keys())
    return {
        "metadata": {"labels": {**spec.labels, **gone}, "annotations": {_MANAGED: spec.managed}},
        "spec": {"taints": [dict(each) for each in spec.taints]},
    }
