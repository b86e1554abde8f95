"""Check: refuse what the real provider refuses, fill in the defaults it fills in.

Each object of the inputs gets a `__defaults` list that names the keys the provider put there; the engine hands it back
as `olds`, which is how a generated name stays the same (upstream: pulumi-terraform-bridge `pkg/tfbridge/schema.go`,
`applyDefaults`).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from sandbox.plugins.gcp.schema import Property, Schema
from sandbox.plugins.provider import Checked, Failure
from sandbox.plugins.values import UNKNOWN

DEFAULTS = "__defaults"
# The bridge leaves out defaults that equal the type's zero value; this one is set by the provider's own overlay.
ZERO_DEFAULTS_KEPT = {("gcp:compute/instance:Instance", "eraseWindowsVssSignature")}
# Names the bridge makes up when the program gives none: NAME-1234abc, as long as the API allows.
AUTONAME_LENGTH = 63

Value = Any
Object = dict[str, Any]


def check(
    schema: Schema, name: str, olds: Mapping[str, Value], news: Mapping[str, Value], seed: bytes = b""
) -> Checked:
    """Checked inputs of the resource called `name` in the program. `seed` makes a generated name deterministic."""
    failures = [_named(schema, failure) for failure in _refused(schema.properties, news, news, "")]
    inputs = _completed(schema, schema.properties, news, "")
    named = schema.properties.get("name")
    if named and _autonamed(named, news):
        inputs["name"] = _kept_name(olds) or _generated_name(name, seed)
        inputs[DEFAULTS] = sorted([*inputs[DEFAULTS], "name"])
    return Checked(inputs, failures)


def _named(schema: Schema, failure: Failure) -> Failure:
    """A refusal that says whose it is: what the real provider takes is not the program's mistake."""
    path = re.sub(r"\[\d+\]", "", failure.property)
    if path not in schema.unknown:
        return failure
    reason = f"the sandbox's gcp plugin does not know {path} of {schema.title}; leave it out to run here"
    return Failure(failure.property, reason)


def _autonamed(named: Property, news: Mapping[str, Value]) -> bool:
    return named.is_input and news.get("name") is None and news.get("namePrefix") is None


def _kept_name(olds: Mapping[str, Value]) -> str | None:
    return olds.get("name") if "name" in (olds.get(DEFAULTS) or ()) else None


def _generated_name(name: str, seed: bytes) -> str:
    suffix = hashlib.sha256(seed).hexdigest()[:7] if seed else secrets.token_hex(4)[:7]
    return f"{name.lower()[: AUTONAME_LENGTH - 8]}-{suffix}"


def _completed(schema: Schema, properties: Mapping[str, Property], given: Mapping[str, Value], prefix: str) -> Object:
    """`given` with types normalised, defaults added and `__defaults` kept, at every level."""
    result: Object = {}
    for key, value in given.items():
        if key == DEFAULTS or value is None:
            continue
        known = properties.get(key)
        result[key] = _normal(schema, known, value, f"{prefix}{key}.") if known else value
    defaulted = sorted(k for k, p in properties.items() if _takes_default(schema, p, prefix + k, given, result))
    result.update({key: properties[key].default for key in defaulted})
    result[DEFAULTS] = defaulted
    return result


def _takes_default(
    schema: Schema, each: Property, path: str, given: Mapping[str, Value], result: Mapping[str, Value]
) -> bool:
    if each.default is None or not each.is_input or result.get(each.name) is not None:
        return False
    if not each.default and (schema.type, path) not in ZERO_DEFAULTS_KEPT:
        return False
    rivals = {t.rsplit(".", 1)[-1] for t in (*each.conflicts_with, *each.exactly_one_of)} - {each.terraform}
    parent = path.rpartition(".")[0]
    siblings = schema.at(parent).properties if parent and schema.at(parent) else schema.properties  # type: ignore[union-attr]
    return not any(p.terraform in rivals and given.get(n) is not None for n, p in siblings.items())


def _normal(schema: Schema, each: Property, value: Value, prefix: str) -> Value:
    if each.is_object and isinstance(value, Mapping):
        return _completed(schema, each.properties, value, prefix)
    if each.is_many and isinstance(value, list):
        if each.element == "object":
            return [_completed(schema, each.properties, v, prefix) if isinstance(v, Mapping) else v for v in value]
        return [_scalar(each.element, v) for v in value]
    if each.kind == "Map" and isinstance(value, Mapping):
        return {k: _scalar(each.element, v) for k, v in value.items() if k != DEFAULTS}
    return _scalar(each.scalar_kind, value)


def _scalar(kind: str, value: Value) -> Value:
    """The value in its own type; programs may write numbers and booleans as strings and the other way round."""
    match kind, value:
        case "String", bool():
            return "true" if value else "false"
        case "String", int() | float():
            return str(value)
        case "Bool", "true" | "false":
            return value == "true"
        case "Int", str() if value.lstrip("-").isdigit():
            return int(value)
        case "Float", str() if value.replace(".", "", 1).lstrip("-").isdigit():
            return float(value)
        case _:
            return value


def _refused(
    properties: Mapping[str, Property], given: Mapping[str, Value], root: Mapping[str, Value], prefix: str
) -> Iterator[Failure]:
    for key, value in given.items():
        if key == DEFAULTS or value is None:
            continue
        path = prefix + key
        known = properties.get(key)
        if known is None or not known.is_input:
            yield Failure(path, _unknown_key(properties, key, path, known is not None))
        elif value is not UNKNOWN:
            yield from _refused_value(known, value, root, path)
    for key, each in properties.items():
        # `name` is generated where it is missing, and `id` is never an input.
        if each.required and given.get(key) is None and not (prefix == "" and key == "name"):
            text = f'Missing required argument. The argument "{prefix + key}" is required, but no definition was found.'
            yield Failure(prefix + key, text)
    yield from _conflicts(properties, given, prefix)


def _unknown_key(properties: Mapping[str, Property], key: str, path: str, computed: bool) -> str:
    if computed:
        return f"Invalid or unknown key. {path!r} is set by the provider: remove it."
    close = get_close_matches(key, [n for n, p in properties.items() if p.is_input], n=1)
    return f"Invalid or unknown key. Examine values at '{path}'." + (f" Did you mean '{close[0]}'?" if close else "")


def _refused_value(each: Property, value: Value, root: Mapping[str, Value], path: str) -> Iterator[Failure]:
    if each.is_object:
        if isinstance(value, Mapping):
            yield from _refused(each.properties, value, root, path + ".")
        else:
            yield _wrong_type("object", value, path)
    elif each.is_many:
        yield from _refused_list(each, value, root, path)
    elif each.kind == "Map":
        if not isinstance(value, Mapping):
            yield _wrong_type("object", value, path)
        else:
            for key, entry in value.items():
                if key != DEFAULTS and not _fits(each.element, entry):
                    yield _wrong_type(_PULUMI_NAMES[each.element], entry, f'{path}["{key}"]')
    elif not _fits(each.scalar_kind, value):
        yield _wrong_type(_PULUMI_NAMES[each.scalar_kind], value, path)


def _refused_list(each: Property, value: Value, root: Mapping[str, Value], path: str) -> Iterator[Failure]:
    if not isinstance(value, list):
        yield _wrong_type("list", value, path)
        return
    if each.max_items and len(value) > each.max_items:
        yield Failure(path, f"Too many list items. {path!r} takes at most {each.max_items}, {len(value)} were given.")
    if len(value) < each.min_items:
        yield Failure(
            path, f"Not enough list items. {path!r} takes at least {each.min_items}, {len(value)} were given."
        )
    for index, entry in enumerate(value):
        where = f"{path}[{index}]"
        if entry is UNKNOWN or entry is None:
            continue
        if each.element == "object":
            if isinstance(entry, Mapping):
                yield from _refused(each.properties, entry, root, where + ".")
            else:
                yield _wrong_type("object", entry, where)
        elif not _fits(each.element, entry):
            yield _wrong_type(_PULUMI_NAMES[each.element], entry, where)


def _conflicts(properties: Mapping[str, Property], given: Mapping[str, Value], prefix: str) -> Iterator[Failure]:
    """conflictsWith and exactlyOneOf among siblings (the table names them by Terraform path)."""
    names = {p.terraform: n for n, p in properties.items()}
    present = {n for n in properties if given.get(n) is not None}
    groups_seen: set[frozenset[str]] = set()
    pairs_seen: set[frozenset[str]] = set()
    for key, each in properties.items():
        rivals = [names[t] for t in (c.rsplit(".", 1)[-1] for c in each.conflicts_with) if t in names]
        for rival in rivals:
            if {key, rival} <= present and frozenset({key, rival}) not in pairs_seen:
                pairs_seen.add(frozenset({key, rival}))
                yield Failure(prefix + key, f'Conflicting configuration arguments. "{key}" conflicts with {rival}.')
        group = frozenset(names[t] for t in (c.rsplit(".", 1)[-1] for c in each.exactly_one_of) if t in names)
        if len(group) > 1 and group not in groups_seen:
            groups_seen.add(group)
            chosen = sorted(group & present)
            if len(chosen) != 1:
                found = " and ".join(chosen) or "none"
                reason = f"Invalid combination of arguments. Exactly one of {', '.join(sorted(group))} must be given"
                yield Failure(prefix + (chosen[0] if chosen else key), f"{reason}, found: {found}.")


_PULUMI_NAMES = {"String": "string", "Int": "number", "Float": "number", "Bool": "bool", "object": "object"}


def _fits(kind: str, value: Value) -> bool:
    if value is UNKNOWN or value is None:
        return True
    normal = _scalar(kind, value)
    match kind:
        case "Int":
            return isinstance(normal, int) and not isinstance(normal, bool)
        case "Float":
            return isinstance(normal, int | float) and not isinstance(normal, bool)
        case "Bool":
            return isinstance(normal, bool)
        case _:
            return isinstance(normal, str)


def _wrong_type(expected: str, value: Value, path: str) -> Failure:
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "list", dict: "object"}
    actual = kinds.get(type(value), type(value).__name__)
    return Failure(path, f"expected {expected} type, got {value!r} of type {actual}. Examine values at '{path}'.")
