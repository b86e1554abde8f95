"""What kubeadm and a program's boot script put around a control plane: tokens, the deployer's account, Nodes.

Stands for the programs of one control-plane machine, or of several. Different from the real thing: whatever the number
of machines, there is one API server and one etcd; the API server is the sandbox's version, whatever version is asked
for, and Nodes show the one asked for; CoreDNS and kube-proxy are not installed, since no container runs.
"""

from __future__ import annotations

import json
import secrets
import string
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from sandbox.adapter import MachineNames
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.cluster import RunningCluster
from sandbox.kubernetes.control_plane import FAKE_NODE, ControlPlane, Setup
from sandbox.kubernetes.controllers import HOSTED
from sandbox.kubernetes.joining import JoinSecret, Kubelet, ca_cert_hash
from sandbox.kubernetes.loops import Loop
from sandbox.kubernetes.node_agents import CloudController, DevicePlugin, Hosts

PREINSTALLED = Path(__file__).parent / "kubeadm_objects.yaml"
NODE_GROUP = "system:bootstrappers:kubeadm:default-node-token"
CONTROL_PLANE_ROLE = "node-role.kubernetes.io/control-plane"
_TOKEN_LETTERS = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class ClusterSettings:
    """What the cluster is made with. `version` has no leading v, `api_address` is its load balancer's."""

    name: str
    version: str
    pods_cidr: str
    services_cidr: str
    api_address: str


class KubeadmCluster:
    """One self-managed cluster, with these names in it; its data lives in `run_dir` (see ControlPlane)."""

    def __init__(
        self, run_dir: Path, settings: ClusterSettings, names: MachineNames, hosts: Hosts, admin_token: str = ""
    ) -> None:
        self._names = names
        self.settings = settings
        setup = Setup(service_range=settings.services_cidr, by_kubeadm=True)
        self.plane = ControlPlane(run_dir, admin_token, tuple(HOSTED), setup)
        self._client = self.plane.client
        plugin = DevicePlugin(self._client, hosts, names.device_plugin)
        controller = CloudController(self._client, hosts)
        loops = (Loop("device-plugin", 0.5, plugin.step), Loop("cloud-controller", 0.5, controller.step))
        self._running = RunningCluster(self.plane, loops)

    def start(self) -> None:
        """Returns when the API server answers and nodes can join. Raises as ControlPlane.start."""
        static = yaml.safe_load_all(PREINSTALLED.read_text())
        own = (*_deployer_account(self._names.deployer), *_own_node(self._names.own_node))
        self._running.start([*static, self._cluster_info(), self._kubeadm_config(), *own])

    def stop(self) -> None:
        """Stops everything; the data stays."""
        self._running.stop()

    def mint_join_secret(self, lifetime: timedelta) -> JoinSecret:
        """A new bootstrap token, and with it what a node needs to join."""
        token_id, token_secret = _random(6), _random(16)
        expires = (datetime.now(UTC) + lifetime).replace(microsecond=0)
        self._client.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": token_id,
                    "token-secret": token_secret,
                    "expiration": expires.isoformat(),
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": NODE_GROUP,
                },
            }
        )
        return JoinSecret(
            apiServer=self.plane.endpoint,
            caCertHash=ca_cert_hash(self.plane.authority.pair.certificate.read_text()),
            token=f"{token_id}.{token_secret}",
            expires=expires,
        )

    def endpoint(self) -> Object:
        """Payload of the endpoint secret: where the API server is, and its CA."""
        return {"server": f"https://{self.plane.endpoint}", "ca": self.plane.ca_certificate}

    def mint_credential(self, lifetime: timedelta) -> Object:
        """Payload of the access secret: an ExecCredential with a token of the deployer's ServiceAccount."""
        path = self._client.path("v1", "ServiceAccount", self._names.deployer, "kube-system") + "/token"
        seconds = int(lifetime.total_seconds())
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        granted = self._client.request("POST", path, request)["status"]
        return {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {key: granted[key] for key in ("token", "expirationTimestamp")},
        }

    def add_control_plane_node(self, kubelet: Kubelet) -> None:
        """The Node of a control-plane machine, marked as kubeadm marks it; one that is there is taken over."""
        node = kubelet.node
        marks = {CONTROL_PLANE_ROLE: "", "node.kubernetes.io/exclude-from-external-load-balancers": ""}
        node["metadata"]["labels"] |= marks
        node["spec"]["taints"].append({"key": CONTROL_PLANE_ROLE, "effect": "NoSchedule"})
        if self._client.get("v1", "Node", kubelet.name):
            self._client.patch(node, {"metadata": {key: node["metadata"][key] for key in ("labels", "annotations")}})
        else:
            self._client.create(node, "kubelet")

    def machine_back(self, name: str, system_uuid: str) -> bool:
        """Whether the machine has joined before; its kubelet answers for its Node again."""
        node = self._client.get("v1", "Node", name)
        if not node or node["status"]["nodeInfo"]["systemUUID"] != system_uuid:
            return False
        self._client.patch(node, {"metadata": {"annotations": FAKE_NODE}})
        return True

    def machine_gone(self, name: str) -> None:
        """Nobody answers for the machine's Node any more, as the node controller finds out after some time."""
        node = self._client.get("v1", "Node", name)
        if not node:
            return
        self._client.patch(node, {"metadata": {"annotations": dict.fromkeys(FAKE_NODE)}})
        now = datetime.now(UTC).strftime("%FT%TZ")
        silent = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now,
        }
        self._client.patch(node, {"status": {"conditions": [silent]}}, "strategic", subresource="status")

    def _cluster_info(self) -> Object:
        cluster = {"server": f"https://{self.plane.endpoint}", "certificate-authority-data": self.plane.ca_certificate}
        kubeconfig = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": cluster}]}
        return _config_map("cluster-info", "kube-public", {"kubeconfig": json.dumps(kubeconfig)})

    def _kubeadm_config(self) -> Object:
        settings = self.settings
        configuration = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "clusterName": settings.name,
            "kubernetesVersion": f"v{settings.version}",
            "networking": {"podSubnet": settings.pods_cidr, "serviceSubnet": settings.services_cidr},
        }
        return _config_map("kubeadm-config", "kube-system", {"ClusterConfiguration": yaml.safe_dump(configuration)})


def _config_map(name: str, namespace: str, data: dict[str, str]) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


def _deployer_account(name: str) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
        },
    ]


def _own_node(name: str) -> list[Object]:
    """Lets nodes delete themselves; that they cannot delete others is NodeRestriction's doing."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        },
    ]


def _random(length: int) -> str:
    return "".join(secrets.choice(_TOKEN_LETTERS) for _ in range(length))
