"""Loops are woken by changes of a cluster, and look without them as well."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import httpx
import pytest

from sandbox.kubernetes import changes
from sandbox.kubernetes.api import ApiClient, ApiError, Object, UnknownKindError
from sandbox.kubernetes.changes import NODE, POD, SECRET, Changes
from sandbox.kubernetes.control_plane import ControlPlane
from sandbox.kubernetes.loops import Loop

SOON = 40.0  # seconds, on a busy machine; the server keeps a connection for longer
QUIET = 1.0  # so long nothing happens


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="plane-") as folder:
        plane = ControlPlane(Path(folder))
        plane.start()
        yield plane
        plane.stop()


@pytest.fixture
def watched(plane: ControlPlane) -> Iterator[Changes]:
    """Changes that the test starts."""
    made = Changes(plane.client)
    yield made
    began = time.monotonic()
    made.stop()
    assert time.monotonic() - began < SOON, "the server would have kept the connections for most of a minute"


def started(found: Changes, *events: threading.Event) -> None:
    """Starts to watch; the first look of every watch is over."""
    found.start()
    for each in events:
        assert each.wait(SOON)
    time.sleep(QUIET)  # between that look and the watch
    for each in events:
        each.clear()


def config_map(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}


@pytest.mark.sandbox
def test_a_change_wakes_who_looks_at_its_kind(plane: ControlPlane, watched: Changes) -> None:
    secrets, both, pods = watched.of(SECRET), watched.of(SECRET, POD), watched.of(POD)
    started(watched, secrets, both, pods)
    plane.client.create(config_map("a"))
    assert secrets.wait(SOON)
    assert both.wait(SOON)
    assert not pods.is_set()
    secrets.clear()
    plane.client.delete(config_map("a"))
    assert secrets.wait(SOON)


@pytest.mark.sandbox
def test_a_node_that_says_that_it_is_alive_wakes_nobody(plane: ControlPlane, watched: Changes) -> None:
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "host"}}
    nodes = watched.of(NODE)
    started(watched, nodes)

    def report(ready: str, minute: int) -> None:
        heartbeat = {"type": "Ready", "status": ready, "lastHeartbeatTime": f"2026-01-01T00:{minute:02}:00Z"}
        plane.client.patch(node, {"status": {"conditions": [heartbeat]}}, subresource="status")

    plane.client.create(node)
    report("True", 1)
    assert nodes.wait(SOON)
    settled(plane, nodes)
    report("True", 2)
    report("True", 3)
    assert not nodes.wait(QUIET)
    report("False", 4)
    assert nodes.wait(SOON)
    time.sleep(QUIET)
    nodes.clear()
    plane.client.delete(node)
    assert nodes.wait(SOON)


def settled(plane: ControlPlane, nodes: threading.Event) -> None:
    """Returns when the controller manager has taken the taint of a new Node away, and nothing changes any more."""
    deadline = time.monotonic() + SOON
    while True:
        nodes.clear()
        changed, found = nodes.wait(QUIET), plane.client.get("v1", "Node", "host")
        if not changed and found and not found["spec"].get("taints"):
            return
        assert time.monotonic() < deadline, found


class Scripted:
    """An API server whose watches do what `script` says, one after the other; the last one stays open."""

    def __init__(self, *script: Exception | list[tuple[str, str]]) -> None:
        self.script = list(script)
        self.asked: list[str] = []  # versions that watches began with
        self.lists = 0
        self.stays = threading.Event()  # the last watch has begun
        self.over = threading.Event()

    def path(self, api_version: str, kind: str) -> str:
        if self.script and isinstance(self.script[0], UnknownKindError):
            raise self.script.pop(0)  # type: ignore[misc]
        return kind

    def request(self, method: str, path: str, **query: str) -> Object:
        self.lists += 1
        return {"metadata": {"resourceVersion": f"list {self.lists}"}}

    def watch(
        self, api_version: str, kind: str, version: str, seconds: int, opened: Callable[[Callable[[], None]], None]
    ) -> Iterator[tuple[str, Object]]:
        self.asked.append(version)
        opened(self.over.set)
        if not self.script:
            self.stays.set()
            self.over.wait(SOON)
            raise httpx.ReadError("cut")
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        for event, each in step:
            yield event, {"metadata": {"uid": each, "resourceVersion": each}}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(changes, "UNKNOWN_SECONDS", 0.01)


def followed(server: Scripted) -> tuple[Changes, threading.Event]:
    found = Changes(cast(ApiClient, server))
    event = found.of(POD)
    found.start()
    assert server.stays.wait(SOON)
    return found, event


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(ApiError(410, "Expired", "too old resource version", {}), id="too old"),
        pytest.param(ApiError(401, "Unauthorized", "Unauthorized", {}), id="expired token"),
        pytest.param(httpx.ConnectError("refused"), id="server is down"),
        pytest.param(ValueError("half a line"), id="cut off"),
    ],
)
def test_a_watch_that_breaks_off_begins_anew_and_wakes(trouble: Exception) -> None:
    server = Scripted([("ADDED", "5")], trouble)
    found, event = followed(server)
    assert server.asked == ["list 1", "5", "list 2"]
    assert event.is_set()
    found.stop()


@pytest.mark.usefixtures("hasty")
def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    server = Scripted([("ADDED", "5"), ("BOOKMARK", "9")], [])
    found, _ = followed(server)
    assert server.asked == ["list 1", "9", "9"]
    found.stop()


@pytest.mark.usefixtures("hasty")
def test_a_kind_that_is_not_there_yet_is_asked_for_again() -> None:
    server = Scripted(UnknownKindError(404, "NotFound", "no matches", {}), [])
    found, event = followed(server)
    assert event.is_set()
    found.stop()


def test_an_interruption_is_logged_once(hasty: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger=changes.__name__)
    down = [httpx.ConnectError("refused") for _ in range(2)]
    server = Scripted(*down)
    server.request = lambda method, path, **query: _raise(server.script.pop(0)) if server.script else _LISTED  # type: ignore[method-assign]
    found, _ = followed(server)
    found.stop()
    assert [each.getMessage() for each in caplog.records] == ["changes of Pod: refused"]


_LISTED: Object = {"metadata": {"resourceVersion": "1"}}


def _raise(error: object) -> Object:
    assert isinstance(error, Exception)
    raise error


class Counted:
    """A step that counts its calls and answers `more`, or raises it."""

    def __init__(self, more: bool | Exception) -> None:
        self.more = more
        self.calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        if isinstance(self.more, Exception):
            raise self.more
        return self.more


def called(step: Counted, times: int) -> None:
    """Waits until the step has been called so often."""
    deadline = time.monotonic() + SOON
    while step.calls < times:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_loop_with_nothing_to_do_rests_until_it_is_woken() -> None:
    step, wake = Counted(False), threading.Event()
    loop = Loop("idle", 0.01, step, wake, idle=60)
    loop.start()
    called(step, 1)
    time.sleep(0.3)
    assert step.calls == 1
    wake.set()
    called(step, 2)
    time.sleep(0.3)
    assert step.calls == 2
    began = time.monotonic()
    loop.stop()
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    ("more", "idle"),
    [
        pytest.param(False, 0.1, id="not woken"),
        pytest.param(True, 60, id="more to do"),
        pytest.param(ApiError(409, "Conflict", "", {}), 60, id="refused"),
        pytest.param(KeyError("status"), 60, id="failed"),
    ],
)
def test_a_loop_looks_again_without_being_woken(more: bool | Exception, idle: float) -> None:
    step = Counted(more)
    loop = Loop("looking", 0.01, step, threading.Event(), idle)
    loop.start()
    called(step, 4)
    loop.stop()


def test_a_loop_that_is_woken_all_the_time_keeps_its_period() -> None:
    step, wake = Counted(False), threading.Event()
    wake.clear = lambda: None  # type: ignore[method-assign]
    wake.set()
    loop = Loop("woken", 0.1, step, wake, idle=60)
    began = time.monotonic()
    loop.start()
    called(step, 5)
    assert time.monotonic() - began >= 0.5
    loop.stop()
