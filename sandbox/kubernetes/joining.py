"""A machine becomes a Node: what `kubeadm join` and a starting kubelet do, spoken over the network as they speak it.

Stands for both programs on a machine that has been given a join secret. Real are the calls and what the API server
makes of them: discovery without trust, the pinned CA, the token's signature, the signed client certificate, the Node
written under the node's own name within what NodeRestriction allows. Different: the kubelet goes silent after it has
registered, and kwok answers for it; its certificate is thrown away with the request's key. For a real host
(`sandbox.hosts`) only the join is played here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from sandbox.google.machines import MachineType, version_key
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.control_plane import FAKE_NODE
from sandbox.kubernetes.nodes import POOL_LABEL, TOPOLOGY_LABEL, node_info

UNINITIALIZED_TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
EVICTION_MIB = 100  # the kubelet's own default: memory.available<100Mi
CERTIFICATE_SECONDS = 30.0
_CSR_API = "certificates.k8s.io/v1"


class JoinError(Exception):
    """A machine cannot join; the message says why."""


class JoinSecret(BaseModel):
    """The payload of a join secret. Other keys are for the boot scripts alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    apiServer: str = Field(pattern=r"^[^/\s]+:\d+$")  # noqa: N815 - names as in the payload
    caCertHash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")  # noqa: N815
    token: str = Field(pattern=r"^[a-z0-9]{6}\.[a-z0-9]{16}$")
    expires: AwareDatetime


@dataclass(frozen=True)
class Kubelet:
    """How a machine's kubelet registers: its Node's name, labels and taints, and what the machine has.

    Where it is `real`, the join ends before the Node: a real kubelet makes it.

    `system_uuid` tells the machine from others of its name; `version` has no leading v; `taints` are those of the
    Node's spec.
    """

    name: str
    system_uuid: str
    address: str
    machine: MachineType
    version: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    max_pods: int
    real: bool = False

    @property
    def slice(self) -> str:
        """Equal for all machines of one slice."""
        return self.labels.get(POOL_LABEL, self.name) if self.slice_hosts > 1 else self.name

    @property
    def slice_hosts(self) -> int:
        topology = self.labels.get(TOPOLOGY_LABEL, "")
        return (self.machine.hosts(topology) or 1) if topology and self.machine.chips else 1

    @property
    def node(self) -> Object:
        """The Node as the kubelet creates it; the cloud-controller-manager completes it."""
        milli_cpu, memory = self.machine.vcpus * 1000, self.machine.memory_gb * 1024
        own = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {**own, **self.labels}, "annotations": dict(FAKE_NODE)},
            "spec": {"taints": [*map(dict, self.taints), UNINITIALIZED_TAINT]},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": self.address},
                    {"type": "Hostname", "address": self.name},
                ],
                "capacity": _resources(milli_cpu, memory, self.max_pods),
                "allocatable": _resources(milli_cpu, memory - EVICTION_MIB, self.max_pods),
                "nodeInfo": node_info("Ubuntu 24.04 LTS", f"v{self.version}", self.system_uuid),
            },
        }


def _resources(milli_cpu: int, memory_mib: int, pods: int) -> dict[str, str]:
    return {"cpu": f"{milli_cpu}m", "memory": f"{memory_mib}Mi", "pods": str(pods)}


def join(secret: JoinSecret, kubelet: Kubelet) -> None:
    """Makes the machine a Node of the cluster that the secret names.

    Raises JoinError, ApiError for a refusal of the API server, httpx.HTTPError where it cannot be reached.
    """
    if secret.expires <= datetime.now(UTC):
        raise JoinError(f"the join token has expired at {secret.expires:%FT%TZ}; waiting for a newer one")
    authority = discover(secret)
    with ApiClient(secret.apiServer, secret.token, authority) as client, tempfile.TemporaryDirectory() as folder:
        _check_version(client, kubelet)
        _check_name(client, kubelet)
        certificate = _client_certificate(client, kubelet.name, Path(folder))
        with ApiClient(secret.apiServer, "", authority, certificate=certificate) as node:
            if not kubelet.real:
                _register(node, kubelet)


def discover(secret: JoinSecret) -> str:
    """The cluster's CA as PEM text, from its public cluster-info: of the pinned hash, and signed with the token."""
    url = f"https://{secret.apiServer}/api/v1/namespaces/kube-public/configmaps/cluster-info"
    answer = httpx.get(url, verify=False, trust_env=False, timeout=30)
    if not answer.is_success:
        raise JoinError(f"{url} answers {answer.status_code}: {answer.text.strip()}")
    data: dict[str, str] = answer.json().get("data", {})
    kubeconfig = data.get("kubeconfig", "")
    token_id, _, token_secret = secret.token.partition(".")
    if not _signed(kubeconfig, data.get(f"jws-kubeconfig-{token_id}", ""), token_secret):
        raise JoinError(f"cluster-info is not signed with the token {token_id}: it is not, or no longer, the cluster's")
    found: Any = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]["certificate-authority-data"]
    authority = base64.b64decode(found).decode()
    if (ca_hash := ca_cert_hash(authority)) != secret.caCertHash:
        raise JoinError(f"the cluster's CA has the hash {ca_hash}, not the pinned {secret.caCertHash}")
    return authority


def ca_cert_hash(pem: str) -> str:
    """As kubeadm pins it: "sha256:<hex>" of a CA certificate's public key."""
    public_key = x509.load_pem_x509_certificate(pem.encode()).public_key()
    der = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _signed(content: str, signature: str, key: str) -> bool:
    """Whether a detached JWS (HS256), "header..signature", fits the content."""
    header, _, mac = signature.partition("..")
    signed = f"{header}.{_base64url(content.encode())}"
    return hmac.compare_digest(mac, _base64url(hmac.digest(key.encode(), signed.encode(), "sha256")))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _check_version(client: ApiClient, kubelet: Kubelet) -> None:
    """kubeadm's rule: a kubelet is never newer than the control plane."""
    config = client.get("v1", "ConfigMap", "kubeadm-config", "kube-system")
    if config is None:
        raise JoinError("the cluster has no ConfigMap kube-system/kubeadm-config: kubeadm did not make it")
    cluster = str(yaml.safe_load(config["data"]["ClusterConfiguration"])["kubernetesVersion"]).removeprefix("v")
    if version_key(kubelet.version) > version_key(cluster):
        raise JoinError(f"the kubelet's version {kubelet.version} is newer than the control plane's, {cluster}")


def _check_name(client: ApiClient, kubelet: Kubelet) -> None:
    """kubeadm does not take the name of a Node that is alive."""
    node = client.get("v1", "Node", kubelet.name)
    if node and is_true(node, "Ready"):
        raise JoinError(f"a Node {kubelet.name} that is Ready exists already")


def _client_certificate(client: ApiClient, name: str, folder: Path) -> tuple[Path, Path]:
    """TLS bootstrapping: a key of the node's own, and the certificate that the cluster signs for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [(NameOID.ORGANIZATION_NAME, "system:nodes"), (NameOID.COMMON_NAME, f"system:node:{name}")]
    request = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
    )
    pem = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    created = client.create(
        {
            "apiVersion": _CSR_API,
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "node-csr-"},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"],
            },
        }
    )
    certificate_file, key_file = folder / "kubelet.crt", folder / "kubelet.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_text(_wait_signed(client, created["metadata"]["name"]))
    return certificate_file, key_file


def _wait_signed(client: ApiClient, name: str) -> str:
    deadline = time.monotonic() + CERTIFICATE_SECONDS
    while time.monotonic() < deadline:
        request = client.get(_CSR_API, "CertificateSigningRequest", name) or {}
        if certificate := request.get("status", {}).get("certificate"):
            return base64.b64decode(certificate).decode()
        time.sleep(0.1)
    raise JoinError(f"the certificate request {name} was not approved and signed within {CERTIFICATE_SECONDS:.0f} s")


def _register(client: ApiClient, kubelet: Kubelet) -> None:
    """Creates the Node. One that an earlier machine of the name left behind is deleted first, as the boot script does;
    where the cluster does not let nodes do that, it is taken over.

    A kubelet that finds its Node renews its status, and leaves labels and taints as they are. Different: whose Node it
    is tells the machine's UUID, which the script takes from the Node's age.
    """
    node = kubelet.node
    try:
        client.create(node, "kubelet")
        return
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    found = client.get("v1", "Node", kubelet.name)
    if found and found["status"].get("nodeInfo", {}).get("systemUUID") != kubelet.system_uuid:
        try:
            client.delete(found)
        except ApiError as error:
            if error.status != 403:
                raise
        else:
            client.create(node, "kubelet")
            return
    client.patch(node, {"metadata": {"annotations": node["metadata"]["annotations"]}})
    client.patch(node, {"status": {"nodeInfo": node["status"]["nodeInfo"]}}, subresource="status")
