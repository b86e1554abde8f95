"""The configured cluster: a client for it, or the reason why it cannot be reached."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from sandbox.kubernetes.api import ApiClient, ApiError
from sandbox.plugins.kubernetes import requests
from sandbox.plugins.kubernetes.kubeconfig import Credentials, KubeconfigError, Target, parse
from sandbox.plugins.kubernetes.settings import DELETE_UNREACHABLE_VARIABLE, forgets_unreachable
from sandbox.plugins.provider import ProviderError

LOCAL_HOSTS = {"127.0.0.1", "::1", "localhost"}
HOW_TO_FORGET = (
    "If the cluster was deleted, you can remove this resource from Pulumi state by rerunning the operation with the "
    f'{DELETE_UNREACHABLE_VARIABLE} environment variable set to "true"'
)


class Cluster:
    """The cluster that the provider's settings name. Connects when first asked, and then remembers the outcome."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._client: ApiClient | None = None
        self._client_token = ""

    @cached_property
    def forgotten(self) -> bool:
        """Whether the cluster cannot be reached, and what was in it counts as deleted."""
        return bool(self.unreachable) and forgets_unreachable(self._settings, os.environ)

    @cached_property
    def _target(self) -> Target:
        settings = self._settings
        target = parse(settings.get("kubeconfig"), settings.get("context", ""), settings.get("cluster", ""))
        if target.server.hostname not in LOCAL_HOSTS:
            raise KubeconfigError(
                f"the sandbox's stand-in talks to API servers on this machine only, not to {target.server.hostname}"
            )
        return target

    @cached_property
    def _credentials(self) -> Credentials:
        return Credentials(self._target)

    @cached_property
    def unreachable(self) -> str:
        """Why the cluster cannot be used; empty when it can."""
        try:
            self._connected().request("GET", "/version")
        except KubeconfigError as error:
            return f"unable to load Kubernetes client configuration from kubeconfig: {error}"
        except ApiError as error:
            return f"unable to load schema information from the API server: {error}"
        except (httpx.HTTPError, OSError) as error:
            server = self._target.cluster["server"]
            return f'unable to load schema information from the API server: Get "{server}/version": {error}'
        return ""

    @property
    def client(self) -> ApiClient:
        """Raises ProviderError where the cluster is unreachable."""
        if self.unreachable:
            raise ProviderError(f"configured Kubernetes cluster is unreachable: {self.unreachable}")
        try:
            return self._connected()
        except KubeconfigError as error:
            raise ProviderError(str(error)) from None

    @property
    def namespace(self) -> str:
        """Where objects without a namespace go."""
        return str(self._settings.get("namespace") or self._target.namespace or "default")

    @contextmanager
    def kubeconfig_file(self) -> Iterator[Path]:
        """A kubeconfig for programs that get nothing of this process' environment: token and CA are in it."""
        with requests.front(self._connected()) as front:
            cluster = {"server": front} if front else {"server": self._target.cluster["server"], **self._authority()}
            with self._kubeconfig(cluster) as path:
                yield path

    @contextmanager
    def _kubeconfig(self, cluster: Mapping[str, str]) -> Iterator[Path]:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "sandbox", "user": {"token": self._credentials.token()}}],
        }
        with tempfile.TemporaryDirectory(prefix="kubeconfig-") as folder:
            path = Path(folder) / "config"
            path.touch(mode=0o600)
            path.write_text(json.dumps(content))
            yield path

    def _authority(self) -> dict[str, str]:
        kept = {k: v for k, v in self._target.cluster.items() if k.startswith("certificate-authority")}
        roots = os.environ.get("SSL_CERT_FILE")
        return kept or ({"certificate-authority": roots} if roots else {})

    def _connected(self) -> ApiClient:
        """The client, made anew when the credential program has given a new token."""
        with self._lock:
            token = self._credentials.token()
            if not self._client or token != self._client_token:
                # No CA means the system's roots, or those of SSL_CERT_FILE, as for every TLS client.
                self._client = ApiClient(
                    self._target.server.netloc, token, self._target.authority, around=requests.sent
                )
                self._client_token = token
            return self._client
