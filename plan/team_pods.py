"""What pods of a team get: its buckets as addresses, buckets and disks as files, and its secrets."""

from collections.abc import Mapping
from typing import Any

from plan.federation import (
    CONFIG_MAP,
    CREDENTIAL,
    DIRECTORY,
    TOKEN,
    TOKEN_SECONDS,
    federated_namespaces,
    token_audience,
)
from plan.platform import Platform
from plan.slices import SlicePlan
from plan.storage import StorePlan, VolumePlan, mounted, stores_of
from plan.teams import SECRETS, secret_variables

IDENTITY = "google-identity"
SHARE_OF_HOST = 0.2
"""Memory of the sidecar that mounts buckets. With the job's own share it stays below what a host can give."""

Manifest = dict[str, Any]


def add_to_pod(platform: Platform, namespace: str, plan: SlicePlan, template: Manifest) -> None:
    """Put what the team of the namespace has into a pod template with one container. Others are left as they are.

    The annotations are read from pods, so they go to the template and not to the job.
    """
    if namespace not in platform.teams:
        return
    pod = template["spec"]
    (container,) = pod["containers"]
    _extend(container, "env", [{"name": s.variable, "value": s.uri} for s in stores_of(platform, namespace)])
    if secret_variables(platform, namespace):
        _extend(container, "envFrom", [{"secretRef": {"name": SECRETS}}])
    if namespace in federated_namespaces(platform):
        _extend(container, "env", _who_one_is(platform))
        _extend(container, "volumeMounts", [{"name": IDENTITY, "mountPath": DIRECTORY, "readOnly": True}])
        _extend(pod, "volumes", [_identity(platform)])
    stores = mounted(platform, namespace)
    if stores:
        _extend(container, "volumeMounts", [_mount(store) for store in stores])
        _extend(pod, "volumes", [_volume(store) for store in stores])
    if any(isinstance(store, StorePlan) for store in stores):
        metadata = template.setdefault("metadata", {})
        metadata["annotations"] = {**metadata.get("annotations", {}), **_sidecar(plan)}


def _extend(where: Manifest, key: str, more: list[Manifest]) -> None:
    if more:
        where[key] = [*where.get(key, []), *more]


def _name(store: VolumePlan) -> str:
    return f"storage-{store.name}"


def _mount(store: VolumePlan) -> Manifest:
    return {"name": _name(store), "mountPath": store.spec.mount, **_read_only(store)}


def _volume(store: VolumePlan) -> Manifest:
    return {"name": _name(store), "persistentVolumeClaim": {"claimName": store.claim, **_read_only(store)}}


def _read_only(store: VolumePlan) -> Mapping[str, bool]:
    return {"readOnly": True} if store.access == "read" else {}


def _who_one_is(platform: Platform) -> list[Manifest]:
    """Where Google's libraries find the credential, which names no project."""
    return [
        {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": f"{DIRECTORY}/{CREDENTIAL}"},
        {"name": "GOOGLE_CLOUD_PROJECT", "value": platform.project},
    ]


def _identity(platform: Platform) -> Manifest:
    """The pod's own token for Google, and what to do with it."""
    token = {"audience": token_audience(platform), "expirationSeconds": TOKEN_SECONDS, "path": TOKEN}
    return {
        "name": IDENTITY,
        "projected": {
            "sources": [
                {"serviceAccountToken": token},
                {"configMap": {"name": CONFIG_MAP, "items": [{"key": CREDENTIAL, "path": CREDENTIAL}]}},
            ]
        },
    }


def _sidecar(plan: SlicePlan) -> dict[str, str]:
    """Settings of the container that GKE adds to the pod. Unlimited but for memory, which training needs too."""
    return {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
        "gke-gcsfuse/memory-limit": f"{int(plan.machine.memory_gb * SHARE_OF_HOST)}Gi",
    }
