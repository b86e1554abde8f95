"""What lies between the plugin, or its helm, and an API server: patience as client-go has it, and staged faults.

client-go (`rest/with_retry.go`) sends a request again up to ten times when the answer is 429 or 5xx and has a
Retry-After; a connection that breaks it tries again for GET only.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from sandbox.kubernetes.api import ApiClient
from sandbox.plugins import steps
from sandbox.run_directory import RunDirectory

ATTEMPTS = 10
REFUSALS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}
WEBHOOK = (
    'Internal error occurred: failed calling webhook "sandbox.fault": failed to call webhook: the server responded with'
    " 500 Internal Server Error"
)
BODILESS = (204, 304)
"""Answers after which the next one follows at once: discovery is answered with 304 where helm has it already."""
HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive", "host")


def sent(inner: httpx.BaseTransport) -> httpx.BaseTransport:
    """How the plugin's requests reach the network."""
    return Patient(Struck(inner) if steps.are_named() else inner)


class Patient(httpx.BaseTransport):
    """Sends a request again where client-go does."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        for _ in range(ATTEMPTS):
            response = self._inner.handle_request(request)
            after = response.headers.get("Retry-After", "")
            if not (response.status_code == 429 or response.status_code >= 500) or not after.isdigit():
                return response
            response.close()
            time.sleep(int(after))
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class Struck(httpx.BaseTransport):
    """Asks the emulated cloud, before a request that changes something, whether a fault strikes it."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        step = steps.current()
        changes = steps.is_change(request.method, "") and "dryRun" not in request.url.params
        fault = _fault(step, request) if step and changes else {}
        kind = fault.get("kind", "")
        if kind == "slow":
            time.sleep(fault["seconds"])
        if kind == "status":
            # Only the API server's own flow control says when to come back.
            again = {"Retry-After": str(fault["retry_after"])} if fault["status"] == 429 else {}
            return _refusal(request, fault["status"], *REFUSALS[fault["status"]], again)
        if kind == "webhook":
            return _refusal(request, 500, "InternalError", WEBHOOK, {})
        if kind == "cut" and not fault["processed"]:
            raise httpx.RemoteProtocolError("connection cut by a fault", request=request)
        response = self._inner.handle_request(request)
        if kind in ("cut", "kill"):
            response.read()
        if kind == "cut":
            raise httpx.RemoteProtocolError("connection cut by a fault", request=request)
        if kind == "kill" and fault["victim"] != "api-server":
            steps.kill(fault["victim"])
        return response

    def close(self) -> None:
        self._inner.close()


def _fault(step: str, request: httpx.Request) -> dict[str, Any]:
    run = RunDirectory.named()
    if run is None:
        return {}
    asked = {"step": step, "method": request.method, "path": request.url.path}
    answer = httpx.post(f"{run.emulator_url}/sandbox/faults/strike", json=asked, timeout=30, trust_env=False)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def _refusal(request: httpx.Request, code: int, reason: str, message: str, headers: dict[str, str]) -> httpx.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return httpx.Response(code, json={**status, "code": code}, headers=headers, request=request)


@contextmanager
def front(client: ApiClient) -> Iterator[str]:
    """An address of this machine from which helm's requests pass through here, as long as the plugin tells its steps;
    else nothing, and helm goes to the API server itself. They belong to the step of the thread that asks."""
    if not steps.current():
        yield ""
        return
    server = FrontServer(("127.0.0.1", 0), functools.partial(Front, client, steps.current()))
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class FrontServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # helm asks for all objects of a chart at once


class Front(BaseHTTPRequestHandler):
    """Hands each request of helm on, with helm's own credential."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, client: ApiClient, step: str, *arguments: Any) -> None:
        self._client, self._step = client, step
        super().__init__(*arguments)

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        try:
            with (
                steps.step(self._step),
                self._client.stream(self.command, self.path, body, headers) as response,
            ):
                self.send_response(response.status_code)
                # A refusal, or what a fault has let through, has been read; then it is decoded, too.
                is_read = response.is_stream_consumed
                for name, value in response.headers.items():
                    if name.lower() not in HOP_BY_HOP and not (is_read and name.lower() == "content-encoding"):
                        self.send_header(name, value)
                if self.command == "HEAD" or response.status_code in BODILESS:
                    self.end_headers()
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in (response.content,) if is_read else response.iter_raw():
                    if chunk:  # an empty one would be the end
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                        self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
        except (httpx.HTTPError, OSError):
            self.close_connection = True

    def do_GET(self) -> None:
        self._hand_on()

    def do_HEAD(self) -> None:
        self._hand_on()

    def do_POST(self) -> None:
        self._hand_on()

    def do_PUT(self) -> None:
        self._hand_on()

    def do_PATCH(self) -> None:
        self._hand_on()

    def do_DELETE(self) -> None:
        self._hand_on()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: the plugin's own output is the engine's."""
