"""Plugins that name their steps, and what client-go does about answers that say when to come back."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from sandbox import google
from sandbox.plugins import steps
from sandbox.plugins.kubernetes import requests
from sandbox.plugins.steps import STEP_HEADER, is_change, step
from sandbox.run_directory import IMPORT_ROOT
from sandbox.tests.gcp_plugin_support import config_at, configured, subject

NAMESPACE = "create kubernetes:core/v1:Namespace::team"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Steps are told."""
    monkeypatch.setenv(steps.VARIABLE, "1")
    steps.are_named.cache_clear()
    yield
    monkeypatch.undo()
    steps.are_named.cache_clear()


class Server(httpx.BaseTransport):
    """Answers with these, one after the other, and counts."""

    def __init__(self, *answers: httpx.Response) -> None:
        self.answers, self.bodies = list(answers), list[bytes]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        return self.answers.pop(0)


def later(code: int) -> httpx.Response:
    return httpx.Response(code, headers={"Retry-After": "0"})


@pytest.mark.parametrize("code", [429, 503])
def test_a_request_is_sent_again_where_the_answer_says_when(code: int) -> None:
    server = Server(later(code), later(code), httpx.Response(201))
    with httpx.Client(transport=requests.sent(server), base_url="http://api") as client:
        assert client.post("/api/v1/namespaces", content=b"{}").status_code == 201
    assert server.bodies == [b"{}"] * 3


def test_a_request_is_not_sent_again_forever_nor_where_the_answer_does_not_ask_for_it() -> None:
    patient = Server(*(later(429) for _ in range(20)))
    with httpx.Client(transport=requests.sent(patient), base_url="http://api") as client:
        assert client.post("/").status_code == 429
    assert len(patient.bodies) == requests.ATTEMPTS + 1
    server = Server(httpx.Response(503), later(404))
    with httpx.Client(transport=requests.sent(server), base_url="http://api") as client:
        assert [client.get("/").status_code for _ in range(2)] == [503, 404]


@pytest.mark.parametrize(
    ("fault", "code", "reached"),
    [
        ({"kind": "status", "status": 429, "retry_after": 0}, 201, 1),
        ({"kind": "status", "status": 401}, 401, 0),
        ({"kind": "webhook"}, 500, 0),
        ({"kind": "slow", "seconds": 0.01}, 201, 1),
        ({"kind": "cut"}, 0, 0),
        ({"kind": "cut", "processed": True}, 0, 1),
    ],
)
def test_a_fault_strikes_a_change_of_its_step(
    named: None, monkeypatch: pytest.MonkeyPatch, fault: dict[str, object], code: int, reached: int
) -> None:
    from sandbox.google.faults import Fault, Faults

    staged = Faults()
    staged.add(Fault.model_validate({**fault, "step": NAMESPACE}))

    def struck(step: str, request: httpx.Request) -> dict[str, object]:
        found = staged.strike(request.method, request.url.path, "", step)
        return found.model_dump() if found else {}

    monkeypatch.setattr(requests, "_fault", struck)
    server = Server(*(httpx.Response(201) for _ in range(4)))
    with httpx.Client(transport=requests.sent(server), base_url="http://api") as client:
        assert client.post("/").status_code == 201, "no step"
        with step(NAMESPACE):
            assert client.get("/").status_code == 201, "no change"
            assert client.post("/?dryRun=All").status_code == 201, "a dry run"
            if code:
                assert client.post("/").status_code == code
            else:
                with pytest.raises(httpx.TransportError):
                    client.post("/")
    assert (len(server.bodies), staged.pending()) == (3 + reached, [])


class Known:
    """Stands for an API server's client: what helm has seen already is answered without a body, changes are refused."""

    @contextmanager
    def stream(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Iterator[httpx.Response]:
        if method == "POST":
            yield httpx.Response(503, content=b"away" if path == "/x" else b"")
        else:
            yield httpx.Response(304) if path == "/apis" else httpx.Response(200, content=iter([b"n", b"ew"]))


ANSWERS = (
    ("GET", "/apis", 304, b""),
    ("HEAD", "/x", 200, b""),
    ("POST", "/x", 503, b"away"),
    ("POST", "/y", 503, b""),
    ("GET", "/x", 200, b"new"),
)


def test_helm_gets_each_answer_whole_on_one_connection(named: None) -> None:
    with step(NAMESPACE), requests.front(Known()) as address:  # type: ignore[arg-type]
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
        for method, path, code, body in ANSWERS:
            connection.request(method, path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (code, body)
        connection.close()


def test_reading_a_policy_is_no_change() -> None:
    assert is_change("POST", "http://x/v1/projects/p:setIamPolicy")
    assert not is_change("POST", "http://x/v1/projects/p:getIamPolicy")
    assert not is_change("GET", "http://x")


def test_the_gcp_plugin_names_its_step_where_it_is_asked_to(named: None) -> None:
    seen: list[tuple[str, str]] = []

    class Wire(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            seen.append((request.method, request.headers.get(STEP_HEADER, "")))
            return super().handle_request(request)

    with google.serving(time_scale=0) as emulator:
        provider = configured(**config_at(emulator.url), transport=Wire())
        with step("create gcp:compute/network:Network::net"):
            inputs = {"name": "net", "autoCreateSubnetworks": False}
            provider.create(subject("gcp:compute/network:Network", "net"), inputs, 0, False)
    assert {said for method, said in seen if method == "GET"} == {""}
    assert [said for method, said in seen if method == "POST"] == ["create gcp:compute/network:Network::net"]


@pytest.mark.parametrize("victim", ["engine", "plugin"])
def test_a_plugin_kills_the_engine_or_itself(victim: str) -> None:
    """The engine is played by a process that starts the plugin and then waits for it."""
    plugin = f"from sandbox.plugins.steps import kill; kill({victim!r}); print('alive')"
    engine = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {plugin!r}]).returncode)"
    done = subprocess.run([sys.executable, "-c", engine], capture_output=True, text=True, check=False, cwd=IMPORT_ROOT)
    assert abs(done.returncode) in (signal.SIGKILL, 256 - signal.SIGKILL)
    assert (done.returncode == -signal.SIGKILL) == (victim == "engine")
