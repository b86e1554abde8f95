"""The reader of clusters: pages, refusals, and what is in the way. kubectl is a small program that stands for it.

It listens on the socket that it is told and gives canned answers; it differs in that it asks no API server.
tests/sandbox/test_kubernetes_status.py has the real one.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED, ZONES, load
from tools.cluster_api import ClusterAwayError, RefusedReadError, kubeconfig_of, reading

TPU7X = {"train": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}}
KUBECTL = f"""#!{sys.executable}
import gzip, http.server, json, os, signal, socketserver, sys
arguments = dict(each.partition("=")[::2] for each in sys.argv[1:])
config = open(arguments["--kubeconfig"]).read()
if config == "broken":
    sys.exit("error: cannot read it")
assert sys.argv[2] == "proxy" and arguments["--reject-methods"] == "POST,PUT,PATCH,DELETE"

class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self):
        return "socket"
    def do_GET(self):
        status, body, packed = 200, {{"items": None, "metadata": {{}}}}, False
        if "/pages" in self.path:
            second = "continue=more" in self.path
            body = {{"items": [{{"n": 2 if second else 1}}], "metadata": {{"continue": "" if second else "more"}}}}
            packed = True
        elif "/forbidden" in self.path:
            status, body = 403, {{"message": "nodes is forbidden"}}
        elif "/unknown" in self.path:
            status, body = 401, {{"message": "Unauthorized"}}
        elif "/away" in self.path:
            status, body = 502, "getting credentials: exec: executable gcloud not found\\nmore"
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        if packed:
            assert "gzip" in self.headers["Accept-Encoding"]
            self.send_header("Content-Encoding", "gzip")
            data = gzip.compress(data)
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *_):
        pass

with socketserver.ThreadingUnixStreamServer(arguments["--unix-socket"], Handler) as server:
    print("Starting to serve on", arguments["--unix-socket"], flush=True)
    server.serve_forever()
"""


@pytest.fixture(autouse=True)
def _kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(KUBECTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_all_pages_are_read_and_nothing_is_left() -> None:
    with reading("{}") as api:
        assert api.items("/pages", labelSelector="a=b") == [{"n": 1}, {"n": 2}]
        assert api.items("/empty") == []
    with pytest.raises(ClusterAwayError, match="the cluster does not answer"):
        api.items("/pages")


def test_refusals_and_what_is_in_the_way() -> None:
    with reading("{}") as api:
        with pytest.raises(RefusedReadError, match="nodes is forbidden") as refused:
            api.items("/forbidden")
        assert refused.value.status == 403
        with pytest.raises(ClusterAwayError, match="does not accept the credential"):
            api.items("/unknown")
        with pytest.raises(ClusterAwayError, match=r"executable gcloud not found$"):
            api.items("/away")


def test_kubectl_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterAwayError, match="does not start: error: cannot read it"), reading("broken"):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterAwayError, match="kubectl cannot be run: No such file"), reading("{}"):
        pass


class Secrets:
    """Google with one secret, or without."""

    def __init__(self, endpoint: dict[str, Any] | None) -> None:
        self._endpoint = endpoint

    def find(self, _api: str, _method: str, *, name: str) -> Any:
        """The version that was asked for."""
        assert name == "projects/my-project/secrets/tpu-endpoint/versions/latest"
        if self._endpoint is None:
            return None
        return {"payload": {"data": base64.b64encode(json.dumps(self._endpoint).encode()).decode()}}


def connection(text: str) -> tuple[Any, Any]:
    config = json.loads(text)
    return config["clusters"][0]["cluster"], config["users"][0]["user"]["exec"]


def test_each_kind_of_cluster_has_its_address_and_no_credential() -> None:
    nobody: Any = Secrets(None)
    endpoint = {"controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.gke.goog"}}}
    cluster, user = connection(kubeconfig_of(load(), nobody, endpoint))
    assert cluster == {"server": "https://gke-1.gke.goog"}
    assert user["command"] == "gke-gcloud-auth-plugin"

    own = load(TPU7X, zone=ZONES["tpu7x"], cluster=SELF_MANAGED)
    published: Any = Secrets({"server": "https://10.0.0.9:6443", "ca": "Q0E=", "jwks": ""})
    cluster, user = connection(kubeconfig_of(own, published, None))
    assert cluster == {"server": "https://10.0.0.9:6443", "certificate-authority-data": "Q0E="}
    assert "--secret=tpu-access" in user["args"]

    others = load(TPU7X, zone=ZONES["tpu7x"], cluster=EXISTING, network=EXISTING_NETWORK)
    cluster, user = connection(kubeconfig_of(others, nobody, None))
    assert cluster["server"] == EXISTING["server"]
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == EXISTING["ca"]
    assert "--secret=access" in user["args"]


@pytest.mark.parametrize(
    ("platform", "cluster", "why"),
    [
        (load(), None, "there is no cluster tpu in us-east5"),
        (load(), {}, "cluster tpu has no DNS endpoint"),
        (load(TPU7X, zone=ZONES["tpu7x"], cluster=SELF_MANAGED), None, "has published no endpoint"),
    ],
)
def test_a_cluster_that_is_not_there_yet(platform: Any, cluster: Any, why: str) -> None:
    nobody: Any = Secrets(None)
    with pytest.raises(ClusterAwayError, match=why):
        kubeconfig_of(platform, nobody, cluster)
