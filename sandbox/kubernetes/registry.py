"""The registry that charts are pulled from: read-only, on 127.0.0.1, under the charts' real addresses.

Stands for registry.k8s.io. A client is led here by HTTPS_PROXY: it asks for a tunnel to the registry, and what answers
in the tunnel is this server, with a certificate of the sandbox. The chart archives come from the controllers' own Go
modules, packaged as upstream releases them; the DRA driver's is a stand-in (charts/README.md).

It differs from the real one in this: it has the charts and versions that the program's adapter names, and no images; a
chart or version that it does not have is refused with 403 and a reason, where the real one answers 404. An adapter can
name what the sandbox has a controller for (SOURCES).
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from sandbox.adapter import AdapterError, Chart
from sandbox.kubernetes import assets
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.tunnels import NO_PROXY, Tunnel, TunnelServer
from sandbox.toolchain import ToolchainError
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION, KUEUE_VERSION, LWS_VERSION


@dataclass(frozen=True)
class Source:
    """Where a chart comes from: the versions that the sandbox can run, oldest first, and how an archive is made."""

    versions: tuple[str, ...]
    archive: Callable[[str], Path]


SOURCES: Mapping[str, Source] = {
    "oci://registry.k8s.io/jobset/charts/jobset": Source((JOBSET_VERSION,), lambda _version: assets.jobset_chart()),
    "oci://registry.k8s.io/kueue/charts/kueue": Source((KUEUE_VERSION,), lambda _version: assets.kueue_chart()),
    "oci://registry.k8s.io/lws/charts/lws": Source((LWS_VERSION,), lambda _version: assets.lws_chart()),
    "oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu": Source(
        assets.dra_driver_versions(), assets.dra_driver_chart
    ),
}
HOSTS = sorted({urlsplit(chart).netloc for chart in SOURCES})
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
ARCHIVE_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
# The variables that lead a client to the registry.
VARIABLES = ("HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE")
_ROUTE = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs|tags)/(?P<reference>[^/]+)")


class RefusedError(Exception):
    """The sandbox does not have what was asked for; the message says what it has instead."""


def require(charts: Sequence[Chart]) -> None:
    """Raises AdapterError where the sandbox cannot serve these charts in these versions."""
    for chart in charts:
        if chart.address not in SOURCES:
            raise AdapterError(f"the sandbox cannot serve the chart {chart.address}; it can serve {', '.join(SOURCES)}")
        runs = SOURCES[chart.address].versions
        if lacking := [version for version in chart.versions if version not in runs]:
            raise AdapterError(
                f"the program installs {chart.address} in version {', '.join(lacking)}; "
                f"the sandbox runs {', '.join(runs)} (sandbox/toolchain and sandbox/kubernetes/charts say so)"
            )


class ChartRegistry:
    """Serves the charts of a program from threads of its own. `url` is the proxy that leads to them.

    `authority` signs the certificate; whoever pulls must trust it. Raises AdapterError as `require`.
    """

    def __init__(self, authority: CertificateAuthority, charts: Sequence[Chart]) -> None:
        require(charts)
        offered = {chart.address: chart.versions for chart in charts}
        pair = authority.issue("chart-registry", HOSTS)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self._server = _Server(tls, offered)
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    def variables(self, trust_file: Path) -> dict[str, str]:
        """What to set for a client; `trust_file` has the authority's certificate in it."""
        return dict(zip(VARIABLES, (self.url, NO_PROXY, str(trust_file)), strict=True))

    def stop(self) -> None:
        self._server.stop()


class _Server(TunnelServer):
    def __init__(self, tls: ssl.SSLContext, charts: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(_Connection, tls, HOSTS, "registry")
        self._charts = charts
        self.blobs: dict[str, bytes] = {}  # of the manifests that were asked for, by digest

    def versions(self, chart: str) -> tuple[str, ...]:
        """The versions of a chart. Raises RefusedError for a chart that the program's adapter does not name."""
        if chart not in self._charts:
            raise RefusedError(f"the sandbox has no chart {chart}; known charts: {', '.join(self._charts) or 'none'}")
        return self._charts[chart]

    def manifest(self, chart: str, reference: str) -> bytes:
        """The manifest of a version, named by its tag or by the digest of the manifest."""
        known = self.versions(chart)
        if reference in self.blobs:
            return self.blobs[reference]
        if reference not in known:
            raise RefusedError(f"the sandbox has no version {reference} of {chart}; known: {', '.join(known)}")
        archive = SOURCES[chart].archive(reference)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self._keep(CONFIG_TYPE, json.dumps(_metadata(archive)).encode()),
            "layers": [self._keep(ARCHIVE_TYPE, archive.read_bytes())],
        }
        content = json.dumps(manifest).encode()
        self._keep(MANIFEST_TYPE, content)
        return content

    def _keep(self, media_type: str, content: bytes) -> dict[str, Any]:
        """The descriptor of some content, which can be asked for from now on."""
        digest = _digest(content)
        self.blobs[digest] = content
        return {"mediaType": media_type, "digest": digest, "size": len(content)}


class _Connection(Tunnel):
    """A client's requests to the registry."""

    server: _Server

    def respond(self) -> None:
        try:
            self._route()
        except (RefusedError, assets.AssetError, ToolchainError) as error:
            self._error(403, "DENIED", str(error))

    def _route(self) -> None:
        path = urlsplit(self.path).path
        if self.command not in ("GET", "HEAD"):
            self._error(501, "UNSUPPORTED", "the sandbox's registry is read-only")
        elif path == "/v2/":
            self._answer(200, "application/json", b"{}")
        elif not (route := _ROUTE.fullmatch(path)):
            self._error(404, "UNSUPPORTED", f"the sandbox's registry does not know {path}")
        else:
            chart = f"oci://{self.headers['Host']}/{route['name']}"
            self._serve(chart, route["name"], route["kind"], route["reference"])

    def _serve(self, chart: str, name: str, kind: str, reference: str) -> None:
        if kind == "tags":
            tags = {"name": name, "tags": list(self.server.versions(chart))}
            self._answer(200, "application/json", json.dumps(tags).encode())
        elif kind == "manifests":
            self._answer(200, MANIFEST_TYPE, self.server.manifest(chart, reference))
        elif blob := self.server.blobs.get(reference):
            self._answer(200, "application/octet-stream", blob)
        else:
            self._error(404, "BLOB_UNKNOWN", f"no blob {reference} in {chart}")

    def _error(self, status: int, code: str, message: str) -> None:
        content = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        self._answer(status, "application/json", content)

    def _answer(self, status: int, media_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Docker-Content-Digest", _digest(content))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _metadata(archive: Path) -> dict[str, Any]:
    """Chart.yaml, which is what the config blob of a chart consists of."""
    with tarfile.open(archive) as files:
        name = next(each for each in files.getnames() if each.count("/") == 1 and each.endswith("/Chart.yaml"))
        content = files.extractfile(name)
        assert content
        found: dict[str, Any] = yaml.safe_load(content)
    return found


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
