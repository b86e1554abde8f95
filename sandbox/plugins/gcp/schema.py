"""The property table of the real gcp provider, `provider_schemas.json`, whose head names its origin and licence.

Per resource type it has every property with its Pulumi and Terraform name, type, required/optional/computed, forceNew,
default, limits, conflicts, and the default timeouts; and under `unknown` the inputs of the real provider that this
plugin does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("provider_schemas.json")


@dataclass(frozen=True)
class Property:
    """One property. `kind` is String, Int, Float, Bool, Map, List or Set; `element` what a collection holds."""

    name: str
    terraform: str
    kind: str
    element: str
    required: bool
    optional: bool
    computed: bool
    force_new: bool
    sensitive: bool
    default: Any
    min_items: int
    max_items: int
    conflicts_with: tuple[str, ...]
    exactly_one_of: tuple[str, ...]
    properties: Mapping[str, Property] = field(default_factory=dict)

    @property
    def is_input(self) -> bool:
        return self.required or self.optional

    @property
    def is_single(self) -> bool:
        """A collection of at most one, which Pulumi shows as the element itself."""
        return self.kind in ("List", "Set") and self.max_items == 1

    @property
    def is_many(self) -> bool:
        return self.kind in ("List", "Set") and not self.is_single

    @property
    def is_object(self) -> bool:
        return self.is_single and self.element == "object"

    @property
    def scalar_kind(self) -> str:
        """The kind of the value itself, or of each element of a list, set or map."""
        if self.kind in ("List", "Set", "Map"):
            return self.element
        return self.kind


@dataclass(frozen=True)
class Schema:
    """One resource type. `timeouts` are the provider's defaults in seconds by create, read, update, delete.

    `unknown`: dotted paths of inputs that the real provider takes and this plugin refuses.
    """

    type: str
    terraform: str
    timeouts: Mapping[str, float]
    delete_before_replace: bool
    properties: Mapping[str, Property]
    unknown: frozenset[str]

    @property
    def title(self) -> str:
        """The last word of the type, as messages use it: `NodePool`."""
        return self.type.rsplit(":", 1)[-1]

    def at(self, path: str) -> Property | None:
        """The property at a dotted Pulumi path (list positions left out), e.g. `nodeConfig.taints.key`."""
        found: Property | None = None
        properties = self.properties
        for step in path.split("."):
            found = properties.get(step)
            if found is None:
                return None
            properties = found.properties
        return found


def _property(name: str, row: Mapping[str, Any]) -> Property:
    return Property(
        name=name,
        terraform=row["tf"],
        kind=row["type"],
        element=row.get("elem", "String" if row["type"] == "Map" else ""),
        required=row.get("required", False),
        optional=row.get("optional", False),
        computed=row.get("computed", False),
        force_new=row.get("forceNew", False),
        sensitive=row.get("sensitive", False),
        default=row.get("default"),
        min_items=row.get("minItems", 0),
        max_items=row.get("maxItems", 0),
        conflicts_with=tuple(row.get("conflictsWith", ())),
        exactly_one_of=tuple(row.get("exactlyOneOf", ())),
        properties=_properties(row.get("props", {})),
    )


def _properties(rows: Mapping[str, Any]) -> Mapping[str, Property]:
    return {name: _property(name, row) for name, row in rows.items()}


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return {row["type"]: row for row in json.loads(TABLE.read_text())["types"]}


def types() -> tuple[str, ...]:
    """Every type token in the table."""
    return tuple(_rows())


@cache
def of(token: str) -> Schema:
    """The schema of a type like `gcp:container/nodePool:NodePool`. Raises KeyError for a type not in the table."""
    row = _rows()[token]
    return Schema(
        type=token,
        terraform=row["terraform"],
        timeouts=row["timeouts_s"],
        delete_before_replace=row["deleteBeforeReplace"],
        properties=_properties(row["properties"]),
        unknown=frozenset(row.get("unknown", ())),
    )


def walk(properties: Mapping[str, Property], prefix: str = "") -> Iterator[tuple[str, Property]]:
    """Every property with its dotted path, parents before children."""
    for name, each in properties.items():
        yield prefix + name, each
        yield from walk(each.properties, f"{prefix}{name}.")
