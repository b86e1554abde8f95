"""A cluster in an emulated cloud, with a team's namespace, bucket and secret made by hand, as tests need them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandbox.google.backend import ClusterRef
from sandbox.google.project_numbers import project_number
from sandbox.google.workload_identity import WorkloadIdentity
from sandbox.hosts.hosts import PLAYED, Real
from sandbox.kubernetes.api import ApiClient, Object, is_true
from sandbox.kubernetes.fuse import DRIVER
from sandbox.kubernetes.gke import GkeCluster
from sandbox.tests.emulated_google import PROJECT, REGION, Cloud, connected
from sandbox.tests.isolation import short_directory

TEAM, OTHER, BUCKET, SECRET = "research", "product", "research-data", "hf-token"
REF = ClusterRef(PROJECT, REGION, "tpu")
POOLS = f"iam.googleapis.com/projects/{project_number(PROJECT)}/locations/global/workloadIdentityPools"
POOL = f"{POOLS}/{PROJECT}.svc.id.goog"
PODS = f"principalSet://{POOL}/namespace/{TEAM}"
READER = f"principal://{POOL}/subject/ns/{TEAM}/sa/secrets"
WRITE = ("roles/storage.objectUser", "roles/storage.legacyBucketReader")
ADDONS: dict[str, Any] = {
    "addonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}},
    "secretManagerConfig": {"enabled": True},
    "secretSyncConfig": {"enabled": True},
}


@dataclass(frozen=True)
class Site:
    """A cluster and the cloud around it."""

    cloud: Cloud
    cluster: GkeCluster

    @property
    def client(self) -> ApiClient:
        return self.cluster.plane.client

    def grant_bucket(self, *roles: str, member: str = PODS, bucket: str = BUCKET) -> None:
        """Gives a member these roles on a bucket, and takes away all others."""
        rows = [{"role": role, "members": [member]} for role in roles]
        self.cloud.ok("PUT", f"/storage/v1/b/{bucket}/iam", {"bindings": rows})

    def grant_secret(self, *members: str) -> None:
        rows = [{"role": "roles/secretmanager.secretAccessor", "members": [each]} for each in members]
        path = f"/sm/v1/projects/{PROJECT}/secrets/{SECRET}:setIamPolicy"
        self.cloud.ok("POST", path, {"policy": {"bindings": rows}})

    def write(self, name: str, content: str, bucket: str = BUCKET) -> None:
        query = {"uploadType": "media", "name": name}
        answer = self.cloud.http.post(f"/upload/storage/v1/b/{bucket}/o", params=query, content=content)
        assert answer.status_code == 200, answer.text

    def read(self, name: str, bucket: str = BUCKET) -> str | None:
        """The content of an object, None where there is none."""
        path = f"/storage/v1/b/{bucket}/o/{name.replace('/', '%2F')}"
        answer = self.cloud.http.get(path, params={"alt": "media"})
        return answer.text if answer.status_code == 200 else None

    def has_kinds(self) -> bool:
        """Whether the add-ons have brought their kinds."""
        names = ("secretproviderclasses.secrets-store.csi.x-k8s.io", "secretsyncs.secret-sync.gke.io")
        found = (self.client.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", name) for name in names)
        return all(is_true(each or {}, "Established") for each in found)

    def events(self, pod: str, namespace: str = TEAM) -> list[str]:
        found = self.client.list_all("v1", "Event")
        mine = [each for each in found if each["involvedObject"].get("name") == pod]
        return [each["message"] for each in mine if each["metadata"]["namespace"] == namespace]


@contextmanager
def site(pools: list[dict[str, Any]], hosts: int = 0) -> Iterator[Site]:
    """A cluster with GKE's add-ons on, two namespaces, and in the cloud a bucket and a secret without any grant."""
    with connected() as cloud, short_directory() as folder:
        cloud.make_cluster(**ADDONS)
        uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
        for name in (BUCKET, "product-data"):
            cloud.ok("POST", f"/storage/v1/b?project={PROJECT}", {"name": name, "location": REGION, **uniform})
        secrets = f"/sm/v1/projects/{PROJECT}/secrets"
        cloud.ok("POST", f"{secrets}?secretId={SECRET}", {"replication": {"automatic": {}}})
        set_secret(cloud, "one")
        identity = WorkloadIdentity(cloud.emulator.world, cloud.emulator.url)
        real = Real(hosts) if hosts else PLAYED
        made = GkeCluster(
            folder, REF.name, PROJECT, lambda _pool, _nodes: None, location=REGION, cloud=lambda: identity, real=real
        )
        made.start()
        try:
            made.set_pools(pools)
            for name in (TEAM, OTHER):
                made.plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            yield Site(cloud, made)
        finally:
            made.stop()


def set_secret(cloud: Cloud, text: str) -> None:
    """A new version."""
    data = base64.b64encode(text.encode()).decode()
    cloud.ok("POST", f"/sm/v1/projects/{PROJECT}/secrets/{SECRET}:addVersion", {"payload": {"data": data}})


def claim(name: str = "data", bucket: str = BUCKET, **attributes: str) -> list[Object]:
    """A volume for a bucket, and the claim that is bound to it."""
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "volumeMode": "Filesystem"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{TEAM}.{name}"},
        "spec": {
            **spec,
            "capacity": {"storage": "1Ti"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "namespace": TEAM},
            "csi": {"driver": DRIVER, "volumeHandle": bucket, "volumeAttributes": attributes},
            "mountOptions": ["implicit-dirs"],
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    wanted = {"resources": {"requests": {"storage": "1Ti"}}, "volumeName": f"{TEAM}.{name}"}
    return [
        volume,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {**spec, **wanted},
        },
    ]


def pod(name: str, volume: Object, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    """A pod that mounts a volume at /data."""
    container = {
        "name": "main",
        "image": "sandbox/python:1",
        "command": ["sleep", "1000"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "annotations": annotations or {}},
        "spec": {
            "containers": [{**container, **spec.pop("container", {})}],
            "volumes": [{"name": "data", **volume}],
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **spec,
        },
    }


def secret_objects() -> list[Object]:
    """An account, what to read and what to make of it, all named `secrets`."""
    metadata = {"name": "secrets", "namespace": TEAM}
    listed = f"- resourceName: projects/{PROJECT}/secrets/{SECRET}/versions/latest\n  path: HF_TOKEN\n"
    copy = {
        "serviceAccountName": "secrets",
        "secretProviderClassName": "secrets",
        "secretObject": {"type": "Opaque", "data": [{"sourcePath": "HF_TOKEN", "targetKey": "HF_TOKEN"}]},
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "secrets-store.csi.x-k8s.io/v1",
            "kind": "SecretProviderClass",
            "metadata": metadata,
            "spec": {"provider": "gke", "parameters": {"secrets": listed}},
        },
        {"apiVersion": "secret-sync.gke.io/v1", "kind": "SecretSync", "metadata": metadata, "spec": copy},
    ]
