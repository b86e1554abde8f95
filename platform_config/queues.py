"""Queues: what a person writes about who may use which slices."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from platform_config.fields import Count, Flag, Model, Name

SliceCounts = dict[Name, Count]
"""Slices by the name of their group."""

DEFAULT_QUEUE = "default"
"""Where a namespace has a LocalQueue of this name, Kueue gives it the jobs that name none (LocalQueueDefaulting)."""


Weight = Annotated[float, Field(strict=True, ge=0, le=1_000_000, allow_inf_nan=False)]
"""A share against other queues or cohorts."""


def _limit_kind(value: object) -> str | None:
    """Which form a limit has; the name of a form stands in no path."""
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
"""All, none, or as many slices of each group as said."""


class Queue(Model):
    """A queue that teams submit to: its own share of the slices, and what it may take from or give to its cohort."""

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
    """Share of idle slices against other queues of the cohort."""
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit holds up newer ones (StrictFIFO)."""
    preempt: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Which workloads of the same queue a waiting one may push out."""


class Cohort(Model):
    """A cohort in a tree of cohorts."""

    parent: Name | None = None
    """The cohort it borrows from in turn."""
    weight: Weight = 1
    """Share against its siblings."""
