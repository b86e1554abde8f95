"""What a client finds behind HTTPS_PROXY: it asks for a tunnel to a host, and the sandbox answers in the tunnel."""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

IDLE_SECONDS = 60
STOP_SECONDS = 0.1  # how soon a server notices that it is to stop
# What a client reaches without the proxy: everything else of the sandbox.
NO_PROXY = "127.0.0.1,localhost"
_LOG = logging.getLogger(__name__)


class TunnelServer(ThreadingTCPServer):
    """Serves tunnels to `hosts` from threads of its own; `tls` has a certificate for them.

    `what` is what the hosts are, for the refusal of others.
    """

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, tunnel: type[Tunnel], tls: ssl.SSLContext, hosts: Collection[str], what: str) -> None:
        super().__init__(("127.0.0.1", 0), tunnel)
        self.tls, self.hosts, self.what = tls, hosts, what
        self._thread = threading.Thread(target=self.serve_forever, args=(STOP_SECONDS,), name=what, daemon=True)

    @property
    def url(self) -> str:
        """The value of HTTPS_PROXY."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.warning("connection from %s to the sandbox's %s ended", client_address, self.what, exc_info=True)


class Tunnel(BaseHTTPRequestHandler):
    """One client: first its request for a tunnel to `host`, then, in the tunnel, its requests to that host."""

    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    host = ""

    def do_CONNECT(self) -> None:
        assert isinstance(self.server, TunnelServer)
        server, host = self.server, self.path.rpartition(":")[0]
        if host not in server.hosts:
            self.send_response(502, f"the sandbox has no {server.what} {host}; it has {', '.join(server.hosts)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.close_connection = True
            return
        self.send_response(200, "Connection established")
        self.end_headers()
        self.host = host
        self.request = server.tls.wrap_socket(self.request, server_side=True)
        self.setup()
        self.close_connection = False  # also after a CONNECT of HTTP/1.0, as Python's own client sends it

    def respond(self) -> None:
        """Answers one request in the tunnel, whatever its method."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self.respond()

    def do_HEAD(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_PUT(self) -> None:
        self.respond()

    def do_PATCH(self) -> None:
        self.respond()

    def do_DELETE(self) -> None:
        self.respond()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def log_message(self, format: str, *arguments: Any) -> None:
        _LOG.debug(format, *arguments)
