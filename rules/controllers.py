"""Whether the nodes of the platform's controllers are large enough for them."""

from collections.abc import Iterator

from plan.controller_sizes import kueue_size
from plan.cpu_machines import default_machine, memory_for_pods_mib, memory_mib
from plan.platform import Platform
from rules.registry import PLATFORM, Finding

DAEMONS_MIB = 768
"""What GKE's own DaemonSets ask for on every node, rounded up."""

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
    needed = kueue_size(platform.most_nodes).memory_mib
    room = _room(pool.machine_type)
    if room is None or room >= needed:
        return
    family = default_machine(platform.zone).partition("-")[0]
    machines = [f"{family}-standard-{cpus}" for cpus in LARGER] + list(LARGEST)
    fitting = next((each for each in machines if (_room(each) or 0) >= needed), machines[-1])
    yield Finding(
        "cluster.system_pool.machine_type",
        f"{platform.most_nodes} nodes at most: Kueue asks for {needed:,} MiB, and {pool.machine_type} has {room:,} MiB "
        "for it",
        f"write {fitting}, or another with as much memory",
    )


def _room(machine_type: str) -> int | None:
    """MiB for a controller on a node of its own; None where nobody knows."""
    memory = memory_mib(machine_type)
    return None if memory is None else memory_for_pods_mib(memory) - DAEMONS_MIB
