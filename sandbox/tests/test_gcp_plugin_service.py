"""The gRPC face: values on the wire, secrets, errors with details, and the life of the plugin process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.provider import Subject, start
from sandbox.plugins.values import (
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_MARK,
    UNKNOWN_MARKS,
    Asset,
    OutputValue,
    ResourceReference,
    Secret,
    has_unknown,
    mark_secrets,
    marshal,
    plain,
    unmarshal,
)
from sandbox.tests.gcp_plugin_support import CONFIG, FakeGoogle, error, recorded_state

Json = dict[str, Any]
CHECKOUT = Path(__file__).parents[2]

# --- values -----------------------------------------------------------------------------------------------------------

_TEXT = st.text().filter(lambda text: text not in UNKNOWN_MARKS and not any(0xD800 <= ord(c) < 0xE000 for c in text))
_KEYS = _TEXT.filter(lambda text: text != SIGNATURE)
_NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
_SCALARS = st.none() | st.booleans() | _NUMBERS | _TEXT | st.just(UNKNOWN)
_IDS = st.none() | st.just(UNKNOWN) | _TEXT.filter(bool)
_SPECIAL = st.builds(ResourceReference, urn=_TEXT.filter(bool), id=_IDS, package_version=_TEXT) | st.builds(
    Asset, kind=st.sampled_from(["asset", "archive"]), content=st.dictionaries(st.sampled_from(["text", "path"]), _TEXT)
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    known = inner.filter(lambda value: value is not UNKNOWN)
    outputs = st.builds(OutputValue, value=known, secret=st.booleans(), dependencies=st.lists(_TEXT).map(tuple))
    unknown = st.builds(OutputValue, known=st.just(False), dependencies=st.lists(_TEXT).map(tuple))
    return st.lists(inner) | st.dictionaries(_KEYS, inner) | st.builds(Secret, inner) | outputs | unknown


VALUES = st.recursive(_SCALARS | _SPECIAL, _nested, max_leaves=20)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_KEYS, VALUES))
def test_values_survive_the_wire(properties: Json) -> None:
    assert unmarshal(marshal(properties)) == properties


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_plain_values_have_no_wrappers(value: Any) -> None:
    def wrappers(found: Any) -> Iterator[Any]:
        if isinstance(found, Secret | OutputValue | ResourceReference):
            yield found
        children = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        for child in children:
            yield from wrappers(child)

    assert list(wrappers(plain(value))) == []


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_KEYS, VALUES))
def test_secrets_come_back_marked(properties: Json) -> None:
    """Marking plain values like the originals hides every value that was hidden."""
    marked = mark_secrets(plain(properties), properties)
    assert plain(marked) == plain(properties)
    for key, value in properties.items():
        if isinstance(value, Secret):
            assert isinstance(marked[key], Secret)


def test_the_wire_form_is_the_engines() -> None:
    secret = marshal({"s": Secret("x")})["s"]
    assert isinstance(secret, Struct)
    assert dict(secret) == {SIGNATURE: SECRET, "value": "x"}
    for mark in UNKNOWN_MARKS:
        assert unmarshal(marshal({"u": mark})) == {"u": UNKNOWN}
    assert marshal({"u": UNKNOWN})["u"] == UNKNOWN_MARK
    assert math.isnan(unmarshal(marshal({"n": math.nan}))["n"])
    assert has_unknown({"a": [{"b": UNKNOWN}]})
    assert not has_unknown({"a": [1]})
    with pytest.raises(ValueError, match="unknown signature 'x'"):
        unmarshal(marshal({"v": {SIGNATURE: "x"}}))
    with pytest.raises(TypeError, match="no wire form for a set"):
        marshal({"v": {1}})


def test_a_subject_is_read_from_its_urn() -> None:
    urn = "urn:pulumi:dev::p::pkg:a:Outer$pkg:b:Inner$gcp:compute/network:Network::a::name"
    assert Subject.of(urn) == Subject("gcp:compute/network:Network", "a::name", urn)


# --- the service ------------------------------------------------------------------------------------------------------


class Plugin:
    """A served plugin over a fake API, and a stub to call it as the engine does."""

    def __init__(self) -> None:
        self.google = FakeGoogle()
        self.server, port = start(GcpProvider(self.google))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self.channel)

    def close(self) -> None:
        self.channel.close()
        self.server.stop(None).wait()


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    running = Plugin()
    try:
        running.stub.Configure(provider_pb2.ConfigureRequest(args=marshal(CONFIG)))
        yield running
    finally:
        running.close()


def _urn(name: str) -> str:
    return f"urn:pulumi:dev::p::{recorded_state(name)['type']}::{name}"


def _inputs(name: str, /, **changed: Any) -> Any:
    return marshal({**recorded_state(name)["inputs"], **changed})


def test_the_engine_is_told_what_the_plugin_can_do() -> None:
    running = Plugin()
    try:
        handshake = running.stub.Handshake(provider_pb2.ProviderHandshakeRequest(engine_address="127.0.0.1:1"))
        configured = running.stub.Configure(provider_pb2.ConfigureRequest(args=marshal(CONFIG)))
        assert handshake.accept_secrets is configured.acceptSecrets is configured.supportsPreview is True
        assert running.stub.GetPluginInfo(Empty()).version == "10.2.0"
        described = running.stub.GetSchema(provider_pb2.GetSchemaRequest()).schema
        assert json.loads(described)["name"] == "gcp"
        with pytest.raises(grpc.RpcError) as refused:
            running.stub.GetMapping(provider_pb2.GetMappingRequest(key="terraform"))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        running.close()


def test_a_life_over_grpc(plugin: Plugin) -> None:
    urn = _urn("net")
    checked = plugin.stub.Check(provider_pb2.CheckRequest(urn=urn, news=_inputs("net")))
    assert list(checked.failures) == []
    planned = plugin.stub.Create(provider_pb2.CreateRequest(urn=urn, properties=checked.inputs, preview=True))
    assert planned.id == ""
    assert unmarshal(planned.properties)["selfLink"] is UNKNOWN
    assert plugin.google.calls == []
    made = plugin.stub.Create(provider_pb2.CreateRequest(urn=urn, properties=checked.inputs))
    same = plugin.stub.Diff(provider_pb2.DiffRequest(urn=urn, id=made.id, olds=made.properties, news=checked.inputs))
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE
    edited = plugin.stub.Diff(
        provider_pb2.DiffRequest(
            urn=urn, id=made.id, olds=made.properties, news=_inputs("net", description="d", mtu=1500)
        )
    )
    assert edited.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert edited.deleteBeforeReplace
    assert list(edited.replaces) == ["description"]
    assert list(edited.diffs) == ["description", "mtu"]
    kinds = {path: provider_pb2.PropertyDiff.Kind.Name(d.kind) for path, d in edited.detailedDiff.items()}
    assert kinds == {"description": "ADD_REPLACE", "mtu": "UPDATE"}
    updated = plugin.stub.Update(
        provider_pb2.UpdateRequest(urn=urn, id=made.id, olds=made.properties, news=_inputs("net", mtu=1500))
    )
    assert unmarshal(updated.properties)["mtu"] == 1500
    read = plugin.stub.Read(
        provider_pb2.ReadRequest(urn=urn, id=made.id, inputs=checked.inputs, properties=updated.properties)
    )
    assert (read.id, unmarshal(read.inputs)["mtu"]) == (made.id, 1500)
    plugin.stub.Delete(provider_pb2.DeleteRequest(urn=urn, id=made.id, properties=updated.properties))
    gone = plugin.stub.Read(provider_pb2.ReadRequest(urn=urn, id=made.id, inputs=checked.inputs))
    assert gone.id == ""


def test_secret_inputs_stay_secret(plugin: Plugin) -> None:
    urn = _urn("sec")
    news = marshal({"secretId": Secret("join"), "replication": {"auto": {}}, "labels": {"team": Secret("a")}})
    checked = plugin.stub.Check(provider_pb2.CheckRequest(urn=urn, news=news))
    assert unmarshal(checked.inputs)["secretId"] == Secret("join")
    made = unmarshal(plugin.stub.Create(provider_pb2.CreateRequest(urn=urn, properties=checked.inputs)).properties)
    assert made["secretId"] == Secret("join")
    assert made["labels"] == {"team": Secret("a")}
    assert made["effectiveLabels"] == Secret({"team": "a", "goog-pulumi-provisioned": "true"})


def test_a_refused_input_names_its_path(plugin: Plugin) -> None:
    checked = plugin.stub.Check(provider_pb2.CheckRequest(urn=_urn("net"), news=_inputs("net", mut=1500)))
    [failure] = checked.failures
    assert failure.property == "mut"
    assert "Did you mean 'mtu'?" in failure.reason


def test_refused_configuration_names_its_key() -> None:
    running = Plugin()
    try:
        checked = running.stub.CheckConfig(provider_pb2.CheckRequest(news=marshal({"accessToken": "t"})))
        assert "containerCustomEndpoint" in {f.property for f in checked.failures}
        with pytest.raises(grpc.RpcError, match="never talks to the real cloud"):
            running.stub.Configure(provider_pb2.ConfigureRequest(args=marshal({"accessToken": "t"})))
    finally:
        running.close()


def test_a_half_made_resource_reaches_the_engine(plugin: Plugin) -> None:
    pools = "/container/v1beta1/projects/proj/locations/us-east5/clusters/tpu/nodePools"
    stockout = {
        "name": "operation-1",
        "operationType": "CREATE_NODE_POOL",
        "status": "DONE",
        "error": {"message": "ZONE_RESOURCE_POOL_EXHAUSTED: no capacity"},
    }

    def respond(call: Json) -> httpx.Response | None:
        if call["method"] != "POST":
            return None
        plugin.google.objects[f"{pools}/v6e-1"] = {"name": "v6e-1", "status": "ERROR"}
        return httpx.Response(200, json=stockout)

    plugin.google.respond = respond
    inputs = _inputs("v6e-1", name=Secret("v6e-1"))
    with pytest.raises(grpc.RpcError) as refused:
        plugin.stub.Create(provider_pb2.CreateRequest(urn=_urn("v6e-1"), properties=inputs))
    [details] = [v for k, v in refused.value.trailing_metadata() if k == "grpc-status-details-bin"]
    [packed] = status_pb2.Status.FromString(details).details
    failure = provider_pb2.ErrorResourceInitFailed()
    assert packed.Unpack(failure)
    assert failure.id == f"{pools.removeprefix('/container/v1beta1/')}/v6e-1"
    assert list(failure.reasons) == ["Error creating NodePool: ZONE_RESOURCE_POOL_EXHAUSTED: no capacity"]
    assert unmarshal(failure.properties)["name"] == Secret("v6e-1"), "a secret stays one in the state of a failure"


def test_errors_are_messages_not_traces(plugin: Plugin) -> None:
    plugin.google.respond = lambda _call: error(403, "Permission denied", "PERMISSION_DENIED")
    with pytest.raises(grpc.RpcError) as refused:
        plugin.stub.Create(provider_pb2.CreateRequest(urn=_urn("net"), properties=_inputs("net")))
    expected = "Error creating Network: googleapi: Error 403: Permission denied, PERMISSION_DENIED"
    assert refused.value.details() == expected


def test_a_bug_is_called_a_bug(plugin: Plugin, capfd: pytest.CaptureFixture[str]) -> None:
    plugin.google.respond = lambda _call: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(grpc.RpcError, match="bug in the sandbox's gcp plugin: ZeroDivisionError"):
        plugin.stub.Create(provider_pb2.CreateRequest(urn=_urn("net"), properties=_inputs("net")))
    assert "Traceback" in capfd.readouterr().err


def test_cancel_over_grpc(plugin: Plugin) -> None:
    plugin.google.respond = lambda call: (
        httpx.Response(200, json={"name": "o", "operationType": "x", "status": "RUNNING"})
        if call["method"] == "POST" or "operations" in call["path"]
        else None
    )
    pending = plugin.stub.Create.future(provider_pb2.CreateRequest(urn=_urn("net"), properties=_inputs("net")))
    while not plugin.google.calls:
        time.sleep(0.001)
    plugin.stub.Cancel(Empty())
    with pytest.raises(grpc.RpcError, match="cancelled"):
        pending.result(timeout=60)


# --- the process ------------------------------------------------------------------------------------------------------

# Started by a process of its own, as the engine would, which prints the plugin's pid and port and stays until told.
PARENT = """
import subprocess, sys
plugin = subprocess.Popen([sys.executable, "-m", "sandbox.plugins.gcp"], stdout=subprocess.PIPE, text=True)
print(plugin.pid, plugin.stdout.readline().strip(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def parent() -> Iterator[tuple[subprocess.Popen[str], psutil.Process, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pid, port = map(int, process.stdout.readline().split())
    plugin = psutil.Process(pid)
    try:
        yield process, plugin, port
    finally:
        process.kill()
        process.communicate()
        if plugin.is_running():
            plugin.kill()


def test_the_process_serves_and_dies_with_its_parent(
    parent: tuple[subprocess.Popen[str], psutil.Process, int],
) -> None:
    process, plugin, port = parent
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        assert stub.GetPluginInfo(Empty(), timeout=60).version == "10.2.0"
    listening = {c.laddr.ip.removeprefix("::ffff:") for c in plugin.net_connections() if c.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    plugin.send_signal(signal.SIGINT)  # Ctrl-C reaches the plugin too; only the engine may end it
    time.sleep(0.1)
    assert plugin.is_running()
    process.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([plugin], timeout=60)[0] == [plugin]


def test_sigterm_ends_it(parent: tuple[subprocess.Popen[str], psutil.Process, int]) -> None:
    _, plugin, _ = parent
    os.kill(plugin.pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while plugin.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.01)
    assert plugin.status() == psutil.STATUS_ZOMBIE  # ended, and its parent has not asked yet
