"""A recorded graph made for real in the emulated cloud, and what would change on the way to the next one.

Every Google resource goes through the stand-in plugin's own check, create and diff, over HTTP, to the emulator, which
holds bodies against Google's discovery documents and fills in what Google fills in. This stands for the engine, without
its process: resources are made one after the other in the order of registration. `plan` knows three of the engine's
rules (upstream: `pkg/resource/deploy/step_generator.go`): ignored changes, the program's `replaceOnChanges`, and that
outputs of a replaced resource are unknown. It differs: it leaves out protection, the order of a replacement, what is
replaced because something it depends on goes first, and what runs inside the cluster. Tests of the engine have these.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from plan import stack_state
from sandbox import google
from sandbox.plugins.provider import Change, Subject
from sandbox.plugins.values import UNKNOWN, plain, unmarshal
from sandbox.tests.gcp_plugin_support import CONFIG, HOST, configured
from tests.graph.recording import GraphMonitor, Update, record_main
from tests.platforms import EXISTING_NETWORK

Json = dict[str, Any]
PROJECT = "my-project"
SEED = b"any"

CREATE, UPDATE, DELETE, REPLACE = "create", "update", "delete", "replace"


def recorded(platform: Mapping[str, Any]) -> GraphMonitor:
    """The graph of a platform, as YAML would give it."""
    return record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(platform)})


@dataclass(frozen=True)
class Standing:
    """A resource that exists: its checked inputs and its state."""

    inputs: Json
    outputs: Json


@dataclass(frozen=True)
class Planned:
    """What would be done with a resource, and the paths of the properties that make it so."""

    operation: str
    paths: Sequence[str] = ()


@dataclass
class EmulatedCloud:
    """An emulated project with the resources of a graph in it."""

    url: str
    standing: dict[str, Standing] = field(default_factory=dict)
    graph: GraphMonitor | None = None
    """The recorded graph that stands."""

    def __post_init__(self) -> None:
        endpoints = {key: value.replace(HOST, self.url) for key, value in CONFIG.items() if key.endswith("Endpoint")}
        self._provider = configured(None, **endpoints)
        # What the recorder makes up (ids, computed outputs) -> what the cloud gives.
        self._real: Json = {}

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
        self.graph = monitor
        for urn, request in _google(monitor):
            subject = Subject.of(urn)
            inputs = self._checked(subject, {}, self._inputs(request))
            state = self._provider.create(subject, copy.deepcopy(inputs), 0, False)
            outputs = plain(dict(state.outputs))
            self.standing[urn] = Standing(inputs, outputs)
            self._real[f"{request.name}-id"] = outputs["id"]
            for key, made_up in Update.computed(request.type, request.name).items():
                if isinstance(made_up, str):
                    self._real[made_up] = outputs[key]

    def plan(self, monitor: GraphMonitor) -> dict[str, Planned]:
        """What changes from what stands to another graph, by URN; what stays as it is, is left out."""
        planned: dict[str, Planned] = {}
        for urn, request in _google(monitor):
            if urn not in self.standing:
                planned[urn] = Planned(CREATE)
                continue
            replaced = {urn for urn in planned if planned[urn].operation == REPLACE}
            if changes := self._changes(urn, request, replaced):
                again = any(change.replace for change in changes)
                planned[urn] = Planned(REPLACE if again else UPDATE, [change.path for change in changes])
        return planned | dict.fromkeys(self.standing.keys() - monitor.requests.keys(), Planned(DELETE))

    def update(self, monitor: GraphMonitor) -> None:
        """Change what stands as the graph says, where nothing is made, replaced or deleted; then read all again."""
        planned = self.plan(monitor)
        for urn, request in _google(monitor):
            subject, news, outputs = Subject.of(urn), self._news(urn, request), self.standing[urn].outputs
            identity, ignored = str(outputs["id"]), list(request.ignoreChanges)
            if urn in planned:
                outputs = self._provider.update(subject, identity, outputs, copy.deepcopy(news), ignored, 0, False)
            read = self._provider.read(subject, identity, copy.deepcopy(news), plain(dict(outputs)))
            self.standing[urn] = Standing(news, plain(dict(read.outputs)))
        self.graph = monitor

    def _news(self, urn: str, request: Any) -> Json:
        """The checked inputs of what stands already; what is ignored keeps its value."""
        olds, inputs = self.standing[urn].inputs, self._inputs(request)
        for path in request.ignoreChanges:
            _reset(inputs, olds, path.split("."))
        return self._checked(Subject.of(urn), olds, inputs)

    def _changes(self, urn: str, request: Any, replaced: set[str]) -> list[Change]:
        """The provider's changes; those that the program asks for are replacements too."""
        news = self._news(urn, request)
        for key, dependencies in request.propertyDependencies.items():
            if replaced.intersection(dependencies.urns):
                news[key] = UNKNOWN
        found = self._provider.diff(Subject.of(urn), self.standing[urn].outputs, news, list(request.ignoreChanges))
        forced = tuple(request.replaceOnChanges)
        return [
            Change(change.path, change.kind, change.replace or any(_contains(path, change.path) for path in forced))
            for change in found.changes
        ]

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


# What `lay_foreign` makes, as a self-managed platform names it.
FOREIGN_NETWORK = {**EXISTING_NETWORK, "nodes_cidr": "10.0.0.0/20", "pods_cidr": "10.16.0.0/14"}


def lay_foreign(cloud: EmulatedCloud, region: str, *, pods: str = "p", services: str = "q") -> None:
    """What others made: a network `n` with a subnet `s` and two ranges, and the secrets of a cluster."""
    compute = f"/compute/v1/projects/{PROJECT}"
    cloud.call("POST", f"{compute}/global/networks", {"name": "n", "autoCreateSubnetworks": False})
    ranges = {pods: FOREIGN_NETWORK["pods_cidr"], services: "10.20.0.0/20"}
    subnet = {
        "name": "s",
        "network": f"projects/{PROJECT}/global/networks/n",
        "ipCidrRange": FOREIGN_NETWORK["nodes_cidr"],
        "secondaryIpRanges": [{"rangeName": name, "ipCidrRange": cidr} for name, cidr in ranges.items()],
    }
    cloud.call("POST", f"{compute}/regions/{region}/subnetworks", subnet)
    for secret in ("join", "access"):
        cloud.call("POST", f"/sm/v1/projects/{PROJECT}/secrets?secretId={secret}", {"replication": {"automatic": {}}})


TEAM_BUCKET, TEAM_SECRET = "acme-c4", "hf-token"
"""What teams of stack files and edits name."""


def lay_for_teams(cloud: EmulatedCloud, region: str) -> None:
    """A bucket and a secret that exist before the platform does."""
    bucket = {
        "name": TEAM_BUCKET,
        "location": region.upper(),
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
    }
    cloud.call("POST", f"/storage/v1/b?project={PROJECT}", bucket)
    secret = {"replication": {"automatic": {}}}
    cloud.call("POST", f"/sm/v1/projects/{PROJECT}/secrets?secretId={TEAM_SECRET}", secret)


Clouds = Callable[[Json], EmulatedCloud]


@contextmanager
def standing_clouds() -> Iterator[Clouds]:
    """Clouds in which a platform stands, one for each platform that edits begin with.

    They share an emulator: a plan compares with the state that creating left behind, and asks the cloud nothing.
    """
    standing: dict[str, EmulatedCloud] = {}
    with ExitStack() as running:
        emulator = running.enter_context(google.serving())

        def cloud_of(platform: Json) -> EmulatedCloud:
            key = json.dumps(platform, sort_keys=True)
            if key not in standing:
                cloud = running.enter_context(closing(EmulatedCloud(emulator.url)))
                cloud.control("reset")
                cloud.control("zones", zone=platform["zone"], generations=["v5e", "v5p", "v6e", "tpu7x"])
                lay_foreign(cloud, platform["zone"].rpartition("-")[0])
                lay_for_teams(cloud, platform["zone"].rpartition("-")[0])
                cloud.make(recorded(platform))
                standing[key] = cloud
            return standing[key]

        yield cloud_of
