"""Calls that do not go smoothly: throttling, busy clusters, lost connections, failed and cancelled operations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sandbox.plugins.gcp.client import Client, Deadline, GoogleError, TimedOut
from sandbox.plugins.gcp.settings import parse
from sandbox.plugins.provider import InitializationFailed, ProviderError
from sandbox.tests.gcp_plugin_support import (
    CONFIG,
    FakeGoogle,
    configured,
    error,
    plain_outputs,
    recorded_state,
    subject,
)

Json = dict[str, Any]
Respond = Callable[[Json], httpx.Response | None]


def answers(*responses: httpx.Response | Exception, when: Callable[[Json], bool] = lambda _call: True) -> Respond:
    """Answer the matching calls with these, in order; afterwards the fake answers."""
    left = list(responses)

    def respond(call: Json) -> httpx.Response | None:
        if not left or not when(call):
            return None
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return respond


def posts(call: Json) -> bool:
    return bool(call["method"] == "POST")


def create(google: FakeGoogle, name: str, timeout: float = 0) -> Any:
    row = recorded_state(name)
    return configured(google).create(subject(row["type"], name), row["inputs"], timeout, False)


@pytest.mark.parametrize(
    "trouble",
    [
        error(429, "Quota exceeded for quota metric", "RESOURCE_EXHAUSTED", Retry_After="0"),
        error(503, "The service is currently unavailable.", "UNAVAILABLE"),
        httpx.ConnectError("connection refused"),
        httpx.RemoteProtocolError("server disconnected"),
    ],
    ids=["429", "503", "refused", "cut"],
)
def test_passing_trouble_is_retried(trouble: httpx.Response | Exception) -> None:
    google = FakeGoogle()
    google.respond = answers(trouble, trouble, when=posts)
    state = create(google, "net")
    assert state.id == "projects/proj/global/networks/net"
    assert google.objects["/compute/beta/projects/proj/global/networks/net"]["mtu"] == 8896


def test_retry_after_is_honoured() -> None:
    google = FakeGoogle()
    google.respond = answers(error(503, "later", "UNAVAILABLE", Retry_After="1"), when=posts)
    started = time.monotonic()
    create(google, "net")
    assert time.monotonic() - started >= 1


def test_a_refusal_is_not_retried() -> None:
    google = FakeGoogle()
    google.respond = answers(error(400, "Invalid value for field 'mtu'", "INVALID_ARGUMENT"), when=posts)
    with pytest.raises(
        ProviderError,
        match=r"^Error creating Network: googleapi: Error 400: Invalid value for field 'mtu', INVALID_ARGUMENT$",
    ):
        create(google, "net")
    assert [c["method"] for c in google.calls] == ["POST"]


def test_a_call_is_not_retried_for_ever() -> None:
    google = FakeGoogle()
    google.respond = lambda _call: error(503, "down", "UNAVAILABLE")
    client = Client(parse(CONFIG), google, patience=0.05)
    with pytest.raises(GoogleError, match="down"):
        client.call("GET", "compute", "projects/proj/global/networks/net", Deadline(600))
    assert len(google.calls) > 2


def test_a_busy_cluster_is_waited_for() -> None:
    """GKE runs one operation on a cluster at a time and refuses the others meanwhile."""
    google = FakeGoogle()
    busy = error(400, "Operation operation-1 is currently creating cluster tpu.", "FAILED_PRECONDITION")
    google.respond = answers(busy, busy, busy, when=posts)
    assert create(google, "v6e-4x4").outputs["nodeCount"] == 4


def test_a_policy_written_by_somebody_else_meanwhile_is_read_again() -> None:
    google = FakeGoogle()
    conflict = error(409, "There were concurrent policy changes.", "ABORTED")
    google.respond = answers(conflict, conflict, when=lambda call: call["path"].endswith(":setIamPolicy"))
    create(google, "im")
    verbs = [c["path"].rpartition(":")[2] for c in google.calls]
    assert verbs == ["getIamPolicy", "setIamPolicy"] * 3 + ["getIamPolicy"]


def test_members_of_one_policy_do_not_overwrite_each_other() -> None:
    """The engine creates members in parallel; each is a read and a write of the same document."""
    google = FakeGoogle()
    provider = configured(google)
    google.respond = lambda call: time.sleep(0.002)
    row = recorded_state("im")
    members = [f"user:{n}@example.com" for n in range(8)]

    def add(member: str) -> None:
        provider.create(subject(row["type"], member), {**row["inputs"], "member": member}, 0, False)

    threads = [threading.Thread(target=add, args=(m,)) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [binding] = google.policies["/crm/v1/projects/proj"]["bindings"]
    assert binding["members"] == members


def running(operation: Json) -> httpx.Response:
    return httpx.Response(200, json={"name": "operation-1", "operationType": "CREATE_NODE_POOL", **operation})


STOCKOUT = {
    "status": "DONE",
    "error": {"code": 8, "message": "ZONE_RESOURCE_POOL_EXHAUSTED: us-east5-b has no capacity"},
}


def test_an_operation_is_polled_to_its_end() -> None:
    google = FakeGoogle()
    row = recorded_state("net")
    operation = {"status": "RUNNING"}
    google.objects["/compute/beta/projects/proj/global/networks/net"] = {"name": "net", "mtu": 8896}
    google.objects["/compute/beta/projects/proj/global/operations/operation-1"] = operation
    polls = []

    def respond(call: Json) -> httpx.Response | None:
        if call["method"] == "POST":
            return running(operation)
        if "operations" in call["path"]:
            polls.append(call)
            operation["status"] = "DONE" if len(polls) == 3 else "RUNNING"
            return running(operation)
        return None

    google.respond = respond
    configured(google).create(subject(row["type"], "net"), row["inputs"], 0, False)
    assert len(polls) == 3


def test_a_pool_left_in_error_is_kept_in_state() -> None:
    """After a stockout the pool exists in ERROR: it must be in state, or the next `up` meets its own leftover."""
    google = FakeGoogle()
    broken = {"name": "v6e-4x4", "status": "ERROR", "statusMessage": "out of capacity", "config": {"spot": True}}
    google.respond = answers(running(STOCKOUT), when=posts)
    pools = "/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu/nodePools"
    before = google.respond

    def respond(call: Json) -> httpx.Response | None:
        if posts(call):
            google.objects[f"{pools}/v6e-4x4"] = broken
        return before(call)

    google.respond = respond
    with pytest.raises(InitializationFailed, match="Error creating NodePool: ZONE_RESOURCE_POOL_EXHAUSTED") as failed:
        create(google, "v6e-4x4")
    assert failed.value.identity == "projects/proj/locations/us-east5/clusters/tpu/nodePools/v6e-4x4"
    assert failed.value.outputs["nodeConfig"]["spot"] is True


def test_a_failed_create_that_left_nothing_is_a_plain_error() -> None:
    google = FakeGoogle()
    google.respond = answers(running(STOCKOUT), when=posts)
    with pytest.raises(ProviderError, match="ZONE_RESOURCE_POOL_EXHAUSTED") as failed:
        create(google, "v6e-4x4")
    assert not isinstance(failed.value, InitializationFailed)


def test_compute_errors_name_code_and_message() -> None:
    failed = {"errors": [{"code": "QUOTA_EXCEEDED", "message": "Quota 'NETWORKS' exceeded. Limit: 5.0"}]}
    google = FakeGoogle()
    google.respond = answers(running({"status": "DONE", "error": failed}), when=posts)
    with pytest.raises(ProviderError, match="Error creating Network: QUOTA_EXCEEDED: Quota 'NETWORKS' exceeded"):
        create(google, "net")


def _never_done(call: Json) -> httpx.Response | None:
    return running({"status": "RUNNING"}) if posts(call) or "operations" in call["path"] else None


def test_a_timeout_ends_the_wait() -> None:
    google = FakeGoogle()
    google.respond = _never_done
    with pytest.raises(ProviderError, match=r"timeout after 0\.05s while waiting for Network to be created"):
        create(google, "net", timeout=0.05)
    with pytest.raises(TimedOut):
        Client(parse(CONFIG), google).poll(dict, bool, Deadline(0.01), "nothing")


def test_cancel_stops_waiting_at_once_and_keeps_what_was_started() -> None:
    google = FakeGoogle()
    google.respond = _never_done
    provider = configured(google, pollInterval="60s")
    row = recorded_state("net")
    outcome: list[Exception] = []

    def run() -> None:
        try:
            provider.create(subject(row["type"], "net"), row["inputs"], 0, False)
        except InitializationFailed as failure:
            outcome.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    while not google.calls:
        time.sleep(0.001)
    provider.cancel()
    thread.join(timeout=30)
    assert not thread.is_alive()
    [failure] = outcome
    assert isinstance(failure, InitializationFailed)
    assert failure.identity == "projects/proj/global/networks/net"


def test_a_cluster_cut_short_is_finished_by_the_next_update() -> None:
    """State keeps the cluster without its removed default pool, so the next plan is to remove just that."""
    google = FakeGoogle()
    row = recorded_state("cl")
    about = subject(row["type"], "cl")
    running_cluster = answers(running({"status": "RUNNING"}), when=posts)
    google.respond = lambda call: running_cluster(call) or (_never_done(call) if "operations" in call["path"] else None)
    provider = configured(google)
    timer = threading.Timer(0.05, provider.cancel)
    timer.start()
    with pytest.raises(InitializationFailed) as failed:
        provider.create(about, row["inputs"], 0, False)
    timer.join()
    google.respond = lambda _call: None
    create(google, "cl")
    resumed = configured(google)
    olds = plain_outputs(failed.value.outputs)
    assert [c.path for c in resumed.diff(about, olds, row["inputs"], ()).changes] == ["removeDefaultNodePool"]
    start = len(google.calls)
    outputs = plain_outputs(resumed.update(about, failed.value.identity, olds, row["inputs"], (), 0, False))
    sent = [(c["method"], c["path"].rpartition("/")[2]) for c in google.calls[start:] if c["method"] != "GET"]
    assert sent == [("DELETE", "default-pool")]
    assert list(resumed.diff(about, outputs, row["inputs"], ()).changes) == []


def test_what_exists_already_is_not_taken_over() -> None:
    google = FakeGoogle()
    create(google, "v6e-1")
    with pytest.raises(ProviderError, match="already exists; import it"):
        create(google, "v6e-1")


def test_what_is_gone_reads_as_nothing() -> None:
    for name in ("net", "nat", "v6e-1", "cl", "sa", "im", "tm", "svc-container", "sec"):
        row = recorded_state(name)
        state = configured(FakeGoogle()).read(subject(row["type"], name), row["id"], row["inputs"], row["outputs"])
        assert state.id == "", name


def test_drift_is_read_into_inputs_and_planned_back() -> None:
    google = FakeGoogle()
    provider = configured(google)
    row = recorded_state("v6e-1")
    about = subject(row["type"], "v6e-1")
    made = provider.create(about, row["inputs"], 0, False)
    pool = google.objects["/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu/nodePools/v6e-1"]
    pool["config"]["labels"] = {"a": "by hand"}
    read = provider.read(about, made.id, row["inputs"], plain_outputs(made.outputs))
    assert read.inputs["nodeConfig"]["labels"] == {"a": "by hand"}
    changes = provider.diff(about, plain_outputs(read.outputs), row["inputs"], ()).changes
    assert [(c.path, c.kind, c.replace) for c in changes] == [("nodeConfig.labels.a", "update", False)]
    ignored = provider.diff(about, plain_outputs(read.outputs), row["inputs"], ("nodeConfig.labels",))
    assert list(ignored.changes) == []


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("net", "projects/proj/global/networks/net"),
        ("net", "proj/net"),
        ("net", "net"),
        ("net", "https://www.googleapis.com/compute/v1/projects/proj/global/networks/net"),
        ("v6e-1", "projects/proj/locations/us-east5/clusters/tpu/nodePools/v6e-1"),
        ("v6e-1", "proj/us-east5/tpu/v6e-1"),
        ("sub", "us-east5/sub"),
    ],
)
def test_import_takes_every_form_of_an_id(name: str, identity: str) -> None:
    google = FakeGoogle()
    create(google, name)
    row = recorded_state(name)
    provider = configured(google)
    state = provider.read(subject(row["type"], name), identity, {}, {})
    assert state.id == row["id"]
    # The imported state agrees with the program that describes it, but for what only the program knows.
    changes = provider.diff(subject(row["type"], name), plain_outputs(state.outputs), row["inputs"], ()).changes
    assert [c.path for c in changes if c.replace] == []


def test_a_malformed_id_says_what_to_write() -> None:
    row = recorded_state("v6e-1")
    with pytest.raises(ProviderError, match=r"invalid id 'a/b/c/d/e/f'.*write projects/\{project\}/locations"):
        configured(FakeGoogle()).read(subject(row["type"], "v6e-1"), "a/b/c/d/e/f", {}, {})


def test_protected_resources_are_not_deleted() -> None:
    google = FakeGoogle()
    row = recorded_state("cl")
    provider = configured(google)
    about = subject(row["type"], "cl")
    made = provider.create(about, {**row["inputs"], "deletionProtection": True}, 0, False)
    with pytest.raises(ProviderError, match="deletionProtection is set to true"):
        provider.delete(about, made.id, plain_outputs(made.outputs), 0)
    with pytest.raises(ProviderError, match="deletionPolicy is PREVENT"):
        provider.delete(about, made.id, {**row["outputs"], "deletionPolicy": "PREVENT"}, 0)
    calls = len(google.calls)
    provider.delete(about, made.id, {**row["outputs"], "deletionPolicy": "ABANDON"}, 0)
    assert len(google.calls) == calls


def test_an_update_of_what_nothing_handles_sends_nothing() -> None:
    """The real plugin shows a changed topology as an update and sends nothing; only a replacement changes it."""
    google = FakeGoogle()
    row = recorded_state("v6e-4x4")
    provider = configured(google)
    about = subject(row["type"], "v6e-4x4")
    made = provider.create(about, row["inputs"], 0, False)
    news = {**row["inputs"], "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x8"}}
    start = len(google.calls)
    outputs = plain_outputs(provider.update(about, made.id, plain_outputs(made.outputs), news, (), 0, False))
    assert {c["method"] for c in google.calls[start:]} == {"GET"}
    assert [c.path for c in provider.diff(about, outputs, news, ()).changes] == ["placementPolicy.tpuTopology"]


CLUSTER_EDITS: dict[str, tuple[Json, tuple[str, str, Json]]] = {
    "channel": (
        {"releaseChannel": {"channel": "REGULAR"}},
        ("PUT", "", {"update": {"desiredReleaseChannel": {"channel": "REGULAR"}}}),
    ),
    "version": ({"minMasterVersion": "1.37"}, ("PUT", "", {"update": {"desiredMasterVersion": "1.37"}})),
    "private nodes": (
        {"privateClusterConfig": {"enablePrivateNodes": False}},
        ("PUT", "", {"update": {"desiredDefaultEnablePrivateNodes": False}}),
    ),
    "shielded": ({"enableShieldedNodes": False}, ("PUT", "", {"update": {"desiredShieldedNodes": {"enabled": False}}})),
    "add-on": (
        {"addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": False}}},
        ("PUT", "", {"update": {"desiredAddonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": False}}}}),
    ),
    "labels": (
        {"resourceLabels": {"env": "x"}},
        (
            "POST",
            ":setResourceLabels",
            {"resourceLabels": {"env": "x", "goog-pulumi-provisioned": "true"}, "labelFingerprint": ""},
        ),
    ),
    "legacy": ({"enableLegacyAbac": True}, ("POST", ":setLegacyAbac", {"enabled": True})),
}


@pytest.mark.parametrize("edit", CLUSTER_EDITS)
def test_a_cluster_update_is_one_call(edit: str) -> None:
    changed, expected = CLUSTER_EDITS[edit]
    google = FakeGoogle()
    row = recorded_state("cl")
    provider = configured(google)
    about = subject(row["type"], "cl")
    made = provider.create(about, row["inputs"], 0, False)
    done = httpx.Response(200, json={"name": "operation-1", "operationType": "x", "status": "DONE"})
    google.respond = lambda call: done if call["method"] in ("PUT", "POST") else None
    start = len(google.calls)
    provider.update(about, made.id, plain_outputs(made.outputs), {**row["inputs"], **changed}, (), 0, False)
    sent = [c for c in google.calls[start:] if c["method"] != "GET"]
    item = "/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu"
    assert [(c["method"], c["path"].removeprefix(item), c["body"]) for c in sent] == [expected]


POOL_EDITS: dict[str, tuple[Json, tuple[str, str, Json]]] = {
    "size": ({"nodeCount": 0}, ("POST", ":setSize", {"nodeCount": 0})),
    "repair": (
        {"management": {"autoRepair": False, "autoUpgrade": True}},
        ("POST", ":setManagement", {"management": {"autoRepair": False, "autoUpgrade": True}}),
    ),
    "autoscaling": (
        {"autoscaling": {"minNodeCount": 0, "maxNodeCount": 4}},
        (
            "POST",
            ":setAutoscaling",
            {
                "autoscaling": {
                    "enabled": True,
                    "minNodeCount": 0,
                    "maxNodeCount": 4,
                    "totalMinNodeCount": 0,
                    "totalMaxNodeCount": 0,
                }
            },
        ),
    ),
    "version": ({"version": "1.37"}, ("PUT", "", {"name": "v6e-1", "nodeVersion": "1.37"})),
    "upgrade": (
        {"upgradeSettings": {"maxSurge": 0, "maxUnavailable": 1, "strategy": "SURGE"}},
        ("PUT", "", {"name": "v6e-1", "upgradeSettings": {"maxUnavailable": 1, "strategy": "SURGE"}}),
    ),
}


@pytest.mark.parametrize("edit", POOL_EDITS)
def test_a_pool_update_is_one_call(edit: str) -> None:
    changed, expected = POOL_EDITS[edit]
    google = FakeGoogle()
    row = recorded_state("v6e-1")
    provider = configured(google)
    about = subject(row["type"], "v6e-1")
    made = provider.create(about, row["inputs"], 0, False)
    done = httpx.Response(200, json={"name": "operation-1", "operationType": "x", "status": "DONE"})
    google.respond = lambda call: done if call["method"] in ("PUT", "POST") else None
    start = len(google.calls)
    provider.update(about, made.id, plain_outputs(made.outputs), {**row["inputs"], **changed}, (), 0, False)
    sent = [c for c in google.calls[start:] if c["method"] != "GET"]
    item = "/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu/nodePools/v6e-1"
    assert [(c["method"], c["path"].removeprefix(item), c["body"]) for c in sent] == [expected]


@pytest.mark.parametrize("setting", ["maxSurge", "maxUnavailable"])
def test_a_surge_needs_its_strategy(setting: str) -> None:
    """Finding: the provider refuses surge settings under another strategy; the stand-in sent them."""
    google = FakeGoogle()
    row = recorded_state("v6e-1")
    provider = configured(google)
    about = subject(row["type"], "v6e-1")
    blue_green = {"upgradeSettings": {"strategy": "BLUE_GREEN", setting: 2}}
    refused = "Surge upgrade settings may not be changed when surge strategy is not enabled"
    with pytest.raises(ProviderError, match=refused):
        provider.create(about, {**row["inputs"], **blue_green}, 0, False)
    assert [c for c in google.calls if c["method"] != "GET"] == []
    made = provider.create(about, row["inputs"], 0, False)
    with pytest.raises(ProviderError, match=refused):
        provider.update(about, made.id, plain_outputs(made.outputs), {**row["inputs"], **blue_green}, (), 0, False)


def test_an_absent_flag_of_the_public_endpoint_reads_as_a_private_one() -> None:
    """Finding: the provider negates `enablePublicEndpoint`, and Google leaves out what is false."""
    google = FakeGoogle()
    row = recorded_state("cl")
    provider = configured(google)
    about = subject(row["type"], "cl")
    made = provider.create(about, row["inputs"], 0, False)
    assert plain_outputs(made.outputs)["privateClusterConfig"]["enablePrivateEndpoint"] is False
    cluster = google.objects["/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu"]
    del cluster["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]["enablePublicEndpoint"]
    read = provider.read(about, made.id, row["inputs"], plain_outputs(made.outputs))
    assert plain_outputs(read.outputs)["privateClusterConfig"]["enablePrivateEndpoint"] is True


def test_a_pool_may_name_its_cluster_by_id() -> None:
    google = FakeGoogle()
    row = recorded_state("v6e-1")
    by_id = {**row["inputs"], "cluster": "projects/proj/locations/us-east5/clusters/tpu"}
    del by_id["location"]
    provider = configured(google, region="")
    made = provider.create(subject(row["type"], "v6e-1"), by_id, 0, False)
    assert made.id == row["id"]
    outputs = plain_outputs(made.outputs)
    assert outputs["cluster"] == by_id["cluster"]
    assert list(provider.diff(subject(row["type"], "v6e-1"), outputs, by_id, ()).changes) == []


def test_a_function_it_does_not_have_is_named() -> None:
    with pytest.raises(ProviderError, match="does not know gcp:x:y; it knows gcp:compute/getInstanceTemplate"):
        configured(FakeGoogle()).invoke("gcp:x:y", {})
