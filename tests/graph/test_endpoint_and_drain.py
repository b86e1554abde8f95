"""Waiting for a control plane that comes up, and emptying hosts before they go."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pulumi
import pytest

from components.compute import drain_hook, published_endpoint
from components.compute.drain_hook import drain_arguments, drain_group, settings_of
from components.compute.published_endpoint import known, until_published
from components.kubernetes import kubectl
from components.kubernetes.cluster_access import Endpoint
from plan.platform import Platform
from platform_config.slice import NodeDrain
from tests.graph.conftest import recorded as recorded_stack
from tests.graph.emulated import recorded
from tests.graph.recording import STACK_FILES, GraphMonitor, named
from tests.graph.test_self_managed import TRAIN
from tests.platforms import EXISTING, EXISTING_NETWORK, ZONES, load

DRAINED = {**TRAIN, "node_drain": {"grace": "10m", "pdb_timeout": "5m"}}
MISSING = "invoke of gcp:secretmanager/... failed: googleapi: Error 404: Secret not found or has no versions., notFound"
REFUSED = "googleapi: Error 403: Permission 'secretmanager.versions.access' denied on projects/lab-404, forbidden"
FOUND = Endpoint("https://10.0.0.5:6443", "Y2E=")

# --- the endpoint -----------------------------------------------------------------------------------------------------


@pytest.fixture
def own() -> Platform:
    return load({"train": TRAIN}, cluster={"kind": "self-managed"})


Answers = Callable[..., list[Any]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Lets Secret Manager answer with these in turn, the last one for ever; says what was still to come."""
    monkeypatch.setattr(published_endpoint, "INTERVAL_SECONDS", 0.0)

    def give(*queue: str | Endpoint) -> list[Any]:
        rest = list(queue)

        async def current(_platform: Platform) -> Endpoint:
            answer = rest.pop(0) if len(rest) > 1 else rest[0]
            if isinstance(answer, str):
                raise Exception(answer)  # as the SDK does for a function that fails
            return answer

        monkeypatch.setattr(published_endpoint, "current", current)
        return rest

    return give


def test_the_endpoint_is_waited_for(own: Platform, answers: Answers) -> None:
    rest = answers(MISSING, MISSING, MISSING, FOUND)
    asyncio.run(until_published(own))
    assert rest == [FOUND]


class NotThere(grpc.RpcError):  # type: ignore[misc]
    """What the engine answers for a function whose plugin says that."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return MISSING


OWN_CLUSTER = {"zone": ZONES["v6e"], "cluster": {"kind": "self-managed"}, "slices": {"train": TRAIN}}


def test_the_update_waits_where_something_is_made_and_the_program_does_not() -> None:
    """A program that waits, or fails, would keep `destroy --run-program` from a control plane that never came up."""
    graph = recorded(OWN_CLUSTER)
    urn = named(graph, "endpoint-published")
    marker = graph.requests[urn]
    assert list(marker.hooks.before_create) == ["await-endpoint"]
    assert not marker.hooks.before_delete, "or every destroy would have to run the program"
    assert "await-endpoint" in graph.hooks
    assert not graph.hooks["await-endpoint"].on_dry_run
    assert marker.replacement_trigger.string_value == "number of control-plane-disk-0"
    _, provider = graph.one("pulumi:providers:kubernetes")
    assert any(urn in list(needs.urns) for needs in provider.propertyDependencies.values())
    made = {request.name for each, request in graph.requests.items() if each in set(marker.dependencies)}
    assert {"control-plane-machine-0", "control-plane-balancer-internal-rule"} <= made
    assert graph.exports["cluster"]["endpoint"] == "10.0.0.5:6443"


def test_an_endpoint_that_was_lost_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the SDK's own calls, whose failures must not fail the program before it can say so."""

    answer = GraphMonitor.Invoke

    def lost(self: GraphMonitor, request: Any) -> Any:
        if request.tok.startswith("gcp:"):
            raise NotThere
        return answer(self, request)

    monkeypatch.setattr(GraphMonitor, "Invoke", lost)
    with pytest.raises(pulumi.RunError, match="secrets/tpu-endpoint has no version any more"):
        recorded(OWN_CLUSTER)


def test_another_refusal_is_not_taken_for_a_loss(own: Platform, answers: Answers) -> None:
    answers(REFUSED)
    with pytest.raises(Exception, match="403"):
        asyncio.run(known(own))


def test_a_refusal_is_not_waited_out(own: Platform, answers: Answers) -> None:
    answers(REFUSED, FOUND)
    with pytest.raises(Exception, match="403"):
        asyncio.run(until_published(own))


def test_patience_ends_with_what_to_do(own: Platform, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(MISSING)
    monkeypatch.setattr(published_endpoint, "PATIENCE_SECONDS", 0)
    with pytest.raises(pulumi.RunError, match=r"get-serial-port-output tpu-control-plane-0 --zone us-east5-b"):
        asyncio.run(until_published(own))


def test_the_endpoint_of_others_is_known() -> None:
    platform = load({"train": TRAIN}, cluster=EXISTING, network=EXISTING_NETWORK)
    known = asyncio.run(published_endpoint.current(platform))
    assert known.server == EXISTING["server"]
    assert known.host == "10.0.0.10:6443"


# --- the hook ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.stem)
def test_the_hook_is_always_there(path: Path) -> None:
    """Hosts that are gone from the configuration, or that belonged to another kind of cluster, may still need it."""
    assert "drain-hosts" in recorded_stack(path, preview=False).hooks


def groups(graph: GraphMonitor) -> dict[str, list[str]]:
    found = graph.of_type("gcp:compute/instanceGroupManager:InstanceGroupManager").values()
    return {request.name: list(request.hooks.before_delete) for request in found}


def test_only_hosts_that_want_it_are_drained() -> None:
    platform = {
        "zone": ZONES["v6e"],
        "cluster": {"kind": "self-managed"},
        "slices": {"train": {**DRAINED, "count": 2}, "eval": TRAIN},
    }
    assert groups(recorded(platform)) == {
        "slices-train-0": ["drain-hosts"],
        "slices-train-1": ["drain-hosts"],
        "slices-eval-0": [],
        "cpu-pools-system": [],
    }


@pytest.fixture
def guest() -> Platform:
    """A platform whose cluster is known without asking."""
    return load({"train": {**DRAINED, "count": 2}}, cluster=EXISTING, network=EXISTING_NETWORK)


def test_what_kubectl_is_told(guest: Platform) -> None:
    assert drain_arguments("tpu-train-1", settings_of(guest, "tpu-train-1")) == [
        "drain",
        "--selector=cloud.google.com/gke-nodepool=tpu-train-1",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=900s",
        "--grace-period=600",
    ]
    assert "--disable-eviction" in drain_arguments("g", NodeDrain(respect_pdb=False))


def test_a_slice_that_the_configuration_forgot_is_drained_the_usual_way(guest: Platform) -> None:
    assert settings_of(guest, "tpu-gone-0") == NodeDrain()


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", found.append)
    return found


def put_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """The only program on PATH is a kubectl that does `body`, in Python."""
    program = folder / "kubectl"
    program.write_text(f"#!{sys.executable}\nimport json, os, pathlib, sys, time\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_kubectl_gets_a_kubeconfig_without_a_credential(
    guest: Platform, warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    put_kubectl(
        tmp_path,
        monkeypatch,
        f"config = pathlib.Path(sys.argv[1].split('=')[1])\n"
        f"record = [oct(config.parent.stat().st_mode), config.read_text(), str(config), sys.argv[2:]]\n"
        f"pathlib.Path({str(record)!r}).write_text(json.dumps(record))",
    )
    asyncio.run(drain_group(guest, "tpu-train-0"))
    assert warnings == []
    mode, kubeconfig, path, arguments = json.loads(record.read_text())
    assert mode.endswith("700")
    assert json.loads(kubeconfig)["users"][0]["user"].keys() == {"exec"}
    assert not Path(path).exists()
    assert arguments == drain_arguments("tpu-train-0", settings_of(guest, "tpu-train-0"))


TROUBLES = {
    "budget": ("print('cannot evict pod: disruption budget', file=sys.stderr); sys.exit(1)", "disruption budget"),
    "hangs": ("time.sleep(60)", "did not end within"),
}


@pytest.mark.parametrize(("body", "words"), TROUBLES.values(), ids=TROUBLES)
def test_trouble_is_said_and_not_waited_for(
    guest: Platform, warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    put_kubectl(tmp_path, monkeypatch, body)
    monkeypatch.setattr(kubectl, "MARGIN_SECONDS", 1)
    monkeypatch.setattr(drain_hook.hosts, "drain_seconds", lambda _settings: 0)
    asyncio.run(drain_group(guest, "tpu-train-0"))
    (warning,) = warnings
    assert "tpu-train-0 is deleted without a drain" in warning
    assert words in warning


def test_no_kubectl_is_said(
    guest: Platform, warnings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asyncio.run(drain_group(guest, "tpu-train-0"))
    assert "kubectl" in warnings[0]


def test_a_cluster_that_is_gone_is_said(own: Platform, warnings: list[str], answers: Answers) -> None:
    answers(MISSING)
    asyncio.run(drain_group(own, "tpu-train-0"))
    assert "404" in warnings[0]
