"""Labels: the program's own (`labels`), with the provider's (`pulumiLabels`), and all of them (`effectiveLabels`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.plugins.gcp.check import DEFAULTS
from sandbox.plugins.gcp.schema import Schema
from sandbox.plugins.gcp.settings import Settings
from sandbox.plugins.provider import Change
from sandbox.plugins.values import UNKNOWN

EFFECTIVE, PULUMI = "effectiveLabels", "pulumiLabels"
# The types that do not get the label that says they were made by Pulumi (provider:
# SetLabelsDiffWithoutAttributionLabel).
UNATTRIBUTED = frozenset({"gcp:compute/forwardingRule:ForwardingRule"})


def property_of(schema: Schema) -> str | None:
    """The name of the input that holds a resource's own labels, None for a type without labels."""
    if EFFECTIVE not in schema.properties:
        return None
    return "labels" if "labels" in schema.properties else "resourceLabels"


def own(schema: Schema, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The labels the program sets."""
    given = inputs.get(property_of(schema) or "") or {}
    return {} if given is UNKNOWN else {k: v for k, v in given.items() if k != DEFAULTS}


def wanted(schema: Schema, settings: Settings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The labels to send: the provider's defaults with the program's on top."""
    added = settings.default_labels if schema.type in UNATTRIBUTED else settings.added_labels
    return {**added, **own(schema, inputs)}


def changes(schema: Schema, settings: Settings, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Iterator[Change]:
    """How the two derived label maps change along with the program's labels."""
    if property_of(schema) is None:
        return
    old, new = olds.get(PULUMI) or {}, wanted(schema, settings, news)
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            kind = "add" if key not in old else "delete" if key not in new else "update"
            yield from (
                Change(f"{name}.{key}", kind, schema.properties[name].force_new) for name in (EFFECTIVE, PULUMI)
            )
