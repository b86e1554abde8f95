"""Capacity models: how the hosts of a slice are obtained, and everything that decision settles.

A person picks one `model`; `BEHAVIOUR` is the one table of what follows for node pools (GKE documentation; waits from
GKE's autoscaler, `gke_cloud_provider_impl.go`; flex-start settings as GoogleCloudPlatform/cluster-toolkit ships them).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from spec.model import Day, Duration, Flag, Model, Project, refusal, shown, text

MAX_FLEX_SECONDS = 7 * 86400
RESERVATION_KEY = "compute.googleapis.com/reservation-name"

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
    """Hosts reserved beforehand, also by a calendar or future reservation: referenced by name, never changed."""

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
    """Hosts from the Dynamic Workload Scheduler for at most seven days, on GKE requested when pods wait for them."""

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
Bare = Literal["on-demand", "spot", "flex-start", "queued"]
"""Models that need no further settings."""


def _longhand(value: object) -> object:
    """`capacity: spot` stands for `capacity: {model: spot}`."""
    if not isinstance(value, str | dict | AnyCapacity):
        models = ", ".join(BEHAVIOUR)
        raise refusal(f"{shown(value)} is not a capacity model", f"write one of {models}; or leave capacity out")
    return {"model": value} if isinstance(value, str) else value


Capacity = Annotated[
    AnyCapacity, Field(discriminator="model"), BeforeValidator(_longhand, json_schema_input_type=Bare | AnyCapacity)
]
"""One capacity model, as a mapping with `model`, or as the bare name of a model that needs nothing else."""


@dataclass(frozen=True)
class Behaviour:
    """What a capacity model settles for its node pools.

    `wait`: how long hosts may be waited for, in words; `wait_hours`: how long GKE keeps trying, so how long creating a
    static pool may take. `always_autoscaled`: pools start without hosts and GKE adds them. `quota`: which of a
    generation's quotas the hosts count against; None where the reservation has used it already.
    """

    wait: str
    wait_hours: int
    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    always_autoscaled: bool = False
    auto_repair: bool = True
    quota: Literal["on_demand", "preemptible"] | None = "on_demand"


BEHAVIOUR: dict[str, Behaviour] = {
    "on-demand": Behaviour(wait="up to 10 h", wait_hours=10),
    "spot": Behaviour(wait="up to 10 h", wait_hours=10, spot=True, quota="preemptible"),
    "reservation": Behaviour(wait="minutes if the reservation is free", wait_hours=10, quota=None),
    "flex-start": Behaviour(
        wait="15 min, then asks again",
        wait_hours=1,
        flex_start=True,
        always_autoscaled=True,
        auto_repair=False,
        quota="preemptible",
    ),
    "queued": Behaviour(
        wait="up to 365 days",
        wait_hours=365 * 24,
        flex_start=True,
        queued=True,
        always_autoscaled=True,
        auto_repair=False,
        quota="preemptible",
    ),
}


@dataclass(frozen=True)
class Scheduling:
    """What a capacity model settles for hosts that are not GKE's, in the Compute API's words.

    `wait`: whether an update waits for the hosts; `words`: how long that may take. `restart`: automatic restart after
    host errors. `termination`: what becomes of a host that is taken back or has run its time.
    """

    provisioning_model: str
    restart: bool
    termination: str | None
    wait: bool
    words: str


SCHEDULING: dict[str, Scheduling] = {
    "on-demand": Scheduling("STANDARD", True, None, True, "up to an hour, then `up` fails and can be repeated"),
    "spot": Scheduling("SPOT", False, "STOP", True, "up to an hour, then `up` fails and can be repeated"),
    "reservation": Scheduling("RESERVATION_BOUND", True, "DELETE", True, "minutes if the reservation is free"),
    "flex-start": Scheduling("FLEX_START", False, "DELETE", False, "as long as it takes; `up` does not wait"),
}
"""By capacity model; one that is not here is GKE's alone (gke-labs/tpu-operator converters; Compute Engine
documentation, bulk mode; terraform-provider-google acceptance tests)."""
