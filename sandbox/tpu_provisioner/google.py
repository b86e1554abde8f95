"""What the controller calls at Google: the metadata server, and node pools and operations of the container API."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any

import httpx

from sandbox.tpu_provisioner.settings import Settings

Json = dict[str, Any]

API = "https://container.googleapis.com/v1beta1"
POLL_SECONDS = 5.0  # between two looks at an operation
OPERATION_SECONDS = 30 * 60.0
_EARLY_SECONDS = 10.0  # a token is taken for expired so long before it is


class CallError(Exception):
    """A call failed; `status` is the answer's, 0 where there was none."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Metadata:
    """The metadata server that GCE_METADATA_HOST names. Thread-safe."""

    def __init__(self, host: str) -> None:
        self._http = httpx.Client(
            base_url=f"http://{host}/computeMetadata/v1/", headers={"Metadata-Flavor": "Google"}, trust_env=False
        )
        self._lock = threading.Lock()
        self._token, self._expires = "", 0.0

    @classmethod
    def found(cls) -> Metadata:
        return cls(os.environ.get("GCE_METADATA_HOST", "169.254.169.254"))

    def get(self, path: str) -> str:
        """The value at a path. Raises CallError."""
        try:
            answer = self._http.get(path)
        except httpx.HTTPError as error:
            raise CallError(0, f"metadata server: {error}") from None
        if not answer.is_success:
            raise CallError(answer.status_code, f"metadata server: {path}: {answer.status_code} {answer.text}")
        return answer.text

    def token(self) -> str:
        """An access token of the default account, kept until it expires. Raises CallError."""
        with self._lock:
            if time.monotonic() >= self._expires:
                answer = json.loads(self.get("instance/service-accounts/default/token"))
                self._token = answer["access_token"]
                self._expires = time.monotonic() + answer["expires_in"] - _EARLY_SECONDS
            return self._token


class ContainerApi:
    """Node pools of one cluster. Thread-safe. Every method raises CallError."""

    def __init__(self, settings: Settings, metadata: Metadata) -> None:
        self._settings = settings
        self._metadata = metadata
        self._http = httpx.Client(timeout=60)  # of the environment: HTTPS_PROXY, SSL_CERT_FILE

    def get(self, name: str) -> Json:
        return self._call("GET", f"{self._settings.parent}/nodePools/{name}")

    def list_pools(self) -> list[Json]:
        found: list[Json] = self._call("GET", f"{self._settings.parent}/nodePools").get("nodePools", [])
        return found

    def create(self, request: Json) -> Json:
        """Asks for a pool; the operation."""
        return self._call("POST", f"{self._settings.parent}/nodePools", request)

    def delete(self, name: str) -> Json:
        """Asks for the end of a pool; the operation."""
        return self._call("DELETE", f"{self._settings.parent}/nodePools/{name}")

    def wait(self, operation: Json) -> None:
        """Returns when the operation is DONE, whatever came of it: upstream does not look at its error."""
        path = f"projects/{self._settings.project}/locations/{self._settings.location}/operations/{operation['name']}"
        deadline = time.monotonic() + OPERATION_SECONDS
        while time.monotonic() < deadline:
            try:
                if self._call("GET", path)["status"] == "DONE":
                    return
            except CallError as error:
                raise CallError(error.status, f"waiting for operation: {error}") from None
            time.sleep(POLL_SECONDS)
        raise CallError(
            0, f"timeout while waiting for operation {operation['name']} on {operation.get('targetLink')} to complete"
        )

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        headers = {"Authorization": f"Bearer {self._metadata.token()}"}
        try:
            answer = self._http.request(method, f"{API}/{path}", params={"alt": "json"}, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise CallError(0, f"{method} {API}/{path}: {error}") from None
        if answer.is_success:
            found: Json = answer.json()
            return found
        try:
            message = answer.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            message = answer.text
        raise CallError(answer.status_code, f"googleapi: Error {answer.status_code}: {message}")
