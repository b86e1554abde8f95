"""Defines rules, and the scopes in which they are declared."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from catalogue.generations import Generation, Machine
from plan.backend import Backend
from plan.platform import Platform
from plan.shape import Shape
from platform_config.capacity import AnyCapacity
from platform_config.fields import UnknownValueError
from platform_config.slice import Slice


class PartialShape:
    """The shape of a slice whose topology or machine type is refused: only what is known of it can be looked at."""

    def __init__(self, machine: Machine | None, generation: Generation | None) -> None:
        known = {"machine": machine, "generation": machine.generation if machine else generation}
        self.__dict__.update({key: value for key, value in known.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        raise UnknownValueError(name)


class Finding(NamedTuple):
    """Something to correct: `path` below the rule's scope, what is wrong and why, what to write instead."""

    path: str
    message: str
    hint: str


@dataclass(frozen=True)
class SliceView:
    """A slice within its platform."""

    platform: Platform
    name: str
    spec: Slice
    shape: Shape | PartialShape

    @property
    def hardware_key(self) -> str:
        """The key that names the slice's hardware."""
        return "machine_type" if self.spec.machine_type else "generation"

    def alternatives(self) -> Iterator[tuple[str, AnyCapacity]]:
        """Path and value of every capacity model of the slice."""
        for index, capacity in enumerate(self.spec.capacity):
            yield ("capacity" if len(self.spec.capacity) == 1 else f"capacity[{index}]"), capacity


View = TypeVar("View")
Check = Callable[[View], Iterator[Finding]]


@dataclass(frozen=True)
class Rule(Generic[View]):
    """A rule: `reason` says why in a sentence, `source` who states it upstream. `backend` None: it applies to both.

    `whole`: it says that something is nowhere in the stack file, which is unknown while a slice is.
    """

    id: str
    level: Literal["error", "warning"]
    reason: str
    source: str
    backend: Backend | None
    whole: bool
    check: Check[View]

    def findings(self, view: View, rest: Callable[[], View] | None = None) -> Iterator[Finding]:
        """What the rule finds before it looks at an unknown value, and then in `rest`."""
        found: list[Finding] = []
        try:
            for finding in self.check(view):
                found.append(finding)
                yield finding
        except UnknownValueError:
            if rest is not None and not self.whole:
                yield from (finding for finding in self.findings(rest()) if finding not in found)


@dataclass
class Scope(Generic[View]):
    """The rules of one scope, in the order in which they were declared."""

    rules: list[Rule[View]] = field(default_factory=list)

    def rule(
        self,
        id: str,
        *,
        reason: str,
        source: str,
        level: Literal["error", "warning"] = "error",
        backend: Backend | None = None,
        whole: bool = False,
    ) -> Callable[[Check[View]], Check[View]]:
        """Decorator that declares a rule of this scope."""

        def register(check: Check[View]) -> Check[View]:
            self.rules.append(Rule(id, level, reason, source, backend, whole, check))
            return check

        return register

    def findings(
        self,
        view: View,
        level: Literal["error", "warning"],
        backend: Backend | None = None,
        rest: Callable[[], View] | None = None,
        without: Collection[str] = (),
    ) -> Iterator[Finding]:
        """Findings of the rules of that level: those of the back end and of both; with None only those of both.

        A rule ends where it looks at an unknown value. `rest` makes the view without the slices that have unknown
        values: such a rule then looks at that as well, unless it is one of the whole. `without`: ids of rules to leave
        out.
        """
        for rule in self.rules:
            if rule.level == level and rule.backend in (None, backend) and rule.id not in without:
                yield from rule.findings(view, rest)


SHAPE: Scope[Slice] = Scope()
SIZE: Scope[Platform] = Scope()
SLICE: Scope[SliceView] = Scope()
PLATFORM: Scope[Platform] = Scope()
QUEUES: Scope[Platform] = Scope()
