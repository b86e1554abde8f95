"""What `pulumi import` cannot write into a state: that a resource took another one's place, and what each depends on.

Without the latter a `destroy` before the next `up` would delete in the wrong order, and also what is to be kept.
The format is that of `pulumi stack export`; the engine checks it (upstream: pkg/resource/deploy/snapshot.go).
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tools.recover.checkpoint import Resource

Row = dict[str, Any]

OPTIONS = ("retainOnDelete", "customTimeouts", "resourceHooks")
"""What the engine reads from the state when it deletes a resource, beside what it depends on."""
UNTIL_DONE = {"gcp:container/cluster:Cluster": ("removeDefaultNodePool",)}
"""Inputs that the provider acts on after Google has made the resource. They are left out, so that `up` sees a change
and does what a killed creation may not have done."""


def completed(exported: Mapping[str, Any], noted: Iterable[Resource], replacing: Mapping[str, str]) -> dict[str, Any]:
    """The state in which each resource of `noted` has what the engine noted of it. `replacing`: ids, by URN, of those
    that took the place of one in the state; that one is marked as still to be deleted, if it exists."""
    whole = copy.deepcopy(dict(exported))
    rows: list[Row] = whole["deployment"]["resources"]
    for resource in noted:
        if resource.urn in replacing:
            rows = list(_replaced(rows, resource, replacing[resource.urn]))
    there = {row["urn"]: row for row in rows if not row.get("delete")}
    for resource in noted:
        if resource.urn in there:
            _complete(there[resource.urn], resource, there)
    whole["deployment"]["resources"] = _sorted(rows, there)
    return whole


def _replaced(rows: Iterable[Row], resource: Resource, identity: str) -> Iterator[Row]:
    for row in rows:
        if row["urn"] != resource.urn or row.get("delete"):
            yield row
            continue
        without = UNTIL_DONE.get(resource.type, ())
        inputs = {key: value for key, value in resource.inputs.items() if key not in without}
        yield {**copy.deepcopy(dict(resource.row)), "id": identity, "inputs": inputs, "outputs": {}}
        if not row.get("pendingReplacement"):
            yield {**row, "delete": True}


def _complete(row: Row, resource: Resource, there: Mapping[str, Row]) -> None:
    """Notes the options, and of what the resource depends on what the state has."""
    noted = resource.row
    row.update({key: noted[key] for key in OPTIONS if noted.get(key)})
    row["dependencies"] = [urn for urn in noted.get("dependencies") or () if urn in there]
    by_input = noted.get("propertyDependencies") or {}
    row["propertyDependencies"] = {key: [urn for urn in urns or () if urn in there] for key, urns in by_input.items()}
    row.pop("deletedWith", None)
    if noted.get("deletedWith") in there:
        row["deletedWith"] = noted["deletedWith"]
    if resource.provider in there:
        row["provider"] = f"{resource.provider}::{there[resource.provider]['id']}"


def _sorted(rows: Iterable[Row], there: Mapping[str, Row]) -> list[Row]:
    """Each row after those that it refers to, otherwise in the order that they have."""
    found: list[Row] = []
    begun: set[int] = set()

    def place(row: Row) -> None:
        if id(row) in begun:
            return
        begun.add(id(row))
        for urn in _references(row):
            if urn in there:
                place(there[urn])
        found.append(row)

    for row in rows:
        place(row)
    return found


def _references(row: Row) -> Iterator[str]:
    yield from (str(row.get("parent") or ""), str(row.get("provider") or "").rpartition("::")[0])
    yield from row.get("dependencies") or ()
    yield from (urn for urns in (row.get("propertyDependencies") or {}).values() for urn in urns or ())
    yield str(row.get("deletedWith") or "")
    yield from row.get("replaceWith") or ()
