"""Queues: what a person writes about who may use which slices."""

from typing import Annotated, Literal

from pydantic import Field

from spec.model import Count, Flag, Model, Name

SliceCounts = dict[Name, Count]
"""Slices by the name of their group."""


class Queue(Model):
    """A queue that teams submit to: its own share of the slices, and what it may take from or give to its cohort."""

    namespaces: Annotated[
        tuple[Name, ...], Field(min_length=1, description="Namespaces whose workloads this queue takes.")
    ]
    slices: Annotated[
        SliceCounts, Field(min_length=1, description="Slices that are the queue's own; 0: only by borrowing.")
    ]
    cohort: Annotated[
        Name | None, Field(description="Queues of one cohort use each other's idle slices; the platform's if unset.")
    ] = None
    borrow: Annotated[
        Flag | SliceCounts, Field(description="Use idle slices of the cohort: all, none, or up to so many.")
    ] = False
    lend: Annotated[
        Flag | SliceCounts, Field(description="Let the cohort use idle slices: all, none, or up to so many.")
    ] = True
    weight: Annotated[float, Field(ge=0, description="Share of idle slices against other queues of the cohort.")] = 1
    strategy: Annotated[
        Literal["BestEffortFIFO", "StrictFIFO"],
        Field(description="Whether a workload that does not fit holds up newer ones (StrictFIFO)."),
    ] = "BestEffortFIFO"
    preempt: Annotated[
        Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"],
        Field(description="Which workloads of the same queue a waiting one may push out."),
    ] = "LowerPriority"


class Cohort(Model):
    """A cohort in a tree of cohorts."""

    parent: Annotated[Name | None, Field(description="The cohort it borrows from in turn.")] = None
    weight: Annotated[float, Field(ge=0, description="Share against its siblings.")] = 1
