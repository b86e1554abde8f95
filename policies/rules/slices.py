"""Slices of GKE: TPU node pools that the API refuses after minutes, or that silently become another slice."""

import re
from collections.abc import Iterator

from catalogue import versions
from catalogue.generations import MACHINES, Machine
from catalogue.labels import DRA_LABEL, QUEUED_LABEL
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.capacity import FLEX_SECONDS, RESERVATION_KEY
from policies import tokens
from policies.nodes import CONFIG
from policies.registry import RESOURCE, Resource, Settings
from policies.tpu import (
    autoscaled,
    boot_disk_problem,
    is_tpu_pool,
    pool_machine,
    queued,
    shape_problem,
    slice_hosts,
    uses_flex_start,
    zones,
)
from policies.values import UNKNOWN, Finding, at, expect, items, known, mapping, number, refuse, require, settled, text

RESERVATION = re.compile(
    r"(projects/[^/]+/reservations/)?[a-z][-a-z0-9]*(/reservationBlocks/[^/]+(/reservationSubBlocks/[^/]+)?)?"
)


TOPOLOGY = "placementPolicy.tpuTopology"


def _topology(pool: Resource, machine: Machine) -> str:
    """Topology of the pool's slice: the declared one, or the machine's own; empty when it is not known yet."""
    if not settled(pool.props, TOPOLOGY):
        return ""
    return text(pool.props, TOPOLOGY) or machine.topology


def _hosts(pool: Resource, machine: Machine) -> int | None:
    """Hosts of the pool's slice; None where machine type and topology do not fit."""
    topology = _topology(pool, machine)
    return None if not topology or shape_problem(machine, topology) else slice_hosts(machine, topology)


@RESOURCE.rule(
    "tpu-machine",
    tokens.NODE_POOL,
    reason="GKE builds slices of these machine types only; others fail, or are no slices.",
    remedy=f"Use one of {', '.join(MACHINES)}",
    source="cluster-autoscaler machine type tables",
)
def tpu_machine(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if is_tpu_pool(pool) and pool_machine(pool) is None:
        path = f"{CONFIG}.machineType"
        yield Finding(path, f"is {text(pool.props, path)}")


@RESOURCE.rule(
    "tpu-topology",
    tokens.NODE_POOL,
    reason="A topology that the machine type cannot build is refused minutes later, or waits forever.",
    remedy="Take machine type and topology from docs/topologies.md",
    source="xpk system_characteristics.py; cluster-toolkit hardware.go; cluster-autoscaler machine type tables",
)
def tpu_topology(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine, topology = pool_machine(pool), text(pool.props, TOPOLOGY)
    if not machine or not topology:
        return
    problem = shape_problem(machine, topology)
    if problem:
        yield Finding(TOPOLOGY, f"is refused: {problem}")
        return
    hosts = slice_hosts(machine, topology) or 0
    if hosts > MAX_HOSTS_PER_POOL:
        yield Finding(TOPOLOGY, f"takes {hosts} hosts; a pool has at most {MAX_HOSTS_PER_POOL}")


@RESOURCE.rule(
    "tpu-placement",
    tokens.NODE_POOL,
    reason="Single hosts take no placement, joined hosts COMPACT; tpu7x a workload policy and no type at all.",
    remedy='Single host: no placementPolicy; several: type COMPACT; tpu7x: policyName and type ""',
    source="cluster-autoscaler autoscaling_gke_client_v1beta1.go; cluster-toolkit #5691",
)
def tpu_placement(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine = pool_machine(pool)
    placement = at(pool.props, "placementPolicy")
    if machine is None or placement in (None, UNKNOWN):
        return
    hosts = _hosts(pool, machine)
    if hosts == 1:
        yield Finding("placementPolicy", f"is set on a slice of one host, {machine.name}")
    elif machine.generation.placement == "workload-policy":
        yield from require(pool.props, "placementPolicy.policyName")
        yield from expect(pool.props, "placementPolicy.type", "", or_unset=True)
    else:
        yield from expect(pool.props, "placementPolicy.type", "COMPACT")
        if at(pool.props, TOPOLOGY) is None:
            yield Finding(TOPOLOGY, "is not set")


@RESOURCE.rule(
    "tpu-whole-slices",
    tokens.NODE_POOL,
    reason="A pool of several hosts is one slice: it has all of its hosts or none.",
    remedy="Let nodeCount, or maxNodeCount per zone, be the chips of the topology divided by those of a host",
    source="xpk #751: Requested invalid target size for a Managed Instance Group in the gang mode",
)
def tpu_whole_slices(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine = pool_machine(pool)
    hosts = _hosts(pool, machine) if machine else None
    if hosts is None or hosts == 1:
        return
    if not autoscaled(pool):
        size = number(pool.props, "nodeCount")
        if size is not None and size not in (0, hosts):
            yield Finding("nodeCount", f"is {size}; {_topology_words(pool, hosts)}")
        return
    if known(at(pool.props, "autoscaling.totalMaxNodeCount")):
        yield Finding("autoscaling", "has bounds in total, which break slices; set them per zone")
        return
    low, high = number(pool.props, "autoscaling.minNodeCount") or 0, number(pool.props, "autoscaling.maxNodeCount")
    if low not in (0, hosts) or (high is not None and high != hosts):
        yield Finding("autoscaling", f"goes from {low} to {high}; {_topology_words(pool, hosts)}")


def _topology_words(pool: Resource, hosts: int) -> str:
    return f"{text(pool.props, TOPOLOGY)} takes {hosts} hosts"


@RESOURCE.rule(
    "tpu-one-zone",
    tokens.NODE_POOL,
    reason="The hosts of a slice are in one zone; a pool in several zones has its node count in each of them.",
    remedy="Name one zone under nodeLocations",
    source="GKE documentation, TPU node pools; COMPACT placement is of one zone",
)
def tpu_one_zone(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if is_tpu_pool(pool) and settled(pool.props, "nodeLocations") and len(items(pool.props, "nodeLocations")) != 1:
        yield Finding("nodeLocations", f"is {', '.join(zones(pool.props)) or 'not set'}")


@RESOURCE.rule(
    "tpu-reservation",
    tokens.NODE_POOL,
    reason="A pool without this setting may use a reservation that somebody else needs.",
    remedy="Set consumeReservationType: NO_RESERVATION, or SPECIFIC_RESERVATION with its key and one value",
    source="kubernetes-engine-samples get-started/main.tf; GKE documentation, reservations",
)
def tpu_reservation(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if not is_tpu_pool(pool):
        return
    affinity = f"{CONFIG}.reservationAffinity"
    kind = at(pool.props, f"{affinity}.consumeReservationType")
    if kind is UNKNOWN:
        return
    if kind != "SPECIFIC_RESERVATION":
        yield from expect(pool.props, f"{affinity}.consumeReservationType", "NO_RESERVATION")
        return
    yield from expect(pool.props, f"{affinity}.key", RESERVATION_KEY)
    if not settled(pool.props, f"{affinity}.values"):
        return
    values = items(pool.props, f"{affinity}.values")
    if len(values) != 1:
        yield Finding(f"{affinity}.values", f"has {len(values)} entries")
    for value in values:
        if not RESERVATION.fullmatch(str(value)):
            yield Finding(f"{affinity}.values", f"{value!r} is not the name of a reservation, block or sub-block")


@RESOURCE.rule(
    "tpu-capacity",
    tokens.NODE_POOL,
    reason="Spot, flex-start and a reservation are three ways to get hosts; a pool uses one of them.",
    remedy="Keep one of spot, flexStart and a reservation; queued provisioning needs flexStart",
    source="GKE documentation, consumption options; cluster-toolkit preconditions",
)
def tpu_capacity(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if not is_tpu_pool(pool):
        return
    reserved = text(pool.props, f"{CONFIG}.reservationAffinity.consumeReservationType") == "SPECIFIC_RESERVATION"
    chosen = {
        "spot": at(pool.props, f"{CONFIG}.spot") is True,
        "preemptible": at(pool.props, f"{CONFIG}.preemptible") is True,
        "flexStart": at(pool.props, f"{CONFIG}.flexStart") is True,
        "a reservation": reserved,
    }
    given = [name for name, is_chosen in chosen.items() if is_chosen]
    if len(given) > 1:
        yield Finding(CONFIG, f"has {' and '.join(given)}")
    if queued(pool) and not chosen["flexStart"] and settled(pool.props, f"{CONFIG}.flexStart"):
        yield Finding("queuedProvisioning", "is on without flexStart")


@RESOURCE.rule(
    "tpu-lent-hosts",
    tokens.NODE_POOL,
    reason="Flex-start pools start empty, their hosts run for at most seven days, and GKE never repairs them.",
    remedy=f"Set autoRepair: false, autoscaling from 0, locationPolicy: ANY and maxRunDuration up to {FLEX_SECONDS}s",
    source="GKE documentation, flex-start; cluster-toolkit gke-consumption-options",
)
def tpu_flex_start(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine = pool_machine(pool)
    if machine is None or not uses_flex_start(pool):
        return
    if not machine.generation.dws:
        yield Finding(f"{CONFIG}.machineType", f"{machine.generation.name} has no flex-start")
    yield from expect(pool.props, "management.autoRepair", False)
    if at(pool.props, "nodeCount") is not None:
        yield Finding("nodeCount", "is fixed")
    yield from require(pool.props, "autoscaling")
    yield from expect(pool.props, "autoscaling.locationPolicy", "ANY")
    seconds = number({"seconds": text(pool.props, f"{CONFIG}.maxRunDuration").removesuffix("s")}, "seconds")
    if seconds is not None and seconds > FLEX_SECONDS:
        yield Finding(f"{CONFIG}.maxRunDuration", f"is {seconds}s, more than seven days")


@RESOURCE.rule(
    "tpu-queued-label",
    tokens.NODE_POOL,
    reason="GKE taints pools of queued provisioning; Kueue's flavor finds them by the label of the same name.",
    remedy=f'Set the label {QUEUED_LABEL}: "true"',
    source="cluster-toolkit dws-flex-start-queued-provisioning",
)
def tpu_queued_label(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if queued(pool) and at(pool.props, f"{CONFIG}.labels") is not UNKNOWN:
        value = mapping(pool.props, f"{CONFIG}.labels").get(QUEUED_LABEL)
        if value not in ("true", UNKNOWN):
            yield Finding(f"{CONFIG}.labels", f"lacks {QUEUED_LABEL}: true")


@RESOURCE.rule(
    "tpu-boot-disk",
    tokens.NODE_POOL,
    reason="A machine family boots from some disk types only; others fail when the first host starts.",
    remedy="Use a boot disk type of the generation, from docs/topologies.md",
    source="cluster-autoscaler boot disk tables; cluster-toolkit",
)
def tpu_boot_disk(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine = pool_machine(pool)
    if machine is None:
        return
    for path in (f"{CONFIG}.bootDisk.diskType", f"{CONFIG}.diskType"):
        if problem := boot_disk_problem(machine, text(pool.props, path)):
            yield Finding(path, problem)


@RESOURCE.rule(
    "tpu-version",
    tokens.NODE_POOL,
    reason="Below its first GKE version a generation is refused, or its driver starves.",
    remedy="Raise the version, or leave it out and let the release channel choose",
    source="GKE documentation and release notes",
)
def tpu_version(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine, version = pool_machine(pool), text(pool.props, "version")
    if machine is None or not version:
        return
    floors = {
        machine.generation.name: machine.generation.min_version,
        versions.DRA.feature: versions.DRA.version if _uses_dra(pool) else None,
        versions.FLEX_START.feature: versions.FLEX_START.version if uses_flex_start(pool) else None,
    }
    for feature, floor in floors.items():
        if floor and not versions.reaches(version, floor):
            yield Finding("version", f"is {version}; {feature} needs {floor}")


def _uses_dra(pool: Resource) -> bool:
    return mapping(pool.props, f"{CONFIG}.labels").get(DRA_LABEL) == "true"


@RESOURCE.rule(
    "tpu-device-driver",
    tokens.NODE_POOL,
    reason="Either the device plugin or the DRA driver hands out a pool's chips; the driver does not support tpu7x.",
    remedy=f"Leave the label {DRA_LABEL} off pools whose generation the driver does not know",
    source="kubernetes-sigs/dra-driver-google-tpu hardware.go",
)
def tpu_device_driver(pool: Resource, settings: Settings) -> Iterator[Finding]:
    machine = pool_machine(pool)
    if machine and _uses_dra(pool) and not machine.generation.dra:
        yield Finding(f"{CONFIG}.labels", f"hands {machine.generation.name} to the DRA driver")


@RESOURCE.rule(
    "tpu-upgrades",
    tokens.NODE_POOL,
    reason="There is no spare TPU capacity: an upgrade with surge waits for it until it fails.",
    remedy="Set upgradeSettings: {strategy: SURGE, maxSurge: 0, maxUnavailable: 1}",
    source="cluster-toolkit gke-node-pool defaults; COMPACT placement refuses BLUE_GREEN",
)
def tpu_upgrades(pool: Resource, settings: Settings) -> Iterator[Finding]:
    if not is_tpu_pool(pool):
        return
    yield from refuse(pool.props, "upgradeSettings.strategy", "BLUE_GREEN")
    surge = number(pool.props, "upgradeSettings.maxSurge")
    if at(pool.props, "upgradeSettings") is None or (surge or 0) > 0:
        yield Finding("upgradeSettings.maxSurge", f"is {'not set, which is 1' if surge is None else surge}")
