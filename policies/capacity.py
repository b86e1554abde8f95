"""Counts the TPU chips of a stack: pools and groups at their largest, single machines and TPU VMs."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from catalogue.generations import GENERATIONS, MACHINES, Generation
from policies import tokens
from policies.nodes import CONFIG, keeps_default_pool
from policies.registry import Resource, Stack
from policies.tpu import autoscaled, dims, looks_like_tpu, referred, template_of
from policies.values import Props, at, items, number, text

REGION_ZONES = 3
"""Zones over which GKE spreads the default pool of a regional cluster that names none."""

CHIPS_IN_NAME = re.compile(r"-(?P<chips>[0-9]+)t(-tpu)?")
FAMILIES = {name.partition("-")[0]: machine.generation for name, machine in MACHINES.items()}

# Types of the Cloud TPU API: v6e-8, v5litepod-16. For these generations the number means TensorCores, two per chip.
ACCELERATOR_TYPE = re.compile(r"(?P<kind>[a-z][a-z0-9]*)-(?P<number>[0-9]+)")
COUNTED_IN_CORES = ("v2", "v3", "v4", "v5p")
SAME_KIND = {"v5litepod": "v5e", "v5lite_pod": "v5e"}
DEFAULT_TPU_VM = "v2-8"


@dataclass(frozen=True)
class Capacity:
    """The most TPU chips of one resource. `kind`: the generation's name, or the type's if the catalogue does not know
    it; then `generation` is None."""

    resource: Resource
    chips: int
    kind: str
    generation: Generation | None
    spot: bool

    def usd_per_hour(self, prices: Mapping[str, float]) -> float | None:
        """Price of an hour; None if unknown.

        `prices`: USD per chip-hour by generation, instead of the catalogue's. Spot is estimated.
        """
        listed = self.generation.price.amount if self.generation and self.generation.price else None
        price = prices.get(self.kind, listed)
        factor = self.generation.spot_factor if self.generation and self.spot else 1
        return None if price is None else self.chips * price * factor


def capacity(stack: Stack) -> Iterator[Capacity]:
    """All TPU chips of a stack whose number is known in the preview."""
    for pool in stack.of_type(tokens.NODE_POOL):
        yield from _hosts(
            pool, _machine(pool.props, CONFIG), most_nodes(pool), at(pool.props, f"{CONFIG}.spot") is True
        )
    for cluster in stack.of_type(tokens.CLUSTER):
        if keeps_default_pool(cluster):
            spot = at(cluster.props, f"{CONFIG}.spot") is True
            yield from _hosts(cluster, _machine(cluster.props, CONFIG), _default_nodes(cluster), spot)
    for mig in stack.of_type(*tokens.MIGS):
        if template := template_of(stack, mig):
            yield from _hosts(mig, _machine(template.props), _group_size(stack, mig), _spot(template.props))
    for instance in stack.of_type(tokens.INSTANCE, *tokens.DERIVED_INSTANCES):
        template = template_of(stack, instance) if instance.type == tokens.INSTANCE_FROM_TEMPLATE else None
        machine = _machine(instance.props) or (_machine(template.props) if template else None)
        spot = _spot(instance.props) or (template is not None and _spot(template.props))
        yield from _hosts(instance, machine, 1, spot)
    yield from _tpu_vms(stack)


def _hosts(resource: Resource, machine: tuple[str, int] | None, hosts: int | None, spot: bool) -> Iterator[Capacity]:
    """Capacity of a number of hosts; `machine`: kind of TPU and chips of a host."""
    if machine is not None and hosts is not None:
        kind, chips = machine
        yield Capacity(resource, chips * hosts, kind, GENERATIONS.get(kind), spot)


def _machine(props: Props, below: str = "") -> tuple[str, int] | None:
    """Kind and chips of a machine, from its type or its accelerators; None where it has no TPU.

    For a type that the catalogue does not know, its name gives the chips.
    """
    prefix = f"{below}." if below else ""
    name = text(props, f"{prefix}machineType").rpartition("/")[2]
    if name in MACHINES:
        return MACHINES[name].generation.name, MACHINES[name].chips
    if looks_like_tpu(name):
        family = name.partition("-")[0]
        written = CHIPS_IN_NAME.search(name)
        kind = FAMILIES[family].name if family in FAMILIES else family
        return kind, int(written["chips"]) if written else 1
    for accelerator in items(props, f"{prefix}guestAccelerators"):
        kind = text(accelerator, "type").rpartition("/")[2]
        if looks_like_tpu(kind):
            by_label = {each.accelerator: each.name for each in GENERATIONS.values()}
            return by_label.get(kind, kind), number(accelerator, "count") or 0
    return None


def _spot(props: Props) -> bool:
    return text(props, "scheduling.provisioningModel") == "SPOT"


def most_nodes(pool: Resource) -> int | None:
    """Most nodes of a pool, in all its zones; None where unknown."""
    zones = max(1, len(items(pool.props, "nodeLocations")))
    total = number(pool.props, "autoscaling.totalMaxNodeCount")
    if autoscaled(pool) and total is not None:
        return total
    size = number(pool.props, "nodeCount")
    initial = number(pool.props, "initialNodeCount") if size is None else size
    per_zone = number(pool.props, "autoscaling.maxNodeCount") if autoscaled(pool) else initial
    return None if per_zone is None else per_zone * zones


def _default_nodes(cluster: Resource) -> int:
    """Nodes of the default pool; its initial count is for each zone."""
    named = len(items(cluster.props, "nodeLocations"))
    in_zone = text(cluster.props, "location").count("-") > 1
    # A zonal cluster has its own zone and those that it names.
    zones = named + 1 if in_zone else named or REGION_ZONES
    return (number(cluster.props, "initialNodeCount") or 0) * zones


def _group_size(stack: Stack, mig: Resource) -> int | None:
    """Most hosts of a group: by its size, its autoscaler, and its resize requests."""
    sizes = [number(mig.props, "targetSize")]
    for scaler in stack.of_type(tokens.AUTOSCALER, tokens.REGION_AUTOSCALER):
        if _points_at(stack, scaler, "target", mig):
            sizes.append(number(scaler.props, "autoscalingPolicy.maxReplicas"))
    requests = [
        number(request.props, "resizeBy") or 0
        for request in stack.of_type(tokens.RESIZE_REQUEST)
        if _points_at(stack, request, "instanceGroupManager", mig)
    ]
    known = [size for size in sizes if size is not None]
    return max(known, default=0) + sum(requests) if known or requests else None


def _points_at(stack: Stack, resource: Resource, property_: str, mig: Resource) -> bool:
    return referred(stack, resource, property_, *tokens.MIGS) is mig


def _tpu_vms(stack: Stack) -> Iterator[Capacity]:
    """Slices of the Cloud TPU API, created directly or as queued resources."""
    for vm in stack.of_type(tokens.TPU_VM):
        spot = any(at(vm.props, f"schedulingConfig.{key}") is True for key in ("spot", "preemptible"))
        yield from _tpu_vm(vm, vm.props, spot)
    for request in stack.of_type(tokens.QUEUED_RESOURCE):
        for spec in items(request.props, "tpu.nodeSpecs"):
            yield from _tpu_vm(request, at(spec, "node"), spot=False)


def _tpu_vm(resource: Resource, node: Props, spot: bool) -> Iterator[Capacity]:
    topology = dims(text(node, "acceleratorConfig.topology"))
    if topology is not None:
        kind, chips = text(node, "acceleratorConfig.type").lower(), math.prod(topology)
    else:
        unset = at(node, "acceleratorType") is None and at(node, "acceleratorConfig") is None
        written = ACCELERATOR_TYPE.fullmatch(DEFAULT_TPU_VM if unset else text(node, "acceleratorType"))
        if written is None:
            return  # not known yet, or refused by the API
        kind, chips = written["kind"], int(written["number"])
        chips = math.ceil(chips / 2) if kind in COUNTED_IN_CORES else chips
    kind = SAME_KIND.get(kind, kind)
    yield Capacity(resource, chips, kind, GENERATIONS.get(kind), spot)
