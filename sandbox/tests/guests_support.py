"""An emulated project whose machines come to life, and what a self-managed platform consists of in it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sandbox.adapter import MachineNames
from sandbox.guests.machines import VirtualMachines
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.contexts import Contexts
from sandbox.tests.emulated_google import COMPUTE, PROJECT, UBUNTU, Body, Cloud, connected
from sandbox.tests.isolation import short_directory

T = TypeVar("T")
ZONE = "us-central1-c"  # offers tpu7x
GLOBAL = f"{COMPUTE}/global"
REGIONAL = f"{COMPUTE}/regions/us-central1"
ZONAL = f"{COMPUTE}/zones/{ZONE}"
NETWORK = f"projects/{PROJECT}/global/networks/net"
SUBNETWORK = f"projects/{PROJECT}/regions/us-central1/subnetworks/sub"
SECRETS = f"/sm/v1/projects/{PROJECT}/secrets"
API_ADDRESS = "10.0.0.5"
MASTERS, NODES = "lab-masters", "lab-nodes"
VERSION = "1.34.2"
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
ACCESSOR, MANAGER = "roles/secretmanager.secretAccessor", "roles/secretmanager.secretVersionManager"
TPU_LABELS = (
    "cloud.google.com/gke-accelerator-count=4,cloud.google.com/gke-tpu-accelerator=tpu7x,"
    "cloud.google.com/gke-tpu-topology=2x2x2"
)
TOKEN = "administrator"
NAMES = MachineNames("lab-", "etcd", "lab-deployer", "lab:own-node", "lab-device-plugin")
SECONDS = 300.0
ANYWHERE = [{"operator": "Exists"}]


def eventually(what: str, probe: Callable[[], T | None], seconds: float = SECONDS) -> T:
    """The first true result of `probe`."""
    deadline = time.monotonic() + seconds
    while not (result := probe()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)
    return result


def email(account: str) -> str:
    return f"{account}@{PROJECT}.iam.gserviceaccount.com"


def items(attributes: dict[str, str]) -> Body:
    return {"items": [{"key": key, "value": value} for key, value in attributes.items()]}


def secret(purpose: str) -> str:
    return f"projects/{PROJECT}/secrets/lab-{purpose}"


def boot_attributes(role: str, own: dict[str, str], changes: dict[str, str]) -> dict[str, str]:
    """What a machine of a role boots with; keys of `changes` with _ for -."""
    return {
        "startup-script": "#!/bin/bash",
        "lab-role": role,
        "lab-kubernetes-version": VERSION,
        "lab-containerd-version": "2.1.*",
        "lab-join-secret": secret("join"),
        **own,
        **{key.replace("_", "-"): value for key, value in changes.items()},
    }


NODE_ATTRIBUTES = {
    "kube-labels": TPU_LABELS,
    "lab-node-labels": f"{TPU_LABELS},team=a",
    "lab-node-taints": "google.com/tpu=present:NoSchedule",
    "lab-max-pods": "32",
}


@dataclass(frozen=True)
class Lab:
    """A project on its way to a self-managed platform named "lab"."""

    cloud: Cloud
    run_dir: Path

    def make_platform(self) -> None:
        """Everything but machines: network with NAT and firewall, accounts, secrets and who may use them."""
        ok = self.cloud.ok
        ok("POST", f"{GLOBAL}/networks", {"name": "net", "autoCreateSubnetworks": False})
        ranges = [{"rangeName": "pods", "ipCidrRange": "10.16.0.0/14"}]
        own = {"name": "sub", "network": NETWORK, "ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": ranges}
        ok("POST", f"{REGIONAL}/subnetworks", own)
        nat = {"name": "nat", "natIpAllocateOption": "AUTO_ONLY"}
        nat["sourceSubnetworkIpRangesToNat"] = "ALL_SUBNETWORKS_ALL_IP_RANGES"
        ok("POST", f"{REGIONAL}/routers", {"name": "router", "network": NETWORK, "nats": [nat]})
        self.make_firewall()
        for account in (MASTERS, NODES):
            ok("POST", f"/iam/v1/projects/{PROJECT}/serviceAccounts", {"accountId": account})
        for purpose in ("join", "endpoint", "access", "peers"):
            ok("POST", f"{SECRETS}?secretId=lab-{purpose}", {"replication": {"automatic": {}}})
            self.bind(purpose, {MANAGER: [MASTERS]})
        self.bind("join", {MANAGER: [MASTERS], ACCESSOR: [NODES]})
        self.let_masters_look()
        self.make_load_balancer()

    def let_masters_look(self) -> None:
        """The control plane's account may see the project's machines."""
        policy = {"bindings": [{"role": "roles/compute.viewer", "members": [f"serviceAccount:{email(MASTERS)}"]}]}
        self.cloud.ok("POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy", {"policy": policy})

    def make_firewall(self) -> None:
        rule = {"name": "api", "network": NETWORK, "direction": "INGRESS", "sourceRanges": ["10.0.0.0/20"]}
        allowed = {"allowed": [{"IPProtocol": "tcp", "ports": ["6443"]}], "targetTags": [MASTERS]}
        self.cloud.ok("POST", f"{GLOBAL}/firewalls", {**rule, **allowed})
        own = {"name": "replicas", "network": NETWORK, "direction": "INGRESS", "sourceTags": [MASTERS]}
        self.cloud.ok(
            "POST", f"{GLOBAL}/firewalls", {**own, "targetTags": [MASTERS], "allowed": [{"IPProtocol": "tcp"}]}
        )

    def make_load_balancer(self) -> None:
        ok = self.cloud.ok
        ok("POST", f"{ZONAL}/instanceGroups", {"name": "masters", "network": NETWORK})
        check = {"name": "api", "type": "TCP", "tcpHealthCheck": {"port": 6443}}
        ok("POST", f"{REGIONAL}/healthChecks", check)
        group = f"projects/{PROJECT}/zones/{ZONE}/instanceGroups/masters"
        service = {
            "name": "api",
            "protocol": "TCP",
            "loadBalancingScheme": "INTERNAL",
            "healthChecks": [f"projects/{PROJECT}/regions/us-central1/healthChecks/api"],
            "backends": [{"group": group, "balancingMode": "CONNECTION"}],
        }
        ok("POST", f"{REGIONAL}/backendServices", service)
        rule = {
            "name": "api",
            "IPAddress": API_ADDRESS,
            "IPProtocol": "TCP",
            "ports": ["6443"],
            "loadBalancingScheme": "INTERNAL",
            "backendService": f"projects/{PROJECT}/regions/us-central1/backendServices/api",
            "network": NETWORK,
            "subnetwork": SUBNETWORK,
        }
        ok("POST", f"{REGIONAL}/forwardingRules", rule)

    def bind(self, purpose: str, roles: dict[str, list[str]]) -> None:
        """Who may use one of the platform's secrets: role to accounts."""
        bindings = [
            {"role": role, "members": [f"serviceAccount:{email(each)}" for each in accounts]}
            for role, accounts in roles.items()
        ]
        self.cloud.ok("POST", f"{SECRETS}/lab-{purpose}:setIamPolicy", {"policy": {"bindings": bindings}})

    def make_disk(self, name: str) -> None:
        """The data disk of a control-plane machine."""
        self.cloud.ok("POST", f"{ZONAL}/disks", {"name": f"{name}-data", "sizeGb": "50"})

    def make_master(self, replica: int = 0, **changes: str) -> None:
        """A control-plane machine on its data disk, behind the load balancer."""
        name = f"lab-cp-{replica}"
        own = {
            "lab-endpoint-secret": secret("endpoint"),
            "lab-access-secret": secret("access"),
            "lab-cluster-name": "lab",
            "lab-api-address": API_ADDRESS,
            "lab-pods-cidr": "10.16.0.0/14",
            "lab-services-cidr": "10.20.0.0/20",
            "lab-max-pods": "110",
            "lab-replicas": "1",
            "lab-replica": str(replica),
        }
        data = {"deviceName": NAMES.data_disk, "source": f"projects/{PROJECT}/zones/{ZONE}/disks/{name}-data"}
        body = self.machine(name, "e2-standard-4", MASTERS, boot_attributes("control-plane", own, changes))
        self.cloud.ok("POST", f"{ZONAL}/instances", {**body, "disks": [*body["disks"], data]})
        member = {"instances": [{"instance": f"projects/{PROJECT}/zones/{ZONE}/instances/{name}"}]}
        self.cloud.ok("POST", f"{ZONAL}/instanceGroups/masters/addInstances", member)

    def machine(self, name: str, kind: str, account: str, attributes: dict[str, str]) -> Body:
        nic = {"subnetwork": SUBNETWORK, "aliasIpRanges": [{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}]}
        return {
            **({"name": name, "machineType": f"zones/{ZONE}/machineTypes/{kind}"} if name else {"machineType": kind}),
            "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": UBUNTU}}],
            "networkInterfaces": [nic],
            "serviceAccounts": [{"email": email(account), "scopes": SCOPES}],
            "tags": {"items": [account]},
            "metadata": items(attributes),
        }

    def make_group(
        self, name: str, size: int, kind: str, on_failure: str = "DO_NOTHING", zone: str = ZONE, **changes: str
    ) -> None:
        """A managed instance group of nodes, whose lost machines stay lost unless `on_failure` is REPAIR."""
        properties = self.machine("", kind, NODES, boot_attributes("node", NODE_ATTRIBUTES, changes))
        self.cloud.ok("POST", f"{GLOBAL}/instanceTemplates", {"name": name, "properties": properties})
        group = {
            "name": name,
            "baseInstanceName": f"{name}-w-###[1]",
            "targetSize": size,
            "instanceLifecyclePolicy": {"defaultActionOnFailure": on_failure},
            "versions": [{"instanceTemplate": f"projects/{PROJECT}/global/instanceTemplates/{name}"}],
        }
        self.cloud.ok("POST", f"{COMPUTE}/zones/{zone}/instanceGroupManagers", group)

    def delete(self, path: str) -> None:
        self.cloud.ok("DELETE", f"{ZONAL}/{path}")

    def serial(self, instance: str) -> str:
        """What an instance has written to its serial port."""
        return str(self.cloud.ok("GET", f"{ZONAL}/instances/{instance}/serialPort")["contents"])

    def number(self, instance: str) -> str:
        """What tells an instance from a later one of its name."""
        return str(self.cloud.ok("GET", f"{ZONAL}/instances/{instance}")["id"])

    def says(self, instance: str, words: str) -> str:
        """Waits for the words on the serial port."""

        def found() -> str:
            text = self.serial(instance)
            return text if words in text else ""

        return eventually(f"{instance} says '{words}'", found)

    def payload(self, purpose: str) -> Object:
        """The newest version of a secret; empty while there is none."""
        answer = self.cloud.http.get(f"{SECRETS}/lab-{purpose}/versions/latest:access")
        if answer.status_code == 404:
            return {}
        assert answer.status_code == 200, answer.text
        found: Object = json.loads(base64.b64decode(answer.json()["payload"]["data"]))
        return found

    def client(self) -> ApiClient:
        """The deployer's way in: by what the control plane has published."""
        endpoint = eventually("an endpoint", lambda: self.payload("endpoint"))
        token = self.payload("access")["status"]["token"]
        return ApiClient(endpoint["server"].removeprefix("https://"), token, base64.b64decode(endpoint["ca"]).decode())


@contextmanager
def laboratory(run_dir: Path, state: Path | None = None) -> Iterator[Lab]:
    """A project with machines that boot, in `run_dir`."""
    guests = VirtualMachines(NAMES, run_dir, TOKEN, Contexts(run_dir / "kubeconfig", TOKEN))
    with connected(guests=guests, state=state) as cloud:
        yield Lab(cloud, run_dir)


@contextmanager
def running_platform() -> Iterator[Lab]:
    """A platform whose control plane runs and has published its endpoint."""
    with short_directory() as scratch, laboratory(scratch) as made:
        made.make_platform()
        made.make_disk("lab-cp-0")
        made.make_master()
        made.says("lab-cp-0", f"wrote {secret('endpoint')}/versions/1")
        yield made


def daemon_set(name: str, account: str = "default", **pod: Any) -> Object:
    labels = {"k8s-app": name}
    container = {"name": "main", "image": "registry.example/program:1"}
    spec = {"serviceAccountName": account, "tolerations": ANYWHERE, "containers": [container], **pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def cloud_controller(config: str | None = None) -> list[Object]:
    """The cloud-controller-manager with what it needs, and the file of its flag; on control-plane machines."""
    name, group = "cloud-controller-manager", "rbac.authorization.k8s.io"
    pod: Object = {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}
    files: list[Object] = []
    if config is not None:
        metadata = {"name": name, "namespace": "kube-system"}
        files = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gce.conf": config}}]
        mounts = [{"name": "config", "mountPath": "/etc/cloud"}]
        args = ["--cloud-config=/etc/cloud/gce.conf"]
        main = {"name": "main", "image": "registry.example/program:1", "args": args, "volumeMounts": mounts}
        pod |= {"containers": [main], "volumes": [{"name": "config", "configMap": {"name": name}}]}
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get", "list", "patch", "delete"]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "kube-system"}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
        },
        *files,
        daemon_set(name, name, **pod),
    ]
