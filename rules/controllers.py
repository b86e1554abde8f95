"""Whether the nodes of the platform's controllers are large enough for them."""

from collections.abc import Iterator, Sequence

from plan import queue_metrics
from plan.controller_sizes import KUEUE_REPLICAS, ON_EVERY_NODE_MIB, jobset_size, kueue_size, lws_size
from plan.cpu_machines import default_machine, memory_for_pods_mib, memory_mib
from plan.platform import Platform
from rules.registry import PLATFORM, Finding

LARGER = (8, 16, 32)
LARGEST = ("n2-highmem-32", "n2-highmem-64", "n2-highmem-96")


@PLATFORM.rule(
    "controllers-fit",
    reason="Kueue's pods ask for more memory the more nodes the cluster may have. A pod that fits on no node waits for "
    "ever, and without Kueue no job starts.",
    source="AI-Hypercomputer/xpk utils/kueue.py; GKE documentation, node sizes",
)
def controllers_fit(platform: Platform) -> Iterator[Finding]:
    pool = platform.system_pool
    if pool is None or not platform.installs("kueue"):
        return
    pods = _memory_of_controllers(platform)
    room = _room(pool.machine_type)
    if room is None or _fit(pods, room, pool.max_nodes):
        return
    family = default_machine(platform.zone).partition("-")[0]
    machines = [f"{family}-standard-{cpus}" for cpus in LARGER] + list(LARGEST)
    fitting = next((each for each in machines if _fit(pods, _room(each) or 0, pool.max_nodes)), machines[-1])
    yield Finding(
        "cluster.system_pool.machine_type",
        f"{platform.most_nodes} nodes at most: Kueue asks for {max(pods):,} MiB in each of {KUEUE_REPLICAS} pods, and "
        f"all controllers for {sum(pods):,} MiB. The pool has at most {pool.max_nodes} nodes, and {pool.machine_type} "
        f"has {room:,} MiB for them",
        f"write {fitting}, or another with as much memory",
    )


def _memory_of_controllers(platform: Platform) -> list[int]:
    """MiB that each pod on the system pool asks for."""
    nodes = platform.most_nodes
    sizes = [kueue_size(nodes)] * KUEUE_REPLICAS
    if platform.installs("jobset"):
        sizes.append(jobset_size(nodes))
    if platform.installs("lws"):
        sizes.append(lws_size())
    if queue_metrics.installed(platform):
        sizes.append(queue_metrics.SIZE)
    return [size.memory_mib for size in sizes]


def _room(machine_type: str) -> int | None:
    """MiB for controllers on a node; None where nobody knows."""
    memory = memory_mib(machine_type)
    return None if memory is None else memory_for_pods_mib(memory) - ON_EVERY_NODE_MIB


def _fit(pods: Sequence[int], room: int, nodes: int) -> bool:
    """Whether all pods have a place on so many nodes, the largest placed first."""
    left = [room] * nodes
    for pod in sorted(pods, reverse=True):
        node = next((node for node, free in enumerate(left) if free >= pod), None)
        if node is None:
            return False
        left[node] -= pod
    return True
