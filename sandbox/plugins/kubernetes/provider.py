"""The provider: configuration, and each call handed to what handles objects or Helm releases.

It fails where upstream does: an object that is not there is deleted, a release that is not there is not; a cluster that
cannot be reached is an error, unless objects in it are to be forgotten (`deleteUnreachable`). Only a refresh forgets a
release (pulumi/pulumi-kubernetes#2675). What upstream says in a warning beside these errors, here ends the error.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import httpx

from sandbox.kubernetes.api import ApiError
from sandbox.plugins.kubernetes import settings
from sandbox.plugins.kubernetes.cluster import HOW_TO_FORGET, Cluster
from sandbox.plugins.kubernetes.objects import Objects
from sandbox.plugins.kubernetes.releases import RELEASE, Releases
from sandbox.plugins.provider import Checked, Difference, ProviderError, State, Subject

P = ParamSpec("P")
T = TypeVar("T")


def _reported(method: Callable[P, T]) -> Callable[P, T]:
    """What the API server refuses, and a connection that breaks, are for the person who runs Pulumi."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except ApiError as error:
            raise ProviderError(error.message) from error
        except httpx.HTTPError as error:
            raise ProviderError(f"the connection to the Kubernetes API server failed: {error!r}") from error

    return call


class KubernetesProvider:
    """Implements `sandbox.plugins.provider.Provider`."""

    name = "kubernetes"
    version = importlib.metadata.version("pulumi-kubernetes")

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._cluster: Cluster
        self._objects: Objects
        self._releases: Releases

    def check_config(self, news: dict[str, Any]) -> Checked:
        return settings.check(news)

    def diff_config(self, olds: dict[str, Any], news: dict[str, Any]) -> Difference:
        return settings.diff(olds, news)

    def configure(self, inputs: dict[str, Any]) -> None:
        """Never called while the kubeconfig is unknown: the engine then answers for the plugin."""
        self._cluster = Cluster(inputs)
        self._objects = Objects(self._cluster, self._cancelled)
        self._releases = Releases(self._cluster)

    @_reported
    def check(self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], seed: bytes) -> Checked:
        return self._handler(subject).check(subject, olds, news, seed)

    @_reported
    def diff(self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str]) -> Difference:
        return self._handler(subject).diff(olds, news, ignore)

    @_reported
    def create(self, subject: Subject, news: dict[str, Any], timeout: float, preview: bool) -> State:
        return self._handler(subject).create(news, timeout, preview)

    @_reported
    def read(self, subject: Subject, identity: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> State:
        """Without a cluster objects and releases are alike: an error, or taken for deleted where that is wanted."""
        if self._cluster.forgotten:
            return State("", {}, {})
        if self._cluster.unreachable:
            reason = self._cluster.unreachable
            raise ProviderError(
                f"failed to read resource state due to unreachable cluster. {HOW_TO_FORGET}. Reason: {reason}"
            )
        return self._handler(subject).read(subject, identity, inputs, outputs)

    @_reported
    def update(
        self,
        subject: Subject,
        identity: str,
        olds: dict[str, Any],
        news: dict[str, Any],
        ignore: Sequence[str],
        timeout: float,
        preview: bool,
    ) -> Mapping[str, Any]:
        return self._handler(subject).update(olds, news, ignore, timeout, preview)

    @_reported
    def delete(self, subject: Subject, identity: str, outputs: dict[str, Any], timeout: float) -> None:
        self._handler(subject).delete(identity, outputs, timeout)

    def invoke(self, token: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        raise ProviderError(f"{token}: the sandbox's stand-in has no functions")

    def cancel(self) -> None:
        self._cancelled.set()
        if hasattr(self, "_releases"):
            self._releases.cancel()

    def _handler(self, subject: Subject) -> Objects | Releases:
        return self._releases if subject.type == RELEASE else self._objects
