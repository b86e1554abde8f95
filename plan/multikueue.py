"""Names that the clusters of a MultiKueue share, and the check that their queues match."""

from collections.abc import Iterator, Mapping
from typing import Any

from plan.platform import Platform

CHECK = "multikueue"
"""Name of the admission check, and of the MultiKueueConfig that lists the workers."""

STACK_OUTPUT = "multikueue"
"""Output of a worker's stack: the kubeconfig for its manager, a secret."""

QUEUES_OUTPUT = "queues"
"""Output of every stack: its queues by name, each with its `namespaces`."""

ACCOUNT = "multikueue-manager"
"""ServiceAccount that the manager uses in a worker's cluster."""


def mismatches(platform: Platform, worker: str, exported: Mapping[str, Any]) -> Iterator[str]:
    """Messages why a worker cannot take the manager's work; `exported` is the worker's `queues` output.

    Kueue copies a job to the namespace and LocalQueue of the same name. If one does not exist, the copy waits forever.
    """
    for name, queue in sorted(platform.queues.items()):
        if name not in exported:
            yield f"worker {worker} has no queue {name}: it has {', '.join(sorted(exported)) or 'none'}"
            continue
        taken = exported[name]["namespaces"]
        lacking = [namespace for namespace in queue.namespaces if namespace not in taken]
        if lacking:
            yield f"queue {name} of worker {worker} takes no work from {', '.join(lacking)}: only {', '.join(taken)}"
