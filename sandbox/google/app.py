"""The emulator's HTTP face: Google's APIs by way of the discovery documents, and `/sandbox/...` to steer it."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from urllib.parse import parse_qsl

import psutil
from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from sandbox.google import container, interruptions, machines
from sandbox.google.callers import caller_of
from sandbox.google.compute_types import self_link
from sandbox.google.discovery import in_camel_case
from sandbox.google.dispatch import handle, routed
from sandbox.google.errors import GoogleError, invalid
from sandbox.google.faults import Fault
from sandbox.google.group_members import unsettled
from sandbox.google.inventory import inventory
from sandbox.google.monitoring import CHANNELS
from sandbox.google.operations import now
from sandbox.google.permissions import grant
from sandbox.google.service import Media, new_id
from sandbox.google.store import Change
from sandbox.google.world import SEEDED, World, stock_name
from sandbox.plugins.steps import KILL_HEADER, STEP_HEADER

log = logging.getLogger(__name__)
# Before the paths of Cloud Storage, where content travels instead of JSON.
UPLOAD, DOWNLOAD = "/upload", "/download"
FORM = "application/x-www-form-urlencoded"
HTTP_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


class ConnectionCut(Response):
    """Breaks the connection in the middle of the answer, as a failing network would."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        raise ConnectionAbortedError("connection cut by a fault")


def _answer(error: GoogleError) -> JSONResponse:
    return JSONResponse(error.body(), error.code, error.headers)


def _response(answer: Any) -> Response:
    return Response(answer.content, media_type=answer.type) if isinstance(answer, Media) else JSONResponse(answer)


def _parsed(raw: bytes, kind: str) -> Any:
    """A body as JSON. The token service also takes a form, whose fields have underscores."""
    if not raw:
        return {}
    if kind == FORM:
        return {in_camel_case(name): value for name, value in parse_qsl(raw.decode(errors="replace"))}
    try:
        return json.loads(raw)
    except ValueError as problem:
        raise invalid(f"Invalid JSON payload received. {problem}", reason="parseError") from problem


def _serve(world: World, request: Request, raw_path: str, raw_body: bytes) -> Response:
    step = request.headers.get(STEP_HEADER, "")
    fault = world.faults.strike(request.method, raw_path, raw_body.decode(errors="replace"), step)
    if fault and fault.kind == "status":
        return _answer(fault.refusal())
    if fault and fault.kind == "cut" and not fault.processed:
        return ConnectionCut()
    try:
        path = raw_path.removeprefix(UPLOAD).removeprefix(DOWNLOAD)
        route = routed(request.method, path)
        caller = "" if route.document.api == "sts" else caller_of(world, request.headers.get("authorization", ""))
        query = parse_qsl(request.url.query, keep_blank_values=True)
        kind = request.headers.get("content-type", "")
        media = Media(raw_body, kind) if raw_path.startswith(f"{UPLOAD}/") else None
        body = {} if media else _parsed(raw_body, kind)
        answer = _response(handle(world, route, body, query, caller, fault, media))
    except GoogleError as error:
        answer = _answer(error)
    except Exception:
        log.exception("%s %s failed", request.method, raw_path)
        answer = _answer(GoogleError("INTERNAL", "The emulator failed; its log says how."))
    if fault and fault.kind == "kill":
        answer.headers[KILL_HEADER] = fault.victim
    return ConnectionCut() if fault and fault.kind == "cut" else answer


def _recorded(world: World, request: Request, raw_path: str, raw_body: bytes) -> Response:
    response = _serve(world, request, raw_path, raw_body)
    try:
        body = json.loads(raw_body) if raw_body else None
    except ValueError:
        body = None
    shown = {"method": request.method, "path": raw_path, "query": request.url.query, "body": body}
    world.record({**shown, "status": response.status_code})
    return response


async def google(request: Request) -> Response:
    raw_path = request.scope["raw_path"].decode("ascii", "replace")
    return await run_in_threadpool(_recorded, request.app.state.world, request, raw_path, await request.body())


# Steering the emulator


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Quotas(RootModel[dict[str, dict[str, float]]]):
    """Region -> metric -> limit, in the metric's unit; replaces the limits of the regions it names."""


class ReservationSeed(_Input):
    """A reservation that exists beforehand; `count` VMs, `share_with` lists the projects that may use it too."""

    project: str
    zone: str
    name: str
    machine_type: str
    count: int = Field(ge=1)
    share_with: list[str] = []
    maintenance_interval: str = ""


class ChannelSeed(_Input):
    """A notification channel that others made, by the number that a program knows it by."""

    project: str
    number: str
    address: str


class ZoneSeed(_Input):
    """TPU generations ("v6e", "tpu7x", ...) that a zone offers from now on."""

    zone: str
    generations: list[str]


class Stock(_Input):
    """All machines of a type that a zone has for groups and autoscaled pools, those in use included; null: as many as
    anybody wants. With a `model` this holds for machines of that capacity model alone."""

    zone: str
    machine_type: str
    model: Literal["", "on-demand", "spot", "flex"] = ""
    machines: int | None = Field(ge=0)


class Unpublished(_Input):
    """Answers of Google's that no public source tells, so that both can be tried.

    `public_endpoint_when_off`: what a cluster whose IP endpoint is off shows as `enablePublicEndpoint`.
    """

    public_endpoint_when_off: bool


class Permissions(_Input):
    """The permissions the caller has; null: all of them."""

    granted: list[str] | None


class Resize(_Input):
    """Nodes per zone."""

    nodes: int = Field(ge=0)


Control = Callable[[World, Request, bytes], Any]


def _control(handler: Control) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers with what `handler` returns; bad input is 400 with the reasons, never a traceback."""

    async def endpoint(request: Request) -> Response:
        try:
            result = await run_in_threadpool(handler, request.app.state.world, request, await request.body())
        except ValidationError as error:
            found = [{"path": ".".join(map(str, e["loc"])), "message": e["msg"]} for e in error.errors()]
            return JSONResponse({"errors": found}, 400)
        except GoogleError as error:
            return _answer(error)
        return JSONResponse({} if result is None else result)

    return endpoint


def _health(world: World, request: Request, body: bytes) -> Any:
    return {"status": "ok", "time_scale": world.operations.time_scale}


def _inventory(world: World, request: Request, body: bytes) -> Any:
    return inventory(world)


def _traffic(world: World, request: Request, body: bytes) -> Any:
    since = request.query_params.get("since", "0")
    if not since.isdigit():
        raise invalid(f"since must be the number of the last request seen, got '{since}'.")
    with world.store.lock:
        return [row for row in world.traffic if row["seq"] > int(since)]


def _reset(world: World, request: Request, body: bytes) -> None:
    world.reset()


def _faults(world: World, request: Request, body: bytes) -> Any:
    if request.method == "POST":
        return world.faults.add(Fault.model_validate_json(body)).model_dump()
    if request.method == "DELETE":
        world.faults.clear()
    return [fault.model_dump() for fault in world.faults.pending()]


def _interruptions(world: World, request: Request, body: bytes) -> Any:
    if request.method == "POST":
        return interruptions.interrupt(world, interruptions.Interruption.model_validate_json(body))
    if request.method == "DELETE":
        interruptions.bring_back(world)
    return interruptions.lost(world)


def _struck(world: World, request: Request, body: bytes) -> Any:
    return [fault.model_dump() for fault in world.faults.struck()]


class Sent(_Input):
    """A request to an API server that a plugin is about to make in a step of an update."""

    step: str
    method: str
    path: str


def _strike(world: World, request: Request, body: bytes) -> Any:
    """The fault that hits a request to an API server; {} for none."""
    sent = Sent.model_validate_json(body)
    fault = world.faults.strike(sent.method, sent.path, "", sent.step, at_once=True)
    if fault and fault.kind == "kill" and fault.victim == "api-server":
        kill_api_servers()
    return fault.model_dump() if fault else {}


def kill_api_servers() -> None:
    """Kills the API servers of this sandbox; their control planes start them again."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == "kube-apiserver":
                child.kill()


def _quotas(world: World, request: Request, body: bytes) -> Any:
    if request.method == "GET":
        return world.store.all("sandbox.quotas")
    for region, limits in Quotas.model_validate_json(body).root.items():
        world.store.put("sandbox.quotas", region, dict(limits))
    return None


def _reservations(world: World, request: Request, body: bytes) -> Any:
    seed = ReservationSeed.model_validate_json(body)
    world.machine(seed.machine_type, seed.zone)
    path = f"projects/{seed.project}/zones/{seed.zone}/reservations/{seed.name}"
    properties = {"machineType": seed.machine_type}
    if seed.maintenance_interval:
        properties["maintenanceInterval"] = seed.maintenance_interval
    sharing: dict[str, Any] = {"shareType": "LOCAL"}
    if seed.share_with:
        sharing = {"shareType": "SPECIFIC_PROJECTS", "projectMap": {p: {"projectId": p} for p in seed.share_with}}
    reservation = {
        "kind": "compute#reservation",
        "id": new_id(),
        "name": seed.name,
        "selfLink": self_link(path),
        "zone": self_link(f"projects/{seed.project}/zones/{seed.zone}"),
        "status": "READY",
        "creationTimestamp": now(),
        "specificReservationRequired": True,
        "specificReservation": {"count": str(seed.count), "instanceProperties": properties},
        "shareSettings": sharing,
        "reservationSharingPolicy": {"serviceShareType": "DISALLOW_ALL"},
    }
    world.store.apply([Change("compute.reservations", path, reservation), Change(SEEDED, path, {})])
    return reservation


def _channels(world: World, request: Request, body: bytes) -> Any:
    seed = ChannelSeed.model_validate_json(body)
    name = f"projects/{seed.project}/notificationChannels/{seed.number}"
    channel = {"name": name, "type": "email", "labels": {"email_address": seed.address}, "enabled": True}
    world.store.apply([Change(CHANNELS, name, channel), Change(SEEDED, name, {})])
    return channel


def _zones(world: World, request: Request, body: bytes) -> None:
    seed = ZoneSeed.model_validate_json(body)
    unknown = sorted(set(seed.generations) - set(machines.GENERATIONS))
    if unknown:
        raise invalid(f"Unknown TPU generations {', '.join(unknown)}; known are {', '.join(machines.GENERATIONS)}.")
    world.store.put("sandbox.zones", seed.zone, {"generations": seed.generations})


def _stock(world: World, request: Request, body: bytes) -> Any:
    if request.method == "GET":
        return [row for row in world.store.all("sandbox.stock").values() if row["machines"] is not None]
    stock = Stock.model_validate_json(body)
    world.machine(stock.machine_type, stock.zone)
    with world.store.lock:
        world.store.put("sandbox.stock", stock_name(stock.zone, stock.machine_type, stock.model), stock.model_dump())
        waiting = unsettled(world)
    for operation in waiting:
        world.operations.start(operation)
    return None


def _unpublished(world: World, request: Request, body: bytes) -> None:
    world.store.put(*container.UNPUBLISHED, Unpublished.model_validate_json(body).model_dump())


def _permissions(world: World, request: Request, body: bytes) -> None:
    grant(world, Permissions.model_validate_json(body).granted)


def _resize(world: World, request: Request, body: bytes) -> None:
    path = request.path_params["pool"].removesuffix(":resize")
    container.autoscale(world, path, Resize.model_validate_json(body).nodes)


def build_app(world: World) -> Starlette:
    """The ASGI application over a world; the world's owner closes it."""
    app = Starlette(
        routes=[
            Path("/sandbox/health", _control(_health)),
            Path("/sandbox/inventory", _control(_inventory)),
            Path("/sandbox/traffic", _control(_traffic)),
            Path("/sandbox/reset", _control(_reset), methods=["POST"]),
            Path("/sandbox/faults", _control(_faults), methods=["GET", "POST", "DELETE"]),
            Path("/sandbox/faults/struck", _control(_struck)),
            Path("/sandbox/faults/strike", _control(_strike), methods=["POST"]),
            Path("/sandbox/interruptions", _control(_interruptions), methods=["GET", "POST", "DELETE"]),
            Path("/sandbox/quotas", _control(_quotas), methods=["GET", "POST"]),
            Path("/sandbox/reservations", _control(_reservations), methods=["POST"]),
            Path("/sandbox/channels", _control(_channels), methods=["POST"]),
            Path("/sandbox/zones", _control(_zones), methods=["POST"]),
            Path("/sandbox/stock", _control(_stock), methods=["GET", "POST"]),
            Path("/sandbox/unpublished", _control(_unpublished), methods=["POST"]),
            Path("/sandbox/permissions", _control(_permissions), methods=["POST"]),
            Path("/sandbox/pools/{pool:path}", _control(_resize), methods=["POST"]),
            Path("/{path:path}", google, methods=HTTP_METHODS),
        ]
    )
    app.state.world = world
    return app
