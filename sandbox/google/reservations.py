"""Compute Engine's reservations, with the blocks and sub-blocks that TPU reservations consist of."""

from __future__ import annotations

from sandbox.google.compute import COMPLETE, SHOW, change, location, stored
from sandbox.google.compute_types import COLLECTIONS, self_link
from sandbox.google.errors import not_found
from sandbox.google.operations import Operation
from sandbox.google.service import Call, dig, handles, short
from sandbox.google.store import Resource
from sandbox.google.world import World

SUB_BLOCK_HOSTS = 16  # a sub-block is a 4x4x4 cube of machines with four chips


def _reservation(call: Call, name: str, resource: Resource) -> Resource:
    machine = dig(resource, "specificReservation", "instanceProperties", "machineType")
    if machine:
        call.world.machine(short(machine), location(call))
    return resource


def _shown_reservation(world: World, name: str, resource: Resource) -> Resource:
    if "specificReservation" not in resource:
        return resource
    used = world.reserved_in_use(name)
    specific = {**resource["specificReservation"], "inUseCount": str(used)}
    specific["assuredCount"] = specific["count"] = str(specific.get("count", 0))
    return {**resource, "specificReservation": specific}


COMPLETE["reservations"] = _reservation
SHOW["reservations"] = _shown_reservation


@handles("compute.reservations.resize")
def resize_reservation(call: Call) -> Operation:
    name, old = stored(call, COLLECTIONS["reservations"])
    specific = {**old.get("specificReservation", {}), "count": call.body.get("specificSkuCount", "0")}
    new = {**old, "specificReservation": specific}
    return change(call, COLLECTIONS["reservations"], name, old, new, "resize")


# Blocks: the emulator lays every reservation out as one block of full sub-blocks, the last one perhaps smaller.


def _host_count(reservation: Resource) -> int:
    return int(dig(reservation, "specificReservation", "count") or 0)


def _block_name(reservation: Resource) -> str:
    return f"{reservation['name']}-block-0001"


def _part(kind: str, name: str, hosts: int, reservation: Resource) -> Resource:
    own = {"kind": f"compute#{kind}", "name": short(name), "status": "READY", "zone": reservation["zone"]}
    return {**own, "id": reservation["id"], "count": hosts, "selfLink": self_link(name)}


def _blocks(call: Call, path: str, reservation: Resource) -> list[Resource]:
    hosts = _host_count(reservation)
    name = f"{path}/reservationBlocks/{_block_name(reservation)}"
    block = _part("reservationBlock", name, hosts, reservation)
    used = call.world.reserved_in_use(path)
    return [{**block, "inUseCount": used, "reservationSubBlockCount": -(-hosts // SUB_BLOCK_HOSTS)}]


def _sub_blocks(path: str, reservation: Resource) -> list[Resource]:
    block = _block_name(reservation)
    parent = f"{path}/reservationBlocks/{block}/reservationSubBlocks"
    starts = range(0, _host_count(reservation), SUB_BLOCK_HOSTS)
    return [
        _part(
            "reservationSubBlock",
            f"{parent}/{block}-subblock-{number:04d}",
            min(SUB_BLOCK_HOSTS, _host_count(reservation) - start),
            reservation,
        )
        for number, start in enumerate(starts, 1)
    ]


def _reservation_of(call: Call) -> tuple[str, Resource]:
    """The reservation a block's URL is below; its block, where the URL names one, must exist."""
    name = call.params.get("reservation") or call.params["reservationsId"]
    path = f"projects/{call.project}/zones/{call.params['zone']}/reservations/{name}"
    found = call.store.get("compute.reservations", path)
    if found is None:
        raise not_found(path, compute=True)
    block = call.params.get("reservationBlocksId", _block_name(found))
    if block != _block_name(found):
        raise not_found(f"{path}/reservationBlocks/{block}", compute=True)
    return path, found


def _named(parts: list[Resource], name: str, parent: str) -> Resource:
    for part in parts:
        if part["name"] == name:
            return part
    raise not_found(f"{parent}/{name}", compute=True)


@handles("compute.reservationBlocks.list")
def list_blocks(call: Call) -> Resource:
    return {"kind": "compute#reservationBlocksListResponse", "items": _blocks(call, *_reservation_of(call))}


@handles("compute.reservationBlocks.get")
def get_block(call: Call) -> Resource:
    path, found = _reservation_of(call)
    name = call.params["reservationBlock"]
    return {"resource": _named(_blocks(call, path, found), name, f"{path}/reservationBlocks")}


@handles("compute.reservationSubBlocks.list")
def list_sub_blocks(call: Call) -> Resource:
    return {"kind": "compute#reservationSubBlocksListResponse", "items": _sub_blocks(*_reservation_of(call))}


@handles("compute.reservationSubBlocks.get")
def get_sub_block(call: Call) -> Resource:
    path, found = _reservation_of(call)
    name = call.params["reservationSubBlock"]
    return {"resource": _named(_sub_blocks(path, found), name, f"{path}/reservationBlocks/{_block_name(found)}")}
