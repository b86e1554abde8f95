"""Queues: what a person writes about who may use which slices."""

from typing import Annotated, Literal

from pydantic import Field

from spec.model import Count, Flag, Model, Name

SliceCounts = dict[Name, Count]
"""Slices by the name of their group."""


class Queue(Model):
    """A queue that teams submit to: its own share of the slices, and what it may take from or give to its cohort."""

    namespaces: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Namespaces whose workloads this queue takes."""
    slices: Annotated[SliceCounts, Field(min_length=1)]
    """Slices that are the queue's own; 0: only by borrowing."""
    cohort: Name | None = None
    """Queues of one cohort use each other's idle slices; the platform's if unset."""
    borrow: Flag | SliceCounts = False
    """Use idle slices of the cohort: all, none, or up to so many."""
    lend: Flag | SliceCounts = True
    """Let the cohort use idle slices: all, none, or up to so many."""
    weight: Annotated[float, Field(ge=0)] = 1
    """Share of idle slices against other queues of the cohort."""
    strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """Whether a workload that does not fit holds up newer ones (StrictFIFO)."""
    preempt: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Which workloads of the same queue a waiting one may push out."""


class Cohort(Model):
    """A cohort in a tree of cohorts."""

    parent: Name | None = None
    """The cohort it borrows from in turn."""
    weight: Annotated[float, Field(ge=0)] = 1
    """Share against its siblings."""
