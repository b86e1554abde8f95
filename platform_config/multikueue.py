"""MultiKueue as it is written: one queue in front of several clusters.

A manager runs nothing itself: its queues hold quota for slices of its workers, and Kueue hands an admitted job to the
first worker whose queue of the same name admits it too. Upstream: Kueue v0.19 `apis/kueue/v1beta2` and
`pkg/controller/admissionchecks/multikueue`.
"""

from typing import Annotated, Literal

from platform_config.fields import Model, Name, text
from platform_config.slice import Slice

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
