"""What Google's newer APIs leave out of an answer: fields with the default of their kind.

Protocol buffers do not keep a zero, an empty text, `false`, the first value of an enumeration or an empty list apart
from nothing, and the answers have none of them. What a program writes of that kind it never reads again. A message that
was set stays, also where nothing in it was. Fields whose type is a wrapper keep false; the descriptions call them plain
Booleans, so they are named here.
"""

from __future__ import annotations

from typing import Any

from sandbox.google.discovery import Document

# By schema and field.
WRAPPED = frozenset({("AlertPolicy", "enabled"), ("NotificationChannel", "enabled")})


def without_defaults(document: Document, schema: str, value: dict[str, Any]) -> dict[str, Any]:
    """The message as the API returns it."""
    properties = document.schemas[schema].get("properties", {})
    kept: dict[str, Any] = {}
    for name, item in value.items():
        described = properties.get(name, {})
        shown = _shown(document, described, item)
        if (schema, name) in WRAPPED or not _is_default(described, shown):
            kept[name] = shown
    return kept


def _shown(document: Document, described: dict[str, Any], value: Any) -> Any:
    if "$ref" in described and isinstance(value, dict):
        return without_defaults(document, described["$ref"], value)
    if described.get("type") == "array" and isinstance(value, list):
        return [_shown(document, described["items"], entry) for entry in value]
    return value


def _is_default(described: dict[str, Any], value: Any) -> bool:
    if value is None or value == [] or (value == {} and "$ref" not in described):
        return True
    if "enum" in described:
        return bool(value == described["enum"][0])
    if described.get("format") == "google-duration":
        return bool(value == "0s")
    if described.get("format") in ("int64", "uint64"):
        return str(value) == "0"
    return value is False or value == "" or (isinstance(value, int | float) and value == 0)
