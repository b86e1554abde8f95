"""The property table of the real gcp provider, `provider_schemas.json`.

Origin: read out of the schemas built into `pulumi-resource-gcp` 9.35 (Apache-2.0, pulumi/pulumi-gcp, which bridges
hashicorp/terraform-provider-google-beta): per resource type every property with its Pulumi and Terraform name, type,
required/optional/computed, forceNew, default, limits, conflicts, and the default timeouts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("provider_schemas.json")

# What release 10.2 has beyond the table, by type and path of the block it belongs to.
_OPPORTUNISTIC = {
    "tf": "opportunistic_maintenance_strategy",
    "type": "List",
    "elem": "object",
    "maxItems": 1,
    "optional": True,
    "forceNew": True,
    "props": {
        "maintenanceAvailabilityWindow": {
            "tf": "maintenance_availability_window",
            "type": "String",
            "required": True,
            "forceNew": True,
        },
        "minNodesPerPool": {"tf": "min_nodes_per_pool", "type": "Int", "required": True, "forceNew": True},
        "nodeIdleTimeWindow": {"tf": "node_idle_time_window", "type": "String", "required": True, "forceNew": True},
    },
}
NEWER: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "gcp:container/cluster:Cluster": {
        "nodeConfig.hostMaintenancePolicy": {"opportunisticMaintenanceStrategy": _OPPORTUNISTIC},
    },
    "gcp:container/nodePool:NodePool": {
        "": {
            "bestEffortProvisioning": {
                "tf": "best_effort_provisioning",
                "type": "List",
                "elem": "object",
                "maxItems": 1,
                "optional": True,
                "forceNew": True,
                "props": {
                    "enabled": {"tf": "enabled", "type": "Bool", "required": True, "forceNew": True},
                    "minProvisionNodes": {
                        "tf": "min_provision_nodes",
                        "type": "Int",
                        "optional": True,
                        "forceNew": True,
                    },
                },
            }
        },
        "nodeConfig.hostMaintenancePolicy": {"opportunisticMaintenanceStrategy": _OPPORTUNISTIC},
        "networkConfig.additionalNodeNetworkConfigs": {
            "stackType": {"tf": "stack_type", "type": "String", "optional": True, "computed": True, "forceNew": True}
        },
    },
}

# Types the recorded table lacks, in its form: from the SDK's 10.2 and the provider's documentation.
ADDED: Sequence[Mapping[str, Any]] = (
    {
        "type": "gcp:compute/instanceGroup:InstanceGroup",
        "terraform": "google_compute_instance_group",
        "timeouts_s": {"create": 360, "update": 360, "delete": 360},
        "deleteBeforeReplace": False,
        "properties": {
            "deletionPolicy": {"tf": "deletion_policy", "type": "String", "optional": True, "computed": True},
            "description": {"tf": "description", "type": "String", "optional": True, "forceNew": True},
            "instances": {"tf": "instances", "type": "Set", "elem": "String", "optional": True, "computed": True},
            "name": {"tf": "name", "type": "String", "required": True, "forceNew": True},
            "namedPorts": {
                "tf": "named_port",
                "type": "List",
                "elem": "object",
                "optional": True,
                "props": {
                    "name": {"tf": "name", "type": "String", "required": True},
                    "port": {"tf": "port", "type": "Int", "required": True},
                },
            },
            "network": {"tf": "network", "type": "String", "optional": True, "computed": True, "forceNew": True},
            "project": {"tf": "project", "type": "String", "optional": True, "computed": True, "forceNew": True},
            "selfLink": {"tf": "self_link", "type": "String", "computed": True},
            "size": {"tf": "size", "type": "Int", "computed": True},
            "zone": {"tf": "zone", "type": "String", "optional": True, "computed": True, "forceNew": True},
        },
    },
)


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
    """One resource type. `timeouts` are the provider's defaults in seconds by create, read, update, delete."""

    type: str
    terraform: str
    timeouts: Mapping[str, float]
    delete_before_replace: bool
    properties: Mapping[str, Property]

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


def _properties(token: str, rows: Mapping[str, Any], path: str = "") -> Mapping[str, Property]:
    newer = NEWER.get(token, {}).get(path, {})
    return {n: _property(token, n, r, f"{path}.{n}" if path else n) for n, r in {**rows, **newer}.items()}


def _property(token: str, name: str, row: Mapping[str, Any], path: str) -> Property:
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
        properties=_properties(token, row.get("props", {}), path),
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return {row["type"]: row for row in (*json.loads(TABLE.read_text()), *ADDED)}


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
        properties=_properties(token, row["properties"]),
    )


def walk(properties: Mapping[str, Property], prefix: str = "") -> Iterator[tuple[str, Property]]:
    """Every property with its dotted path, parents before children."""
    for name, each in properties.items():
        yield prefix + name, each
        yield from walk(each.properties, f"{prefix}{name}.")
