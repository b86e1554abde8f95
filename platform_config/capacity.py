"""Capacity models in the stack file: how the hosts of a slice are obtained. `plan.capacity` has their effects."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from platform_config.fields import Day, Duration, Flag, Model, Project, refusal, shown, text

_PART_CHECK, _PART_SCHEMA = text(
    "[a-z]([-a-z0-9]{0,61}[a-z0-9])?", "a resource name", "the bare name, for example my-res"
)
ResourceName = Annotated[str, _PART_CHECK, _PART_SCHEMA]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class OnDemand(Model):
    """Hosts at list price, kept until deleted."""

    model: Literal["on-demand"]
    """Which capacity model this is."""
    max_run_duration: Duration | None = None
    """Hosts are deleted after this time, as a guard against forgotten slices."""


class Spot(Model):
    """Cheaper hosts that Google takes back with some 30 seconds' notice."""

    model: Literal["spot"]
    """Which capacity model this is."""
    max_run_duration: Duration | None = None
    """Hosts are deleted after this time, as a guard against forgotten slices."""


class Reservation(Model):
    """Hosts of a reservation, also a calendar or future one: referenced by name, never changed."""

    model: Literal["reservation"]
    """Which capacity model this is."""
    name: ResourceName
    """Name of the reservation, in the platform's zone."""
    project: Project | None = None
    """Project that owns a shared reservation; own project if unset."""
    block: ResourceName | None = None
    """Block of the reservation to stay in."""
    sub_block: Annotated[
        tuple[ResourceName, ...],
        BeforeValidator(_listed, json_schema_input_type=str | list[str]),
    ] = ()
    """Sub-block of the block: one name for all slices, or a list with one for each."""
    active: Flag = True
    """False while a future reservation has not begun: pools exist, without hosts."""
    ends: Day | None = None
    """Day on which a calendar reservation ends and takes its hosts."""
    maintenance: Literal["AS_NEEDED", "PERIODIC"] = "AS_NEEDED"
    """How the reservation schedules host maintenance."""


class FlexStart(Model):
    """Hosts from the Dynamic Workload Scheduler for at most seven days. GKE requests them when pods wait for them."""

    model: Literal["flex-start"]
    """Which capacity model this is."""
    max_run_duration: Duration = "604800s"
    """Hosts are deleted after this time; at most 7d."""


class Queued(Model):
    """Flex-start with queued provisioning: Kueue asks for a whole slice and waits as long as it takes. GKE only."""

    model: Literal["queued"]
    """Which capacity model this is."""
    max_run_duration: Duration = "604800s"
    """Hosts are deleted after this time; at most 7d."""


AnyCapacity = OnDemand | Spot | Reservation | FlexStart | Queued
WRITTEN: tuple[type[AnyCapacity], ...] = get_args(AnyCapacity)
"""Every capacity model there is."""
MODELS: dict[str, type[AnyCapacity]] = {get_args(each.model_fields["model"].annotation)[0]: each for each in WRITTEN}
"""Capacity models by name."""
Bare = Literal["on-demand", "spot", "flex-start", "queued"]
"""Models that need no further settings."""


def _longhand(value: object) -> object:
    """`capacity: spot` stands for `capacity: {model: spot}`."""
    if not isinstance(value, str | dict | AnyCapacity):
        models = ", ".join(MODELS)
        raise refusal(f"{shown(value)} is not a capacity model", f"write one of {models}; or leave capacity out")
    return {"model": value} if isinstance(value, str) else value


Capacity = Annotated[
    AnyCapacity, Field(discriminator="model"), BeforeValidator(_longhand, json_schema_input_type=Bare | AnyCapacity)
]
"""One capacity model, as a mapping with `model`, or as the bare name of a model that needs nothing else."""
