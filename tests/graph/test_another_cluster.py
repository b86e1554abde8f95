"""A configuration that would put another cluster in the place of the one that stands ends the program at once."""

from __future__ import annotations

import json
import time
from typing import Any

import grpc
import pulumi
import pytest

from components.stack_state import GO_ON, READ_OUTPUTS, READ_RESOURCES
from plan.stack_state import DATA_DISKS, GKE_CLUSTER, NETWORK, PROVIDER, SUBNET
from tests.graph.recording import GraphMonitor, record_main
from tests.platforms import SELF_MANAGED, raw

Json = dict[str, Any]


def graph_of(platform: Json, *, preview: bool = False, standing: Json | None = None) -> GraphMonitor:
    config = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(platform)}
    return record_main(config, preview=preview, standing=standing)


def state_of(graph: GraphMonitor) -> Json:
    """What the engine would have in its state after the first half of an update, computed values aside."""
    return {urn: dict(request.object) for urn, request in graph.requests.items() if "::kubernetes:" not in urn}


@pytest.mark.parametrize("preview", [True, False])
@pytest.mark.parametrize("cluster", [{}, SELF_MANAGED], ids=["gke", "self-managed"])
def test_another_cluster_is_refused_before_anything_registers(
    monkeypatch: pytest.MonkeyPatch, cluster: Json, preview: bool
) -> None:
    """Findings 10 to 12: an edit of the name or the zone deleted a cluster and wedged in the middle."""
    platform = raw(cluster=cluster)
    standing = state_of(graph_of(platform))
    assert graph_of(platform, preview=preview, standing=standing).requests.keys() == standing.keys() | {
        urn for urn in graph_of(platform).requests if "::kubernetes:" in urn
    }

    registered: list[str] = []
    register = GraphMonitor.RegisterResource

    def noted(self: GraphMonitor, request: Any) -> Any:
        registered.append(request.type)
        return register(self, request)

    monkeypatch.setattr(GraphMonitor, "RegisterResource", noted)
    with pytest.raises(pulumi.RunError, match=r"was tpu and would be other: .*\n    -> .*`pulumi destroy` before"):
        graph_of({**platform, "name": "other"}, preview=preview, standing=standing)
    assert set(registered) <= {"pulumi:pulumi:Stack"}


def test_the_types_are_those_that_the_program_registers() -> None:
    gke, own = graph_of(raw()), graph_of(raw(cluster=SELF_MANAGED))
    for types, graph in {GKE_CLUSTER: gke, NETWORK: gke, SUBNET: gke, PROVIDER: gke, DATA_DISKS: own}.items():
        assert any(urn.split("::")[2].endswith(types) for urn in graph.requests), types


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that cannot read the stack's state."""
    ask = GraphMonitor.Invoke

    def refused(self: GraphMonitor, request: Any) -> Any:
        if request.tok in (READ_OUTPUTS, READ_RESOURCES):
            raise Refused
        return ask(self, request)

    monkeypatch.setattr(GraphMonitor, "Invoke", refused)


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize("preview", [True, False])
def test_a_state_that_nobody_can_read_ends_the_program(monkeypatch: pytest.MonkeyPatch, preview: bool) -> None:
    """It was a warning, and a replacement of the cluster could then be planned."""
    monkeypatch.delenv(GO_ON, raising=False)
    with pytest.raises(pulumi.RunError, match=rf"no stack named .* -> try again; .*{GO_ON}=go-on"):
        graph_of(raw(), preview=preview)


@pytest.mark.usefixtures("unreadable")
def test_a_person_can_go_on_without_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setenv(GO_ON, "go-on")
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    assert graph_of(raw()).of_type("gcp:container/cluster:Cluster")
    assert [text for text in said if "not checked" in text]


@pytest.mark.parametrize("preview", [True, False])
def test_the_engine_is_asked_for_resources_only_once_there_is_a_state(
    monkeypatch: pytest.MonkeyPatch, preview: bool
) -> None:
    """It breaks down where a new stack has no state yet. A preview writes none; an update writes the stack first."""
    standing = state_of(graph_of(raw()))
    asked: list[str] = []
    ask, register = GraphMonitor.Invoke, GraphMonitor.RegisterResource

    def slow(self: GraphMonitor, request: Any) -> Any:
        time.sleep(0.2)
        answer = register(self, request)
        asked.append(request.type)
        return answer

    def noted(self: GraphMonitor, request: Any) -> Any:
        asked.append(request.tok)
        return ask(self, request)

    monkeypatch.setattr(GraphMonitor, "Invoke", noted)
    monkeypatch.setattr(GraphMonitor, "RegisterResource", slow)
    with pytest.raises(pulumi.RunError, match="would be other"):
        graph_of(raw(name="other"), preview=preview, standing=standing)
    expected = [READ_OUTPUTS, READ_RESOURCES] if preview else [READ_RESOURCES]
    assert asked == ["pulumi:pulumi:Stack", *expected]


class Refused(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return "no stack named organization/tpu-platform/dev"
