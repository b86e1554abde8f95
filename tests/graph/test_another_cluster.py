"""A configuration that would put another cluster in the place of the one that stands ends the program at once."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pulumi
import pytest

from spec.standing import DATA_DISKS, GKE_CLUSTER, NETWORK, PROVIDER, SUBNET
from tests.graph.recording import READ_RESOURCES, GraphMonitor, record_main
from tests.spec.platforms import SELF_MANAGED, raw

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


def test_a_state_that_nobody_can_read_is_said_and_hinders_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = GraphMonitor.Invoke

    def refused(self: GraphMonitor, request: Any) -> Any:
        if request.tok == READ_RESOURCES:
            raise Refused
        return ask(self, request)

    said: list[str] = []
    monkeypatch.setattr(GraphMonitor, "Invoke", refused)
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    assert graph_of(raw()).of_type("gcp:container/cluster:Cluster")
    assert [text for text in said if "is not checked" in text]


class Refused(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return "no stack named organization/tpu-platform/dev"
