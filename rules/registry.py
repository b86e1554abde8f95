"""Defines rules, and the scopes in which they are declared."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeVar

from plan.backend import Backend
from plan.platform import Platform
from plan.shape import Shape
from platform_config.capacity import AnyCapacity
from platform_config.slice import Slice


class Finding(NamedTuple):
    """Something to correct: `path` below the rule's scope, what is wrong and why, what to write instead."""

    path: str
    message: str
    hint: str


@dataclass(frozen=True)
class SliceView:
    """A slice whose shape is known, within its platform."""

    platform: Platform
    name: str
    spec: Slice
    shape: Shape

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

    `whole`: it says that something is nowhere in the stack file, which is unknown while a part of it is malformed.
    """

    id: str
    level: Literal["error", "warning"]
    reason: str
    source: str
    backend: Backend | None
    whole: bool
    check: Check[View]


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
        complete: bool = True,
        without: Collection[str] = (),
    ) -> Iterator[Finding]:
        """Findings of the rules of that level: those of the back end and of both; with None only those of both.

        `complete`: whether the view has all that is in the stack file. `without`: ids of rules to leave out.
        """
        for rule in self.rules:
            applies = rule.level == level and rule.backend in (None, backend) and rule.id not in without
            if applies and (complete or not rule.whole):
                yield from rule.check(view)


SHAPE: Scope[Slice] = Scope()
SIZE: Scope[Platform] = Scope()
SLICE: Scope[SliceView] = Scope()
PLATFORM: Scope[Platform] = Scope()
QUEUES: Scope[Platform] = Scope()
