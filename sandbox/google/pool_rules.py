"""What Kubernetes Engine refuses in a node pool, one function per rule; `check` runs them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sandbox.google import machines
from sandbox.google.compute_types import COLLECTIONS, full_name
from sandbox.google.errors import invalid
from sandbox.google.instance_groups import gang_mode
from sandbox.google.service import dig, short
from sandbox.google.store import Resource
from sandbox.google.world import RESERVATION_VALUE, World, pool_model

NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
RESERVATION_KEY = "compute.googleapis.com/reservation-name"
MAX_RUN_SECONDS = 604_800
FLEX_VERSION = "1.33.0-gke.1712000"
NETWORK_PROFILE_VERSION = "1.34.1-gke.1829001"
NETWORK_PROFILE_FAMILIES = ("CT6E", "TPU7X")


@dataclass(frozen=True)
class Case:
    """A node pool to be created or changed, with defaults filled in, and where it lives."""

    world: World
    cluster: Resource
    project: str
    pool: Resource

    @property
    def config(self) -> Resource:
        return dict(self.pool["config"])

    @property
    def zones(self) -> list[str]:
        return list(self.pool["locations"])

    @property
    def machine(self) -> machines.MachineType:
        return self.world.machine(self.config["machineType"], self.zones[0])

    @property
    def placement(self) -> Resource:
        return dict(self.pool.get("placementPolicy") or {})

    @property
    def topology(self) -> str:
        return str(self.placement.get("tpuTopology", ""))

    @property
    def hosts(self) -> int:
        """Machines of the slice; 1 where the pool is no multi-host slice."""
        return self.machine.hosts(self.topology) or 1 if self.topology else 1

    @property
    def policy(self) -> Resource | None:
        """The resource policy the pool names; 400 when it is not in the pool's project and region."""
        name = self.placement.get("policyName")
        if not name:
            return None
        full = full_name(name, COLLECTIONS["resourcePolicies"], self.project, self.zones[0])
        found = self.world.store.get("compute.resourcePolicies", full)
        region = machines.region_of(self.zones[0])
        if found is None or full.split("/")[1] != self.project or full.split("/")[3] != region:
            raise invalid(f"Resource policy {short(full)} does not exist in project {self.project}, region {region}.")
        return found

    @property
    def affinity(self) -> str:
        return str(dig(self.config, "reservationAffinity", "consumeReservationType") or "")

    @property
    def autoscaled(self) -> bool:
        return bool(dig(self.pool, "autoscaling", "enabled"))

    @property
    def queued(self) -> bool:
        return bool(dig(self.pool, "queuedProvisioning", "enabled"))


def check(world: World, cluster: Resource, project: str, pool: Resource) -> None:
    """Raises GoogleError for the first rule the pool breaks, be it new or changed."""
    case = Case(world, cluster, project, pool)
    for rule in RULES:
        rule(case)


def check_growth(world: World, project: str, pool: Resource, more: int) -> None:
    """Raises GoogleError when quota or the pool's reservation cannot carry `more` nodes in each of its zones."""
    config = pool["config"]
    machine = config["machineType"]
    for zone in pool["locations"]:
        world.check_reservation(project, zone, config.get("reservationAffinity") or {}, machine, more)
    world.check_quota(project, pool["locations"][0], machine, pool_model(config), more * len(pool["locations"]))


def check_size(world: World, pool: Resource, nodes: int) -> None:
    """400 unless `nodes` per zone is a size the pool's slice can have: nothing or all of it."""
    hosts = _slice_hosts(world, pool)
    if hosts > 1 and nodes not in (0, hosts):
        raise gang_mode(nodes, hosts)


def _slice_hosts(world: World, pool: Resource) -> int:
    machine = machines.machine_type(pool["config"]["machineType"])
    topology = dig(pool, "placementPolicy", "tpuTopology") or world.policy_topology(pool)
    return (machine.hosts(topology) or 1) if machine and topology else 1


def _name(case: Case) -> None:
    if not NAME.fullmatch(case.pool["name"]):
        raise invalid(
            f"Invalid value for field 'node_pool.name': '{case.pool['name']}'. Must be a match of regex"
            f" '(?:{NAME.pattern})' (only alphanumerics and dashes, at most 40 characters)."
        )


def _zones(case: Case) -> None:
    region = case.cluster["location"] if case.cluster["location"].count("-") == 1 else ""
    for zone in case.zones:
        if zone not in machines.zones_of(machines.region_of(zone)):
            raise invalid(f"Invalid location: zone {zone} does not exist.")
        home = region or machines.region_of(case.cluster["location"])
        if machines.region_of(zone) != home:
            raise invalid(f"Location {zone} is not in the region {home} of the cluster.")
        case.world.machine(case.config["machineType"], zone)
    if case.machine.generation and len(case.zones) != 1:
        raise invalid(f"TPU node pools must have exactly one location, got {', '.join(case.zones)}.")


def _version(case: Case) -> None:
    version, machine = case.pool["version"], case.machine
    if machines.version_key(version) > machines.version_key(case.cluster["currentMasterVersion"]):
        raise invalid(
            f'Node version "{version}" must not be greater than the master version'
            f' "{case.cluster["currentMasterVersion"]}".'
        )
    floors = [(machine.generation.min_version, machine.name)] if machine.generation else []
    if case.config.get("flexStart"):
        floors.append((FLEX_VERSION, "Flex-start"))
    if _profile(case):
        floors.append((NETWORK_PROFILE_VERSION, "Accelerator network profile"))
    for floor, what in floors:
        if floor and machines.version_key(version) < machines.version_key(floor):
            raise invalid(f"{what} requires GKE version {floor} or later, the node pool has {version}.")


def _management(case: Case) -> None:
    channel = dig(case.cluster, "releaseChannel", "channel") or "UNSPECIFIED"
    if channel != "UNSPECIFIED" and not case.pool["management"].get("autoUpgrade"):
        raise invalid(f"Auto_upgrade must be true when release_channel {channel} is set.")


def _disk(case: Case) -> None:
    generation = case.machine.generation
    boot = dig(case.config, "bootDisk", "diskType")
    kind = case.config.get("diskType")
    if boot and kind and boot != kind:
        raise invalid("Only one of disk_type and boot_disk.disk_type may be set.")
    if generation and kind not in generation.disks:
        allowed = ", ".join(sorted(generation.disks))
        raise invalid(
            f"Disk type {kind} cannot be used by machine type {case.machine.name}. Allowed disk types: {allowed}."
        )


def _service_account(case: Case) -> None:
    case.world.check_service_account(case.project, case.config["serviceAccount"])


def _topology(case: Case) -> None:
    """Topology, placement type and workload policy have to fit the machine type and one another."""
    machine, topology, kind = case.machine, case.topology, case.placement.get("type", "")
    if not topology:
        if kind == "COMPACT" and machine.generation and machine.multi_host:
            raise invalid(f"COMPACT placement of machine type {machine.name} requires tpu_topology.")
        return
    if machine.generation is None:
        raise invalid(f"tpu_topology is not supported for machine type {machine.name}.")
    hosts = machine.hosts(topology)
    if hosts is None:
        raise invalid(f'Invalid TPU topology "{topology}" for machine type "{machine.name}".')
    if hosts == 1:
        return
    if machine.generation.workload_policy and not case.policy:
        raise invalid(
            f"Multi-host {machine.name} node pools must use a workload policy (placement_policy.policy_name);"
            f" placement type {kind or 'unset'} is not supported."
        )
    if kind != "COMPACT" and not case.policy:
        raise invalid(f"tpu_topology {topology} of machine type {machine.name} requires placement type COMPACT.")


def _workload_policy(case: Case) -> None:
    policy = case.policy
    if policy is None:
        return
    workload = policy.get("workloadPolicy")
    if not workload:
        raise invalid(f"Resource policy {policy['name']} is not a workload policy.")
    topology = workload.get("acceleratorTopology")
    if case.topology and topology != case.topology:
        raise invalid(
            f"tpu_topology {case.topology} does not match accelerator topology {topology} of workload policy"
            f" {policy['name']}."
        )
    if topology and case.machine.hosts(topology) is None:
        raise invalid(f'Invalid TPU topology "{topology}" for machine type "{case.machine.name}".')
    if workload.get("acceleratorTopologyMode") == "PROVISION_ONLY" and case.affinity != "SPECIFIC_RESERVATION":
        raise invalid("Accelerator topology mode PROVISION_ONLY requires reservation affinity SPECIFIC_RESERVATION.")


def _size(case: Case) -> None:
    """The number of nodes, and what autoscaling may make of it: nothing or the whole slice."""
    hosts = _slice_hosts(case.world, case.pool)
    check_size(case.world, case.pool, case.pool["initialNodeCount"])
    if hosts == 1 or not case.autoscaled:
        return
    scaling = case.pool["autoscaling"]
    most = scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount") or 0
    least = scaling.get("minNodeCount") or scaling.get("totalMinNodeCount") or 0
    if most != hosts:
        raise invalid(
            f"Invalid autoscaling limits for a multi-host TPU node pool: max node count {most} must equal the"
            f" {hosts} nodes of the slice."
        )
    if least not in (0, hosts):
        raise invalid(f"Invalid autoscaling limits for a multi-host TPU node pool: min node count {least}.")


def _autoscaling(case: Case) -> None:
    scaling = case.pool.get("autoscaling") or {}
    if not scaling.get("enabled"):
        return
    zonal = bool(scaling.get("minNodeCount") or scaling.get("maxNodeCount"))
    total = bool(scaling.get("totalMinNodeCount") or scaling.get("totalMaxNodeCount"))
    if zonal and total:
        raise invalid("Per-zone and total autoscaling limits cannot be set together.")
    prefix = "totalM" if total else "m"
    least, most = scaling.get(f"{prefix}inNodeCount", 0), scaling.get(f"{prefix}axNodeCount", 0)
    if most < max(least, 1):
        raise invalid(f"Invalid autoscaling limits: max node count {most} must be at least 1 and min {least}.")


def _reservation(case: Case) -> None:
    affinity = case.config.get("reservationAffinity") or {}
    if case.affinity != "SPECIFIC_RESERVATION":
        if affinity.get("values"):
            raise invalid(f"Reservation values cannot be set with consume reservation type {case.affinity or 'unset'}.")
        return
    values = affinity.get("values", [])
    if affinity.get("key") != RESERVATION_KEY or len(values) != 1:
        raise invalid(f"SPECIFIC_RESERVATION requires the key {RESERVATION_KEY} and exactly one value.")
    if not RESERVATION_VALUE.fullmatch(values[0]):
        raise invalid(f"Invalid reservation name '{values[0]}'.")
    spot = case.config.get("spot") or case.config.get("preemptible")
    if spot or case.config.get("flexStart") or case.queued:
        what = "Spot VMs" if spot else "Flex-start" if case.config.get("flexStart") else "Queued provisioning"
        raise invalid(f"{what} cannot be used together with reservation affinity SPECIFIC_RESERVATION.")
    interval = dig(case.config, "hostMaintenancePolicy", "maintenanceInterval")
    for zone in case.zones:
        found = case.world.reservation(case.project, zone, values[0])
        held = dig(found, "specificReservation", "instanceProperties", "maintenanceInterval") if found else interval
        if interval == "PERIODIC" and held != "PERIODIC":
            raise invalid(f"Maintenance interval {interval} is incorrect for the requested resources.")


def _maintenance_interval(case: Case) -> None:
    interval = dig(case.config, "hostMaintenancePolicy", "maintenanceInterval")
    if interval == "PERIODIC" and case.affinity != "SPECIFIC_RESERVATION":
        raise invalid(f"Maintenance interval {interval} is incorrect for the requested resources.")


def _require(broken: Iterable[tuple[bool, str]], what: str) -> None:
    for is_broken, text in broken:
        if is_broken:
            raise invalid(f"{what} {text}.")


def _flex_start(case: Case) -> None:
    if not case.config.get("flexStart"):
        return
    duration = str(case.config.get("maxRunDuration", "0s")).removesuffix("s")
    generation = case.machine.generation
    _require(
        (
            (bool(generation and not generation.flex_start), f"is not supported for {case.machine.name}"),
            (bool(case.config.get("spot") or case.config.get("preemptible")), "cannot be used together with Spot VMs"),
            (case.affinity != "NO_RESERVATION", "requires reservation affinity NO_RESERVATION"),
            (bool(case.pool["management"].get("autoRepair")), "requires auto repair to be disabled"),
            (not case.autoscaled, "requires autoscaling to be enabled"),
            (case.pool["initialNodeCount"] != 0, "requires an initial node count of 0"),
            (dig(case.pool, "autoscaling", "locationPolicy") != "ANY", "requires location policy ANY"),
            (float(duration) > MAX_RUN_SECONDS, f"allows a max run duration of at most {MAX_RUN_SECONDS}s"),
        ),
        "Flex-start",
    )


def _queued_provisioning(case: Case) -> None:
    if not case.queued:
        return
    least = dig(case.pool, "autoscaling", "minNodeCount") or dig(case.pool, "autoscaling", "totalMinNodeCount")
    generation = case.machine.generation
    _require(
        (
            (bool(generation and not generation.flex_start), f"is not supported for {case.machine.name}"),
            (not case.autoscaled or bool(least), "requires autoscaling with a min node count of 0"),
            (case.affinity != "NO_RESERVATION", "requires reservation affinity NO_RESERVATION"),
            (bool(case.config.get("spot") or case.config.get("preemptible")), "cannot be used together with Spot VMs"),
            (bool(case.pool["management"].get("autoRepair")), "requires auto repair to be disabled"),
            (case.pool["initialNodeCount"] != 0, "requires an initial node count of 0"),
        ),
        "Queued provisioning",
    )


def _upgrade_settings(case: Case) -> None:
    strategy = dig(case.pool, "upgradeSettings", "strategy")
    if strategy == "BLUE_GREEN" and case.placement.get("type") == "COMPACT":
        raise invalid("Blue-green upgrades are not supported for node pools with COMPACT placement.")


def _profile(case: Case) -> str:
    return str(dig(case.pool, "networkConfig", "acceleratorNetworkProfile") or "")


def _networks(case: Case) -> None:
    additional = dig(case.pool, "networkConfig", "additionalNodeNetworkConfigs")
    if not _profile(case):
        return
    if additional:
        raise invalid("accelerator_network_profile and additional_node_network_configs cannot be set together.")
    if dig(case.cluster, "networkConfig", "datapathProvider") != "ADVANCED_DATAPATH":
        raise invalid("accelerator_network_profile requires Dataplane V2 (ADVANCED_DATAPATH).")
    generation = case.machine.generation
    if generation is None or generation.family not in NETWORK_PROFILE_FAMILIES:
        raise invalid(f"accelerator_network_profile is not supported for machine type {case.machine.name}.")


def _images(case: Case) -> None:
    if case.config.get("secondaryBootDisks") and not dig(case.config, "gcfsConfig", "enabled"):
        raise invalid("Secondary boot disks require image streaming (gcfs_config) to be enabled.")


def _pods(case: Case) -> None:
    most = dig(case.pool, "maxPodsConstraint", "maxPodsPerNode")
    if most is not None and not 8 <= int(most) <= 256:
        raise invalid(f"Max pods per node must be between 8 and 256, got {most}.")


Rule = Callable[[Case], None]
RULES: tuple[Rule, ...] = (
    _name,
    _zones,
    _version,
    _management,
    _topology,
    _workload_policy,
    _size,
    _autoscaling,
    _disk,
    _reservation,
    _maintenance_interval,
    _flex_start,
    _queued_provisioning,
    _upgrade_settings,
    _networks,
    _images,
    _pods,
    _service_account,
)
