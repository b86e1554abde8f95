"""What the capacity of a slice may be: models, run times, reservations."""

from collections.abc import Iterator

from plan.capacity import CAPACITY_MODELS, FLEX_SECONDS, model_of
from plan.provisioning import provisioning_of
from platform_config.capacity import Reservation
from platform_config.fields import duration_shown
from rules.registry import SLICE, Finding, SliceView

SHORTEST_RUN, LONGEST_RUN = 30, 120 * 86400
"""Seconds that Compute Engine lets a machine run, where it is limited."""


@SLICE.rule(
    "dws-generation",
    reason="The Dynamic Workload Scheduler does not serve v4.",
    source="cluster-autoscaler deprecated_machine_types_config.go",
)
def dws_generation(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if model_of(capacity).dws and not view.shape.generation.dws:
            yield Finding(
                f"{path}.model",
                f"{capacity.model} is not available for {view.shape.generation.name}",
                "use on-demand, spot or reservation",
            )


@SLICE.rule(
    "dws-duration",
    reason="Hosts of the Dynamic Workload Scheduler run for at most seven days.",
    source="GKE documentation, flex-start",
)
def dws_duration(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        model = model_of(capacity)
        given = model.run_limit(capacity)
        if given and model.dws and int(given[:-1]) > FLEX_SECONDS:
            yield Finding(
                f"{path}.max_run_duration",
                f"{duration_shown(given)} is longer than seven days, the longest time for {capacity.model} hosts",
                "write 7d or less",
            )


@SLICE.rule(
    "run-duration",
    reason="Compute Engine allows a run time limit of 30 seconds to 120 days.",
    source="Compute Engine documentation, limit the run time of a VM",
)
def run_duration(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        given = model_of(capacity).run_limit(capacity)
        if given and not SHORTEST_RUN <= int(given[:-1]) <= LONGEST_RUN:
            yield Finding(
                f"{path}.max_run_duration",
                f"{duration_shown(given)} is not possible",
                "write 30s to 120d, or leave it out",
            )


@SLICE.rule(
    "capacity-assumed",
    level="warning",
    reason="On-demand hosts cost list price from the first update on, so nobody should get them unasked.",
    source="this program",
)
def capacity_assumed(view: SliceView) -> Iterator[Finding]:
    if "capacity" not in view.spec.model_fields_set:
        models = ", ".join(model for model in CAPACITY_MODELS if model != "on-demand")
        yield Finding(
            "capacity",
            "is not given: on-demand is assumed, at list price",
            f"write on-demand if you mean it, or {models}",
        )


@SLICE.rule(
    "dws-autoscales",
    backend="gke",
    reason="Flex-start pools start without hosts and get them when pods need them, so they cannot have a fixed size.",
    source="GKE documentation, flex-start; cluster-toolkit gke-consumption-options",
)
def dws_autoscales(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if view.spec.provisioning == "fixed" and model_of(capacity).gke.always_autoscaled:
            yield Finding(
                "provisioning",
                f"fixed contradicts {path}.model {capacity.model}, whose hosts come when pods wait for them",
                "leave provisioning out",
            )


@SLICE.rule(
    "flex-multi-host",
    backend="gke",
    level="warning",
    reason="GKE documents flex-start for single-host TPUs; cluster-toolkit ships multi-host blueprints.",
    source="GKE documentation; cluster-toolkit gke-consumption-options",
)
def flex_multi_host(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if model_of(capacity).gke.flex_start and view.shape.multi_host:
            yield Finding(
                f"{path}.model",
                f"{capacity.model} of slices with several hosts is not documented for every zone",
                "try it with one slice before you rely on it",
            )


@SLICE.rule(
    "fallback-order",
    backend="gke",
    reason="A ComputeClass tries pools in order. Kueue fills queued pools, and a repeated model adds nothing.",
    source="GKE documentation, ComputeClass; accelerated-platforms compute classes",
)
def fallback_order(view: SliceView) -> Iterator[Finding]:
    if len(view.spec.capacity) == 1:
        return
    seen: set[str] = set()
    for path, capacity in view.alternatives():
        if model_of(capacity).gke.queued:
            yield Finding(
                path, "queued cannot be one of several: Kueue, not a ComputeClass, fills its pools", "use flex-start"
            )
        if capacity.model in seen:
            yield Finding(path, f"{capacity.model} is in the list twice", "name every model once")
        seen.add(capacity.model)
    if view.spec.provisioning == "fixed":
        yield Finding(
            "provisioning",
            "fixed contradicts a list of capacity models: pools of later ones start empty",
            "leave it out, or write autoscaled or compute-class",
        )


@SLICE.rule(
    "reservation-parts",
    reason="A sub-block is named together with its block, and a slice uses one sub-block.",
    source="GKE documentation, reservation block and sub-block consumption; xpk core/reservation.py",
)
def reservation_parts(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if not isinstance(capacity, Reservation) or not capacity.sub_block:
            continue
        if capacity.block is None:
            yield Finding(
                f"{path}.block", "is missing: a sub-block is named together with its block", "name the block as well"
            )
        given = len(capacity.sub_block)
        if given not in (1, view.spec.count):
            yield Finding(
                f"{path}.sub_block",
                f"{given} sub-blocks for {view.spec.count} slices",
                "give one sub-block for all slices, or one for each",
            )
        elif len(set(capacity.sub_block)) < given:
            yield Finding(
                f"{path}.sub_block", "has a sub-block twice", "name each once; one for all slices needs no list"
            )
        elif given > 1 and not view.shape.multi_host:
            yield Finding(
                f"{path}.sub_block",
                "single-host slices share one pool, so they share one sub-block",
                "give one sub-block, or several entries under slices",
            )


@SLICE.rule(
    "sub-block-size",
    reason="A tpu7x sub-block is one 4x4x4 cube of 16 hosts.",
    source="GKE documentation, TPU sub-blocks; cluster-toolkit gke-tpu-7x",
)
def sub_block_size(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        most = view.shape.generation.sub_block_hosts
        if not isinstance(capacity, Reservation) or not capacity.sub_block or most is None:
            continue
        shared = view.spec.count if len(capacity.sub_block) == 1 else 1
        if (wanted := shared * view.shape.hosts) > most:
            yield Finding(
                f"{path}.sub_block",
                f"{wanted} hosts do not fit a sub-block of {most}",
                "give a sub-block for each slice, or a smaller topology",
            )


@SLICE.rule(
    "inactive-reservation",
    backend="gke",
    reason="An autoscaler would try to fill pools from a reservation that has not begun.",
    source="cluster-toolkit is_reservation_active",
)
def inactive_reservation(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if not model_of(capacity).begun(capacity) and provisioning_of("gke", view.spec).on_demand:
            yield Finding(
                f"{path}.active",
                "false has no effect here: GKE would ask the reservation for hosts at once",
                "leave this reservation out until it has begun"
                + (", or write provisioning: fixed" if len(view.spec.capacity) == 1 else ""),
            )


@SLICE.rule(
    "reservation-ends",
    level="warning",
    reason="Google takes the hosts back when a calendar reservation ends.",
    source="GKE documentation, calendar reservations",
)
def reservation_ends(view: SliceView) -> Iterator[Finding]:
    for path, capacity in view.alternatives():
        if isinstance(capacity, Reservation) and capacity.ends:
            yield Finding(
                f"{path}.ends",
                f"Google takes the hosts of {view.name} back on {capacity.ends}",
                "remove the slice before that day, or set active: false"
                if len(view.spec.capacity) == 1
                else "take it out of the list before that day; the other models go on",
            )


@SLICE.rule(
    "periodic-maintenance",
    backend="gke",
    reason="Only reservations with periodic maintenance allow it for their hosts.",
    source="xpk: 'is incorrect for the requested resources'",
)
def periodic_maintenance(view: SliceView) -> Iterator[Finding]:
    if view.spec.host_maintenance != "PERIODIC":
        return
    for path, capacity in view.alternatives():
        if not isinstance(capacity, Reservation) or capacity.maintenance != "PERIODIC":
            yield Finding(
                "host_maintenance",
                f"PERIODIC needs a reservation with periodic maintenance, which {path} is not",
                "write AS_NEEDED, or capacity: {model: reservation, maintenance: PERIODIC, ...}",
            )
