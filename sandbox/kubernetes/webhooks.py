"""Mutating admission webhooks of the sandbox's own: an HTTPS server that the API server calls for each new pod."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sandbox.kubernetes.api import Object
from sandbox.kubernetes.pki import CertificateAuthority

Changes = Callable[[Object, str], list[Object]]
"""A pod as it is to be created, and its namespace -> a JSON patch."""


class PodWebhook:
    """Serves on a free port of 127.0.0.1. `name` is that of the configuration, `condition` a CEL expression about pods.

    With `required` a pod is refused while the webhook does not answer.
    """

    def __init__(
        self, name: str, condition: str, changes: Changes, authority: CertificateAuthority, required: bool
    ) -> None:
        self._name, self._condition, self._required = name, condition, required
        self._authority = authority
        pair = authority.issue(name, ["127.0.0.1"])
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(changes))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def objects(self) -> list[Object]:
        """What makes the API server call it."""
        url = f"https://127.0.0.1:{self._server.server_port}/"
        webhook = {
            "name": self._name,
            "clientConfig": {"url": url, "caBundle": self._authority.pair.certificate_base64()},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "matchConditions": [{"name": "concerned", "expression": self._condition}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail" if self._required else "Ignore",
        }
        return [
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": self._name},
                "webhooks": [webhook],
            }
        ]


def _handler(changes: Changes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            found = changes(request["object"], request["namespace"])
            patch = base64.b64encode(json.dumps(found).encode()).decode()
            answer = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
            kind = {key: review[key] for key in ("apiVersion", "kind")}
            body = json.dumps({**kind, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: the API server's log says what it asked."""

    return Handler
