"""What Google does to hosts that run: it takes spot machines back, machines fail, or are maintained.

The hosts are gone at once, and come back after a while: GKE and managed instance groups make lost hosts anew under
their old names. Of a node pool over several hosts all are lost together, because GKE makes such a slice anew as a
whole. Compute Engine records each interruption as an operation.

It differs from Google in this: nothing announces the loss (a spot host has 30 s from its notice on), and the time after
which hosts come back is whoever asks for it, not how long Google takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.google.backend import ClusterRef, node_name
from sandbox.google.errors import invalid
from sandbox.google.group_members import GROUPS, unsettled
from sandbox.google.instances import without_member
from sandbox.google.machines import machine_type
from sandbox.google.operations import Operation
from sandbox.google.service import dig, short
from sandbox.google.store import Change, Resource
from sandbox.google.world import LOST, MEMBERS, World

REPAIR = "compute.instances.repair.recreateInstance"


class Interruption(BaseModel):
    """`target`: a node pool, a managed instance group, or a host by its name. `kind`: the operation that Compute Engine
    records. The hosts come back after `seconds`, at the earliest; null: when they are asked back."""

    model_config = ConfigDict(extra="forbid")

    target: str
    kind: Literal["preempted", "hostError", "terminateOnHostMaintenance"]
    seconds: float | None = Field(60.0, gt=0, allow_inf_nan=False)


def interrupt(world: World, wanted: Interruption) -> Resource:
    """Takes the hosts away; {"hosts": their names}. Raises GoogleError (400) for a name that nothing has."""
    with world.store.lock:
        owners = {**dict(_pools(world)), **dict(_groups(world))}
        owner, hosts = _meant(world, owners, wanted.target)
        lost = [Change(LOST, f"{owner}/{host}", {"zone": zone, "kind": wanted.kind}) for host, zone in hosts.items()]
        _end_returns(world, {each.name for each in lost})
        world.store.apply([*lost, *(each for host, zone in hosts.items() for each in _gone(world, owner, host, zone))])
    project = owner.split("/")[1]
    for host, zone in hosts.items():
        method = f"compute.instances.{wanted.kind}"
        world.operations.note(Operation(method, project, zone, method, _instance(project, zone, host)))
    _tell(world, owner)
    if wanted.seconds is not None:
        _bring_back_later(world, owner, hosts, wanted.seconds)
    return {"hosts": list(hosts)}


def lost(world: World) -> list[Resource]:
    """The hosts that are away, each with where it belongs and why it is away."""
    return [
        {"host": short(path), "of": path.split("/")[-2], **row} for path, row in sorted(world.store.all(LOST).items())
    ]


def bring_back(world: World) -> None:
    """Lets all lost hosts come back now."""
    rows = list(world.store.all(LOST))
    _end_returns(world, set(rows))
    world.store.apply([Change(LOST, path, None) for path in rows])
    for owner in {path.rpartition("/")[0] for path in rows}:
        _tell(world, owner)
    for operation in unsettled(world):
        world.operations.start(operation)


def _end_returns(world: World, rows: set[str]) -> None:
    """An earlier loss of these hosts brings none of them back any more: each return is for one loss."""
    for operation in world.operations.all():
        if operation.kind == REPAIR and not operation.done:
            operation.changes = [each for each in operation.changes if each.name not in rows]
            world.store.apply([Change("operations", operation.name, asdict(operation))])


# Who has which hosts: full name of a pool or group -> its hosts, each with its zone


def _pools(world: World) -> Iterator[tuple[str, dict[str, str]]]:
    for path, pool in world.store.all("container.nodePools").items():
        cluster, zones = ClusterRef.parse(path), pool["locations"]
        places = itertools.product(zones, range(world.pool_size(path)))
        yield path, {node_name(cluster, pool["name"], zone, index): zone for zone, index in places}


def _groups(world: World) -> Iterator[tuple[str, dict[str, str]]]:
    for kind in GROUPS:
        for name in world.store.all(f"compute.{kind}"):
            row = world.store.get(MEMBERS, name) or {"instances": []}
            yield name, {short(each): each.split("/")[3] for each in row["instances"]}


def _meant(world: World, owners: dict[str, dict[str, str]], target: str) -> tuple[str, dict[str, str]]:
    """The pool or group, and the hosts of it that are to go."""
    for owner, hosts in owners.items():
        if target == short(owner) or (target in hosts and _is_slice(world, owner)):
            if not hosts:
                raise invalid(f"{short(owner)} has no hosts now.")
            return owner, hosts
        if target in hosts:
            return owner, {target: hosts[target]}
    groups = ", ".join(sorted(f"{short(owner)} ({len(hosts)} hosts)" for owner, hosts in owners.items())) or "none"
    raise invalid(f"Nothing is called '{target}'. Node pools and groups: {groups}; or the name of one of their hosts.")


def _is_slice(world: World, owner: str) -> bool:
    """Whether a pool is one slice of several hosts. A group repairs each host for itself."""
    pool = world.store.get("container.nodePools", owner)
    if pool is None:
        return False
    machine = machine_type(pool["config"]["machineType"])
    topology = dig(pool, "placementPolicy", "tpuTopology") or world.policy_topology(pool)
    return bool(machine and machine.chips and topology and (machine.hosts(str(topology)) or 1) > 1)


# What becomes of them


def _gone(world: World, owner: str, host: str, zone: str) -> list[Change]:
    """The nodes of a pool follow from what is lost; a group's instance is taken out of the group."""
    if "/nodePools/" in owner:
        return []
    instance = _instance(owner.split("/")[1], zone, host)
    return [Change("compute.instances", instance, None), *without_member(world, instance)]


def _instance(project: str, zone: str, host: str) -> str:
    return f"projects/{project}/zones/{zone}/instances/{host}"


def _tell(world: World, owner: str) -> None:
    if "/nodePools/" in owner:
        world.tell_pools(owner.partition("/nodePools/")[0])


def _bring_back_later(world: World, owner: str, hosts: dict[str, str], seconds: float) -> None:
    """One operation for all of them, so that a slice comes back as a whole."""
    project, (first, zone) = owner.split("/")[1], next(iter(hosts.items()))
    in_pool = "/nodePools/" in owner
    operation = Operation(
        REPAIR,
        project,
        zone,
        REPAIR,
        _instance(project, zone, first),
        changes=[Change(LOST, f"{owner}/{host}", None) for host in hosts],
        follow="pools" if in_pool else "repair",
        cluster=owner.partition("/nodePools/")[0] if in_pool else "",
    )
    world.operations.start_for(operation, seconds)
