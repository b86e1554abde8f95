"""Whether an object of the cluster or a helm release exists that the engine began to create."""

import base64
import binascii
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.cluster_api import ClusterApi, ClusterAwayError, Json, RefusedReadError
from tools.recover.checkpoint import RELEASE, Resource, known, moment
from tools.recover.findings import Finding, Release

INSTALL_HOOKS = {"pre-install", "post-install"}
HALF_MADE = ("failed", "pending-install", "pending-upgrade", "pending-rollback")
"""States of a release that helm 3 leaves where it is stopped or fails (upstream: pkg/release/status.go)."""
GOOD = ("deployed", "superseded")
HELM_SECONDS = 300


@dataclass
class ClusterLook:
    """Asks the cluster about one resource after the other. `api`: None where it cannot be asked, and `away` says why;
    where there is no cluster at all (`gone`), nothing is inside."""

    api: ClusterApi | None
    away: str = ""
    gone: bool = False
    _kinds: dict[str, Mapping[str, Json]] = field(default_factory=dict)

    def find(self, resource: Resource) -> Finding:
        if self.gone:
            return Finding("absent")
        if self.api is None or self.away:
            return Finding("unknown", why=self.away)
        try:
            return self._release(self.api, resource) if resource.type == RELEASE else self._object(self.api, resource)
        except RefusedReadError as error:
            return Finding("unknown", why=f"the cluster answers {error.status}: {error}")
        except ClusterAwayError as error:
            self.away = str(error)
            return Finding("unknown", why=self.away)

    def _object(self, api: ClusterApi, resource: Resource) -> Finding:
        version, kind = resource.inputs.get("apiVersion"), resource.inputs.get("kind")
        metadata = resource.inputs.get("metadata") or {}
        name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
        if not all(map(known, (version, kind, name, namespace))):
            return Finding("unknown", why="its name is not known yet")
        described = self._kind(api, str(version), str(kind))
        if described is None:
            return Finding("absent")
        inside = f"namespaces/{namespace}/" if described.get("namespaced") else ""
        found = api.find(f"{_base(str(version))}/{inside}{described['name']}/{name}")
        if found is None:
            return Finding("absent")
        made, going = found["metadata"].get("creationTimestamp"), "deletionTimestamp" in found["metadata"]
        identity = f"{namespace}/{name}" if inside else str(name)
        return Finding(
            "changing" if going else "present", identity, moment(made), why="it is being deleted" if going else ""
        )

    def _kind(self, api: ClusterApi, version: str, kind: str) -> Json | None:
        """How the API server describes a kind; None for one that it does not serve."""
        if version not in self._kinds:
            served = (api.find(_base(version)) or {}).get("resources", ())
            self._kinds[version] = {each["kind"]: each for each in served if "/" not in each["name"]}
        return self._kinds[version].get(kind)

    def _release(self, api: ClusterApi, resource: Resource) -> Finding:
        name, namespace = resource.inputs.get("name"), resource.inputs.get("namespace") or "default"
        if not all(map(known, (name, namespace))):
            return Finding("unknown", why="its name is not known yet")
        path = f"/api/v1/namespaces/{namespace}/secrets"
        return release(
            api.items(path, labelSelector=f"owner=helm,name={name}"),
            str(name),
            str(namespace),
            int(resource.inputs.get("timeout") or HELM_SECONDS),
        )


def _base(version: str) -> str:
    """The path of an API group's version."""
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def release(secrets: list[Json], name: str, namespace: str, seconds: int) -> Finding:
    """What helm's own records say of a release: one secret for each revision, its state in a label."""
    revisions = sorted(secrets, key=_revision)
    if not revisions:
        return Finding("absent")
    last, identity = revisions[-1], f"{namespace}/{name}"
    status, made = _status(last), moment(revisions[0]["metadata"].get("creationTimestamp"))
    if status == "deployed":
        return Finding("present", identity, made)
    if status in HALF_MADE:
        left = Release(name, namespace, status, _back_to(revisions), seconds)
        return Finding("half-made", identity, made, why=f"helm says {status}", release=left)
    if status == "uninstalling":
        left = Release(name, namespace, status, None, seconds)
        return Finding("half-made", identity, made, why=f"helm says {status}", release=left)
    return Finding("unknown", identity, made, why=f"helm says {status or 'nothing'}")


def _revision(secret: Json) -> int:
    version = str(secret["metadata"].get("labels", {}).get("version", ""))
    return int(version) if version.isdigit() else 0


def _status(secret: Json) -> str:
    return str(secret["metadata"].get("labels", {}).get("status", ""))


def _back_to(revisions: list[Json]) -> int | None:
    """The newest revision that was once deployed. Without one, the last: rolling "back" to it applies all of it, which
    completes an installation that has no hooks of its own."""
    good = [each for each in revisions if _status(each) in GOOD]
    if good:
        return _revision(good[-1])
    return _revision(revisions[-1]) if _has_no_install_hooks(revisions[-1]) else None


def _has_no_install_hooks(secret: Json) -> bool:
    """Whether a revision is known to have no hooks of an installation. helm packs it: base64, gzip, JSON."""
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        content: dict[str, Any] = json.loads(gzip.decompress(packed))
        hooks = content.get("hooks") or ()
        return not any(INSTALL_HOOKS & set(hook.get("events") or ()) for hook in hooks)
    except (KeyError, ValueError, TypeError, AttributeError, OSError, EOFError, binascii.Error):
        return False
