"""`kubernetes:helm.sh/v3:Release`: real helm, upstream's inputs, outputs and words.

Upstream: `provider/pkg/provider/helm_release.go`. Charts are pulled as upstream pulls them. The controllers that a
chart deploys are run by whoever runs the control plane, which sees their pods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox.kubernetes import registry
from sandbox.kubernetes.releases import (
    DEFAULT_TIMEOUT,
    Helm,
    Release,
    ReleaseError,
    ReleaseFailedError,
    ReleaseSpec,
    chart_version,
)
from sandbox.plugins.kubernetes import differences
from sandbox.plugins.kubernetes.checkpoint import INPUTS, inputs_of
from sandbox.plugins.kubernetes.cluster import Cluster
from sandbox.plugins.kubernetes.metadata import made_name
from sandbox.plugins.provider import (
    Checked,
    Difference,
    Failure,
    InitializationFailed,
    ProviderError,
    State,
    Subject,
)
from sandbox.plugins.values import UNKNOWN, Secret, has_unknown
from sandbox.toolchain import ToolchainError

RELEASE = "kubernetes:helm.sh/v3:Release"
# Inputs and the field of ReleaseSpec that they set.
FIELDS = {
    "name": "name",
    "namespace": "namespace",
    "chart": "chart",
    "version": "version",
    "values": "values",
    "createNamespace": "create_namespace",
    "timeout": "timeout",
    "atomic": "atomic",
    "skipCrds": "skip_crds",
    "maxHistory": "max_history",
    "resetValues": "reset_values",
}
OTHERS = {"skipAwait", "postrender"}
# The SDK's mark of its own generation; says nothing about the release.
INTERNAL = {"compat"}
KNOWN = {*FIELDS, *OTHERS, *INTERNAL}
REPLACING = {"name", "namespace"}


class PostRenderingHelm(Helm):
    """helm that hands what a chart renders to an executable, as it does for `--post-renderer`.

    `registry`: the variables that lead to the registry with the charts; those of this process if unset.
    """

    def __init__(self, kubeconfig: Path, post_renderer: str, registry: Mapping[str, str] | None = None) -> None:
        super().__init__(kubeconfig, _registry() if registry is None else registry)
        self._post_renderer = post_renderer

    def _run(self, arguments: list[str]) -> str:
        renders = bool(self._post_renderer) and arguments[0] in ("install", "upgrade")
        return super()._run([*arguments, "--post-renderer", self._post_renderer] if renders else arguments)


class Releases:
    """Handles Helm releases. Methods are those of `sandbox.plugins.provider.Provider`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], seed: bytes) -> Checked:
        """Completes the inputs and finds the chart, so that a bad name or version fails the preview."""
        inputs = {k: v for k, v in news.items() if v is not None}
        inputs.setdefault("name", olds.get("name") or made_name(subject.name, seed))
        inputs.setdefault("namespace", self._namespace())
        if not inputs.get("skipAwait"):
            inputs.setdefault("timeout", DEFAULT_TIMEOUT)
        failures = [
            Failure(key, f"the sandbox's stand-in does not know this input; it knows {', '.join(sorted(KNOWN))}")
            for key in sorted(inputs.keys() - KNOWN)
        ]
        chart, version = inputs.get("chart"), inputs.get("version", "")
        if not has_unknown([chart, version]):
            try:
                inputs["version"] = chart_version(str(chart), str(version), _registry())
            except ReleaseError as error:
                failures.append(Failure("chart", f"{error}; check the chart name and repository configuration."))
        return Checked(inputs, failures)

    def diff(self, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str]) -> Difference:
        """By inputs; name and namespace replace."""
        changes = [
            replace(change, replace=change.path in REPLACING)
            for change in differences.changes(inputs_of(olds), news)
            if not any(differences.covers(path, change.path) for path in ignore)
        ]
        return Difference(changes)

    def create(self, news: dict[str, Any], timeout: float, preview: bool) -> State:
        if preview:
            return State("", _planned(news), news)
        with self._helm("create", news) as helm:
            release = _deployed(helm.install, news, "created")
        return State(_identity(news), _outputs(news, release), news)

    def read(self, subject: Subject, identity: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> State:
        """Reads the release's record, not the objects that it made, as upstream."""
        namespace, _, name = identity.rpartition("/")
        with self._helm("read", inputs) as helm:
            release = helm.get(name, namespace)
        if release is None:
            return State("", {}, {})
        known = inputs or _importable(release)
        return State(identity, _outputs(known, release), known)

    def update(
        self, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str], timeout: float, preview: bool
    ) -> Mapping[str, Any]:
        if preview:
            return _planned(news)
        with self._helm("update", news) as helm:
            return _outputs(news, _deployed(helm.upgrade, news, "updated"))

    def delete(self, identity: str, outputs: dict[str, Any], timeout: float) -> None:
        """A release that is not there is an error, upstream as here."""
        namespace, _, name = identity.rpartition("/")
        with self._helm("delete", outputs) as helm:
            helm.uninstall(
                name,
                namespace,
                wait=not outputs.get("skipAwait"),
                timeout=int(outputs.get("timeout") or DEFAULT_TIMEOUT),
            )

    def cancel(self) -> None:
        """Asks helm to end; it marks the release as failed on its way out."""
        import psutil  # costs start-up time that only a cancelled update has to pay

        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                if child.name() == "helm":
                    child.terminate()

    def _namespace(self) -> str:
        return "default" if self._cluster.unreachable else self._cluster.namespace

    @contextmanager
    def _helm(self, action: str, inputs: Mapping[str, Any]) -> Iterator[Helm]:
        """helm against the cluster; what it refuses is for the person who runs Pulumi."""
        if self._cluster.unreachable:
            raise ProviderError(_without_cluster(action, self._cluster.unreachable))
        with self._cluster.kubeconfig_file() as kubeconfig:
            try:
                yield PostRenderingHelm(kubeconfig, inputs.get("postrender") or "")
            except (ReleaseError, ToolchainError) as error:
                raise ProviderError(str(error) or f"helm was ended before it could {action} the release") from error


def _registry() -> dict[str, str]:
    """What this process was given to find the registry of the charts."""
    return {name: os.environ[name] for name in registry.VARIABLES if name in os.environ}


def _without_cluster(action: str, reason: str) -> str:
    said = f". Reason: {json.dumps(reason)}" if action == "delete" else f": {reason}"
    return f"can't {action} Helm Release with unreachable cluster{said}"


def _spec(inputs: Mapping[str, Any]) -> ReleaseSpec:
    given = {field: inputs[key] for key, field in FIELDS.items() if key in inputs}
    return ReleaseSpec(**{"values": {}, **given, "wait": not inputs.get("skipAwait")})


def _deployed(action: Callable[[ReleaseSpec], Release], inputs: Mapping[str, Any], done: str) -> Release:
    """The release after an install or upgrade. Raises InitializationFailed when it exists but is not ready."""
    try:
        return action(_spec(inputs))
    except ReleaseFailedError as error:
        name = _identity(inputs)
        reason = (
            f'Helm release "{name}" was {done}, but failed to initialize completely. Use Helm CLI to investigate: '
            f"failed to become available within allocated timeout. Error: Helm Release {name}: {error}"
        )
        raise InitializationFailed(name, _outputs(inputs, error.release), reason) from error


def _identity(inputs: Mapping[str, Any]) -> str:
    return f"{inputs['namespace']}/{inputs['name']}"


def _planned(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**inputs, "status": UNKNOWN, "resourceNames": UNKNOWN}


def _outputs(inputs: Mapping[str, Any], release: Release) -> dict[str, Any]:
    shown = {**inputs, "status": release.status, "resourceNames": release.resource_names}
    return {**shown, "version": release.status["version"], INPUTS: Secret(inputs)}


def _importable(release: Release) -> dict[str, Any]:
    status = release.status
    chart = next((address for address in registry.SOURCES if address.endswith(f"/{status['chart']}")), status["chart"])
    return {
        "name": status["name"],
        "namespace": status["namespace"],
        "chart": chart,
        "version": status["version"],
        "values": release.values,
        "timeout": DEFAULT_TIMEOUT,
    }
