"""Kubeconfigs: which cluster and user a context names, and the bearer token of that user."""

from __future__ import annotations

import base64
import binascii
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
EXEC_SECONDS = 60
# A token is renewed this long before it ends, so that it does not end on the way.
EXPIRY_MARGIN = timedelta(seconds=10)

Section = Mapping[str, Any]


class KubeconfigError(Exception):
    """The kubeconfig, or the credential program that it names, is of no use; the message says why."""


@dataclass(frozen=True)
class Target:
    """What one context of a kubeconfig names. `cluster` and `user` are the kubeconfig's own sections."""

    cluster: Section
    user: Section
    namespace: str

    @property
    def server(self) -> SplitResult:
        return urlsplit(str(self.cluster.get("server", "")))

    @property
    def authority(self) -> str:
        """The cluster's CA certificates as PEM text; empty where the kubeconfig names none."""
        if path := self.cluster.get("certificate-authority"):
            return Path(path).read_text()
        try:
            return base64.b64decode(self.cluster.get("certificate-authority-data", ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(f"certificate-authority-data is no base64 of PEM text: {error}") from None


def parse(kubeconfig: Any, context: str = "", cluster: str = "") -> Target:
    """The target of `context` (else the current one), its cluster replaced by `cluster` where that is given.

    `kubeconfig` is YAML or JSON text, the path of a file with such text, or the content itself. Raises KubeconfigError.
    """
    content = _load(kubeconfig)
    context = context or content.get("current-context", "")
    chosen = _named(content, "context", context)
    cluster = cluster or chosen.get("cluster", "")
    target = Target(
        cluster=_named(content, "cluster", cluster),
        user=_named(content, "user", chosen.get("user", "")),
        namespace=chosen.get("namespace", ""),
    )
    if target.server.scheme != "https" or not target.server.hostname:
        raise KubeconfigError(f"cluster {cluster!r} has no https server, but {target.cluster.get('server')!r}")
    return target


def _load(kubeconfig: Any) -> dict[str, Any]:
    content = kubeconfig
    if isinstance(kubeconfig, str):
        path = Path(kubeconfig).expanduser() if "\n" not in kubeconfig and "{" not in kubeconfig else None
        try:
            content = yaml.load(path.read_text() if path and path.is_file() else kubeconfig, Loader=_LOADER)
        except (yaml.YAMLError, OSError) as error:
            raise KubeconfigError(f"failed to parse kubeconfig: {error}") from None
    if not isinstance(content, dict):
        raise KubeconfigError(f"failed to parse kubeconfig: expected a mapping, found {type(content).__name__}")
    return content


def _named(content: Section, kind: str, name: str) -> Section:
    """The section of that name in the kubeconfig's list of contexts, clusters or users."""
    entries = content.get(f"{kind}s") or []
    found = next((each for each in entries if isinstance(each, dict) and each.get("name") == name), None)
    if found is None:
        names = ", ".join(str(each.get("name")) for each in entries if isinstance(each, dict)) or "none"
        raise KubeconfigError(f"{kind} {name!r} does not exist in the kubeconfig; it has: {names}")
    return found.get(kind) or {}


class Credentials:
    """The bearer token of a target's user. A token from a credential program is kept until it expires."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._token = ""
        self._expires: datetime | None = None

    def token(self) -> str:
        """Raises KubeconfigError where the user has none, or its credential program does not give one."""
        user = self._target.user
        if "token" in user:
            return str(user["token"])
        if "exec" not in user:
            raise KubeconfigError("the sandbox's stand-in knows users with `token` or `exec` only")
        with self._lock:
            if not self._token or (self._expires and datetime.now(UTC) > self._expires - EXPIRY_MARGIN):
                self._token, self._expires = _run(user["exec"], self._target.cluster)
            return self._token


def _run(settings: Section, cluster: Section) -> tuple[str, datetime | None]:
    """Token and expiry from a client-go credential plugin (client.authentication.k8s.io)."""
    command = settings.get("command", "")
    executable = shutil.which(command)
    if not executable:
        hint = settings.get("installHint", "")
        raise KubeconfigError(f"exec: executable {command} not found{f'. {hint}' if hint else ''}")
    environment = {**os.environ, **{each["name"]: each["value"] for each in settings.get("env") or []}}
    environment["KUBERNETES_EXEC_INFO"] = json.dumps(_exec_info(settings, cluster))
    try:
        done = subprocess.run(
            [executable, *(settings.get("args") or [])],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXEC_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KubeconfigError(f"exec: executable {command} failed: {error}") from None
    if done.returncode:
        raise KubeconfigError(
            f"exec: executable {command} failed with exit code {done.returncode}: {done.stderr.strip()}"
        )
    return _parse_credential(command, done.stdout)


def _exec_info(settings: Section, cluster: Section) -> dict[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if settings.get("provideClusterInfo"):
        spec["cluster"] = dict(cluster)
    return {"apiVersion": settings.get("apiVersion", ""), "kind": "ExecCredential", "spec": spec}


def _parse_credential(command: str, text: str) -> tuple[str, datetime | None]:
    try:
        status = json.loads(text)["status"]
        expires = status.get("expirationTimestamp")
        return status["token"], datetime.fromisoformat(expires) if expires else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KubeconfigError(f"exec: {command} printed no ExecCredential with a token: {error!r}") from None
