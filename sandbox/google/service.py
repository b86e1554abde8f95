"""What every API of the emulator is built from: a call, the handlers, and operations in each API's own shape."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox.google.discovery import Route
from sandbox.google.operations import Operation, timestamp
from sandbox.google.store import Resource, Store

if TYPE_CHECKING:
    from sandbox.google.world import World

COMPUTE = "https://www.googleapis.com/compute/v1/"
BUCKET_OWNERS = "storage.bucketOwners"  # store kind: bucket -> its project
CONTAINER = "https://container.googleapis.com/v1beta1/"


@dataclass(frozen=True)
class Media:
    """Content that travels as it is, with its media type: of an upload, or as an answer."""

    content: bytes
    type: str


@dataclass(frozen=True)
class Call:
    """One request that has a route and a body its schema accepts.

    `parameters` are those of the query, in order. `caller` is whose token the request carries, in the form of
    `sandbox.google.callers`. `media` is what an upload brings in place of a body.
    """

    world: World
    route: Route
    body: Resource
    parameters: Sequence[tuple[str, str]]
    caller: str = ""
    media: Media | None = None

    @property
    def query(self) -> Mapping[str, str]:
        """The last value of each query parameter."""
        return dict(self.parameters)

    def values(self, name: str) -> list[str]:
        """All values of a repeated query parameter."""
        return [value for key, value in self.parameters if key == name]

    @property
    def store(self) -> Store:
        return self.world.store

    @property
    def method(self) -> str:
        return self.route.method.id

    @property
    def params(self) -> Mapping[str, str]:
        return self.route.params

    @property
    def project(self) -> str:
        """The project id: the first path parameter of most methods; buckets know theirs, no project is in their URL."""
        if self.route.document.api == "storage":
            owner = self.store.get(BUCKET_OWNERS, self.params.get("bucket", "")) or {}
            return str(owner.get("project") or self.query.get("project", "-"))
        first, *rest = self.params.values()
        return rest[0] if first == "projects" else first


Handler = Callable[[Call], "Resource | Operation | Media"]
SomeHandler = TypeVar("SomeHandler", bound=Callable[[Call], Any])
HANDLERS: dict[str, Handler] = {}
UNLOCKED: set[str] = set()  # methods that wait for others and must not hold the store meanwhile


def handles(*methods: str, locked: bool = True) -> Callable[[SomeHandler], SomeHandler]:
    """Registers a handler for discovery method ids such as "compute.networks.insert"."""

    def register(handler: SomeHandler) -> SomeHandler:
        for method in methods:
            HANDLERS[method] = handler
        if not locked:
            UNLOCKED.update(methods)
        return handler

    return register


def new_id() -> str:
    """A 19-digit resource number, as a string because JSON cannot carry it; it fits a signed 64-bit integer."""
    return str(10**18 + uuid.uuid4().int % (2**63 - 10**18))


def fingerprint(value: object) -> str:
    """A short base64 token that changes with the value."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


def dig(value: Any, *path: str) -> Any:
    """The value at a path of dictionary keys, or None where the path ends early."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def filled(value: Resource, defaults: Mapping[str, Any]) -> Resource:
    """`value` with absent fields taken from `defaults`, level by level."""
    result = dict(value)
    for key, default in defaults.items():
        if key not in result:
            result[key] = default
        elif isinstance(default, dict) and isinstance(result[key], dict):
            result[key] = filled(result[key], default)
    return result


def short(reference: str) -> str:
    return reference.rsplit("/", 1)[-1]


def render(operation: Operation) -> Resource:
    """An operation as its own API shows it."""
    shapes = {"compute": _compute_operation, "container": _container_operation}
    return shapes.get(operation.api, _rpc_operation)(operation)


def compute_scope(location: str) -> str:
    """The path segment(s) of a compute location: "global", "regions/R" or "zones/Z"."""
    if location == "global":
        return location
    return f"zones/{location}" if location.count("-") > 1 else f"regions/{location}"


def _compute_operation(operation: Operation) -> Resource:
    scope = compute_scope(operation.location)
    base = f"{COMPUTE}projects/{operation.project}/{scope}"
    shown: Resource = {
        "kind": "compute#operation",
        "id": str(int(hashlib.sha256(operation.name.encode()).hexdigest()[:15], 16)),
        "name": operation.name,
        "operationType": operation.kind,
        "status": operation.status,
        "progress": operation.progress,
        "user": "sandbox@example.com",
        "targetLink": COMPUTE + operation.target,
        "targetId": operation.target_id,
        "insertTime": timestamp(operation.started),
        "startTime": timestamp(operation.started),
        "selfLink": f"{base}/operations/{operation.name}",
    }
    if operation.location != "global":
        shown["zone" if scope.startswith("zones/") else "region"] = base
    if operation.done:
        shown["endTime"] = timestamp(operation.ended)
    if operation.done and operation.error:
        code = operation.error.get("reason", "INTERNAL_ERROR")
        shown["error"] = {"errors": [{"code": code, "message": operation.error["message"]}]}
        shown |= {"httpErrorStatusCode": 400, "httpErrorMessage": "BAD REQUEST"}
    return shown


def _container_operation(operation: Operation) -> Resource:
    base = f"{CONTAINER}projects/{operation.project}/locations/{operation.location}"
    shown: Resource = {
        "name": operation.name,
        "zone": operation.location,
        "location": operation.location,
        "operationType": operation.kind,
        "status": operation.status,
        "startTime": timestamp(operation.started),
        "targetLink": CONTAINER + operation.target,
        "selfLink": f"{base}/operations/{operation.name}",
    }
    if operation.done:
        shown["endTime"] = timestamp(operation.ended)
    if operation.done and operation.error:
        shown["error"] = {"code": operation.error["code"], "message": operation.error["message"]}
        shown["statusMessage"] = operation.error["message"]
    return shown


def _operation_name(operation: Operation) -> str:
    """Artifact Registry has operations below a location, the pools of IAM below what changes, others by themselves."""
    parent = {
        "artifactregistry": f"projects/{operation.project}/locations/{operation.location}/",
        "iam": f"{operation.target}/",
    }
    return f"{parent.get(operation.api, '')}operations/{operation.name}"


def _rpc_operation(operation: Operation) -> Resource:
    shown: Resource = {"name": _operation_name(operation), "done": operation.done}
    if operation.done and operation.error:
        shown["error"] = {"code": operation.error["code"], "message": operation.error["message"]}
    elif operation.done:
        shown["response"] = operation.response or {"@type": "type.googleapis.com/google.protobuf.Empty"}
    return shown
