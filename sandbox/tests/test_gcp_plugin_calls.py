"""Calls: for the inputs recorded with the real plugin, the stand-in makes the calls recorded from it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.tests.gcp_plugin_support import (
    DATA,
    FakeGoogle,
    configured,
    plain_outputs,
    recorded_names,
    recorded_state,
    subject,
)

TRAFFIC = [row for row in json.loads((DATA / "provider_traffic.json").read_text()) if row["name"] in recorded_names()]
Json = dict[str, Any]

# Where the stand-in's bodies differ from the recorded ones: (method, path pattern, path in the body) and why that is
# no difference to the API. The value is dropped on both sides before they are compared.
TOLERATED: dict[tuple[str, str, str], str] = {
    ("POST", r".*/instanceTemplates", "name"): "made of a prefix and the time",
    ("POST", r".*/instanceGroupManagers", "versions.instanceTemplate"): "the number the server gave the template",
}
# Calls of the real plugin that the stand-in does not make, or makes in other numbers: (type, method, path) and why.
TOLERATED_CALLS: dict[tuple[str, str, str], str] = {
    ("gcp:container/nodePool:NodePool", "GET", r".*/instanceGroupManagers"): (
        "the real plugin answers it from a cache when it has listed the zone a moment ago"
    ),
    (
        "gcp:container/nodePool:NodePool",
        "GET",
        r".*/clusters/tpu",
    ): "the real plugin looks at the cluster after updates",
}
# The fake numbers templates and instances in its own way.
NUMBERS = re.compile(r"(instanceTemplates/)(\d+|tpu-\d+[0-9a-f]*)$")


def _calls(token: str, calls: list[Json]) -> list[Json]:
    """The calls in comparable form. Repeated reads collapse: the real plugin reads on to be sure of consistency."""
    comparable: list[Json] = []
    for call in calls:
        if any(t == token and m == call["method"] and re.fullmatch(p, call["path"]) for t, m, p in TOLERATED_CALLS):
            continue
        path = NUMBERS.sub(r"\1N", call["path"])
        body = _body(call["method"], call["path"], copy.deepcopy(call.get("body")))
        query = sorted((call.get("query") or "").replace("%2F", "/").replace("%2C", ",").replace("%3A", ":").split("&"))
        seen = {"method": call["method"], "path": path, "query": query, "body": body, "status": call["status"]}
        if not (comparable and comparable[-1] == seen and _is_read(seen)):
            comparable.append(seen)
    return _order_of_pool_reads(comparable)


def _is_read(call: Json) -> bool:
    return bool(call["method"] == "GET" or call["path"].endswith(":getIamPolicy"))


def _order_of_pool_reads(calls: list[Json]) -> list[Json]:
    """Reads in a row, sorted: after create the list of pools is read before the pool, after update the other way."""
    ordered: list[Json] = []
    reads: list[Json] = []
    for call in [*calls, None]:
        if call is not None and call["method"] == "GET" and "/nodePools" in call["path"]:
            reads.append(call)
            continue
        ordered += sorted(reads, key=lambda c: c["path"])
        reads = []
        ordered += [] if call is None else [call]
    return ordered


def _body(method: str, path: str, body: Any) -> Any:
    for (wanted, pattern, where), _why in TOLERATED.items():
        if wanted == method and re.fullmatch(pattern, path):
            _drop(body, where.split("."))
    return _sets_sorted(body)


def _drop(body: Any, steps: list[str]) -> None:
    if isinstance(body, list):
        for entry in body:
            _drop(entry, steps)
    elif isinstance(body, dict) and len(steps) == 1:
        body.pop(steps[0], None)
    elif isinstance(body, dict):
        _drop(body.get(steps[0]), steps[1:])


def _sets_sorted(body: Any) -> Any:
    """Lists that are sets in the provider travel in hash order."""
    if isinstance(body, dict):
        return {k: _sets_sorted(v) for k, v in body.items()}
    return sorted((_sets_sorted(v) for v in body), key=repr) if isinstance(body, list) else body


def _rows(phase: str) -> Iterator[Json]:
    return (row for row in TRAFFIC if row["phase"] == phase)


def _recorded(phase: str, name: str) -> list[Json]:
    [row] = [r for r in _rows(phase) if r["name"] == name]
    calls: list[Json] = row["calls"]
    return calls


class World:
    """A fake API in which every recorded resource up to the one under test exists."""

    def __init__(self) -> None:
        self.google = FakeGoogle()
        self.provider: GcpProvider = configured(self.google)
        self.ids: dict[str, str] = {}
        self.outputs: dict[str, Json] = {}

    def create(self, name: str) -> list[Json]:
        """Create a recorded resource; the calls it took."""
        row = recorded_state(name)
        inputs = row["inputs"]
        if name == "mig":
            inputs["versions"][0]["instanceTemplate"] = self.outputs["tm"]["selfLinkUnique"]
        start = len(self.google.calls)
        state = self.provider.create(subject(row["type"], name), inputs, 0, False)
        self.ids[name], self.outputs[name] = state.id, plain_outputs(state.outputs)
        return self.google.calls[start:]

    def update(self, name: str, news: Json) -> list[Json]:
        row = recorded_state(name)
        start = len(self.google.calls)
        about = subject(row["type"], name)
        self.outputs[name] = plain_outputs(
            self.provider.update(about, self.ids[name], self.outputs[name], news, (), 0, False)
        )
        return self.google.calls[start:]

    def delete(self, name: str) -> list[Json]:
        row = recorded_state(name)
        start = len(self.google.calls)
        self.provider.delete(subject(row["type"], name), self.ids[name], self.outputs[name], 0)
        return self.google.calls[start:]


@pytest.fixture(scope="module")
def life() -> dict[str, dict[str, list[Json]]]:
    """The calls of a whole life: everything created, each node pool's label edited, everything deleted."""
    world = World()
    calls: dict[str, dict[str, list[Json]]] = {"up": {}, "edit": {}, "destroy": {}}
    for name in recorded_names():
        calls["up"][name] = world.create(name)
    for row in _rows("edit"):
        news = recorded_state(row["name"])["inputs"]
        news["nodeConfig"]["labels"] = {"a": "c"}
        calls["edit"][row["name"]] = world.update(row["name"], news)
    for row in _rows("destroy"):
        calls["destroy"][row["name"]] = world.delete(row["name"])
    # What is left is what the real plugin leaves as well: services stay enabled.
    assert [p for p in world.google.objects if "/disks/" not in p and not re.search(r"Templates/\d+$|/gke-", p)] == []
    return calls


@pytest.mark.parametrize(
    ("phase", "name"), [(r["phase"], r["name"]) for r in TRAFFIC if r["phase"] in ("up", "edit", "destroy")]
)
def test_the_recorded_calls_are_made(life: dict[str, dict[str, list[Json]]], phase: str, name: str) -> None:
    token = recorded_state(name)["type"]
    assert _calls(token, life[phase][name]) == _calls(token, _recorded(phase, name))


def test_every_tolerance_is_needed() -> None:
    """A tolerance that no recorded body needs would hide differences to come."""
    bodies = [(c["method"], c["path"], c.get("body")) for row in TRAFFIC for c in row["calls"]]
    for method, pattern, where in TOLERATED:
        assert any(m == method and re.fullmatch(pattern, p) and _has(b, where.split(".")) for m, p, b in bodies), (
            f"{method} {pattern} {where}"
        )


def _has(body: Any, steps: list[str]) -> bool:
    if isinstance(body, list):
        return any(_has(entry, steps) for entry in body)
    return isinstance(body, dict) and steps[0] in body and (len(steps) == 1 or _has(body[steps[0]], steps[1:]))


@pytest.mark.parametrize("name", recorded_names())
def test_nothing_changes_after_create(name: str) -> None:
    """What the API answers maps back to outputs that equal the inputs: the second preview is clean."""
    world = World()
    for needed in ("rt", "tm"):
        if needed != name:
            world.create(needed)
    world.create(name)
    row = recorded_state(name)
    if name == "mig":
        row["inputs"]["versions"][0]["instanceTemplate"] = world.outputs["tm"]["selfLinkUnique"]
    about = subject(row["type"], name)
    assert list(world.provider.diff(about, world.outputs[name], row["inputs"], ()).changes) == []
    read = world.provider.read(about, world.ids[name], row["inputs"], world.outputs[name])
    assert plain_outputs(read.outputs) == world.outputs[name]
    assert read.inputs == row["inputs"]


@pytest.mark.parametrize("name", recorded_names())
def test_ids_and_outputs_are_the_recorded_ones(name: str) -> None:
    """Outputs that programs use (ids, links, emails) come out as the real plugin stored them."""
    world = World()
    for needed in ("rt", "tm"):
        if needed != name:
            world.create(needed)
    world.create(name)
    recorded = recorded_state(name)
    ours = world.outputs[name]
    generated = {"tm"}
    if name not in generated:
        assert world.ids[name] == recorded["id"]
        assert ours["id"] == recorded["id"]
    for key in (
        "project",
        "region",
        "zone",
        "location",
        "email",
        "member",
        "name",
        "deletionPolicy",
        "cluster",
        "nodeCount",
    ):
        if recorded["outputs"].get(key) is not None and (key, name) != ("name", "tm"):
            assert ours[key] == recorded["outputs"][key], key
    world.provider.delete(subject(recorded["type"], name), world.ids[name], ours, 0)
    # Deleting what is gone already succeeds.
    world.provider.delete(subject(recorded["type"], name), world.ids[name], ours, 0)
