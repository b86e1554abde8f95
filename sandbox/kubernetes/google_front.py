"""Google's APIs at their real addresses, for one program: HTTPS in front of the emulator, which speaks plain HTTP.

Stands for https://container.googleapis.com. A client is led here by HTTPS_PROXY, and trusts what SSL_CERT_FILE
names. The keys behind the certificate are never kept in a file.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

import httpx

from sandbox.google.errors import GoogleError
from sandbox.kubernetes.pki import passing_identity
from sandbox.kubernetes.tunnels import Tunnel, TunnelServer

# Host -> where the emulator has its API.
HOSTS = {"container.googleapis.com": "/container"}
_PASSED = ("Authorization", "Content-Type", "X-Goog-User-Project")
_RETURNED = ("Content-Type", "Retry-After")


class GoogleFront:
    """Serves until `stop`. `emulator` gives the emulator's URL, and is asked for each request.

    `url` is the proxy, `authority` the PEM certificate to trust.
    """

    def __init__(self, emulator: Callable[[], str]) -> None:
        tls, self.authority = passing_identity(list(HOSTS))
        self._server = _Server(emulator, tls)
        self._server.start()
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()
        self._server.http.close()


class _Server(TunnelServer):
    def __init__(self, emulator: Callable[[], str], tls: ssl.SSLContext) -> None:
        super().__init__(_Request, tls, HOSTS, "address at Google")
        self.emulator = emulator
        self.http = httpx.Client(timeout=120, trust_env=False)


class _Request(Tunnel):
    server: _Server

    def respond(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name: self.headers[name] for name in _PASSED if self.headers[name]}
        try:
            url = f"{self.server.emulator()}{HOSTS[self.host]}{self.path}"
            answer = self.server.http.request(self.command, url, content=body, headers=headers)
        except (httpx.HTTPError, GoogleError) as error:
            self._answer(503, {"Content-Type": "text/plain"}, f"the emulator does not answer: {error}".encode())
            return
        returned = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        self._answer(answer.status_code, returned, answer.content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
