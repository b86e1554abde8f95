"""MultiKueue: one queue in front of several clusters. What a person writes, and what the clusters must agree on.

A manager runs nothing itself: its queues hold quota for slices of its workers, and Kueue hands an admitted job to the
first worker whose queue of the same name admits it too. Upstream: Kueue v0.19 `apis/kueue/v1beta2` and
`pkg/controller/admissionchecks/multikueue`.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from spec.model import Model, Name, text
from spec.slice import Slice

if TYPE_CHECKING:
    from spec.platform import Platform

CHECK = "multikueue"
"""Name of the admission check, and of the MultiKueueConfig that lists the workers."""

STACK_OUTPUT = "multikueue"
"""Output of a worker's stack: the kubeconfig for its manager, a secret."""

QUEUES_OUTPUT = "queues"
"""Output of every stack: its queues by name, each with its `namespaces`."""

ACCOUNT = "multikueue-manager"
"""ServiceAccount in a worker's cluster that its manager works with."""

MOST_WORKERS = 20

REMOTE_KEYS = frozenset({"machine_type", "generation", "topology", "chips", "count", "capacity", "devices", "taints"})
"""Keys of a slice that decide its flavor and quota; the others are about node pools, which the worker's stack makes."""

_STACK_CHECK, _STACK_SCHEMA = text(
    "[^/ ]+/[^/ ]+/[^/ ]+", "the full name of a stack", "ORGANIZATION/PROJECT/STACK, as pulumi stack ls -a shows it"
)


class Worker(Model):
    """A cluster that a manager hands work to; give its stack, or a Secret that exists."""

    stack: Annotated[str, _STACK_CHECK, _STACK_SCHEMA] | None = None
    """Stack of the worker, as ORGANIZATION/PROJECT/STACK."""
    secret: Name | None = None
    """Secret in kueue-system with a kubeconfig of the worker under the key kubeconfig."""


class MultiKueue(Model):
    """The platform's part in MultiKueue: a manager hands work out, a worker takes it."""

    role: Literal["manager", "worker"]
    """What the platform is."""
    workers: dict[Name, Worker] = {}
    """Manager: the clusters to hand work to, by a name of your choice."""
    slices: dict[Name, Slice] = {}
    """Manager: slices of all workers together, to be shared out by queues; shape, count, capacity and devices only."""
    token: Name = "token"
    """Worker: name of the manager's token; another name makes another token and ends the old one."""


def mismatches(platform: "Platform", worker: str, exported: Mapping[str, Any]) -> Iterator[str]:
    """What keeps a worker from taking the manager's work, in words; `exported` is the worker's `queues` output.

    Kueue copies a job to the namespace and LocalQueue of the same name; where they lack, the copy waits for ever.
    """
    for name, queue in sorted(platform.queues.items()):
        if name not in exported:
            yield f"worker {worker} has no queue {name}: it has {', '.join(sorted(exported)) or 'none'}"
            continue
        taken = exported[name]["namespaces"]
        lacking = [namespace for namespace in queue.namespaces if namespace not in taken]
        if lacking:
            yield f"queue {name} of worker {worker} takes no work from {', '.join(lacking)}: only {', '.join(taken)}"
