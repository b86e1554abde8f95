"""Stands for the webhook of GKE's Cloud Storage FUSE driver: the sidecar in pods that ask for it.

As the driver's own injection does it (GoogleCloudPlatform/gcs-fuse-csi-driver at 5fcdc04, pkg/webhook): containers,
volumes, security context, resources from annotations, and the second container where a volume asks for its metadata
beforehand. Different: always a native sidecar; no profiles, shared mounts, credential ConfigMaps, extra mounts, and no
image of the user's own; on real hosts the image is one that sleeps and takes no argument. Of the sandbox's own is HELD,
an annotation of pods with a volume of the driver, by which kwok leaves them alone until `PlayedMounts` has checked
them; a kubelet does not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.control_plane import HELD
from sandbox.kubernetes.fuse import (
    ENABLED,
    NOBODY,
    PREFETCH,
    SIDECAR,
    SIDECAR_IMAGE,
    TMP_PATH,
    TMP_VOLUME,
    has_sidecar,
    volumes,
)
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.webhooks import PodWebhook

NAME = "gcsfuse-sidecar-injector.csi.storage.gke.io"
# Annotation "gke-gcsfuse/<prefix><resource>-limit" or "-request" -> defaults, "0" for none (cmd/webhook/main.go).
_SIDECAR_DEFAULTS = {
    "cpu": ("250m", "250m"),
    "memory": ("256Mi", "256Mi"),
    "ephemeral-storage": ("5Gi", "5Gi"),
}
_PREFETCH_DEFAULTS = {"cpu": ("10m", "50m"), "memory": ("10Mi", "250Mi"), "ephemeral-storage": ("10Mi", "0")}
_ZERO = frozenset({"0", "0m", "0Mi", "0Gi"})
_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
}
_SIDECAR_VOLUMES = {
    TMP_VOLUME: TMP_PATH,
    "gke-gcsfuse-buffer": "/gcsfuse-buffer",
    "gke-gcsfuse-cache": "/gcsfuse-cache",
}


def fuse_webhook(client: ApiClient, authority: CertificateAuthority) -> PodWebhook:
    """The webhook of a cluster."""
    condition = (
        "has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.csi) || has(v.persistentVolumeClaim)) || "
        f"has(object.metadata.annotations) && '{ENABLED}' in object.metadata.annotations"
    )
    return PodWebhook(
        NAME, condition, lambda pod, namespace: changes(client, pod, namespace), authority, required=False
    )


def changes(client: ApiClient, pod: Object, namespace: str) -> list[Object]:
    """A JSON patch for a new pod."""
    mounted = dict(volumes(client, pod, namespace))
    annotations = pod["metadata"].get("annotations") or {}
    patch: list[Object] = []
    if mounted:
        patch.append(_replaced("/metadata/annotations", {**annotations, HELD: "true"}))
    if annotations.get(ENABLED, "").lower() != "true" or has_sidecar(pod):
        return patch
    wanted = [_container(SIDECAR, "", _SIDECAR_DEFAULTS, annotations, _SIDECAR_VOLUMES)]
    early = [name for name, volume in mounted.items() if _prefetches(volume.attributes)]
    if early:
        places = {name: f"/volumes/{name}" for name in early}
        wanted.append(_container(PREFETCH, "metadata-prefetch-", _PREFETCH_DEFAULTS, annotations, places))
        for mount in wanted[1]["volumeMounts"]:
            mount["readOnly"] = True
    given = pod["spec"].get("volumes") or []
    known = {each["name"] for each in given}
    added = [{"name": name, "emptyDir": {}} for name in _SIDECAR_VOLUMES if name not in known]
    patch.append(_replaced("/spec/volumes", [*added, *given]))
    patch.append(_replaced("/spec/initContainers", [*wanted, *(pod["spec"].get("initContainers") or [])]))
    return patch


def _prefetches(attributes: Mapping[str, str]) -> bool:
    return attributes.get("gcsfuseMetadataPrefetchOnMount", "").lower() == "true"


def _replaced(path: str, value: Any) -> Object:
    """A step of a patch; "add" also replaces what is there."""
    return {"op": "add", "path": path, "value": value}


def _container(
    name: str,
    prefix: str,
    defaults: Mapping[str, tuple[str, str]],
    annotations: Mapping[str, str],
    places: Mapping[str, str],
) -> Object:
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    for resource, usual in defaults.items():
        key = f"gke-gcsfuse/{prefix}{resource}"
        request, limit = _settled(annotations.get(f"{key}-request"), annotations.get(f"{key}-limit"), *usual)
        requests |= {} if request in _ZERO else {resource: request}
        limits |= {} if limit in _ZERO else {resource: limit}
    return {
        "name": name,
        "image": SIDECAR_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "securityContext": _SECURITY,
        "resources": {"requests": requests, "limits": limits},
        "env": [{"name": "NATIVE_SIDECAR", "value": "TRUE"}],
        "volumeMounts": [{"name": volume, "mountPath": place} for volume, place in places.items()],
    }


def _settled(request: str | None, limit: str | None, default_request: str, default_limit: str) -> tuple[str, str]:
    """Request and limit of a resource (upstream: populateResource): one alone counts for both, but for "no limit"."""
    if request is None and limit is None:
        return default_request, default_limit
    if request is None:
        assert limit is not None
        return (default_request if limit in _ZERO else limit), limit
    return request, request if limit is None else limit
