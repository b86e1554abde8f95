"""Where faults can strike: every resource of a stack's recorded graph, in each phase, with each kind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.faults.edit import edited_property
from tests.faults.kinds import BY_NAME, CLUSTER, CREATE, CUT_AFTER, GOOGLE, KINDS, PHASES, UPDATE, Kind
from tests.graph.recording import ROOT, record_stack

STACKS = ("dev", "blueprint", "gce", "team")


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


def resources(stack: str) -> list[str]:
    """What the program registers at a provider for a stack of the checkout."""
    requests = record_stack(ROOT / f"Pulumi.{stack}.yaml").requests.values()
    return [f"{each.type}::{each.name}" for each in requests if each.custom and each.type.startswith((GOOGLE, CLUSTER))]


def points(stack: str, found: Collection[str]) -> Iterator[Point]:
    """Every point of a stack with these resources."""
    for resource in found:
        for phase in PHASES:
            type_ = resource.partition("::")[0]
            if phase == UPDATE and edited_property(type_) is None:
                continue
            for kind in KINDS:
                if phase in kind.phases and type_.startswith(kind.where):
                    yield Point(stack, phase, resource, kind.name)


def sample(
    free: Sequence[Point], phase: str, tried: Mapping[tuple[str, str], int], chance: random.Random, costly: int
) -> list[Point]:
    """At most one point of a phase for each resource, those first whose kind was tried least in that phase; no more
    than `costly` of the costly ones. `tried`: how often, by phase and kind."""
    left: dict[str, list[Point]] = {}
    for point in free:
        if point.phase == phase:
            left.setdefault(point.resource, []).append(point)
    counted, chosen = Counter(tried), []
    order = sorted(left)
    chance.shuffle(order)
    for resource in order:
        choice = [each for each in left[resource] if costly or not each.is_costly]
        chance.shuffle(choice)
        if choice:
            point = min(choice, key=lambda each: (counted[phase, each.fault], not each.is_costly))
            counted[phase, point.fault] += 1
            costly -= point.is_costly
            chosen.append(point)
    return chosen
