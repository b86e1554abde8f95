"""Bodies: for the inputs of three recorded stacks, the stand-in sends what the real plugin sent for them.

Zeros, nulls, empty objects and whole URLs are compared as well, and there is no list of tolerated differences. Of a
policy that several resources write, the last body is compared: which resource writes first is chance, and the real
plugin sends several members at once where it can.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest

from sandbox import google
from sandbox.plugins.gcp.mapping import get
from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.tests.gcp_plugin_support import config_at, configured, plain_outputs, subject
from sandbox.tests.replay.recording import NAMES, RUNS, ZONES, recorded_run

Json = dict[str, Any]
Key = tuple[str, str, str, str, str]
"""Phase, method, path, query and the name in the body: one resource's call."""

# What is never the same twice, and what stands for it on both sides.
VARYING: tuple[tuple[str, str], ...] = (
    (r"-\d{18}[0-9a-f]{8}$", "-TIME"),  # the end of a template's name
    (r"(?<=-)[0-9a-f]{7}(?=/|$)", "RANDOM"),  # the end of a name that the plugin makes up
    (r"\b\d{16,20}\b", "NUMBER"),  # what the server numbers: disks, templates
    (r"^10\.0\.0\.\d+$", "ADDRESS"),  # in the order in which addresses are asked for
    (r"\b(EMULATOR|HOST:PORT|127\.0\.0\.1:\d+)", "SERVER"),  # the recording does not keep where things listened
)
MADE_UP = frozenset({"etag"})
# Lists that are sets in the provider, which sends them in the order of its hashes.
SETS = frozenset({"allowed", "items", "sourceRanges", "targetServiceAccounts"})
# What a second preview shows all the same, by run, and why.
SHOWN = {
    # The program of that time asked for a vulnerability scan, which Google has shut down since: it is read as disabled.
    "dev": ["cluster-gke: securityPostureConfig.vulnerabilityMode"],
    "all": ["cluster-gke: securityPostureConfig.vulnerabilityMode"],
}
REFERENCE = re.compile(r"\$\{(\w+) ([\w-]+)\.([\w.]+)\}")
WRITES = ("POST", "PATCH", "PUT")


@cache
def _inputs() -> dict[str, list[Json]]:
    """Per run the inputs of its resources, in the order of their creation."""
    with gzip.open(RUNS / "inputs.json.gz", "rt") as file:
        runs: dict[str, list[Json]] = json.load(file)
    return runs


class Spy(httpx.HTTPTransport):
    """The network, with an ear on it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, str, str, Any]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.sent.append((request.method, request.url.path, request.url.query.decode(), body))
        return super().handle_request(request)


class Stack:
    """A stack of recorded inputs in the hands of the stand-in: created, looked at again, deleted."""

    def __init__(self, provider: GcpProvider) -> None:
        self.provider = provider
        self.made: dict[tuple[str, str], tuple[Json, str, Json]] = {}

    def create(self, token: str, name: str, inputs: Json) -> None:
        about = subject(token, name)
        checked = self.provider.check(about, {}, self._resolved(inputs), b"")
        assert checked.failures == []
        state = self.provider.create(about, dict(checked.inputs), 0, False)
        self.made[token, name] = (dict(checked.inputs), state.id, plain_outputs(state.outputs))

    def changes(self) -> Iterator[str]:
        """What a second preview would show."""
        for (token, name), (inputs, _id, outputs) in self.made.items():
            for change in self.provider.diff(subject(token, name), outputs, inputs, ()).changes:
                yield f"{name}: {change.path}"

    def delete(self) -> None:
        for (token, name), (_inputs, identity, outputs) in reversed(self.made.items()):
            self.provider.delete(subject(token, name), identity, outputs, 0)

    def _resolved(self, value: Any) -> Any:
        """The inputs with outputs where the recording has references to them."""
        if isinstance(value, dict):
            return {k: self._resolved(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self._resolved(v) for v in value]
        return REFERENCE.sub(self._output, value) if isinstance(value, str) else value

    def _output(self, reference: re.Match[str]) -> str:
        kind, name, path = reference.groups()
        [outputs] = [o for (t, n), (_, _, o) in self.made.items() if (t.rsplit(":", 1)[-1], n) == (kind, name)]
        return str(get(outputs, path))


Calls = dict[Key, Any]


def _keyed(phase: str, calls: Iterator[tuple[str, str, str, Any]]) -> Calls:
    """The writing calls by what they are about, the last of each."""
    found: Calls = {}
    for method, path, query, body in calls:
        if method in WRITES:
            parts = sorted(p for p in query.split("&") if p not in ("", "alt=json", "prettyPrint=false"))
            found[phase, method, _plain(path), "&".join(parts), _plain(_own_name(body))] = _plain(body)
    return found


def _own_name(body: Any) -> str:
    held = body or {}
    named = held.get("cluster") or held.get("nodePool") or held
    return str(named.get("name") or named.get("accountId") or "")


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _plain(v, k) for k, v in value.items()}
    if isinstance(value, list):
        items = [_plain(item) for item in value]
        return sorted(items, key=json.dumps) if key in SETS else items
    if not isinstance(value, str):
        return value
    if key in MADE_UP:
        return bool(value)
    for pattern, stand_in in VARYING:
        value = re.sub(pattern, stand_in, value)
    return value


def _recorded(name: str) -> Calls:
    run = recorded_run(name)
    found: Calls = {}
    for phase in ("up", "destroy"):
        found |= _keyed(phase, ((r.method, r.path, r.query, r.body) for r in run if r.phase == phase))
    return found


@cache
def _played(name: str) -> tuple[Calls, list[str]]:
    """What the stand-in sends for a run's inputs, and what a second preview of them shows."""
    with google.serving(time_scale=0) as emulator:
        for zone in ZONES:
            httpx.post(f"{emulator.url}/sandbox/zones", json=zone).raise_for_status()
        spy = Spy()
        provider = configured(spy, **{**config_at(emulator.url), "project": "my-project"})
        stack = Stack(provider)
        for row in _inputs()[name]:
            stack.create(row["type"], row["name"], row["inputs"])
        sent = _keyed("up", iter(spy.sent))
        changes = list(stack.changes())
        spy.sent.clear()
        stack.delete()
        provider.cancel()
        return sent | _keyed("destroy", iter(spy.sent)), changes


@pytest.mark.parametrize("name", NAMES)
def test_the_same_calls_are_made(name: str) -> None:
    assert _played(name)[0].keys() == _recorded(name).keys()


@pytest.mark.parametrize(
    ("name", "key"), [pytest.param(n, k, id=f"{n} {' '.join(filter(None, k))}") for n in NAMES for k in _recorded(n)]
)
def test_the_recorded_body_is_sent(name: str, key: Key) -> None:
    """Finding: explicit nulls, empty objects and zeros of the real plugin's bodies were missing from the stand-in's."""
    assert _played(name)[0].get(key) == _recorded(name)[key]


@pytest.mark.parametrize("name", NAMES)
def test_a_second_preview_is_clean(name: str) -> None:
    assert _played(name)[1] == SHOWN.get(name, [])
