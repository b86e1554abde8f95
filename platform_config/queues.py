"""Queues in the stack file: who may use which slices."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from platform_config.fields import Count, Flag, Model, Name

SliceCounts = dict[Name, Count]
"""Slices by the name of their group."""

DEFAULT_QUEUE = "default"
"""Name of a namespace's LocalQueue that gets the jobs that name none (Kueue's LocalQueueDefaulting)."""


Weight = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]
"""A share relative to other queues or cohorts."""


def _limit_kind(value: object) -> str | None:
    """The form of a limit, as a tag that no path shows."""
    return {bool: "<all>", dict: "<counts>"}.get(type(value))


Limit = Annotated[
    Annotated[Flag, Tag("<all>")] | Annotated[SliceCounts, Tag("<counts>")],
    Discriminator(
        _limit_kind,
        custom_error_type="refused",
        custom_error_message="is neither true, false nor a mapping",
        custom_error_context={
            "message": "is neither true, false nor a number for each group of slices",
            "hint": "write true, false, or for example {train: 2}",
        },
    ),
]
"""All, none, or a number of slices for each group."""


class Queue(Model):
    """A queue that teams submit to: its own share of the slices, and what it may borrow from or lend to its cohort."""

    namespaces: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Namespaces whose workloads this queue takes."""
    slices: Annotated[SliceCounts, Field(min_length=1)]
    """Slices that are the queue's own; 0: only by borrowing."""
    cohort: Name | None = None
    """Queues of one cohort use each other's idle slices; the platform's if unset."""
    borrow: Limit = False
    """Use idle slices of the cohort: all, none, or a maximum for each group of slices."""
    lend: Limit = True
    """Let the cohort use idle slices: all, none, or a maximum for each group of slices."""
    weight: Weight = 1
    """Share of idle slices relative to other queues of the cohort."""
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Order of admission. With StrictFIFO a workload that does not fit blocks newer ones."""
    preempt: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Which workloads of the same queue a waiting one may preempt."""


class Cohort(Model):
    """A cohort in a tree of cohorts."""

    parent: Name | None = None
    """The cohort that this one borrows from."""
    weight: Weight = 1
    """Share relative to its siblings."""
