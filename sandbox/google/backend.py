"""Where an emulated GKE cluster gets its Kubernetes API server from."""

from __future__ import annotations

import base64
import hashlib
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class ClusterRef:
    """Identifies a cluster: `location` is a region or a zone."""

    project: str
    location: str
    name: str

    @property
    def path(self) -> str:
        return f"projects/{self.project}/locations/{self.location}/clusters/{self.name}"

    @classmethod
    def parse(cls, path: str) -> ClusterRef:
        """From "projects/P/locations/L/clusters/C", or anything below such a path."""
        parts = path.split("/")
        return cls(parts[1], parts[3], parts[5])


@dataclass(frozen=True)
class ClusterEndpoint:
    """`host` is what Cluster.endpoint shows ("address" or "address:port"); the CA is PEM in base64.

    `dns_name` is what the cluster's DNS endpoint shows; "" shows `host` there too, so that it leads to the API server.
    """

    host: str
    ca_certificate_base64: str
    dns_name: str = ""


def node_base(cluster: ClusterRef, pool: str, zone: str) -> str:
    """How the names of a pool's nodes in a zone begin, and that of the group that makes them; at most 56 characters."""
    unique = hashlib.sha256(f"{cluster.path}/nodePools/{pool}/{zone}".encode()).hexdigest()[:8]
    return f"gke-{cluster.name[:18].strip('-')}-{pool[:24].strip('-')}-{unique}"


def node_name(cluster: ClusterRef, pool: str, zone: str, index: int) -> str:
    """The name of a pool's node; it stays while the pool's size grows."""
    base = node_base(cluster, pool, zone)
    return f"{base}-{hashlib.sha256(f'{base[-8:]}/{index}'.encode()).hexdigest()[:4]}"


class ClusterBackend(Protocol):
    """A control plane behind each emulated cluster. Called from worker threads, one call per cluster at a time.

    `cluster` and `pools` are the API's own JSON objects; each pool carries in addition `currentNodeCount`, the nodes it
    has now in each of its `locations`, `policyTopology`, the topology of the workload policy that it names ("" for
    none), and `lostNodes`, the names of those that Google has taken away for a while. An exception fails the operation
    that caused the call.
    """

    def create(self, ref: ClusterRef, cluster: dict[str, Any]) -> ClusterEndpoint:
        """Starts the API server and returns when it answers; called again after a restart of the emulator."""

    def delete(self, ref: ClusterRef) -> None:
        """Stops the API server and forgets its data; a cluster that is not there is no error."""

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        """Makes the cluster's nodes match all its pools, sizes included."""


class NoBackend:
    """Stands for a control plane without running one: the endpoint is a documentation address (RFC 5737).

    Clusters get a real, self-signed CA certificate, but nothing listens at the endpoint.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ca = ""

    def create(self, ref: ClusterRef, cluster: dict[str, Any]) -> ClusterEndpoint:
        number = hashlib.sha256(ref.path.encode()).hexdigest()
        region = ref.location if ref.location.count("-") == 1 else ref.location.rpartition("-")[0]
        dns_name = f"gke-{number[:32]}-{int(number[:8], 16)}.{region}.gke.goog"
        return ClusterEndpoint(f"192.0.2.{1 + int(number[:4], 16) % 254}", self._certificate(), dns_name)

    def delete(self, ref: ClusterRef) -> None:
        pass

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        pass

    def _certificate(self) -> str:
        with self._lock:
            self._ca = self._ca or _self_signed_ca()
        return self._ca


def _self_signed_ca() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox cluster CA")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()
