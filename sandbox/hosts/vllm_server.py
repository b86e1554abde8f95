#!/usr/local/bin/python
"""Stands for vLLM's server in the image `sandbox/vllm`, where it is `vllm.entrypoints.openai.api_server`.

Routes, answers and names of metrics are vLLM's (vllm-project/vllm v0.19, vllm/entrypoints/openai): /health, /ping,
/version, /v1/models, /v1/completions, /v1/chat/completions (also as a stream), /metrics. There is no model: an answer
repeats the words of its prompt, one token each, up to `max_tokens`. No weights are loaded, so no disk, bucket or hub is
read. Of the server's options it obeys --host, --port, --model, --served-model-name, --max-model-len and
--tensor-parallel-size; it takes all others and says so in its log. As vLLM does, it ends where the host shows fewer
devices than --tensor-parallel-size. Only Python's standard library is used.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "0.19.0"
MOST_TOKENS = 16  # vLLM's default of `max_tokens`
COUNTERS = ("prompt_tokens_total", "generation_tokens_total", "request_success_total", "num_preemptions_total")
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


class RefusedError(Exception):
    """A request that vLLM answers with 400 or 404; `code` is that."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Engine:
    """The words and the figures. `limit` is the most tokens of prompt and answer together."""

    def __init__(self, model: str, limit: int) -> None:
        self.model = model
        self.limit = limit
        self._figures = dict.fromkeys((*COUNTERS, *GAUGES), 0.0)
        self._lock = threading.Lock()

    def tokens(self, asked: dict[str, Any], prompt: str) -> list[str]:
        """The answer's tokens. Raises RefusedError."""
        if asked.get("model", self.model) != self.model:
            raise RefusedError(404, f"The model `{asked['model']}` does not exist.")
        words = prompt.split()
        most = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or MOST_TOKENS)
        if len(words) + most > self.limit:
            raise RefusedError(400, f"This model's maximum context length is {self.limit} tokens.")
        return [f" {word}" for word in words][:most]

    def count(self, name: str, number: float) -> None:
        with self._lock:
            self._figures[name] += number

    def metrics(self) -> str:
        with self._lock:
            figures = dict(self._figures)
        lines = []
        for name, value in figures.items():
            kind = "gauge" if name in GAUGES else "counter"
            labels = f'model_name="{self.model}"'
            if name == "request_success_total":
                labels += ',finished_reason="length"'
            lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{labels}}} {value}"]
        return "\n".join(lines) + "\n"


class Routes(BaseHTTPRequestHandler):
    """One connection. `engine` is set by `serve`."""

    engine: Engine
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = {
            "/health": lambda: self._answer(200, b""),
            "/ping": lambda: self._answer(200, b""),
            "/version": lambda: self._json(200, {"version": VERSION}),
            "/v1/models": lambda: self._json(200, self._models()),
            "/metrics": lambda: self._answer(200, self.engine.metrics().encode(), "text/plain; version=0.0.4"),
        }.get(self.path)
        if found is None:
            self._json(404, {"detail": "Not Found"})
        else:
            found()

    def do_POST(self) -> None:
        kinds = {"/v1/completions": "text_completion", "/v1/chat/completions": "chat.completion", "/ping": ""}
        kind = kinds.get(self.path)
        if kind is None:
            self._json(404, {"detail": "Not Found"})
        elif not kind:
            self._answer(200, b"")
        else:
            self._complete(kind)

    def log_message(self, format: str, *args: Any) -> None:
        print(f"INFO: {self.client_address[0]} - {format % args}", flush=True)

    def _complete(self, kind: str) -> None:
        engine = self.engine
        engine.count("num_requests_running", 1)
        try:
            asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
            prompt = _prompt(asked, chat=kind.startswith("chat"))
            tokens = engine.tokens(asked, prompt)
            engine.count("prompt_tokens_total", len(prompt.split()))
            engine.count("generation_tokens_total", len(tokens))
            if asked.get("stream"):
                self._stream(kind, tokens)
            else:
                self._json(200, self._whole(kind, prompt, tokens))
            engine.count("request_success_total", 1)
        except RefusedError as error:
            self._json(error.code, _error(error.code, str(error)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._json(400, _error(400, f"{error!r}"))
        finally:
            engine.count("num_requests_running", -1)

    def _models(self) -> dict[str, Any]:
        model = {"id": self.engine.model, "object": "model", "owned_by": "vllm", "max_model_len": self.engine.limit}
        return {"object": "list", "data": [model]}

    def _head(self, kind: str) -> dict[str, Any]:
        name = "chatcmpl" if kind.startswith("chat") else "cmpl"
        return {
            "id": f"{name}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.engine.model,
        }

    def _whole(self, kind: str, prompt: str, tokens: list[str]) -> dict[str, Any]:
        text = "".join(tokens)
        given = {"message": {"role": "assistant", "content": text}} if kind.startswith("chat") else {"text": text}
        before = len(prompt.split())
        usage = {
            "prompt_tokens": before,
            "completion_tokens": len(tokens),
            "total_tokens": before + len(tokens),
        }
        return {
            **self._head(kind),
            "choices": [{"index": 0, **given, "finish_reason": "length"}],
            "usage": usage,
        }

    def _stream(self, kind: str, tokens: list[str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()
        for event in _events(self._head(kind), kind, tokens):
            self.wfile.write(f"data: {event}\n\n".encode())
        self.close_connection = True

    def _json(self, code: int, document: object) -> None:
        self._answer(code, json.dumps(document).encode(), "application/json")

    def _answer(self, code: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _prompt(asked: dict[str, Any], *, chat: bool) -> str:
    if chat:
        return " ".join(str(each["content"]) for each in asked["messages"])
    return str(asked["prompt"])


def _events(head: dict[str, Any], kind: str, tokens: list[str]) -> Iterator[str]:
    for number, token in enumerate(tokens):
        end = "length" if number == len(tokens) - 1 else None
        given = {"delta": {"content": token}} if kind.startswith("chat") else {"text": token}
        name = f"{kind}.chunk" if kind.startswith("chat") else kind
        yield json.dumps({**head, "object": name, "choices": [{"index": 0, **given, "finish_reason": end}]})
    yield "[DONE]"


def _error(code: int, message: str) -> dict[str, Any]:
    kind = "NotFoundError" if code == 404 else "BadRequestError"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def devices() -> int:
    """How many devices a framework shows here: as many as XLA is told to (see chips.py)."""
    told = re.search(r"xla_force_host_platform_device_count=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(told[1]) if told else 0


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    found, others = parser.parse_known_args(arguments)
    if others:
        print(f"INFO: taken and not obeyed: {' '.join(others)}", flush=True)
    return found


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        arguments = arguments[1:]
    given = options(arguments)
    model = given.served_model_name or given.model or given.model_tag
    if not model:
        sys.exit("vllm serve: error: no model is named")
    if given.tensor_parallel_size > devices():
        sys.exit(
            f"ValueError: World size ({given.tensor_parallel_size}) is larger than the number of available devices"
            f" ({devices()}) in this node."
        )
    Routes.engine = Engine(model, given.max_model_len)
    server = ThreadingHTTPServer((given.host, given.port), Routes)
    print(f"INFO: vLLM API server version {VERSION} (stand-in) serves {model} on {devices()} devices", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
