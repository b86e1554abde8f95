"""Reads TPU machine types, topologies and capacity from planned resources."""

import re

from catalogue import topology
from catalogue.generations import MACHINES, Machine
from catalogue.labels import TOPOLOGY_LABEL
from policies import tokens
from policies.registry import Resource, Stack
from policies.values import Props, at, is_set, items, known, mapping, text

_TPU_MACHINE = re.compile(r"(.*/)?(ct[0-9]|tpu)")


def looks_like_tpu(machine_type: str) -> bool:
    """Whether this is a TPU machine type, known to the catalogue or not."""
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
    """Why a machine type cannot boot from a type of disk; None when it can, or when the type is not set."""
    disks = machine.generation.boot_disks
    return (
        f"is {kind}; {machine.generation.name} boots from {' or '.join(disks)}" if kind and kind not in disks else None
    )


def autoscaled(pool: Resource) -> bool:
    """Whether GKE sets the size of a node pool."""
    return is_set(pool.props, "autoscaling")


def queued(pool: Resource) -> bool:
    """Whether a node pool is filled by queued provisioning."""
    return at(pool.props, "queuedProvisioning.enabled") is True


def uses_flex_start(pool: Resource) -> bool:
    """Whether a node pool's hosts come from the Dynamic Workload Scheduler."""
    return at(pool.props, "nodeConfig.flexStart") is True or queued(pool)


def pairs(encoded: str) -> dict[str, str]:
    """Labels written as `k=v,k=v`."""
    return dict(pair.split("=", 1) for pair in encoded.split(",") if "=" in pair)


def metadata_labels(template: Resource) -> dict[str, str]:
    """The labels for the TPU device plugin in a template's `kube-labels`."""
    return pairs(text(mapping(template.props, "metadata"), "kube-labels"))


def template_topology(template: Resource) -> str:
    """Topology of the slices that a template's hosts build; empty where it does not say."""
    return metadata_labels(template).get(TOPOLOGY_LABEL, "")


def referred(stack: Stack, resource: Resource, property_: str, *kinds: str) -> Resource | None:
    """The resource of one of these types whose output a property uses, if it is the only one."""
    found = [stack.by_urn[urn] for urn in resource.property_dependencies.get(property_, ()) if urn in stack.by_urn]
    fitting = [each for each in found if each.type in kinds]
    return fitting[0] if len(fitting) == 1 else None


def template_of(stack: Stack, user: Resource) -> Resource | None:
    """The instance template of a managed instance group or of a machine, where it is in the same stack.

    It is found by reference, or by name where the name is plain text.
    """
    derived = user.type == tokens.INSTANCE_FROM_TEMPLATE
    property_, path = ("sourceInstanceTemplate",) * 2 if derived else ("versions", "versions.0.instanceTemplate")
    found = referred(stack, user, property_, *tokens.TEMPLATES)
    name = text(user.props, path).partition("?")[0].rpartition("/")[2]
    named = (each for each in stack.of_type(*tokens.TEMPLATES) if name and text(each.props, "name") == name)
    return found or next(named, None)


def may_have_tpus(stack: Stack, nodes: Resource) -> bool:
    """Whether a node pool or managed instance group may have TPU hosts; true if a group's template is not in the
    stack."""
    if nodes.type == tokens.NODE_POOL:
        return is_tpu_pool(nodes)
    template = template_of(stack, nodes)
    return template is None or template_machine(template) is not None


def policy_of(stack: Stack, mig: Resource) -> Resource | None:
    """The workload policy of a managed instance group, where it is in the same stack."""
    return referred(stack, mig, "resourcePolicies", tokens.RESOURCE_POLICY)


def mode(mig: Resource) -> str:
    """How a managed instance group makes its VMs: all at once (BULK) or one by one (INDIVIDUAL, the default)."""
    modes = [text(policy, "mode") for policy in items(mig.props, "targetSizePolicies")]
    return next(filter(None, modes), "INDIVIDUAL")


def zones(props: Props) -> list[str]:
    """Zones in which a resource puts hosts; empty where they are not set or not known."""
    if text(props, "zone"):
        return [text(props, "zone").rpartition("/")[2]]
    listed = items(props, "nodeLocations") or items(props, "distributionPolicyZones")
    return [zone for zone in listed if known(zone)]
