"""Waiting for hosts that join: an update does not report success while hosts are not in the cluster."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import pulumi
import pytest

from components.compute import joined_hosts
from components.compute import published_endpoint as endpoints
from components.compute.joined_hosts import UNINITIALIZED, absent, until_joined
from plan.platform import Platform
from tests.graph.emulated import recorded
from tests.graph.recording import inputs
from tests.graph.test_self_managed import BASE, GROUP, GUEST, SERVE, TRAIN
from tests.platforms import load

Json = dict[str, Any]
STASH = "pulumi:index:Stash"
LATER = {**TRAIN, "capacity": {"model": "flex-start", "max_run_duration": "24h"}}


@pytest.fixture
def platform() -> Platform:
    return load({"train": TRAIN}, cluster={"kind": "self-managed"})


def node(name: str, ready: str = "True", *taints: str) -> Json:
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    spec: Json = {"taints": [{"key": key} for key in taints]} if taints else {}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


Answers = Callable[..., list[Any]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Lets the cluster answer with these nodes in turn, the last ones for ever; says what was still to come."""
    monkeypatch.setattr(joined_hosts, "INTERVAL_SECONDS", 0.0)

    def give(*queue: list[Json] | str | Exception) -> list[Any]:
        rest = list(queue)

        async def nodes(_platform: Platform) -> list[Json]:
            answer = rest.pop(0) if len(rest) > 1 else rest[0]
            if isinstance(answer, str):
                raise OSError(answer)
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(joined_hosts, "_nodes", nodes)
        return rest

    return give


def test_a_host_counts_once_pods_can_run_on_it() -> None:
    nodes = [
        node("joined", "True", "google.com/tpu"),
        node("silent", "Unknown"),
        node("new", "True", UNINITIALIZED),
        {"metadata": {"name": "bare"}},
    ]
    assert absent(["joined", "silent", "new", "bare", "gone"], nodes) == ["bare", "gone", "new", "silent"]


def test_hosts_are_waited_for(platform: Platform, answers: Answers) -> None:
    """Also while the API server is away, as a control plane is whose machine is replaced."""
    rest = answers([], "connection refused", [node("a")], [node("a"), node("b")])
    asyncio.run(until_joined(platform, ["a", "b"]))
    assert len(rest) == 1


def test_a_host_that_never_joins_is_named(
    platform: Platform, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding: an update reported success while a host whose boot had failed stayed out for good."""
    answers([node("a"), node("b", "Unknown")])
    monkeypatch.setattr(joined_hosts, "PATIENCE_SECONDS", 0)
    names = ["a", "b", *(f"c{number}" for number in range(6))]
    with pytest.raises(pulumi.RunError) as failure:
        asyncio.run(until_joined(platform, names))
    assert "not in the cluster: b, c0, c1, c2, c3 and 2 more" in str(failure.value)
    assert f"get-serial-port-output b --zone {platform.zone}" in str(failure.value)


def test_a_cluster_that_does_not_answer_is_not_taken_for_lost_hosts(
    platform: Platform, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers("connection refused")
    monkeypatch.setattr(joined_hosts, "PATIENCE_SECONDS", 0)
    with pytest.raises(
        pulumi.RunError, match=r"does not answer \(connection refused\), so it is unknown who joined: a\."
    ):
        asyncio.run(until_joined(platform, ["a"]))


def http(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://10.0.0.5:6443/api/v1/nodes", status, "said so", Message(), None)


def google(status: int) -> Exception:
    """As the SDK says it of a function that fails."""
    return Exception(f"invoke of gcp:secretmanager/... failed: googleapi: Error {status}: said so")


@pytest.mark.parametrize("error", [google(400), KeyError("status"), json.JSONDecodeError("no", "", 0)])
def test_a_refusal_is_not_waited_out(platform: Platform, answers: Answers, error: Exception) -> None:
    """A finding: whatever failed was tried again for 20 minutes, also where nothing could come of it."""
    rest = answers(error, [node("a")])
    with pytest.raises(pulumi.RunError, match="which hosts have joined") as failure:
        asyncio.run(until_joined(platform, ["a"]))
    assert "secrets/tpu-access" in str(failure.value)
    assert len(rest) == 1, "it asked once"


@pytest.mark.parametrize("error", [http(401), http(403), google(403)])
def test_a_credential_that_stays_refused_is_waited_for_a_minute(
    platform: Platform, answers: Answers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(joined_hosts, "REFUSED_SECONDS", 0)
    rest = answers(error, [node("a")])
    with pytest.raises(pulumi.RunError, match="which hosts have joined"):
        asyncio.run(until_joined(platform, ["a"]))
    assert len(rest) == 1, "it asked once"


PASSING = [
    http(500),
    http(503),
    http(429),
    http(401),
    http(403),
    google(403),
    google(404),
    google(503),
    TimeoutError("late"),
]


@pytest.mark.parametrize("error", PASSING)
def test_what_may_pass_is_waited_for(platform: Platform, answers: Answers, error: Exception) -> None:
    """A finding: an API server that had just been replaced refused the program for a moment, and the update failed."""
    rest = answers(error, error, [node("a")])
    asyncio.run(until_joined(platform, ["a"]))
    assert len(rest) == 1


@pytest.mark.parametrize("ca", ["not a certificate", "-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"])
def test_an_authority_of_another_form_is_not_waited_out(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, ca: str
) -> None:
    endpoint = {"server": "https://127.0.0.1:1", "ca": base64.b64encode(ca.encode()).decode()}
    credential = {"status": {"token": "t"}}

    async def ask_google(_function: str, arguments: Json) -> Json:
        kept = endpoint if arguments["secret"].endswith("endpoint") else credential
        return {"secretData": json.dumps(kept)}

    for module in (endpoints, joined_hosts):
        monkeypatch.setattr(module, "ask_google", ask_google)
    with pytest.raises(pulumi.RunError, match="is not a certificate"):
        asyncio.run(until_joined(platform, ["a"]))


@pytest.mark.parametrize("base", [BASE, GUEST], ids=["own", "guest"])
def test_an_update_waits_for_hosts_that_come_at_once(base: Json) -> None:
    """Not for those that are queued for, and not in a preview."""
    graph = recorded({**base, "slices": {"now": TRAIN, "serve": SERVE, "later": LATER}})
    waits = {request.name: (urn, request) for urn, request in graph.of_type(STASH).items()}
    waits = {name: found for name, found in waits.items() if name.startswith("joined-")}
    groups = {"slices-now": "slices-now-0", "slices-serve": "slices-serve-0"}
    if base is BASE:
        groups["cpu-pools"] = "cpu-pools-system"
    assert set(waits) == {f"joined-{name}-joined" for name in groups}
    for name, group in groups.items():
        _, request = waits[f"joined-{name}-joined"]
        hook = f"await-joined-{name}"
        assert list(request.hooks.before_create) == list(request.hooks.before_update) == [hook]
        assert not request.hooks.before_delete, "or every destroy would have to run the program"
        assert not graph.hooks[hook].on_dry_run
        made = {graph.requests[urn].name for urn in request.dependencies}
        assert group in made
        assert ("cloud-controller-daemons" in made) is (base is BASE)
        described = inputs(request)["input"]
        named = {inputs(each)["name"]: each.name for each in graph.of_type(GROUP).values()}
        assert [named[each] for each in described] == [group]
