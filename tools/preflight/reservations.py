"""Reservations: whether hosts can come from where the plan takes them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from plan.slices import SlicePlan
from plan.words import counted
from tools.preflight.cloud import Json, RefusedError
from tools.preflight.findings import Finding, Level
from tools.preflight.scene import Scene

# As a host's affinity names it: a reservation of the own project by its bare name, then perhaps a part of it.
VALUE = re.compile(
    r"(?:projects/(?P<project>[^/]+)/reservations/)?(?P<name>[^/]+)"
    r"(?:/reservationBlocks/(?P<block>[^/]+)(?:/reservationSubBlocks/(?P<sub_block>[^/]+))?)?"
)


class Place(NamedTuple):
    """A reservation or a part of it; `block` and `sub_block` are empty for the whole."""

    project: str
    name: str
    block: str = ""
    sub_block: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


def reservations(scene: Scene) -> Iterator[Finding]:
    """Each reservation of the plan exists in the zone, is ready, fits the hosts, is free and may be used from here."""
    plans: defaultdict[Place, list[SlicePlan]] = defaultdict(list)
    hosts: Counter[Place] = Counter()
    for plan in scene.platform.slice_plans:
        if plan.capacity != "reservation":
            continue
        for affinity, needed in scene.missing(plan):
            for value in affinity.values:
                place = place_of(value, scene.platform.project)
                whole = Place(place.project, place.name)
                if plan not in plans[whole]:
                    plans[whole].append(plan)
                for part in {whole, place}:
                    hosts[part] += needed
    for whole in sorted(plans):
        yield from _reservation(scene, whole, plans[whole], hosts)


def place_of(value: str, own_project: str) -> Place:
    """The reservation, or the part of one, that a host's affinity names."""
    match = VALUE.fullmatch(value)
    assert match, value  # the plan writes no other form
    project, name, block, sub_block = match.groups()
    return Place(project or own_project, name, block or "", sub_block or "")


def _reservation(scene: Scene, whole: Place, plans: list[SlicePlan], hosts: Counter[Place]) -> Iterator[Finding]:
    zone = scene.platform.zone
    try:
        found = scene.compute("reservations.get", project=whole.project, zone=zone, reservation=whole.name)
    except RefusedError as error:
        if error.status != 403 or whole.project == scene.platform.project:
            raise
        yield Finding(
            "not checked",
            f"you may not read {whole.name} of {whole.project}",
            f"have compute.reservations.get granted in {whole.project}",
        )
        return
    if found is None:
        where = f"gcloud compute reservations list --project={whole.project}"
        yield Finding(_urgency(plans), f"there is no reservation {whole.name} in {zone} of {whole.project}", where)
        return
    problems = [*_unfit(scene, whole, found, plans), *_full(f"{whole}", hosts[whole], _free(found))]
    for part in sorted(part for part in hosts if part[:2] == whole[:2] and part != whole):
        problems += _part(scene, part, hosts[part])
    yield from problems
    if not problems:
        count = _count(found)
        free = f", {_free(found)} of {count} hosts free" if count is not None else ""
        yield Finding("ok", f"{whole} is ready{free}; {hosts[whole]} needed")


def _urgency(plans: list[SlicePlan]) -> Level:
    """A future reservation comes into being when it begins; until then its slices ask for no hosts."""
    return "blocks" if any(plan.most_hosts for plan in plans) else "warning"


def _unfit(scene: Scene, whole: Place, found: Json, plans: list[SlicePlan]) -> Iterator[Finding]:
    status = found.get("status", "unknown")
    if status != "READY":
        yield Finding(_urgency(plans), f"{whole} is {status}, not READY", "wait until it begins, with active: false")
    if not found.get("specificReservationRequired"):
        yield Finding(
            "blocks",
            f"{whole} is for anyone's hosts, not only for those that name it",
            "make it with --require-specific-reservation",
        )
    yield from _not_shared(scene, whole, found)
    for plan in plans:
        yield from _misfit(whole, found, plan)


def _not_shared(scene: Scene, whole: Place, found: Json) -> Iterator[Finding]:
    own = scene.platform.project
    if whole.project == own:
        return
    sharing = found.get("shareSettings", {})
    kind = sharing.get("shareType", "LOCAL")
    projects = {*sharing.get("projects", ()), *sharing.get("projectMap", {})}
    if kind == "LOCAL" or (kind == "SPECIFIC_PROJECTS" and own not in projects):
        yield Finding(
            "blocks",
            f"{whole} is not shared with {own}",
            f"gcloud compute reservations update {whole.name} --project={whole.project} --add-share-with={own}",
        )


def _misfit(whole: Place, found: Json, plan: SlicePlan) -> Iterator[Finding]:
    """A reservation is of one machine type, or of a number of accelerators for one kind of work (`aggregate`)."""
    machine_type = found.get("specificReservation", {}).get("instanceProperties", {}).get("machineType")
    if machine_type is not None and machine_type != plan.machine.name:
        yield Finding(
            "blocks",
            f"{whole} is for {machine_type}; slices.{plan.group} is of {plan.machine.name}",
            f"use a reservation for {plan.machine.name}, or another machine_type",
        )
    work = found.get("aggregateReservation", {}).get("workloadType")
    wanted = "BATCH" if plan.multi_host else "SERVING"
    if work in ("BATCH", "SERVING") and work != wanted:
        kind = "slices of several hosts" if work == "BATCH" else "single hosts"
        yield Finding("blocks", f"{whole} is for {kind} ({work}), which slices.{plan.group} is not", "use another one")


def _count(found: Json) -> int | None:
    """Hosts of a reservation; None for one that counts accelerators."""
    specific = found.get("specificReservation")
    return None if specific is None else int(specific.get("count", 0))


def _free(found: Json) -> int | None:
    count = _count(found)
    return None if count is None else count - int(found["specificReservation"].get("inUseCount", 0))


def _full(name: str, needed: int, free: int | None) -> Iterator[Finding]:
    if free is not None and needed > free:
        yield Finding(
            "blocks",
            f"{name} has {counted(free, 'free host')}; {needed} needed",
            "free some, enlarge the reservation, or ask for fewer slices",
        )


def _part(scene: Scene, part: Place, needed: int) -> Iterator[Finding]:
    """A block or a sub-block: there, and with enough free hosts."""
    parent = {"project": part.project, "zone": scene.platform.zone}
    if part.sub_block:
        answer = scene.compute(
            "reservationSubBlocks.get",
            parentName=f"reservations/{part.name}/reservationBlocks/{part.block}",
            reservationSubBlock=part.sub_block,
            **parent,
        )
    else:
        answer = scene.compute("reservationBlocks.get", reservation=part.name, reservationBlock=part.block, **parent)
    if answer is None:
        yield Finding("blocks", f"{part} is not there", "gcloud compute reservations blocks list")
        return
    found = answer["resource"]
    yield from _full(f"{part}", needed, int(found.get("count", 0)) - int(found.get("inUseCount", 0)))
