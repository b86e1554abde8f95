"""GKE's metadata server, as one program in a cluster sees it: project, cluster, zone, and tokens of Workload Identity.

Stands for what answers on a node of a GKE cluster at 169.254.169.254. Different: each program has one of its own, on
127.0.0.1 (GCE_METADATA_HOST leads there); it knows the paths that Google's client libraries and TPU Provisioner ask
for, and no identity tokens; whether a token is given is judged anew each time, where the real server keeps tokens.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import httpx

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.google.project_numbers import project_number
from sandbox.kubernetes.api import ApiError

ANNOTATION = "iam.gke.io/gcp-service-account"  # of a ServiceAccount: the e-mail of the account at Google
ROOT = "/computeMetadata/v1/"
TOKEN_SECONDS = 3599
SCOPES = ("https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email")
STOP_SECONDS = 0.1  # how soon the server notices that it is to stop
_FLAVOR = ("Metadata-Flavor", "Google")
_LOG = logging.getLogger(__name__)


class Cloud(Protocol):
    """The cloud around a cluster, as its programs reach it."""

    @property
    def url(self) -> str:
        """Where the emulated APIs are."""

    def token(self, cluster: ClusterRef, namespace: str, name: str, google_account: str) -> str:
        """An access token for the ServiceAccount `namespace`/`name` of a cluster.

        It is that of `google_account`, an e-mail, or the ServiceAccount's own where that is "". Raises GoogleError.
        """

    def setting(self, cluster: ClusterRef, *path: str) -> Any:
        """What the API's Cluster has at a path, None where it ends early."""


@dataclass(frozen=True)
class Workload:
    """A program in a cluster: where it runs, and as which ServiceAccount. `zone` is its node's."""

    cluster: ClusterRef
    zone: str
    namespace: str
    service_account: str

    @property
    def identity_pool(self) -> str:
        return f"{self.cluster.project}.svc.id.goog"


class MetadataServer:
    """Serves one workload from threads of its own.

    `google_account` says what the annotation of its ServiceAccount names now, "" without one.
    """

    def __init__(self, workload: Workload, cloud: Callable[[], Cloud], google_account: Callable[[], str]) -> None:
        self.workload = workload
        self._cloud = cloud
        self._google_account = google_account
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(STOP_SECONDS,), name="metadata-server", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """ "127.0.0.1:<port>", the form of GCE_METADATA_HOST."""
        return f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def value(self, path: str, recursive: bool) -> str | None:
        """What is at a path below ROOT; None where there is nothing. Raises GoogleError for a token that is refused."""
        workload = self.workload
        number = project_number(workload.cluster.project)
        plain = {
            "project/project-id": workload.cluster.project,
            "project/numeric-project-id": number,
            "instance/attributes/cluster-name": workload.cluster.name,
            "instance/attributes/cluster-location": workload.cluster.location,
            "instance/zone": f"projects/{number}/zones/{workload.zone}",
        }
        if path in plain:
            return plain[path]
        email = self._google_account() or workload.identity_pool
        if path == "instance/service-accounts/":
            return f"default/\n{email}/\n"
        folder, _, name = path.removeprefix("instance/service-accounts/").partition("/")
        if not path.startswith("instance/service-accounts/") or folder not in ("default", email):
            return None
        return self._of_account(name, email, recursive)

    def _of_account(self, name: str, email: str, recursive: bool) -> str | None:
        if name == "token":
            return json.dumps({"access_token": self._token(), "expires_in": TOKEN_SECONDS, "token_type": "Bearer"})
        if name == "" and recursive:
            return json.dumps({"aliases": ["default"], "email": email, "scopes": SCOPES})
        listing = "aliases\nemail\nscopes\ntoken\n"
        return {"": listing, "aliases": "default\n", "email": email, "scopes": "\n".join(SCOPES) + "\n"}.get(name)

    def _token(self) -> str:
        workload = self.workload
        account = self._google_account()
        return self._cloud().token(workload.cluster, workload.namespace, workload.service_account, account)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, metadata: MetadataServer) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.metadata = metadata


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if self.headers.get("X-Forwarded-For"):
            self._answer(403, "X-Forwarded-For is not allowed.\n")
        elif asked.path in ("/", ROOT.rstrip("/"), ROOT):
            self._answer(200, "computeMetadata/\n" if asked.path == "/" else "instance/\nproject/\n")
        elif self.headers.get(_FLAVOR[0]) != _FLAVOR[1]:
            self._answer(403, "Missing Metadata-Flavor:Google header.\n")
        else:
            self._look_up(asked.path.removeprefix(ROOT), parse_qs(asked.query).get("recursive") == ["true"])

    def _look_up(self, path: str, recursive: bool) -> None:
        try:
            found = self.server.metadata.value(path, recursive)
        except GoogleError as error:
            _LOG.warning("no token for %s: %s", self.server.metadata.workload, " ".join(error.message.split()))
            self._answer(error.code, error.message)
            return
        except (ApiError, httpx.HTTPError) as error:
            self._answer(503, f"the cluster's API server: {error}\n")
            return
        if found is None:
            self._answer(404, f"{self.path} is not known here.\n")
        else:
            self._answer(200, found)

    def _answer(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header(*_FLAVOR)
        self.send_header("Content-Type", "application/json" if text.startswith("{") else "application/text")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        _LOG.debug(format, *arguments)
