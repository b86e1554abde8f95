"""Controllers fit on the system pool as it is by default, also while an upgrade replaces one after the other."""

from __future__ import annotations

from itertools import product

import pytest

from plan import queue_metrics
from plan.charts import JOBSET, KUEUE, LWS, Chart
from plan.controller_sizes import ON_EVERY_NODE_MIB, Size, jobset_size, kueue_size, lws_size
from plan.cpu_machines import memory_for_pods_mib, memory_mib
from sandbox.google.machines import machine_type
from sandbox.kubernetes.nodes import Pool
from tests.platforms import SELF_MANAGED, load

# e2-standard-4, the default machine: GKE keeps 80 millicores and 3.2 GiB of 4 CPU and 16 GiB for itself (GKE
# documentation, plan node sizes), a kubelet of kubeadm less. 0.4 CPU and 1 GiB more are for pods that every node has.
CPU, MEMORY_MIB = 4 - 0.08 - 0.4, 16384 - 3277 - ON_EVERY_NODE_MIB
QUEUES = {"q": {"namespaces": ["a"], "slices": {"train": 1}}}


def fits(pods: list[Size]) -> bool:
    return sum(pod.cpu for pod in pods) <= CPU and sum(pod.memory_mib for pod in pods) <= MEMORY_MIB


def placements(pods: list[Size], hosts: int) -> list[list[list[Size]]]:
    """Every way in which all pods fit on that many hosts: which one the scheduler chose, nobody knows."""
    found = []
    for chosen in product(range(hosts), repeat=len(pods)):
        nodes = [[pod for pod, node in zip(pods, chosen, strict=True) if node == host] for host in range(hosts)]
        if all(map(fits, nodes)):
            found.append(nodes)
    return found


def surge(chart: Chart, cluster: dict[str, object]) -> int:
    """Pods beside the old ones while the chart's Deployment rolls; a quarter, rounded up, unless a value says less."""
    values = chart.values(load(cluster=cluster, queues=QUEUES))
    strategy = values.get("controllerManager", {}).get("strategy", {})
    return int(strategy.get("rollingUpdate", {}).get("maxSurge", 1))


@pytest.mark.parametrize("cluster", [{}, SELF_MANAGED], ids=["gke", "self-managed"])
@pytest.mark.parametrize(("chart", "size"), [(KUEUE, kueue_size), (JOBSET, jobset_size), (LWS, lambda _: lws_size())])
def test_an_upgrade_finds_room(cluster: dict[str, object], chart: Chart, size: object) -> None:
    """Helm waits for it, and the self-managed system pool does not grow: Kueue's third pod had no room."""
    platform = load(cluster=cluster, queues=QUEUES)
    assert platform.system_pool
    assert (platform.system_pool.machine_type, platform.system_pool.min_nodes) == ("e2-standard-4", 2)
    nodes = platform.most_nodes
    kueue = kueue_size(nodes)
    standing = [kueue, kueue, jobset_size(nodes), lws_size(), queue_metrics.SIZE]
    assert placements(standing, platform.system_pool.min_nodes)
    new = [size(nodes)] * surge(chart, cluster)  # type: ignore[operator]
    for hosts in placements(standing, platform.system_pool.min_nodes):
        assert all(any(fits([*host, pod]) for host in hosts) for pod in new), hosts


def test_kueue_keeps_a_replica_while_it_rolls() -> None:
    """Its webhooks refuse pods while none answers."""
    manager = KUEUE.values(load(queues=QUEUES))["controllerManager"]
    rolling = manager["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}
    assert manager["replicas"] - rolling["maxUnavailable"] >= manager["podDisruptionBudget"]["minAvailable"]


@pytest.mark.parametrize("name", ["e2-standard-4", "e2-standard-32", "n2-highmem-64"])
def test_what_a_node_has_for_pods_is_what_the_sandbox_gives_it(name: str) -> None:
    """Both have it from GKE's documentation, each by itself."""
    machine, memory = machine_type(name), memory_mib(name)
    assert machine
    assert memory == machine.memory_gb * 1024
    offered = Pool("system", machine, 1, ("us-east5-b",), {}, ()).allocatable["memory"]
    assert abs(int(offered.removesuffix("Mi")) - memory_for_pods_mib(memory)) <= 1
