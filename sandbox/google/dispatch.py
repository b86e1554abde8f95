"""From a routed request to its answer: body check, permissions, the handler, and what the handler sets going."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Imported for their handlers.
from sandbox.google import (
    artifact_registry,
    budgets,
    container,
    federation,
    iam,
    instance_groups,
    instances,
    load_balancing,
    log_settings,
    monitoring,
    networking,
    places,
    projects,
    reservations,
    secrets_and_keys,
    storage,
    time_series,
)
from sandbox.google.discovery import Route, checked_body, find_route, in_camel_case, unknown_query
from sandbox.google.errors import GoogleError, violations
from sandbox.google.faults import OPERATION_ERRORS, Fault
from sandbox.google.operations import Operation
from sandbox.google.permissions import check, test_permissions
from sandbox.google.policies import stale
from sandbox.google.service import HANDLERS, UNLOCKED, Call, Media, render
from sandbox.google.world import World

HANDLER_MODULES = (
    artifact_registry,
    budgets,
    container,
    federation,
    iam,
    instance_groups,
    instances,
    load_balancing,
    log_settings,
    monitoring,
    networking,
    places,
    projects,
    reservations,
    secrets_and_keys,
    storage,
    time_series,
)


LONG = ("kill", "slow-operation")
"""Kinds of faults that say how long an operation takes."""


def routed(http_method: str, path: str) -> Route:
    """What a raw (still percent-encoded) URL path addresses. Raises 404 for what no API has."""
    route = find_route(http_method, path)
    if route is None:
        raise GoogleError("NOT_FOUND", f"The requested URL {path} was not found on this server.")
    return route


def handle(
    world: World,
    route: Route,
    body: Any,
    query: Sequence[tuple[str, str]],
    caller: str = "",
    fault: Fault | None = None,
    media: Media | None = None,
) -> Any:
    """What the API answers to a request, as JSON or Media. Raises GoogleError for a refusal.

    `caller` is who calls, in the form of `sandbox.google.callers`; `fault` is one that strikes the request; `media` is
    what an upload brings.
    """
    query = [(in_camel_case(name), value) for name, value in query]
    unknown = unknown_query(route.method, [name for name, _ in query])
    if unknown:
        raise violations(unknown)
    call = Call(world, route, checked_body(route.document, route.method, body, route.params), query, caller, media)
    return _handled(call, fault)


def _handled(call: Call, fault: Fault | None) -> Any:
    """Runs the handler, and what it started, to the point where Google would answer."""
    method = call.method
    if method.endswith(".testIamPermissions"):
        return test_permissions(call)
    handler = HANDLERS.get(method)
    if handler is None:
        raise GoogleError("UNIMPLEMENTED", f"Method {method} is not part of this emulator.")
    if method in UNLOCKED:
        check(call)
        return handler(call)
    with call.store.lock:
        _require_service(call)
        check(call)
        if fault and fault.kind == "etag":
            raise stale(str((call.body.get("policy") or call.body).get("etag", "")), "changed")
        result = handler(call)
        if not isinstance(result, Operation):
            if fault and fault.kind in ("operation", "slow-operation"):
                call.world.faults.take_back(fault)
            return result
        if fault and fault.kind == "operation":
            code, message = OPERATION_ERRORS[fault.code]
            result.error = {"code": code, "message": message, "reason": fault.code}
        call.world.operations.register(result, fault.seconds if fault and fault.kind in LONG else None)
    call.world.operations.launch(result)
    return render(call.world.operations.get(result.name) or result)


def _require_service(call: Call) -> None:
    """403 unless the API is on in the project that the call is about.

    A call about a billing account needs it in the caller's own project. Which that is, the emulator does not know, so
    any project will do that has switched it on.
    """
    api = call.route.document.api
    switched = call.store.all("serviceusage.services") if "billingAccountsId" in call.params else ()
    own = list(dict.fromkeys(name.partition("/")[0] for name in switched))
    if not any(f"{api}.googleapis.com" in call.world.enabled_services(project) for project in own):
        call.world.require_service(own[0] if own else call.project, api)
