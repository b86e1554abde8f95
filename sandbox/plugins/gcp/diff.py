"""Diff: what changes between the state and the new inputs, and whether it takes a replacement.

The rules are the Terraform SDK's as the bridge applies them: a property the program does not set keeps its value when
the API computes it and else goes back to nothing; unknown values always count as changed; `forceNew` on a block fires
when the block comes or goes, its nested properties carry flags of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sandbox.plugins.gcp import dashboards, links
from sandbox.plugins.gcp.check import DEFAULTS
from sandbox.plugins.gcp.schema import Property, Schema
from sandbox.plugins.provider import Change, Difference
from sandbox.plugins.values import UNKNOWN

Value = Any
# Properties (by their Terraform name) whose texts are compared as they are: a reservation of the own project is another
# one than that of the same name in another project.
EXACT = frozenset({"values"})
# A range that is given by its size alone ("/24") is read as what was assigned (provider: IpCidrRangeDiffSuppress).
RANGE = "ip_cidr_range"
# Buckets keep their place in capitals, whatever the program writes (provider: StateFunc); no two places differ by that.
LOCATION = "location"
# A whole dashboard, as JSON text.
DASHBOARD = "dashboard_json"
# Decides from (old, new) whether a change that the table calls an update takes a replacement.
Rule = Callable[[Value, Value], bool]


def diff(
    schema: Schema,
    olds: Mapping[str, Value],
    news: Mapping[str, Value],
    rules: Mapping[str, Rule] | None = None,
    ignore: Sequence[str] = (),
) -> Difference:
    """The difference between state outputs `olds` and checked inputs `news`.

    `rules` hold what the provider decides in code, by property path; `ignore` are the paths of `ignore_changes`.
    """
    changes = [
        _ruled(change, olds, news, rules or {})
        for change in _object(schema.properties, news, olds, "")
        if not any(_covers(path, change.path) for path in ignore)
    ]
    return Difference(changes, delete_before_replace=schema.delete_before_replace or _named_by_program(news))


def _named_by_program(news: Mapping[str, Value]) -> bool:
    """An explicit name cannot exist twice: the old resource must go first (bridge: nameRequiresDeleteBeforeReplace)."""
    return news.get("name") is not None and "name" not in (news.get(DEFAULTS) or ())


def _covers(ignored: str, path: str) -> bool:
    return path == ignored or path.startswith((ignored + ".", ignored + "["))


def _ruled(change: Change, olds: Mapping[str, Value], news: Mapping[str, Value], rules: Mapping[str, Rule]) -> Change:
    rule = rules.get(re.sub(r"\[\d+\]", "", change.path))
    if rule is None or change.replace:
        return change
    return replace(change, replace=rule(at(olds, change.path), at(news, change.path)))


def at(values: Mapping[str, Value], path: str) -> Value:
    """The value at a change's path; None where there is none."""
    found: Value = values
    for name, index in re.findall(r"([^.\[\]\"]+)|\[(\d+)\]", path):
        if index:
            found = found[int(index)] if isinstance(found, list) and int(index) < len(found) else None
        else:
            found = found.get(name) if isinstance(found, Mapping) else None
    return found


def is_empty(value: Value) -> bool:
    """Whether a value is what an unset property reads as: nothing, a zero, or a block of nothing but zeros."""
    if isinstance(value, Mapping):
        return all(is_empty(v) for k, v in value.items() if k != DEFAULTS)
    if isinstance(value, list):
        return not value
    return value is None or value is UNKNOWN or value in ("", 0, False)


def _object(
    properties: Mapping[str, Property], news: Mapping[str, Value], olds: Mapping[str, Value], prefix: str
) -> Iterator[Change]:
    for name, each in properties.items():
        if each.is_input:
            yield from property_changes(each, news.get(name), olds.get(name), prefix + name)


def property_changes(each: Property, new: Value, old: Value, path: str) -> Iterator[Change]:
    if new is None:
        if not each.computed and not is_empty(old):
            yield Change(path, "delete", each.force_new or _forces(each, old))
    elif new is UNKNOWN:
        yield Change(path, "add" if is_empty(old) else "update", each.force_new)
    elif each.is_object:
        if isinstance(old, Mapping):
            yield from _object(each.properties, new, old, path + ".")
        elif not (each.computed and is_empty(new)):
            yield Change(path, "add", each.force_new or _forces(each, new))
    elif each.kind == "Map":
        yield from _map(each, new, old, path)
    elif each.kind == "Set" and each.is_many:
        yield from _set(each, new, old or [], path)
    elif each.is_many:
        yield from _list(each, new, old or [], path)
    elif not _same_scalar(each, new, old):
        yield Change(path, "add" if old is None else "update", each.force_new)


def _forces(each: Property, block: Value) -> bool:
    """Whether a block that comes or goes holds a value whose own change takes a replacement."""
    entries = block if isinstance(block, list) else [block]
    return any(
        (child.force_new and not is_empty(entry.get(name))) or _forces(child, entry.get(name))
        for entry in entries
        if isinstance(entry, Mapping)
        for name, child in each.properties.items()
        if child.is_input
    )


def _same_scalar(each: Property, new: Value, old: Value) -> bool:
    if old is None:
        # An empty string or a zero is how the API shows "not set"; False and 0 are values of their own in the program.
        return is_empty(new)
    if each.terraform == RANGE and str(new).startswith("/"):
        return str(old).endswith(new)
    if each.terraform == LOCATION:
        return str(new).upper() == str(old).upper()
    if each.terraform == DASHBOARD:
        return dashboards.same(new, str(old))
    if isinstance(new, str) and isinstance(old, str) and each.terraform not in EXACT:
        return links.same(new, old)
    if each.scalar_kind in ("Int", "Float", "Bool") and isinstance(old, str):
        return str(new).lower() == old.lower()
    return bool(new == old)


def _map(each: Property, new: Mapping[str, Value], old: Value, path: str) -> Iterator[Change]:
    new = {k: v for k, v in new.items() if k != DEFAULTS}
    if old is None:
        if new:
            yield Change(path, "add", each.force_new)
        return
    for key in sorted({*new, *old}):
        where = f"{path}.{key}" if re.fullmatch(r"\w+", key) else f'{path}["{key}"]'
        if key not in old:
            yield Change(where, "add", each.force_new)
        elif key not in new:
            yield Change(where, "delete", each.force_new)
        elif new[key] is UNKNOWN or str(new[key]) != str(old[key]):
            yield Change(where, "update", each.force_new)


def _entry_changes(each: Property, new: Value, old: Value, path: str) -> list[Change]:
    if new is UNKNOWN:
        return [Change(path, "update", each.force_new)]
    if each.element == "object":
        return list(_object(each.properties, new, old, path + "."))
    return [] if _same_scalar(each, new, old) else [Change(path, "update", each.force_new)]


def _list(each: Property, new: list[Value], old: list[Value], path: str) -> Iterator[Change]:
    if bool(new) != bool(old):
        yield Change(path, "add" if new else "delete", each.force_new or _forces(each, new or old))
        return
    for index in range(max(len(new), len(old))):
        where = f"{path}[{index}]"
        if index >= len(old):
            yield Change(where, "add", each.force_new or _forces(each, new[index]))
        elif index >= len(new):
            yield Change(where, "delete", each.force_new or _forces(each, old[index]))
        else:
            yield from _entry_changes(each, new[index], old[index], where)


def _set(each: Property, new: list[Value], old: list[Value], path: str) -> Iterator[Change]:
    if bool(new) != bool(old):
        yield Change(path, "add" if new else "delete", each.force_new or _forces(each, new or old))
        return
    unmatched = list(range(len(old)))
    added = []
    for index, entry in enumerate(new):
        match = next((o for o in unmatched if not _entry_changes(each, entry, old[o], path)), None)
        if match is None:
            added.append(index)
        else:
            unmatched.remove(match)
    for index in sorted({*added, *unmatched}):
        kind = "update" if index in added and index in unmatched else "add" if index in added else "delete"
        forced = any(_forces(each, side[index]) for side in (new, old) if index < len(side))
        yield Change(f"{path}[{index}]", kind, each.force_new or forced)
