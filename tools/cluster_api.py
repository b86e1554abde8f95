"""Reads the API of a platform's cluster, with the reader's own credentials, through one `kubectl proxy`.

kubectl understands every kubeconfig, and asks for a credential once, however much is read. The proxy listens on a
socket in a folder that only this user may enter, and refuses requests that write.
"""

import base64
import gzip
import http.client
import json
import selectors
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from plan import hosts
from plan.kubeconfig import gke_kubeconfig, secret_kubeconfig
from plan.platform import Platform
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from tools.preflight.cloud import Cloud

Json = dict[str, Any]

START_SECONDS = 20
REQUEST_SECONDS = 30
PAGE = 2000
"""Most objects that the API server is asked for at once."""
READ_ONLY = "--reject-methods=POST,PUT,PATCH,DELETE"
INSTALL_KUBECTL = " -> install kubectl"
UNREACHABLE = 500
"""What the proxy answers where it has no connection (kubectl's `responder.Error`), in words; 502 without credential."""


class ClusterAwayError(Exception):
    """The cluster cannot be asked: it does not exist, does not answer, or there is no credential. The message is one
    line."""


class RefusedReadError(Exception):
    """The API server answered with an error; the message is its own. `status`: the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def kubeconfig_of(platform: Platform, cloud: Cloud, gke_cluster: Json | None) -> str:
    """The kubeconfig of a platform's cluster, without a credential; `gke_cluster` is Google's description of it.

    Raises ClusterAwayError where there is no such cluster (yet); RefusedError, NoConnectionError of
    `tools.preflight.cloud` where Google does not say.
    """
    name = platform.cluster_name
    if platform.backend == "gke":
        if gke_cluster is None:
            raise ClusterAwayError(f"there is no cluster {name} in {platform.location}")
        endpoint = gke_cluster.get("controlPlaneEndpointsConfig", {}).get("dnsEndpointConfig", {}).get("endpoint")
        if not endpoint:
            raise ClusterAwayError(f"cluster {name} has no DNS endpoint")
        return json.dumps(gke_kubeconfig(f"https://{endpoint}", name))
    if isinstance(platform.cluster, ExistingCluster):
        server, ca = platform.cluster.server, base64.b64encode(platform.cluster.ca.encode()).decode()
    else:
        server, ca = _published(platform, cloud)
    return json.dumps(secret_kubeconfig(server, ca, hosts.access_secret(platform), name))


def _published(platform: Platform, cloud: Cloud) -> tuple[str, str]:
    """Address and authority that a self-managed control plane has written into its secret."""
    assert isinstance(platform.cluster, SelfManagedCluster)
    secret = hosts.secret(platform, "endpoint")
    found = cloud.find("secrets", "projects.secrets.versions.access", name=f"{secret}/versions/latest")
    if found is None:
        raise ClusterAwayError(f"the control plane has published no endpoint: {secret} has no version")
    endpoint = json.loads(base64.b64decode(found["payload"]["data"]))
    return endpoint["server"], endpoint["ca"]


class ClusterApi:
    """The API of one cluster, for reading. Several threads may use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def items(self, path: str, **query: str) -> list[Json]:
        """All objects of a collection such as `/api/v1/nodes`, from all pages.

        Raises RefusedReadError, and ClusterAwayError.
        """
        found: list[Json] = []
        more = ""
        while True:
            page = self._get(path, {**query, "limit": str(PAGE), **({"continue": more} if more else {})})
            found += page.get("items") or ()
            more = page.get("metadata", {}).get("continue", "")
            if not more:
                return found

    def find(self, path: str) -> Json | None:
        """What is at a path, such as an object or the list of an API's kinds; None for what does not exist.

        Raises RefusedReadError, and ClusterAwayError.
        """
        try:
            return self._get(path, {})
        except RefusedReadError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def _get(self, path: str, query: dict[str, str]) -> Json:
        connection = _Connection(self._path)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers={"Accept-Encoding": "gzip"})
            response = connection.getresponse()
            body = response.read()
            packed = response.headers.get("Content-Encoding") == "gzip"
        except (OSError, http.client.HTTPException) as error:
            raise ClusterAwayError(f"the cluster does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()
        text = gzip.decompress(body) if packed else body
        if response.status == http.client.OK:
            found: Json = json.loads(text)
            return found
        raise _refusal(response.status, text.decode(errors="replace"))


def _refusal(status: int, text: str) -> Exception:
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        # Not the API server's words: the proxy's, or those of something on the way.
        words = text.strip().partition("\n")[0] or f"answer {status}"
        return ClusterAwayError(words) if status >= UNREACHABLE else RefusedReadError(status, words)
    if status == http.client.UNAUTHORIZED:
        return ClusterAwayError(f"the cluster does not accept the credential: {message}")
    return RefusedReadError(status, message)


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REQUEST_SECONDS)
        self.sock.connect(str(self._path))


@contextmanager
def reading(kubeconfig: str | Path) -> Iterator[ClusterApi]:
    """The API of the cluster that a kubeconfig names: its text, or the path of a file. Raises ClusterAwayError."""
    # Sockets have names of at most 107 characters, so not below $TMPDIR.
    with tempfile.TemporaryDirectory(prefix="tpu-", dir="/tmp") as folder:
        socket_path, config = Path(folder) / "api", kubeconfig
        if isinstance(config, str):
            config = Path(folder) / "kubeconfig"
            config.write_text(str(kubeconfig))
        process = _start(config, socket_path)
        try:
            yield ClusterApi(socket_path)
        finally:
            process.terminate()
            process.communicate()


def _start(kubeconfig: Path, path: Path) -> "subprocess.Popen[str]":
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "proxy", f"--unix-socket={path}", READ_ONLY]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        raise ClusterAwayError(f"kubectl cannot be run: {error.strerror}{INSTALL_KUBECTL}") from None
    assert process.stdout
    with selectors.DefaultSelector() as waiting:  # `select.select` knows only the first 1,024 open files of a process
        waiting.register(process.stdout, selectors.EVENT_READ)
        said = process.stdout.readline() if waiting.select(START_SECONDS) else ""
    if "Starting to serve" in said:
        return process
    process.kill()
    rest, _ = process.communicate()
    words = (said + rest).strip().rpartition("\n")[2]
    raise ClusterAwayError(f"kubectl proxy does not start: {words or 'it says nothing'}")
