"""Defines guard rails: rules over one planned resource, or over all resources of a stack."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from policies.values import Finding, Props

Level = Literal["mandatory", "advisory"]
Settings = Mapping[str, Any]

# The engine's names of its default providers: default, default_4_34_2, default_4_34_2_alpha_1.
ENGINES_PROVIDER = re.compile(r"default(_[0-9]+_[0-9]+_[0-9]+(_.*)?|_https?_.*)?")


def explicit(provider: str) -> bool:
    """Whether the program created the provider of this name, not the engine."""
    return not ENGINES_PROVIDER.fullmatch(provider)


@dataclass(frozen=True)
class Resource:
    """A planned resource. `props` are its inputs, in camelCase; in stack rules with the provider's defaults.

    `protect`, `delete_before_replace`: its options; None if unknown. `provider`: URN of an explicit provider, None for
    a default one. Only in stack rules: `dependencies`, URNs that it waits for, without its provider's;
    `property_dependencies`, the same by the property that needs them.
    """

    type: str
    name: str
    urn: str
    props: Props
    protect: bool = False
    delete_before_replace: bool | None = None
    provider: str | None = None
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def stack(self) -> str:
        """Name of the stack it belongs to, from its URN."""
        parts = self.urn.split(":")
        return parts[2] if len(parts) > 2 else ""


@dataclass(frozen=True)
class Stack:
    """All resources of a plan."""

    resources: tuple[Resource, ...]

    def of_type(self, *types: str) -> Iterator[Resource]:
        """Resources of these type tokens, in the plan's order."""
        return (resource for resource in self.resources if resource.type in types)

    def matching(self, pattern: str) -> Iterator[Resource]:
        """Resources whose type token fits a pattern such as `kubernetes:kueue.x-k8s.io/*:ClusterQueue`."""
        return (resource for resource in self.resources if fnmatchcase(resource.type, pattern))

    def reachable(self, resource: Resource) -> set[str]:
        """URNs that a resource waits for, directly or through others."""
        seen: set[str] = set()
        todo = [resource.urn]
        while todo:
            found = self.by_urn.get(todo.pop())
            new = {*found.dependencies, *filter(None, [found.provider])} - seen if found else set()
            seen |= new
            todo += new
        return seen

    @cached_property
    def by_urn(self) -> Mapping[str, Resource]:
        return {resource.urn: resource for resource in self.resources}


class StackFinding(NamedTuple):
    """Something to correct in a stack: the resource, if it is about one, and what is wrong."""

    urn: str | None
    path: str
    message: str


ResourceCheck = Callable[[Resource, Settings], Iterator[Finding]]
StackCheck = Callable[[Stack, Settings], Iterator[StackFinding]]
Check = TypeVar("Check", ResourceCheck, StackCheck)


@dataclass(frozen=True)
class Setting:
    """A value that a person may set for a rule. `schema`: its JSON Schema, the default included."""

    name: str
    schema: Mapping[str, Any]

    @property
    def default(self) -> Any:
        return self.schema["default"]


PRODUCTION = Setting(
    "stacks",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": ["prod", "prod-*", "production", "production-*"],
        "description": "Names of production stacks; * stands for anything.",
    },
)
"""Which stacks are production: a setting of all rules that apply only there."""


def in_production(resource: Resource, settings: Settings) -> bool:
    """Whether the resource belongs to a production stack."""
    return any(fnmatchcase(resource.stack, pattern) for pattern in settings[PRODUCTION.name])


@dataclass(frozen=True)
class Rule(Generic[Check]):
    """A rule: `reason` says why, `remedy` what to do, `source` who states it upstream.

    `controls`: sections of the CIS GKE Benchmark that it implements. `types`: type tokens that a resource rule checks,
    exact or with `*` for anything; empty for stack rules.
    """

    id: str
    level: Level
    reason: str
    remedy: str
    source: str
    controls: tuple[str, ...]
    settings: tuple[Setting, ...]
    types: tuple[str, ...]
    check: Check

    def applies_to(self, type_: str) -> bool:
        return any(fnmatchcase(type_, pattern) for pattern in self.types)

    def configured(self, given: Mapping[str, Any] | None) -> Settings:
        """The rule's settings: a person's values, else the defaults."""
        return {setting.name: setting.default for setting in self.settings} | dict(given or {})

    def wording(self, path: str, message: str) -> str:
        """The text of a violation."""
        return f"{f'{path} ' if path else ''}{message}. {self.remedy}"


@dataclass
class Registry(Generic[Check]):
    """Rules of one kind, in the order in which they were declared."""

    rules: list[Rule[Check]] = field(default_factory=list)

    def rule(
        self,
        id: str,
        *types: str,
        level: Level = "mandatory",
        reason: str,
        remedy: str,
        source: str,
        cis: Iterable[str] = (),
        settings: Iterable[Setting] = (),
    ) -> Callable[[Check], Check]:
        """Decorator that declares a rule."""

        def register(check: Check) -> Check:
            self.rules.append(Rule(id, level, reason, remedy, source, tuple(cis), tuple(settings), types, check))
            return check

        return register


RESOURCE: Registry[ResourceCheck] = Registry()
STACK: Registry[StackCheck] = Registry()
