"""What a planned resource says about TPU hosts, in terms of the catalogue."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from policies import tokens
from policies.registry import Resource, Stack
from policies.values import Props, at, is_set, items, known, mapping, number, text
from spec import topology
from spec.catalogue import MACHINES, Machine
from spec.queueing import TOPOLOGY_LABEL

_TPU_MACHINE = re.compile(r"(ct[0-9]|tpu)")


def looks_like_tpu(machine_type: str) -> bool:
    """Whether a machine type is one of TPUs, known to the catalogue or not."""
    return bool(_TPU_MACHINE.match(machine_type))


def pool_machine(pool: Resource) -> Machine | None:
    """The TPU machine of a node pool; None for other pools, and for TPU machines the catalogue does not know."""
    return MACHINES.get(text(pool.props, "nodeConfig.machineType"))


def is_tpu_pool(pool: Resource) -> bool:
    """Whether a node pool has TPU hosts."""
    return looks_like_tpu(text(pool.props, "nodeConfig.machineType"))


def template_machine(template: Resource) -> Machine | None:
    """The TPU machine of an instance template; None for others."""
    return MACHINES.get(text(template.props, "machineType").rpartition("/")[2])


def dims(name: str) -> topology.Dims | None:
    """Sides of a topology; None when the name is not one."""
    try:
        return topology.parse(name)
    except ValueError:
        return None


def slice_hosts(machine: Machine, name: str) -> int | None:
    """Hosts of one slice of a topology; None when whole hosts cannot build it."""
    try:
        return topology.hosts(machine, topology.parse(name))
    except ValueError:
        return None


def shape_problem(machine: Machine, name: str) -> str | None:
    """Why a machine type cannot build slices of a topology; None when it can."""
    sides, generation = dims(name), machine.generation
    if sides is None:
        return f"{name} is not a topology"
    if not topology.exists(generation, sides):
        return f"{generation.name} has no topology {name}"
    try:
        hosts = topology.hosts(machine, sides)
    except ValueError as error:
        return str(error)
    if hosts > 1 and not machine.multi_host:
        return f"{machine.name} is a slice by itself, {machine.topology}, never part of one"
    return None


def boot_disk_problem(machine: Machine, kind: str) -> str | None:
    """Why a machine type cannot boot from a type of disk; None when it can, or the plan does not say which."""
    disks = machine.generation.boot_disks
    return (
        f"is {kind}; {machine.generation.name} boots from {' or '.join(disks)}" if kind and kind not in disks else None
    )


def autoscaled(pool: Resource) -> bool:
    """Whether GKE sets the size of a node pool."""
    return is_set(pool.props, "autoscaling")


def most_nodes(pool: Resource) -> int | None:
    """Nodes a pool may have at most; None where the plan does not say."""
    if not autoscaled(pool):
        size = number(pool.props, "nodeCount")
        return number(pool.props, "initialNodeCount") if size is None else size
    total = number(pool.props, "autoscaling.totalMaxNodeCount")
    if total is not None:
        return total
    per_zone = number(pool.props, "autoscaling.maxNodeCount")
    return None if per_zone is None else per_zone * max(1, len(items(pool.props, "nodeLocations")))


def pairs(encoded: str) -> dict[str, str]:
    """Labels written as `k=v,k=v`."""
    return dict(pair.split("=", 1) for pair in encoded.split(",") if "=" in pair)


def metadata_labels(template: Resource) -> dict[str, str]:
    """What a template's `kube-labels` tells the TPU device plugin."""
    return pairs(text(mapping(template.props, "metadata"), "kube-labels"))


def template_topology(template: Resource) -> str:
    """Topology of the slices that a template's hosts build; empty where it does not say."""
    return metadata_labels(template).get(TOPOLOGY_LABEL, "")


def _referred(stack: Stack, resource: Resource, property_: str, *kinds: str) -> Resource | None:
    """The one resource of these kinds that a property of another comes from."""
    found = [stack.by_urn[urn] for urn in resource.property_dependencies.get(property_, ()) if urn in stack.by_urn]
    fitting = [each for each in found if each.type in kinds]
    return fitting[0] if len(fitting) == 1 else None


def template_of(stack: Stack, mig: Resource) -> Resource | None:
    """The instance template of a managed instance group, where it is in the same stack."""
    return _referred(stack, mig, "versions", *tokens.TEMPLATES)


def may_have_tpus(stack: Stack, nodes: Resource) -> bool:
    """Whether a node pool or managed instance group has TPU hosts; a group does whose template is not in the stack."""
    if nodes.type == tokens.NODE_POOL:
        return is_tpu_pool(nodes)
    template = template_of(stack, nodes)
    return template is None or template_machine(template) is not None


def policy_of(stack: Stack, mig: Resource) -> Resource | None:
    """The workload policy of a managed instance group, where it is in the same stack."""
    return _referred(stack, mig, "resourcePolicies", tokens.RESOURCE_POLICY)


def mode(mig: Resource) -> str:
    """How a managed instance group makes its VMs: all at once (BULK) or one by one (INDIVIDUAL, the default)."""
    modes = [text(policy, "mode") for policy in items(mig.props, "targetSizePolicies")]
    return next(filter(None, modes), "INDIVIDUAL")


@dataclass(frozen=True)
class Capacity:
    """TPU hosts that a stack asks for: `hosts` at most, of one machine type, in one pool or group."""

    resource: Resource
    machine: Machine
    hosts: int
    spot: bool

    @property
    def chips(self) -> int:
        return self.hosts * self.machine.chips

    def usd_per_hour(self, prices: Mapping[str, float]) -> float | None:
        """What an hour costs; None where no price is known.

        `prices`: USD of a chip-hour by generation, where they are not those of the catalogue. Spot is estimated.
        """
        generation = self.machine.generation
        listed = generation.price.amount if generation.price else None
        price = prices.get(generation.name, listed)
        return None if price is None else self.chips * price * (generation.spot_factor if self.spot else 1)


def capacity(stack: Stack) -> Iterator[Capacity]:
    """All TPU hosts of a stack, node pools and managed instance groups alike, of known size."""
    for pool in stack.of_type(tokens.NODE_POOL):
        machine, hosts = pool_machine(pool), most_nodes(pool)
        if machine and hosts is not None:
            yield Capacity(pool, machine, hosts, at(pool.props, "nodeConfig.spot") is True)
    for mig in stack.of_type(*tokens.MIGS):
        template, hosts = template_of(stack, mig), number(mig.props, "targetSize")
        machine = template_machine(template) if template else None
        if template and machine and hosts is not None:
            yield Capacity(mig, machine, hosts, text(template.props, "scheduling.provisioningModel") == "SPOT")


def zones(props: Props) -> list[str]:
    """Zones in which a resource puts hosts; empty where it does not say, or they are not known."""
    if text(props, "zone"):
        return [text(props, "zone").rpartition("/")[2]]
    listed = items(props, "nodeLocations") or items(props, "distributionPolicyZones")
    return [zone for zone in listed if known(zone)]
