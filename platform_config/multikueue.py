"""MultiKueue in the stack file: one queue in front of several clusters.

A manager runs nothing itself: its queues have quota for slices of its workers, and Kueue sends an admitted job to the
first worker whose queue of the same name admits it too. Upstream: Kueue v0.19 `apis/kueue/v1beta2` and
`pkg/controller/admissionchecks/multikueue`.
"""

from typing import Annotated, Literal

from platform_config.fields import Model, Name, text
from platform_config.slice import Slice

MOST_WORKERS = 20

REMOTE_KEYS = frozenset({"machine_type", "generation", "topology", "chips", "count", "capacity", "devices", "taints"})
"""Keys of a slice that determine its flavor and quota; the others are for node pools, which workers create."""

_STACK_CHECK, _STACK_SCHEMA = text(
    "[^/ ]+/[^/ ]+/[^/ ]+", "the full name of a stack", "ORGANIZATION/PROJECT/STACK, as pulumi stack ls -a shows it"
)


class Worker(Model):
    """A cluster that a manager sends work to: its stack, or an existing Secret."""

    stack: Annotated[str, _STACK_CHECK, _STACK_SCHEMA] | None = None
    """Stack of the worker, as ORGANIZATION/PROJECT/STACK."""
    secret: Name | None = None
    """Secret in kueue-system with a kubeconfig of the worker under the key kubeconfig."""


class MultiKueue(Model):
    """The platform's role in MultiKueue: a manager sends work, a worker runs it."""

    role: Literal["manager", "worker"]
    """Role of the platform."""
    workers: dict[Name, Worker] = {}
    """Manager: the clusters to send work to, by a name of your choice."""
    slices: dict[Name, Slice] = {}
    """Manager: slices of all workers together, for its queues; shape, count, capacity and devices only."""
    token: Name = "token"
    """Worker: name of the manager's token; a new name creates a new token and ends the old one."""
