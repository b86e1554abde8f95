"""Helm releases of the charts that a program uses, installed by a real helm.

Charts are pulled by the addresses that the program pins; in a sandbox they come from its own registry (registry.py).
What is rendered reaches the cluster untouched. Whoever hosts the cluster runs the controllers (controllers.py), so
waiting for a release is waiting for the real programs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.supervisor import COLLECTION

DEFAULT_TIMEOUT = 300  # seconds, helm's and the real provider's
# Refusals before helm has written a record of its own: what is there is another's, or an earlier one's.
NOTHING_MADE = ("cannot re-use a name", "another operation (install/upgrade/rollback) is in progress")


class ReleaseError(Exception):
    """helm refused or failed; the message is helm's own."""


class ReleaseFailedError(ReleaseError):
    """The release exists but did not become ready, or helm was stopped meanwhile; `release` is what there is."""

    def __init__(self, message: str, release: Release) -> None:
        super().__init__(message)
        self.release = release


@dataclass(frozen=True)
class ReleaseSpec:
    """What to install: the inputs of the real provider's Release that the sandbox knows.

    `version` "" means the newest. `max_history` 0 keeps every revision.
    """

    name: str
    namespace: str
    chart: str
    version: str
    values: Mapping[str, Any]
    create_namespace: bool = False
    timeout: int = DEFAULT_TIMEOUT
    wait: bool = True
    atomic: bool = False
    skip_crds: bool = False
    max_history: int = 0
    reset_values: bool = False


@dataclass(frozen=True)
class Release:
    """An installed release. `status` and `resource_names` have the shapes of the real provider's outputs.

    `status`: appVersion, chart, name, namespace, revision, status, version. `resource_names`: "Kind.group/version" to
    "namespace/name" of every rendered object. `values` are the values given, `manifest` the rendered YAML.
    """

    status: dict[str, Any]
    resource_names: dict[str, list[str]]
    values: dict[str, Any]
    manifest: str


def chart_version(chart: str, version: str, registry: Mapping[str, str]) -> str:
    """Pulls the chart and returns its version; `version` "" means the newest. `registry` as for `Helm`.

    Raises ReleaseError for a chart or version that is not there.
    """
    metadata: dict[str, Any] = yaml.safe_load(_helm(["show", "chart", *_chart_arguments(chart, version)], registry))
    return str(metadata["version"])


def _chart_arguments(chart: str, version: str) -> list[str]:
    return [chart, *(["--version", version] if version else [])]


class Helm:
    """helm against one cluster. `kubeconfig` is its only way in; nothing of the user's own helm setup is used.

    `registry` are the variables that lead to the registry with the charts (`registry.VARIABLES`); without them helm
    asks the network.
    """

    def __init__(self, kubeconfig: Path, registry: Mapping[str, str] = MappingProxyType({})) -> None:
        self._kubeconfig = kubeconfig
        self._registry = registry

    def install(self, spec: ReleaseSpec) -> Release:
        """Installs a new release. Raises ReleaseError, or ReleaseFailedError when it exists but is not ready."""
        return self._deploy("install", spec, ["--create-namespace"] if spec.create_namespace else [])

    def upgrade(self, spec: ReleaseSpec) -> Release:
        """Upgrades an existing release; raises as `install`."""
        history = ["--history-max", str(spec.max_history)]
        return self._deploy("upgrade", spec, [*history, *(["--reset-values"] if spec.reset_values else [])])

    def uninstall(self, name: str, namespace: str, *, wait: bool = True, timeout: int = DEFAULT_TIMEOUT) -> None:
        """Removes a release. Raises ReleaseError also where there is none, as helm does unless it is asked not to."""
        waiting = ["--wait", "--timeout", f"{timeout}s"] if wait else []
        self._run(["uninstall", name, "--namespace", namespace, *waiting])

    def get(self, name: str, namespace: str) -> Release | None:
        """The release as recorded in the cluster, whatever its status; None when there is none."""
        try:
            info = json.loads(self._run(["status", name, "--namespace", namespace, "-o", "json"]))
        except ReleaseError as error:
            if "release: not found" in str(error):
                return None
            raise
        listed = json.loads(self._run(["list", "-a", "--namespace", namespace, "--filter", f"^{name}$", "-o", "json"]))
        return _release(info, *_chart_of(listed[0]))

    def render(self, spec: ReleaseSpec) -> list[Object]:
        """The objects the chart renders with these values, without a cluster. Raises ReleaseError."""
        with _values_file(spec.values) as values:
            where = [spec.name, *_chart_arguments(spec.chart, spec.version), "--namespace", spec.namespace]
            text = self._run(["template", *where, "-f", values.name])
        return [each for each in yaml.load_all(text, Loader=_LOADER) if each]

    def _deploy(self, action: str, spec: ReleaseSpec, options: list[str]) -> Release:
        if spec.wait or spec.atomic:
            options += ["--wait", "--timeout", f"{spec.timeout}s"]
        options += ["--atomic"] if spec.atomic else []
        options += ["--skip-crds"] if spec.skip_crds else []
        with _values_file(spec.values) as values:
            where = [spec.name, *_chart_arguments(spec.chart, spec.version), "--namespace", spec.namespace]
            try:
                info = json.loads(self._run([action, *where, "-f", values.name, *options, "-o", "json"]))
            except ReleaseError as error:
                if existing := self._left_behind(spec, error):
                    raise ReleaseFailedError(str(error), existing) from error
                raise
        metadata = info["chart"]["metadata"]
        return _release(info, metadata["name"], metadata["version"], metadata.get("appVersion", ""))

    def _left_behind(self, spec: ReleaseSpec, error: ReleaseError) -> Release | None:
        """What an install or upgrade that failed has left: not ready in time, told to stop, or stopped in the middle by
        the API server (upstream: `helmCreate`, which keeps a release that helm has recorded, whatever the error)."""
        if any(reason in str(error) for reason in NOTHING_MADE):
            return None
        with suppress(ReleaseError):  # it cannot be told: the first error counts
            found = self.get(spec.name, spec.namespace)
            return found if found and found.status["status"] != "deployed" else None
        return None

    def _run(self, arguments: list[str]) -> str:
        return _helm(arguments, {"KUBECONFIG": str(self._kubeconfig), **self._registry})


def _helm(arguments: list[str], variables: Mapping[str, str]) -> str:
    with tempfile.TemporaryDirectory(prefix="helm-") as home:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),  # a kubeconfig may name a credential program
            "HOME": home,
            "HELM_CACHE_HOME": f"{home}/cache",
            "HELM_CONFIG_HOME": f"{home}/config",
            "HELM_DATA_HOME": f"{home}/data",
            "GOGC": COLLECTION,
            **variables,
        }
        result = subprocess.run(
            [str(assets.program("helm")), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    if result.returncode:
        raise ReleaseError(_PULLED.sub("", result.stderr).strip().removeprefix("Error: "))
    return result.stdout


# What helm says on stderr of every chart that it has pulled.
_PULLED = re.compile(r"^(Pulled|Digest): .*\n", re.MULTILINE)
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _values_file(values: Mapping[str, Any]) -> tempfile._TemporaryFileWrapper[str]:
    file = tempfile.NamedTemporaryFile("w", prefix="values-", suffix=".json")  # noqa: SIM115 - the caller closes it
    json.dump(values, file)
    file.flush()
    return file


def _chart_of(listed: Mapping[str, str]) -> tuple[str, str, str]:
    """("kueue", "0.19.2", "v0.19.2") from helm's "kueue-0.19.2" and its app version."""
    name, _, version = listed["chart"].rpartition("-")
    return name, version, listed["app_version"]


def _release(info: Mapping[str, Any], chart: str, version: str, app_version: str) -> Release:
    status = {
        "appVersion": app_version,
        "chart": chart,
        "name": info["name"],
        "namespace": info["namespace"],
        "revision": info["version"],
        "status": info["info"]["status"],
        "version": version,
    }
    return Release(status, _resource_names(info["manifest"]), info.get("config") or {}, info["manifest"])


def _resource_names(manifest: str) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for each in yaml.load_all(manifest, Loader=_LOADER):
        if each:
            group, _, _ = each["apiVersion"].rpartition("/")
            kind = f"{each['kind']}.{group}" if group else each["kind"]
            metadata = each["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]
            names.setdefault(f"{kind}/{each['apiVersion']}", []).append(name)
    return names
