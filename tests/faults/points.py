"""Where faults can strike: every resource of a stack's recorded graph, in each phase, with each kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.faults.edit import edited_property
from tests.faults.kinds import (
    API,
    BY_NAME,
    CLUSTER,
    CREATE,
    CUT_AFTER,
    DELETE,
    GOOGLE,
    KINDS,
    NOTHING,
    PHASES,
    UPDATE,
    Kind,
)
from tests.graph.recording import ROOT, GraphMonitor, edges, record_stack

STACKS = ("dev", "blueprint", "gce", "team")
FAILING = 4
"""How many faults that fail a command are chosen beyond those of kinds that never struck: each may cost a command."""


@dataclass(frozen=True, order=True)
class Point:
    """One fault at one place. `resource` is "type::name"."""

    stack: str
    phase: str
    resource: str
    fault: str

    @property
    def type(self) -> str:
        return self.resource.partition("::")[0]

    @property
    def is_costly(self) -> bool:
        """Whether it takes minutes to come back: a process ends, or something exists that the state does not know."""
        return self.kind.deadly or (self.fault == CUT_AFTER and self.phase == CREATE)

    @property
    def kind(self) -> Kind:
        return BY_NAME[self.fault]


@cache
def graph(stack: str, folder: Path = ROOT) -> GraphMonitor:
    """What the program registers for a stack of the checkout, or of a project in `folder`."""
    return record_stack(folder / f"Pulumi.{stack}.yaml")


def resources(stack: str) -> list[str]:
    """What the program registers at a provider for a stack of the checkout."""
    requests = graph(stack).requests.values()
    return [f"{each.type}::{each.name}" for each in requests if each.custom and each.type.startswith((GOOGLE, CLUSTER))]


def kept(stack: str, folder: Path = ROOT) -> set[str]:
    """Names in Google Cloud of what `destroy` leaves there: people's data."""
    requests = graph(stack, folder).requests.values()
    return {request.object["name"] for request in requests if request.retainOnDelete}


def chain(stack: str, chance: random.Random) -> list[str]:
    """Resources of which each needs the one before it: a longest such chain, from what needs the APIs on. What a fault
    at one of them ends has not come to the next ones yet, whatever else the engine has done meanwhile."""
    monitor, lengths = graph(stack), dict[str, int]()

    def length(urn: str) -> int:
        if urn not in lengths:
            lengths[urn] = 1 + max((length(each) for each in edges(monitor, urn)), default=0)
        return lengths[urn]

    urns = [urn for urn, each in monitor.requests.items() if each.custom and each.type.startswith((GOOGLE, CLUSTER))]
    found: list[str] = []
    while urns:
        longest = max(map(length, urns))
        urn = chance.choice([each for each in urns if length(each) == longest])
        request = monitor.requests[urn]
        if request.custom and request.type != API and request.type.startswith((GOOGLE, CLUSTER)):
            found.insert(0, f"{request.type}::{request.name}")
        urns = sorted(edges(monitor, urn))
    return found


def points(stack: str, found: Collection[str]) -> Iterator[Point]:
    """Every point of a stack with these resources."""
    for resource in found:
        for phase in PHASES:
            type_ = resource.partition("::")[0]
            if (phase == UPDATE and edited_property(type_) is None) or (phase == DELETE and type_ == API):
                continue
            for kind in KINDS:
                if phase in kind.phases and type_.startswith(kind.where):
                    yield Point(stack, phase, resource, kind.name)


def sample(
    free: Sequence[Point],
    phase: str,
    tried: Mapping[tuple[str, str], int],
    chance: random.Random,
    costly: int,
    chain: Sequence[str] = (),
    again: Collection[Point] = (),
) -> list[Point]:
    """At most one point of a phase for each resource: those of `again` first, then those whose kind struck least in
    that phase. `tried`: how often, by phase and kind. Of the costly kinds no more than `costly`, each once, and only at
    resources of the `chain`, if there is one. Beyond the kinds that never struck only a few are taken that fail a
    command."""
    here = [point for point in free if point.phase == phase]
    chance.shuffle(here)
    counted, chosen = Counter(tried), dict[str, Point]()

    def take(choice: Sequence[Point]) -> None:
        left = [point for point in choice if point.resource not in chosen]
        if left:
            point = min(left, key=lambda each: counted[phase, each.fault])
            counted[phase, point.fault] += 1
            chosen[point.resource] = point

    def rarest(choice: Sequence[Point]) -> list[str]:
        """Kinds, those first that struck least, and then those that few resources have."""
        places = Counter(point.fault for point in choice)
        return sorted(places, key=lambda each: (counted[phase, each], places[each]))

    for point in here:
        if point in again:
            take([point])
    dear = [point for point in here if point.is_costly and (not chain or point.resource in chain)]
    for fault in rarest(dear)[:costly]:
        take([point for point in dear if point.fault == fault])
    cheap = [point for point in here if not point.is_costly]
    for fault in rarest(cheap):
        if not counted[phase, fault]:
            take([point for point in cheap if point.fault == fault])
    failing = [point for point in cheap if point.kind.after != NOTHING]
    for resource in [point.resource for point in failing][:FAILING]:
        take([point for point in failing if point.resource == resource])
    passing = [point for point in cheap if point.kind.after == NOTHING]
    for resource in dict.fromkeys(point.resource for point in passing):
        take([point for point in passing if point.resource == resource])
    return list(chosen.values())
