"""Stands for GKE's Cloud Storage FUSE driver, as far as it decides: what a volume is, and whether a pod may mount it.

Texts are the driver's own (GoogleCloudPlatform/gcs-fuse-csi-driver at 5fcdc04, pkg/csi_driver/node.go), and so is the
order of the checks. Different: with `skipCSIBucketAccessCheck` the real driver mounts first, and the event comes from
the sidecar, which is running by then; here the mount waits. There is no such stand-in of the driver of disks
(pd.csi.storage.gke.io): nothing attaches a disk, so pods with one run on played hosts without it, and stay
ContainerCreating on real ones. Only mount options that the sandbox acts on are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import httpx

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.metadata_server import ANNOTATION, Cloud
from sandbox.kubernetes.nodes import METADATA_LABEL

DRIVER = "gcsfuse.csi.storage.gke.io"
ENABLED = "gke-gcsfuse/volumes"  # annotation of pods
SIDECAR, PREFETCH = "gke-gcsfuse-sidecar", "gke-gcsfuse-metadata-prefetch"
TMP_VOLUME, TMP_PATH = "gke-gcsfuse-tmp", "/gcsfuse-tmp"
SIDECAR_IMAGE = "gke.gcr.io/gcs-fuse-csi-driver-sidecar-mounter:v1.21.9-gke.0"
NOBODY = 65534
_GUIDE = "https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity"
SECONDS = 30.0  # one call of Cloud Storage


class MountError(Exception):
    """A volume cannot be mounted; `code` is the name of a gRPC status, the message the driver's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Volume:
    """A bucket, or the folder `only_dir` of it, as a pod mounts it. `name`: the PersistentVolume's or the pod's."""

    name: str
    bucket: str
    options: Sequence[str]
    attributes: Mapping[str, str]
    read_only: bool

    @property
    def only_dir(self) -> str:
        folder = self.option("only-dir").strip("/")
        return f"{folder}/" if folder else ""

    @property
    def skips_check(self) -> bool:
        return self.attributes.get("skipCSIBucketAccessCheck", "").lower() == "true"

    def option(self, name: str) -> str:
        """The value of a mount option, written as name=value or name:value; "" without one."""
        values = [each[len(name) + 1 :] for each in self.options if each.startswith((f"{name}=", f"{name}:"))]
        return values[-1] if values else ""


def volumes(client: ApiClient, pod: Object, namespace: str) -> Iterator[tuple[str, Volume]]:
    """The volumes of the driver that a pod names, each with its name in the pod. Claims that are not bound are none."""
    for each in pod["spec"].get("volumes") or []:
        if each.get("csi", {}).get("driver") == DRIVER:
            attributes = each["csi"].get("volumeAttributes") or {}
            options = [option for option in attributes.get("mountOptions", "").split(",") if option]
            found = Volume(
                each["name"], attributes.get("bucketName", ""), options, attributes, bool(each["csi"].get("readOnly"))
            )
            yield each["name"], found
        elif claim := each.get("persistentVolumeClaim"):
            found_claim = client.get("v1", "PersistentVolumeClaim", claim["claimName"], namespace)
            name = (found_claim or {}).get("spec", {}).get("volumeName", "")
            persistent = client.get("v1", "PersistentVolume", name) if name else None
            if persistent and persistent["spec"].get("csi", {}).get("driver") == DRIVER:
                yield each["name"], _persistent(persistent, bool(claim.get("readOnly")))


def _persistent(volume: Object, read_only: bool) -> Volume:
    source = volume["spec"]["csi"]
    options = volume["spec"].get("mountOptions") or []
    return Volume(
        volume["metadata"]["name"],
        source["volumeHandle"].partition(":")[0],
        options,
        source.get("volumeAttributes") or {},
        read_only or bool(source.get("readOnly")),
    )


def has_sidecar(pod: Object) -> bool:
    """Whether the sidecar is in a pod as the webhook writes it."""
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or []), *spec["containers"]):
        context = container.get("securityContext") or {}
        mounts = {(each["name"], each["mountPath"]) for each in container.get("volumeMounts") or []}
        if (
            container["name"] == SIDECAR
            and (context.get("runAsUser"), context.get("runAsGroup")) == (NOBODY, NOBODY)
            and (TMP_VOLUME, TMP_PATH) in mounts
        ):
            return any(each["name"] == TMP_VOLUME and "emptyDir" in each for each in spec.get("volumes") or [])
    return False


@dataclass(frozen=True)
class FuseDriver:
    """The driver of one cluster."""

    client: ApiClient
    cluster: ClusterRef
    cloud: Callable[[], Cloud]

    def storage(self, pod: Object) -> Storage:
        """Cloud Storage with the identity of a pod's ServiceAccount. Raises MountError where that has none."""
        namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName", "default")
        found = self.client.get("v1", "ServiceAccount", account, namespace) or {"metadata": {}}
        google = (found["metadata"].get("annotations") or {}).get(ANNOTATION, "")
        try:
            cloud = self.cloud()
            return Storage(cloud.url, cloud.token(self.cluster, namespace, account, google))
        except GoogleError as error:
            raise MountError(
                "Unauthenticated",
                "failed to prepare storage service: storage service manager failed to setup service: timed out waiting"
                " for the condition",
            ) from error

    def check(self, pod: Object, volume: Volume) -> Storage:
        """Cloud Storage for a volume that can be mounted. Raises MountError."""
        if not volume.bucket:
            text = 'VolumeContext "bucketName" must be provided for ephemeral storage'
            raise MountError("InvalidArgument", text)
        if not volume.skips_check:
            self.storage(pod).require(volume.bucket, 'failed to get GCS bucket "{bucket}": {error}')
        node = self.client.get("v1", "Node", pod["spec"]["nodeName"]) or {"metadata": {}}
        if (node["metadata"].get("labels") or {}).get(METADATA_LABEL) != "true" and not pod["spec"].get("hostNetwork"):
            raise MountError(
                "FailedPrecondition",
                "Workload Identity Federation is not enabled on node. Please make sure this is enabled on both cluster"
                f" and node pool level ({_GUIDE})",
            )
        if not has_sidecar(pod):
            annotations = pod["metadata"].get("annotations") or {}
            if annotations.get(ENABLED, "").lower() == "true":
                raise MountError("Internal", "the webhook failed to inject the sidecar container into the Pod spec")
            raise MountError("FailedPrecondition", "failed to find the sidecar container in Pod spec")
        storage = self.storage(pod)
        storage.require(volume.bucket, "gcsfuse failed with error: {error}")
        return storage


@dataclass(frozen=True)
class Storage:
    """Objects of Cloud Storage, as one caller may see and change them. `url` is where the APIs are."""

    url: str
    token: str

    def require(self, bucket: str, text: str) -> None:
        """Raises MountError, worded by `text`, unless the objects of a bucket can be listed."""
        answer = self._call("GET", f"/storage/v1/b/{bucket}/o", maxResults="1")
        if answer.is_success:
            return
        message = answer.json()["error"]["message"]
        if answer.status_code == 404:
            raise MountError("NotFound", text.format(bucket=bucket, error="storage: bucket doesn't exist"))
        code = "PermissionDenied" if answer.status_code == 403 else "Internal"
        reason = answer.json()["error"]["errors"][0]["reason"]
        error = f"googleapi: Error {answer.status_code}: {message}, {reason}"
        raise MountError(code, text.format(bucket=bucket, error=error))

    def list(self, bucket: str, prefix: str) -> dict[str, str]:
        """Name -> generation of the objects below a prefix. Raises httpx.HTTPError."""
        found: dict[str, str] = {}
        more = {"prefix": prefix}
        while True:
            answer = self._call("GET", f"/storage/v1/b/{bucket}/o", None, **more).raise_for_status().json()
            found |= {each["name"]: each["generation"] for each in answer["items"]}
            if "nextPageToken" not in answer:
                return found
            more["pageToken"] = answer["nextPageToken"]

    def read(self, bucket: str, name: str) -> bytes:
        path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        return self._call("GET", path, alt="media").raise_for_status().content

    def write(self, bucket: str, name: str, content: bytes) -> str:
        """The generation of what was written."""
        path = f"/upload/storage/v1/b/{bucket}/o"
        answer = self._call("POST", path, content, uploadType="media", name=name)
        return str(answer.raise_for_status().json()["generation"])

    def delete(self, bucket: str, name: str) -> None:
        self._call("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}").raise_for_status()

    def _call(self, method: str, path: str, content: bytes | None = None, **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.request(
            method,
            f"{self.url}{path}",
            params=query,
            content=content,
            headers=headers,
            timeout=SECONDS,
            trust_env=False,
        )
