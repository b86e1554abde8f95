"""Differences between the inputs of two updates, and which of them take a replacement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sandbox.plugins.provider import Change

# Paths whose change, or that of anything below, replaces an object of (group, kind). Upstream: `forceNew` in diff.go.
_SELECTOR = ("spec.selector",)
_ROLE_REFERENCE = ("roleRef",)
FORCE_NEW: Mapping[tuple[str, str], Sequence[str]] = {
    ("", "ConfigMap"): ("data", "binaryData"),
    ("", "PersistentVolumeClaim"): ("spec",),
    # Upstream spells out every field of a pod's specification but its tolerations and its deadline.
    ("", "Pod"): ("spec",),
    ("", "ResourceQuota"): ("spec.scopes",),
    ("", "Secret"): ("type", "data", "stringData"),
    ("", "Service"): ("spec.clusterIP",),
    ("apps", "DaemonSet"): _SELECTOR,
    ("apps", "Deployment"): _SELECTOR,
    ("apps", "StatefulSet"): (
        *_SELECTOR,
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    ("batch", "Job"): (*_SELECTOR, "spec.completions", "spec.parallelism", "spec.template"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _ROLE_REFERENCE,
    ("rbac.authorization.k8s.io", "RoleBinding"): _ROLE_REFERENCE,
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner"),
}
IDENTITY = ("kind", "metadata.name", "metadata.namespace")


def changes(old: Any, new: Any, path: str = "") -> Iterator[Change]:
    """What leads from `old` to `new`, leaf by leaf. An unknown value counts as changed."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            yield from _entry(old.get(key), new.get(key), _joined(path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before, after = (side[index] if index < len(side) else None for side in (old, new))
            yield from _entry(before, after, f"{path}[{index}]")
    elif old != new or type(old) is bool is not type(new):
        yield Change(path, "update")


def _entry(old: Any, new: Any, path: str) -> Iterator[Change]:
    if old is None and new is None:
        return
    if old is None:
        yield Change(path, "add")
    elif new is None:
        yield Change(path, "delete")
    else:
        yield from changes(old, new, path)


def _joined(path: str, key: str) -> str:
    """A property path as the engine reads it; keys such as `kueue.x-k8s.io/queue-name` have to be quoted."""
    if not re.fullmatch(r"[\w$-]+", key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def covers(prefix: str, path: str) -> bool:
    """Whether a path is `prefix` or lies below it."""
    return path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


def replaces(group: str, kind: str, path: str) -> bool:
    """Whether a change at `path` replaces an object of that kind."""
    return any(covers(each, path) for each in (*IDENTITY, *FORCE_NEW.get((group, kind), ())))
