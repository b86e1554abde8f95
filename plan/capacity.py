"""Capacity models: everything that each of them determines, on GKE and without it.

One object for each model. No field has a default, so a model that lacks one is an error at import. Sources: GKE
documentation; waits from GKE's autoscaler (`gke_cloud_provider_impl.go`); flex-start settings as
GoogleCloudPlatform/cluster-toolkit ships them; gke-labs/tpu-operator converters; Compute Engine documentation, bulk
mode; terraform-provider-google acceptance tests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from platform_config.capacity import MODELS, AnyCapacity, Reservation

FLEX_SECONDS = 7 * 86400
"""The longest time that a flex-start host runs."""
RESERVATION_KEY = "compute.googleapis.com/reservation-name"


@dataclass(frozen=True)
class ReservationAffinity:
    """The reservation affinity of hosts; set on every group of TPU hosts, also without a reservation."""

    type: str
    key: str | None = None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OnGke:
    """What a capacity model determines for node pools.

    `wait`: longest wait for hosts, in words; `wait_hours`: how long GKE keeps trying, so how long it may take to create
    a pool with hosts. `always_autoscaled`: pools start without hosts, and GKE adds them.
    """

    spot: bool
    flex_start: bool
    queued: bool
    always_autoscaled: bool
    auto_repair: bool
    wait: str
    wait_hours: int


@dataclass(frozen=True, kw_only=True)
class OnCompute:
    """What a capacity model determines for hosts that are not GKE's, in the Compute API's terms.

    `restart`: automatic restart after host errors. `termination`: action on a host that is preempted or reaches its run
    limit. `up_waits`: whether an update waits for the hosts; `wait`: longest wait for hosts, in words.
    """

    provisioning_model: str
    restart: bool
    termination: str | None
    up_waits: bool
    wait: str


@dataclass(frozen=True)
class OnlyOnGke:
    """Why a capacity model does not exist without GKE."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class CapacityModel:
    """One capacity model.

    - `affinities`: one for all hosts, or one for each sub-block of a reservation
    - `begun`: whether the capacity is available already; false for a reservation that has not begun
    - `run_limit`: after how long hosts are deleted, in seconds such as `3600s`
    - `bulk_disputed`: whether Google's documents disagree on bulk creation of hosts without GKE
    - `dws`: whether the Dynamic Workload Scheduler provides the hosts; it does not serve every generation
    - `quota`: which of a generation's quotas hosts use; None where the reservation has used it already
    - `spot_price`: whether hosts cost the spot price
    """

    name: str
    affinities: Callable[[Any], tuple[ReservationAffinity, ...]]
    begun: Callable[[Any], bool]
    run_limit: Callable[[Any], str | None]
    bulk_disputed: bool
    dws: bool
    quota: Literal["on_demand", "preemptible"] | None
    spot_price: bool
    gke: OnGke
    compute: OnCompute | OnlyOnGke


def _unreserved(_capacity: AnyCapacity) -> tuple[ReservationAffinity, ...]:
    return (ReservationAffinity("NO_RESERVATION"),)


def _reserved(capacity: Reservation) -> tuple[ReservationAffinity, ...]:
    value = f"projects/{capacity.project}/reservations/{capacity.name}" if capacity.project else capacity.name
    if capacity.block:
        value += f"/reservationBlocks/{capacity.block}"
    values = [f"{value}/reservationSubBlocks/{sub_block}" for sub_block in capacity.sub_block] or [value]
    return tuple(ReservationAffinity("SPECIFIC_RESERVATION", RESERVATION_KEY, (value,)) for value in values)


def _always(_capacity: AnyCapacity) -> bool:
    return True


UP_TO_AN_HOUR = "up to an hour, then `up` fails and can be repeated"
IF_FREE = "minutes if the reservation is free"

ON_DEMAND = CapacityModel(
    name="on-demand",
    affinities=_unreserved,
    begun=_always,
    run_limit=lambda capacity: capacity.max_run_duration,
    bulk_disputed=True,
    dws=False,
    quota="on_demand",
    spot_price=False,
    gke=OnGke(
        spot=False,
        flex_start=False,
        queued=False,
        always_autoscaled=False,
        auto_repair=True,
        wait="up to 10 h",
        wait_hours=10,
    ),
    compute=OnCompute(provisioning_model="STANDARD", restart=True, termination=None, up_waits=True, wait=UP_TO_AN_HOUR),
)
SPOT = CapacityModel(
    name="spot",
    affinities=_unreserved,
    begun=_always,
    run_limit=lambda capacity: capacity.max_run_duration,
    bulk_disputed=True,
    dws=False,
    quota="preemptible",
    spot_price=True,
    gke=OnGke(
        spot=True,
        flex_start=False,
        queued=False,
        always_autoscaled=False,
        auto_repair=True,
        wait="up to 10 h",
        wait_hours=10,
    ),
    compute=OnCompute(provisioning_model="SPOT", restart=False, termination="STOP", up_waits=True, wait=UP_TO_AN_HOUR),
)
RESERVATION = CapacityModel(
    name="reservation",
    affinities=_reserved,
    begun=lambda capacity: capacity.active,
    run_limit=lambda _capacity: None,
    bulk_disputed=False,
    dws=False,
    quota=None,
    spot_price=False,
    gke=OnGke(
        spot=False,
        flex_start=False,
        queued=False,
        always_autoscaled=False,
        auto_repair=True,
        wait=IF_FREE,
        wait_hours=10,
    ),
    compute=OnCompute(
        provisioning_model="RESERVATION_BOUND", restart=True, termination="DELETE", up_waits=True, wait=IF_FREE
    ),
)
FLEX_START = CapacityModel(
    name="flex-start",
    affinities=_unreserved,
    begun=_always,
    run_limit=lambda capacity: capacity.max_run_duration,
    bulk_disputed=False,
    dws=True,
    quota="preemptible",
    spot_price=False,
    gke=OnGke(
        spot=False,
        flex_start=True,
        queued=False,
        always_autoscaled=True,
        auto_repair=False,
        wait="15 min, then asks again",
        wait_hours=1,
    ),
    compute=OnCompute(
        provisioning_model="FLEX_START",
        restart=False,
        termination="DELETE",
        up_waits=False,
        wait="as long as it takes; `up` does not wait",
    ),
)
QUEUED = CapacityModel(
    name="queued",
    affinities=_unreserved,
    begun=_always,
    run_limit=lambda capacity: capacity.max_run_duration,
    bulk_disputed=False,
    dws=True,
    quota="preemptible",
    spot_price=False,
    gke=OnGke(
        spot=False,
        flex_start=True,
        queued=True,
        always_autoscaled=True,
        auto_repair=False,
        wait="up to 365 days",
        wait_hours=365 * 24,
    ),
    compute=OnlyOnGke("needs GKE, whose autoscaler makes hosts when Kueue asks for them"),
)

CAPACITY_MODELS = {model.name: model for model in (ON_DEMAND, SPOT, RESERVATION, FLEX_START, QUEUED)}
"""By name."""

if CAPACITY_MODELS.keys() != MODELS.keys():
    raise AssertionError("platform_config and plan do not have the same capacity models")


def model_of(capacity: AnyCapacity) -> CapacityModel:
    """The capacity model that a person wrote."""
    return CAPACITY_MODELS[capacity.model]


def scheduling(model: CapacityModel) -> OnCompute:
    """How hosts of a model are created without GKE; a rule refuses models that only GKE has."""
    assert isinstance(model.compute, OnCompute)
    return model.compute
