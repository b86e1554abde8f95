"""Stands for GKE's secret synchronisation: Secrets that copy what a ServiceAccount may read in Secret Manager.

Conditions, reasons and the label of a Secret are those of kubernetes-sigs/secrets-store-sync-controller, on which GKE's
add-on is built. Different: the provider is asked with the account's own token of Workload Identity instead of through a
provider's process on a node; an entry is read again every ROTATION_SECONDS, whatever the cluster's setting says.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import httpx
import yaml

from sandbox.google.backend import ClusterRef
from sandbox.google.errors import GoogleError
from sandbox.kubernetes.api import ApiClient, Object, UnknownKindError
from sandbox.kubernetes.metadata_server import ANNOTATION, Cloud

API, CLASS_API = "secret-sync.gke.io/v1", "secrets-store.csi.x-k8s.io/v1"
PROVIDER = "gke"
LABEL = "secrets-store.sync.x-k8s.io/secretsync"
ROTATION_SECONDS, RETRY_SECONDS = 120.0, 2.0
CREATED, UPDATED = "SecretCreated", "SecretUpdated"


class SyncError(Exception):
    """A Secret cannot be written; `reason` is that of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SecretSyncs:
    """Looks after the SecretSync objects of one cluster."""

    def __init__(self, client: ApiClient, cluster: ClusterRef, cloud: Callable[[], Cloud]) -> None:
        self._client, self._cluster, self._cloud = client, cluster, cloud
        self._not_before: dict[tuple[str, int], float] = {}  # uid and generation -> when to look again

    def step(self) -> bool:
        try:
            found = self._client.list_all(API, "SecretSync")
        except UnknownKindError:  # the add-on is off
            return False
        now = time.monotonic()
        for each in found:
            key = (each["metadata"]["uid"], each["metadata"]["generation"])
            if "deletionTimestamp" not in each["metadata"] and now >= self._not_before.get(key, 0):
                self._not_before[key] = now + (ROTATION_SECONDS if self._sync(each) else RETRY_SECONDS)
        return False

    def _sync(self, sync: Object) -> bool:
        metadata = sync["metadata"]
        present = self._client.get("v1", "Secret", metadata["name"], metadata["namespace"])
        try:
            data = self._data(sync)
        except SyncError as error:
            condition = (UPDATED if present else CREATED, "False", error.reason, str(error))
            self._report(sync, [condition])
            return False
        self._write(sync, data, present)
        conditions = [(UPDATED, "True", "SecretUpToDate", "Secret contains last observed values.")]
        if not present or CREATED in _conditions(sync):
            conditions.insert(0, (CREATED, "True", "CreateSuccessful", "Secret created successfully."))
        self._report(sync, conditions, data)
        return True

    def _data(self, sync: Object) -> dict[str, str]:
        """Key -> content in base64. Raises SyncError."""
        namespace, spec = sync["metadata"]["namespace"], sync["spec"]
        name = spec["secretProviderClassName"]
        found = self._client.get(CLASS_API, "SecretProviderClass", name, namespace)
        if found is None:
            raise SyncError(
                "SecretProviderClassMisconfigured", f'SecretProviderClass.secrets-store.csi.x-k8s.io "{name}" not found'
            )
        token = self._token(namespace, spec["serviceAccountName"])
        files = {entry["path"]: self._read(entry["resourceName"], token) for entry in _entries(found)}
        missing = [each["sourcePath"] for each in spec["secretObject"]["data"] if each["sourcePath"] not in files]
        if missing:
            raise SyncError(
                "RemoteSecretStoreFetchFailed", f"file matching path {missing[0]} not found in the provider"
            )
        return {each["targetKey"]: files[each["sourcePath"]] for each in spec["secretObject"]["data"]}

    def _token(self, namespace: str, name: str) -> str:
        account = self._client.get("v1", "ServiceAccount", name, namespace)
        if account is None:
            raise SyncError("ControllerSyncError", f'failed to get service account token: "{name}" not found')
        google = (account["metadata"].get("annotations") or {}).get(ANNOTATION, "")
        try:
            return self._cloud().token(self._cluster, namespace, name, google)
        except GoogleError as error:
            raise SyncError("ProviderError", error.message) from error

    def _read(self, resource: str, token: str) -> str:
        url = f"{self._cloud().url}/sm/v1/{resource}:access"
        answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)
        if not answer.is_success:
            error = answer.json()["error"]
            raise SyncError("ProviderError", f"rpc error: code = {_code(error['status'])} desc = {error['message']}")
        return str(answer.json()["payload"]["data"])

    def _write(self, sync: Object, data: Mapping[str, str], present: Object | None) -> None:
        metadata, wanted = sync["metadata"], sync["spec"]["secretObject"]
        if present:
            if present.get("data") != data:
                self._client.patch(present, {"data": {**dict.fromkeys(present.get("data") or {}), **data}})
            return
        owner = {"apiVersion": API, "kind": "SecretSync", "name": metadata["name"], "uid": metadata["uid"]}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": {**(wanted.get("labels") or {}), LABEL: metadata["name"]},
                "annotations": wanted.get("annotations") or {},
                "ownerReferences": [owner],
            },
            "type": wanted["type"],
            "data": data,
        }
        self._client.create(secret)

    def _report(self, sync: Object, conditions: list[tuple[str, str, str, str]], data: object = None) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        shown = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, status, reason, message in conditions
        ]
        status: Object = {"conditions": shown}
        if data:
            digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
            status |= {"lastSuccessfulSyncTime": now, "syncHash": digest}
        metadata = sync["metadata"]
        path = self._client.path(API, "SecretSync", metadata["name"], metadata["namespace"])
        self._client.request("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")


def _conditions(sync: Object) -> set[str]:
    return {each["type"] for each in sync.get("status", {}).get("conditions", [])}


def _entries(provider_class: Object) -> list[Object]:
    """What a class names of Secret Manager. Raises SyncError."""
    spec = provider_class.get("spec") or {}
    if spec.get("provider") != PROVIDER:
        raise SyncError("ProviderError", f'provider not found: provider "{spec.get("provider", "")}"')
    try:
        entries = yaml.safe_load((spec.get("parameters") or {})["secrets"])
        return [{"resourceName": each["resourceName"], "path": each["path"]} for each in entries]
    except (KeyError, TypeError, yaml.YAMLError) as problem:
        raise SyncError("ProviderError", f"failed to unmarshal secrets attribute: {problem}") from problem


def _code(status: str) -> str:
    """A status of Google's as gRPC writes it."""
    return "".join(part.capitalize() for part in status.split("_"))
