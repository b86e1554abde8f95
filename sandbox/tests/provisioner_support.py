"""An emulated project for TPU Provisioner: a cluster, accounts with the least rights, the controller's manifests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.google.backend import ClusterRef
from sandbox.google.workload_identity import WorkloadIdentity
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.backend import KubernetesBackend
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.tests.emulated_google import (
    ACCOUNT,
    ACCOUNTS,
    CLUSTERS,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Body,
    Cloud,
    cluster,
    connected,
    eventually,
    pool,
)
from sandbox.tests.isolation import short_directory
from sandbox.tests.kubernetes_support import EVERY_CHART, JOBSET_CHART
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION

NAMESPACE = "tpu-provisioner-system"
NAME = "tpu-provisioner-controller-manager"
CONFIG_MAP = "tpu-provisioner-manager"
IMAGE = "us-docker.pkg.dev/my-project/tools/tpu-provisioner@sha256:" + "0" * 64
EMAIL = f"provisioner@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{EMAIL}"
WORKLOAD = ("roles/iam.workloadIdentityUser", f"serviceAccount:{PROJECT}.svc.id.goog[{NAMESPACE}/{NAME}]")
ACT_AS = ("roles/iam.serviceAccountUser", MEMBER)
PERMISSIONS = ("container.clusters.get", "container.clusters.update", "container.operations.get")
ROLES = f"/iam/v1/projects/{PROJECT}/roles"
ROLE = f"projects/{PROJECT}/roles/pools"
REF = ClusterRef(PROJECT, REGION, "tpu")
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
_RBAC = "rbac.authorization.k8s.io"


def make_project(cloud: Cloud) -> None:
    """A cluster without a release channel, and the accounts of its nodes and of the controller."""
    cloud.make_network()
    cloud.ok("POST", ACCOUNTS, {"accountId": "tpu-nodes"})
    cloud.ok("POST", ACCOUNTS, {"accountId": "provisioner"})
    cloud.offer("v5e", "v6e", "tpu7x")
    _done(cloud, "POST", CLUSTERS, {"cluster": cluster(releaseChannel={"channel": "UNSPECIFIED"})})
    _done(cloud, "DELETE", f"{POOLS}/default-pool")
    _done(cloud, "POST", POOLS, pool("system", "e2-standard-8", 1))


def _done(cloud: Cloud, method: str, path: str, body: Body | None = None) -> None:
    """A call whose operation has ended."""
    operations = CLUSTERS.removesuffix("clusters") + "operations"
    name = cloud.ok(method, path, body)["name"]
    eventually(lambda: cloud.ok("GET", f"{operations}/{name}")["status"] == "DONE", 120)


def grant(cloud: Cloud, *without: str) -> None:
    """The controller's least rights, less the named permissions."""
    role = {"includedPermissions": [each for each in PERMISSIONS if each not in without]}
    if cloud.http.get(f"{ROLES}/pools").status_code == 404:
        cloud.ok("POST", ROLES, {"roleId": "pools", "role": role})
    cloud.ok("PATCH", f"{ROLES}/pools", role)
    cloud.bind(f"/crm/v1/projects/{PROJECT}", (ROLE, MEMBER))
    cloud.bind(f"{ACCOUNTS}/{ACCOUNT}", *([] if "iam.serviceAccounts.actAs" in without else [ACT_AS]))
    cloud.bind(f"{ACCOUNTS}/{EMAIL}", WORKLOAD)


def pools(cloud: Cloud) -> dict[str, str]:
    """Name -> status of the controller's pools."""
    found = cloud.ok("GET", POOLS).get("nodePools", [])
    return {each["name"]: each["status"] for each in found if each["name"] != "system"}


@dataclass(frozen=True)
class Lab:
    """The emulated project with its real control plane."""

    cloud: Cloud
    backend: KubernetesBackend

    @property
    def cluster(self) -> GkeCluster:
        return self.backend.cluster(REF)

    @property
    def client(self) -> ApiClient:
        return self.cluster.plane.client

    def pools(self) -> dict[str, str]:
        return pools(self.cloud)

    def apply(self, *objects: Object) -> None:
        for each in objects:
            self.client.apply(each)

    def pods(self, namespace: str = NAMESPACE) -> list[Object]:
        found = self.client.list_all("v1", "Pod", namespace)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def container(self) -> Object:
        """The status of the controller's container; empty while there is none."""
        for pod in self.pods():
            for each in pod["status"].get("containerStatuses", []):
                found: Object = each
                return found
        return {}

    def waiting(self) -> Object:
        found: Object = self.container().get("state", {}).get("waiting", {})
        return found

    def events(self, reason: str) -> list[str]:
        found = self.client.list_all("v1", "Event")
        return [each["message"] for each in found if each["reason"] == reason]


@contextmanager
def laboratory(folder: Path, status_seconds: float = 3.0) -> Iterator[Lab]:
    """The project, and JobSet in its cluster."""
    backend = KubernetesBackend(folder, status_seconds=status_seconds)
    with connected(backend=backend) as cloud:
        identity = WorkloadIdentity(cloud.emulator.world, cloud.emulator.url)
        backend.cloud = lambda: identity
        registry = None
        try:
            make_project(cloud)
            plane = backend.cluster(REF).plane
            registry = ChartRegistry(plane.authority, EVERY_CHART)
            helm = Helm(plane.kubeconfig_path, registry.variables(plane.authority.pair.certificate))
            helm.install(
                ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}, create_namespace=True)
            )
            yield Lab(cloud, backend)
        finally:
            if registry:
                registry.stop()
            backend.close()


@contextmanager
def running_lab() -> Iterator[Lab]:
    with short_directory() as scratch, laboratory(scratch) as lab:
        yield lab


def config_map(**more: str) -> Object:
    data = {
        "GCP_PROJECT_ID": PROJECT,
        "GCP_CLUSTER": "tpu",
        "GCP_CLUSTER_LOCATION": REGION,
        "GCP_ZONE": ZONE,
        "GCP_NODE_SERVICE_ACCOUNT": ACCOUNT,
        "NODE_MIN_LIFESPAN": "1s",
        **more,
    }
    metadata = {"name": CONFIG_MAP, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def manifests(**labels: str) -> list[Object]:
    """All but the ConfigMap; `labels` are those of the pod template."""
    named = {"name": NAME, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**named, "annotations": {"iam.gke.io/gcp-service-account": EMAIL}},
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME},
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
            "subjects": [{"kind": "ServiceAccount", **named}],
        },
        deployment(**labels),
    ]


def deployment(**labels: str) -> Object:
    selected = {"control-plane": "controller-manager"}
    probes = {
        kind: {"httpGet": {"path": path, "port": 8081}, "periodSeconds": 5}
        for kind, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"))
    }
    container = {
        "name": "manager",
        "image": IMAGE,
        "args": ["--health-probe-bind-address=:8081", "--metrics-bind-address=:8080", "--leader-elect"],
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "envFrom": [{"configMapRef": {"name": CONFIG_MAP}}],
        **probes,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {"iam.gke.io/gke-metadata-server-enabled": "true"},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": {**selected, **labels}}, "spec": spec},
        },
    }


def jobset(name: str, slices: int, seconds: int = 2, hosts: int = 4, **selector: str) -> Object:
    """A JobSet of v6e 4x4 slices whose pods run for so many seconds."""
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"limits": {"google.com/tpu": "4"}},
    }
    pod: dict[str, Any] = {
        "metadata": {"annotations": {RUN_FOR: f"{seconds}s"}},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                "cloud.google.com/gke-tpu-topology": "4x4",
                **selector,
            },
            "containers": [container],
        },
    }
    job = {"parallelism": hosts, "completions": hosts, "backoffLimit": 0, "template": pod}
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
        },
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": slices, "template": {"spec": job}}]},
    }
