"""The stand-in of vLLM's server: routes, answers, metrics, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import httpx
import pytest

from sandbox.hosts import vllm_server


@pytest.fixture
def server() -> Iterator[httpx.Client]:
    routes = type("Routes", (vllm_server.Routes,), {"engine": vllm_server.Engine("acme/tiny", 8)})
    listening = ThreadingHTTPServer(("127.0.0.1", 0), routes)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    with httpx.Client(base_url=f"http://127.0.0.1:{listening.server_address[1]}") as client:
        yield client
    listening.shutdown()
    listening.server_close()


def test_it_is_healthy_and_names_its_model(server: httpx.Client) -> None:
    assert server.get("/health").status_code == 200
    assert server.get("/v1/models").json()["data"][0]["id"] == "acme/tiny"


def test_an_answer_repeats_the_prompt_up_to_its_limit(server: httpx.Client) -> None:
    answer = server.post("/v1/completions", json={"model": "acme/tiny", "prompt": "one two three", "max_tokens": 2})
    assert answer.json()["choices"][0]["text"] == " one two"
    assert answer.json()["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_chat_can_be_a_stream(server: httpx.Client) -> None:
    asked = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 4, "stream": True}
    lines = [each for each in server.post("/v1/chat/completions", json=asked).text.splitlines() if each]
    assert [each for each in lines if "delta" in each and "chat.completion.chunk" in each] == lines[:2]
    assert lines[-1] == "data: [DONE]"


def test_its_metrics_count_requests_and_tokens(server: httpx.Client) -> None:
    server.post("/v1/completions", json={"prompt": "one two three", "max_tokens": 2})
    found = server.get("/metrics").text
    assert 'vllm:prompt_tokens_total{model_name="acme/tiny"} 3.0' in found
    assert 'vllm:generation_tokens_total{model_name="acme/tiny"} 2.0' in found
    assert 'vllm:num_requests_running{model_name="acme/tiny"} 0.0' in found


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"model": "acme/other", "prompt": "one"}, 404),
        ({"prompt": "one two three four five", "max_tokens": 4}, 400),
        ({"max_tokens": 4}, 400),
        ([], 400),
    ],
)
def test_what_vllm_refuses_is_refused(server: httpx.Client, asked: object, code: int) -> None:
    answer = server.post("/v1/completions", json=asked)
    assert answer.status_code == code
    assert answer.json()["error"]["code"] == code


def test_more_devices_than_the_host_has_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    with pytest.raises(SystemExit, match=r"World size \(8\)"):
        vllm_server.main(["--model", "acme/tiny", "--tensor-parallel-size", "8"])
