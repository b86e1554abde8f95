"""A recorded graph made for real in the emulated cloud, and what the engine would plan for the next one.

Every Google resource goes through the stand-in plugin's own check, create and diff, over HTTP, to the emulator, which
holds bodies against Google's discovery documents and fills in what Google fills in. This stands for the engine, without
its process: resources are made one after the other in the order of registration, and `plan` applies the engine's rules
for ignored changes, replacements and their dependents (upstream: `pkg/resource/deploy/step_generator.go`, functions
`processIgnoreChanges`, `applyReplaceOnChanges` and `calculateDependentReplacements`). It differs: what depends on
a replaced resource is planned alike whichever of the two goes first, and what runs inside the cluster is left out.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from plan import stack_state
from sandbox import google
from sandbox.plugins.provider import Change, Subject
from sandbox.plugins.values import UNKNOWN, plain, unmarshal
from sandbox.tests.gcp_plugin_support import CONFIG, HOST, configured
from tests.graph.recording import GraphMonitor, Update, record_main, short

Json = dict[str, Any]
PROJECT = "my-project"
SEED = b"any"

SAME, UPDATE, CREATE, DELETE = "same", "update", "create", "delete"
DELETE_FIRST, CREATE_FIRST = "replace, delete first", "replace, create first"
REFUSED = "refused, protected"


def recorded(platform: Mapping[str, Any]) -> GraphMonitor:
    """The graph of a platform, as YAML would give it."""
    return record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(platform)})


@dataclass(frozen=True)
class Standing:
    """A resource that exists: how the program registered it, its checked inputs and its state."""

    request: Any
    inputs: Json
    outputs: Json


@dataclass(frozen=True)
class Planned:
    """What the engine would do with a resource, and which properties make it do so."""

    outcome: str
    changes: Sequence[Change] = ()


@dataclass
class EmulatedCloud:
    """An emulated project with the resources of a graph in it."""

    url: str
    standing: dict[str, Standing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        endpoints = {key: value.replace(HOST, self.url) for key, value in CONFIG.items() if key.endswith("Endpoint")}
        self._provider = configured(None, **endpoints)
        # What the recorder makes up (ids, computed outputs) -> what the cloud gives.
        self._real: Json = {}
        # What the recorder makes up -> the resource it made it up for.
        self._maker: dict[str, str] = {}

    @property
    def state(self) -> stack_state.Standing:
        """What the engine would have in its state."""
        return stack_state.Standing({urn: found.outputs for urn, found in self.standing.items()})

    def close(self) -> None:
        self._provider.cancel()

    def control(self, path: str, **body: Any) -> None:
        """Steer the emulator through its interface below /sandbox."""
        httpx.post(f"{self.url}/sandbox/{path}", json=body, trust_env=False).raise_for_status()

    def call(self, method: str, path: str, body: Json) -> None:
        """A call that somebody else makes of Google's APIs, say for a network that exists before the platform."""
        headers = {"Authorization": "Bearer token"}
        httpx.request(method, f"{self.url}{path}", json=body, headers=headers, trust_env=False).raise_for_status()

    def writes(self) -> list[Json]:
        """The requests with a body that the cloud has received: method, path, query, body, status."""
        traffic = httpx.get(f"{self.url}/sandbox/traffic", trust_env=False).json()
        return [row for row in traffic if row["body"]]

    def make(self, monitor: GraphMonitor) -> None:
        """Create every Google resource of a graph. Raises ProviderError where the cloud refuses."""
        for urn, request in _google(monitor):
            subject = Subject.of(urn)
            inputs = self._checked(subject, {}, self._inputs(request))
            state = self._provider.create(subject, copy.deepcopy(inputs), 0, False)
            outputs = plain(dict(state.outputs))
            self.standing[urn] = Standing(request, inputs, outputs)
            self._real[f"{request.name}-id"] = outputs["id"]
            for key, made_up in Update.computed(request.type, request.name).items():
                if isinstance(made_up, str):
                    self._real[made_up] = outputs[key]
                    self._maker[made_up] = urn

    def plan(self, monitor: GraphMonitor) -> dict[str, Planned]:
        """What the engine would do to get from what stands to another graph, by short resource name."""
        planned: dict[str, Planned] = {}
        replaced: set[str] = set()
        for urn, request in _google(monitor):
            if urn not in self.standing:
                planned[short(urn)] = Planned(CREATE)
                continue
            found = self._planned(urn, request, replaced)
            if found.outcome in (DELETE_FIRST, CREATE_FIRST):
                replaced.add(urn)
            planned[short(urn)] = found
        for urn in self.standing.keys() - monitor.requests.keys():
            planned[short(urn)] = Planned(REFUSED if self.standing[urn].request.protect else DELETE)
        return planned

    def update(self, monitor: GraphMonitor) -> None:
        """Change what stands as the graph says, where nothing is made, replaced or deleted; then read all again."""
        for urn, request in _google(monitor):
            subject, standing = Subject.of(urn), self.standing[urn]
            inputs = self._inputs(request)
            ignored = list(request.ignoreChanges)
            for path in ignored:
                _reset(inputs, standing.inputs, path.split("."))
            news = self._checked(subject, standing.inputs, inputs)
            outputs, identity = standing.outputs, str(standing.outputs["id"])
            if self._changes(subject, standing, news, request)[0]:
                made = self._provider.update(subject, identity, outputs, copy.deepcopy(news), ignored, 0, False)
                outputs = plain(dict(made))
            read = self._provider.read(subject, identity, copy.deepcopy(news), outputs)
            self.standing[urn] = Standing(request, news, plain(dict(read.outputs)))

    def _planned(self, urn: str, request: Any, replaced: set[str]) -> Planned:
        subject, standing = Subject.of(urn), self.standing[urn]
        if self._falls_with(standing, subject, replaced):
            return self._replacement(standing, request, [], delete_first=True)
        ignored = list(request.ignoreChanges)
        inputs = self._inputs(request)
        for path in ignored:
            _reset(inputs, standing.inputs, path.split("."))
        news = self._checked(subject, standing.inputs, inputs)
        for key in _unknown(request, replaced):
            news[key] = UNKNOWN
        changes, by_provider = self._changes(subject, standing, news, request)
        triggered = self._maker.get(request.replacement_trigger.string_value) in replaced
        if triggered or any(change.replace for change in changes):
            asked = request.deleteBeforeReplaceDefined or request.deleteBeforeReplace
            first = request.deleteBeforeReplace if asked else by_provider
            return self._replacement(standing, request, changes, delete_first=first)
        return Planned(UPDATE if changes else SAME, changes)

    def _replacement(
        self, standing: Standing, request: Any, changes: Sequence[Change], *, delete_first: bool
    ) -> Planned:
        if request.protect and standing.request.protect:
            return Planned(REFUSED, changes)
        return Planned(DELETE_FIRST if delete_first else CREATE_FIRST, changes)

    def _changes(self, subject: Subject, standing: Standing, news: Json, request: Any) -> tuple[list[Change], bool]:
        """The provider's changes under the program's replace_on_changes, and whether it wants the old to go first."""
        found = self._provider.diff(subject, standing.outputs, news, list(request.ignoreChanges))
        forced = tuple(request.replaceOnChanges)
        changes = [
            Change(change.path, change.kind, change.replace or any(_contains(path, change.path) for path in forced))
            for change in found.changes
        ]
        return changes, found.delete_before_replace and found.replaces

    def _falls_with(self, standing: Standing, subject: Subject, replaced: set[str]) -> bool:
        """Whether a resource must be replaced because what its properties depend on is deleted first."""
        unknown = _unknown(standing.request, replaced)
        if not unknown:
            return False
        inputs = {**standing.inputs, **dict.fromkeys(unknown, UNKNOWN)}
        changes, _ = self._changes(subject, standing, inputs, standing.request)
        return any(change.replace for change in changes)

    def _inputs(self, request: Any) -> Json:
        """The registered inputs, with what the recorder made up replaced by what the cloud gave."""
        inputs: Json = self._with_real(plain(unmarshal(request.object)))
        return inputs

    def _with_real(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._with_real(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_real(item) for item in value]
        if not isinstance(value, str):
            return value
        if value in self._real:
            return self._real[value]
        for made_up in sorted(self._real, key=len, reverse=True):
            value = value.replace(made_up, str(self._real[made_up]))
        return value

    def _checked(self, subject: Subject, olds: Json, news: Json) -> Json:
        checked = self._provider.check(subject, olds, news, SEED)
        assert not checked.failures, f"{subject.name}: {checked.failures}"
        return dict(checked.inputs)


def _google(monitor: GraphMonitor) -> Iterator[tuple[str, Any]]:
    return ((urn, request) for urn, request in monitor.requests.items() if request.type.startswith("gcp:"))


def _unknown(request: Any, replaced: set[str]) -> list[str]:
    """The properties of a resource that nobody knows before what they depend on is replaced."""
    return [
        key for key, dependencies in request.propertyDependencies.items() if replaced.intersection(dependencies.urns)
    ]


def _reset(inputs: Json, olds: Json, steps: Sequence[str]) -> None:
    """Give the value at a path back its old value, or take it away where there was none."""
    step, *rest = steps
    if rest:
        if isinstance(inputs.get(step), dict) and isinstance(olds.get(step), dict):
            _reset(inputs[step], olds[step], rest)
    elif step in olds:
        inputs[step] = copy.deepcopy(olds[step])
    else:
        inputs.pop(step, None)


def _contains(path: str, changed: str) -> bool:
    """Whether a change lies at or below a path; both are property paths."""
    wanted, found = (re.findall(r"[^.\[\]\"]+", text) for text in (path, changed))
    return found[: len(wanted)] == wanted


@contextmanager
def emulated_cloud() -> Iterator[EmulatedCloud]:
    """An empty cloud."""
    with google.serving() as emulator, closing(EmulatedCloud(emulator.url)) as cloud:
        yield cloud
