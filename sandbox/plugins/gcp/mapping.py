"""From Pulumi inputs to REST bodies and back.

Most properties have the same name on both sides. A row's `fields` names the others, by dotted Pulumi path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.check import DEFAULTS
from sandbox.plugins.gcp.schema import Property
from sandbox.plugins.values import UNKNOWN

Json = dict[str, Any]
Convert = Callable[[Any], Any]


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """Where a property lives in the REST object.

    `rest`: dotted path within the parent's REST object, from the body's root when it starts with "/"; empty for the
    same name. `send` and `receive` convert the value on its way. A property that is not `readable` is sent but never
    read back: its state stays what the program set.
    """

    rest: str = ""
    send: Convert = _as_is
    receive: Convert = _as_is
    readable: bool = True


Fields = Mapping[str, Field | None]  # None: a property of the provider that no API knows


def renamed(rest: str) -> Field:
    return Field(rest)


def write_only(rest: str) -> Field:
    return Field(rest, readable=False)


def int64(rest: str = "") -> Field:
    """A 64-bit number, which travels as a string."""
    return Field(rest, str, int)


def int64_as_number(rest: str = "") -> Field:
    """A 64-bit number that the provider's generated code sends as a number; the answers have it as a string."""
    return Field(rest, receive=int)


def nonzero(rest: str = "") -> Field:
    """A value that is left out where it is zero or false: the provider's client takes that for unset."""
    return Field(rest, lambda value: value or None)


def with_unset(unset: Json, rest: str = "") -> Field:
    """A block that, where there is one, is sent with `unset` for what the program leaves out."""
    return Field(rest, lambda block: {**unset, **block})


def only_entry(rest: str = "") -> Field:
    """A list of at most one in Pulumi that is an object in REST."""
    return Field(rest, lambda entries: entries[0] if entries else None, lambda entry: [entry])


def as_list(rest: str = "") -> Field:
    """A single value in Pulumi that is a list in REST."""
    return Field(rest, lambda entry: [entry], lambda entries: entries[0] if entries else None)


def link(rest: str = "") -> Field:
    """A resource that is given by name or link and read as a link, shown as its name."""
    return Field(rest, receive=links.last)


def key_values(rest: str = "") -> Field:
    """A map that travels as `{"items": [{"key", "value"}]}` (instance metadata)."""
    return Field(
        rest,
        lambda pairs: {"items": [{"key": k, "value": v} for k, v in sorted(pairs.items())]},
        lambda holder: {e["key"]: e.get("value", "") for e in holder.get("items", ())},
    )


def inverted(rest: str) -> Field:
    """A boolean with the opposite sense."""
    return Field(rest, lambda value: not value, lambda value: not value)


_SAME_NAME = Field()


def to_rest(properties: Mapping[str, Property], values: Mapping[str, Any], fields: Fields) -> Json:
    """The REST object for a resource's inputs. Unset and unknown properties are left out."""
    root: Json = {}
    _fill(root, root, properties, values, fields, "")
    return root


def _fill(
    root: Json, target: Json, properties: Mapping[str, Property], values: Mapping[str, Any], fields: Fields, prefix: str
) -> None:
    for name, value in values.items():
        each = properties.get(name)
        field = fields.get(prefix + name, _SAME_NAME)
        if each is None or field is None or value is None or value is UNKNOWN:
            continue
        rest = field.rest or name
        sent = field.send(_sent(root, each, value, fields, f"{prefix}{name}."))
        if sent is not None:
            put(root if rest.startswith("/") else target, rest.lstrip("/"), sent)


def _sent(root: Json, each: Property, value: Any, fields: Fields, prefix: str) -> Any:
    if each.is_object:
        child: Json = {}
        _fill(root, child, each.properties, value, fields, prefix)
        return child
    if each.is_many and each.element == "object":
        entries = []
        for entry in value:
            child = {}
            _fill(root, child, each.properties, entry, fields, prefix)
            entries.append(child)
        return entries
    if isinstance(value, Mapping):
        return {k: v for k, v in value.items() if k != DEFAULTS}
    return value


def put(target: Json, path: str, value: Any) -> None:
    """Set a dotted path, merging objects into objects."""
    *parents, name = path.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
    if isinstance(value, dict) and isinstance(target.get(name), dict):
        for key, entry in value.items():
            put(target[name], key, entry)
    else:
        target[name] = value


def get(source: Any, path: str) -> Any:
    """The value at a dotted path, None where there is none."""
    for step in path.split("."):
        source = source.get(step) if isinstance(source, Mapping) else None
    return source


def from_rest(properties: Mapping[str, Property], rest: Json, fields: Fields) -> Json:
    """A resource's properties, computed ones included, from the REST object; what the API leaves out is left out."""
    return _collect(rest, rest, properties, fields, "")


def _collect(root: Json, source: Any, properties: Mapping[str, Property], fields: Fields, prefix: str) -> Json:
    values: Json = {}
    for name, each in properties.items():
        field = fields.get(prefix + name, _SAME_NAME)
        if field is None or not field.readable:
            continue
        path = field.rest or name
        raw = get(root if path.startswith("/") else source, path.lstrip("/"))
        if raw is not None:
            raw = field.receive(raw)
        value = _received(root, each, raw, fields, f"{prefix}{name}.")
        if value is not None:
            values[name] = value
    return values


def _received(root: Json, each: Property, raw: Any, fields: Fields, prefix: str) -> Any:
    if each.is_object:
        # Some of the block's properties may live elsewhere in the body, so look even where the block itself is absent.
        values = _collect(root, raw or {}, each.properties, fields, prefix)
        return values if values or raw is not None else None
    if raw is None:
        return None
    if each.is_many and each.element == "object":
        return [_collect(root, entry or {}, each.properties, fields, prefix) for entry in raw]
    if each.is_many:
        return [_typed(each.element, entry) for entry in raw]
    if each.kind == "Map":
        return dict(raw) if isinstance(raw, Mapping) else None
    return _typed(each.scalar_kind, raw)


def _typed(kind: str, raw: Any) -> Any:
    """A scalar in the property's type; REST writes 64-bit numbers as strings."""
    if isinstance(raw, dict | list):
        return None
    match kind:
        case "Int":
            return int(raw)
        case "Float":
            return float(raw)
        case "String":
            return str(raw).lower() if isinstance(raw, bool) else str(raw)
        case _:
            return raw


def without_empties(body: Any) -> Any:
    """The body without empty strings and lists, which GKE's API takes for enum values and set fields."""
    if isinstance(body, dict):
        cleaned = {k: without_empties(v) for k, v in body.items()}
        return {k: v for k, v in cleaned.items() if v is not None and v != "" and v != []}
    return [without_empties(v) for v in body] if isinstance(body, list) else body


def merged(base: Json, over: Json) -> Json:
    """`over` laid on `base`, objects merged key by key."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
