"""What kubeadm and a program's boot script put around a control plane: tokens, the deployer's account, Nodes.

Stands for the programs of one control-plane machine, or of several. Different from the real thing: whatever the number
of machines, there is one API server and one etcd; the API server is the sandbox's version, whatever version is asked
for, and Nodes show the one asked for; CoreDNS and kube-proxy are no pods, but processes, and only where hosts are real
(`sandbox.hosts`).
"""

from __future__ import annotations

import base64
import json
import secrets
import string
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from sandbox.adapter import MachineNames
from sandbox.hosts.hosts import PLAYED, Real, RealHosts, joined_host
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.chart_programs import CHART_IMAGES
from sandbox.kubernetes.cluster import RunningCluster
from sandbox.kubernetes.control_plane import FAKE_NODE, STATUS_SECONDS, ControlPlane, Setup
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
    """One self-managed cluster, with these names in it; its data lives in `run_dir` (see ControlPlane).

    `hosts` are the machines under its Nodes, `real` says how many of them run containers.
    """

    def __init__(
        self,
        run_dir: Path,
        settings: ClusterSettings,
        names: MachineNames,
        hosts: Hosts,
        admin_token: str = "",
        status_seconds: float = STATUS_SECONDS,
        real: Real = PLAYED,
    ) -> None:
        self._names = names
        self.settings = settings
        setup = Setup(settings.services_cidr, True, status_seconds=status_seconds, real_hosts=real.hosts)
        self.plane = ControlPlane(run_dir, admin_token, tuple(each.pattern for each in CHART_IMAGES), setup)
        self._real = RealHosts(self.plane, real.image_names, names.device_plugin) if real.hosts else None
        self._client = self.plane.client
        plugin = DevicePlugin(self._client, hosts, names.device_plugin)
        controller = CloudController(self._client, hosts)
        loops = (Loop("device-plugin", 0.5, plugin.step), Loop("cloud-controller", 0.5, controller.step))
        self._running = RunningCluster(self.plane, loops, hosts=self._real)

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
        """Payload of the endpoint secret: where the API server is, its CA, and the keys that verify pods' tokens."""
        keys = json.dumps(self._client.request("GET", "/openid/v1/jwks"))
        return {
            "server": f"https://{self.plane.endpoint}",
            "ca": self.plane.ca_certificate,
            "jwks": base64.b64encode(keys.encode()).decode(),
        }

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

    def placed(self, kubelet: Kubelet) -> Kubelet:
        """The kubelet, real where there is room for a real host."""
        real = (
            self._real is not None and kubelet.machine.chips and self._real.reserve(kubelet.slice, kubelet.slice_hosts)
        )
        return replace(kubelet, real=bool(real))

    def begin_host(self, kubelet: Kubelet, pods: str) -> None:
        """Starts the real host of a kubelet; `pods` is the range of its pods."""
        assert self._real
        self._real.start_host(lambda number: joined_host(kubelet, number, pods), kubelet.slice)

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
        if self._real and self._real.has(name):
            return True
        self._client.patch(node, {"metadata": {"annotations": FAKE_NODE}})
        return True

    def machine_gone(self, name: str) -> None:
        """Nobody answers for the machine's Node any more, as the node controller finds out after some time."""
        if self._real:
            self._real.end(name)  # it may have no Node yet
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
