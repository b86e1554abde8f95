"""A thin client of the Kubernetes API: plain objects in, plain objects out, errors with the server's own words."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import httpx

Object = dict[str, Any]

_PATCH_TYPES = {
    "apply": "application/apply-patch+yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class ApiError(Exception):
    """A refusal by the API server: `status` is the HTTP status, `reason` Kubernetes' own (NotFound, Conflict ...)."""

    def __init__(self, status: int, reason: str, message: str, body: Object) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.body = body


class UnknownKindError(ApiError):
    """The server does not serve this kind (yet): its CustomResourceDefinition is missing or not established."""


class ApiClient:
    """Talks to one API server. Thread-safe. Kinds are looked up by discovery, again when a kind is unknown.

    `host` is "address:port", `ca_certificate` a path or the PEM text. `headers` are sent with every request. The
    caller is known by `token`, or by `certificate` and its key, or, with an empty token, not at all. `around` may put
    something between the client and the network.
    Raises ApiError for refusals and httpx.HTTPError when the server cannot be reached.
    """

    def __init__(
        self,
        host: str,
        token: str,
        ca_certificate: Path | str,
        headers: Sequence[tuple[str, str]] = (),
        certificate: tuple[Path, Path] | None = None,
        around: Callable[[httpx.BaseTransport], httpx.BaseTransport] = lambda transport: transport,
    ) -> None:
        self._host, self._token, self._ca = host, token, ca_certificate
        context = (
            ssl.create_default_context(cafile=str(ca_certificate))
            if isinstance(ca_certificate, Path)
            else ssl.create_default_context(cadata=ca_certificate)
        )
        if certificate:
            context.load_cert_chain(*certificate)
        credential = [("Authorization", f"Bearer {token}")] if token else []
        self._http = httpx.Client(
            base_url=f"https://{host}",
            headers=[*credential, *headers],
            transport=around(httpx.HTTPTransport(verify=context, trust_env=False)),
            timeout=60,
            trust_env=False,
        )
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def impersonate(self, user: str, groups: tuple[str, ...], extra: Mapping[str, str]) -> ApiClient:
        """A client that acts as `user`: its RBAC and admission rules apply. `extra` maps claim name to value."""
        headers = [("Impersonate-User", user), *(("Impersonate-Group", each) for each in groups)]
        headers += [(f"Impersonate-Extra-{name.replace('/', '%2F')}", value) for name, value in extra.items()]
        return ApiClient(self._host, self._token, self._ca, headers)

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json", **query: str
    ) -> Object:
        """One call; the decoded JSON answer, or {"text": ...} for other content. Raises ApiError."""
        headers = {"Content-Type": content_type}
        response = self._http.request(method, path, params=query, json=body, headers=headers)
        is_json = "json" in response.headers.get("Content-Type", "")
        answer: Object = response.json() if is_json else {"text": response.text}
        if response.is_success:
            return answer
        message = answer.get("message") or answer.get("text") or response.reason_phrase
        raise ApiError(response.status_code, answer.get("reason", ""), message, answer)

    def stream(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> contextlib.AbstractContextManager[httpx.Response]:
        """A call of somebody else's, handed on as it is; `path` may have a query."""
        return self._http.stream(method, path, content=body, headers=dict(headers))

    def path(self, api_version: str, kind: str, name: str = "", namespace: str = "") -> str:
        """The URL path of an object, or of the collection when `name` is empty. Raises UnknownKindError."""
        plural, namespaced = self._look_up(api_version, kind)
        parts = [_root(api_version)]
        if namespaced and (namespace or name):
            parts += ["namespaces", namespace or "default"]
        return "/".join([*parts, plural, *([name] if name else [])])

    def namespaced(self, api_version: str, kind: str) -> bool:
        """Whether objects of the kind live in namespaces. Raises UnknownKindError."""
        return self._look_up(api_version, kind)[1]

    def _look_up(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._kinds:
            try:
                resources = self.request("GET", _root(api_version))["resources"]
            except ApiError as error:
                if error.status != 404:
                    raise
                resources = []
            for each in resources:
                if "/" not in each["name"]:
                    self._kinds[api_version, each["kind"]] = (each["name"], each["namespaced"])
        try:
            return self._kinds[api_version, kind]
        except KeyError:
            message = f'no matches for kind "{kind}" in version "{api_version}"'
            raise UnknownKindError(404, "NotFound", message, {}) from None

    def _path_of(self, obj: Object) -> str:
        metadata = obj["metadata"]
        return self.path(obj["apiVersion"], obj["kind"], metadata["name"], metadata.get("namespace", ""))

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """The object, or None when it does not exist."""
        try:
            return self.request("GET", self.path(api_version, kind, name, namespace))
        except ApiError as error:
            if error.status == 404 and not isinstance(error, UnknownKindError):
                return None
            raise

    def list_all(self, api_version: str, kind: str, namespace: str = "", **selectors: str) -> list[Object]:
        """All objects of a kind, of all namespaces when `namespace` is empty; labelSelector, fieldSelector narrow."""
        items: list[Object] = self.request("GET", self.path(api_version, kind, "", namespace), **selectors)["items"]
        return [{"apiVersion": api_version, "kind": kind, **each} for each in items]

    def watch(
        self,
        api_version: str,
        kind: str,
        resource_version: str,
        seconds: int,
        selectors: Mapping[str, str] = MappingProxyType({}),
        opened: Callable[[Callable[[], None]], None] = lambda cut: None,
    ) -> Iterator[tuple[str, Object]]:
        """Changes of objects of a kind in all namespaces since `resource_version`, for at most `seconds` (below 60).

        Each is (ADDED, MODIFIED, DELETED or BOOKMARK, the object). `opened` is given what cuts the connection, from any
        thread. Raises ApiError, 410 for a version that is too old; httpx.HTTPError or ValueError when it is cut.
        """
        query = {"watch": "true", "resourceVersion": resource_version, "timeoutSeconds": str(seconds), **selectors}
        query["allowWatchBookmarks"] = "true"
        with self._http.stream("GET", self.path(api_version, kind), params=query) as response:
            if not response.is_success:
                status: Object = json.loads(response.read() or b"{}")
                raise ApiError(response.status_code, status.get("reason", ""), status.get("message", ""), status)
            opened(lambda: _cut(response))
            for line in response.iter_lines():
                event = json.loads(line)
                changed: Object = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(changed["code"], changed.get("reason", ""), changed.get("message", ""), changed)
                yield event["type"], {"apiVersion": api_version, "kind": kind, **changed}

    def apply(
        self, obj: Object, manager: str = "sandbox", *, force: bool = True, dry_run: bool = False, subresource: str = ""
    ) -> Object:
        """Server-side apply with strict field validation; creates or updates. With `dry_run` nothing is stored."""
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": "Strict"}
        return self._patch(self._path_of(obj), "apply", obj, subresource, dry_run, query)

    def create(self, obj: Object, manager: str = "sandbox", *, dry_run: bool = False) -> Object:
        """Creates the object; an existing one is ApiError 409 AlreadyExists."""
        namespace = obj["metadata"].get("namespace", "")
        path = self.path(obj["apiVersion"], obj["kind"], "", namespace)
        if not namespace and self.namespaced(obj["apiVersion"], obj["kind"]):
            path = self.path(obj["apiVersion"], obj["kind"], "", "default")
        query = {"fieldManager": manager, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self.request("POST", path, obj, **query)

    def patch(
        self, obj: Object, change: object, kind: str = "merge", *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Patches the object named by `obj`; `kind` is merge, strategic or json."""
        return self._patch(self._path_of(obj), kind, change, subresource, dry_run, {})

    def _patch(
        self, path: str, kind: str, body: object, subresource: str, dry_run: bool, query: Mapping[str, str]
    ) -> Object:
        path += f"/{subresource}" if subresource else ""
        dry = {"dryRun": "All"} if dry_run else {}
        return self.request("PATCH", path, body, _PATCH_TYPES[kind], **query, **dry)

    def delete(self, obj: Object, propagation: str = "Background", *, grace_seconds: int | None = None) -> bool:
        """Asks for deletion of the object named by `obj`, without waiting; False when it does not exist."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", self._path_of(obj), options)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True


def _cut(response: httpx.Response) -> None:
    """Ends a connection on which another thread waits, which closing it would not do."""
    connection = response.extensions["network_stream"].get_extra_info("socket")
    with contextlib.suppress(OSError):  # the server was faster
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # that of SSLSocket would take away what the thread reads


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def condition(obj: Object, kind: str) -> Object:
    """The status condition of that type; empty when there is none."""
    conditions = obj.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def is_true(obj: Object, kind: str) -> bool:
    """Whether the status condition of that type is True."""
    return bool(condition(obj, kind).get("status") == "True")
