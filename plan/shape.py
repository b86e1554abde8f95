"""Finds the machine type and topology of a slice from what a person wrote."""

import math
from dataclasses import dataclass
from functools import cache

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES, MACHINES_BY_GENERATION, Generation, Machine
from platform_config.slice import Slice


@dataclass(frozen=True)
class Shape:
    """One slice: `machine` of each host, `dims` in chips, number of `hosts`."""

    machine: Machine
    dims: topology.Dims
    hosts: int

    @property
    def generation(self) -> Generation:
        return self.machine.generation

    @property
    def topology(self) -> str:
        """Canonical spelling, such as `4x4x8`."""
        return topology.render(self.dims)

    @property
    def chips(self) -> int:
        """Chips of one slice."""
        return math.prod(self.dims)

    @property
    def multi_host(self) -> bool:
        return self.hosts > 1


@cache
def shape(machine: Machine, dims: topology.Dims) -> Shape:
    """The shape of a slice of this machine type and size. Raises ValueError when the chips do not fill whole hosts."""
    return Shape(machine, dims, topology.hosts(machine, dims))


@cache
def candidates(generation: Generation, dims: topology.Dims) -> tuple[Shape, ...]:
    """Every way to build a topology of a generation: from one host, or from several."""
    return tuple(
        shape(machine, dims)
        for machine in MACHINES_BY_GENERATION[generation.name]
        if dims == topology.parse(machine.topology)
        or (machine.multi_host and math.prod(dims) % machine.chips == 0 and math.prod(dims) > machine.chips)
    )


@cache
def shapes_of_size(generation: Generation, chips: int) -> tuple[topology.Dims, ...]:
    """Every topology of a generation with that many chips."""
    return tuple(dims for dims in topology.shapes(generation) if math.prod(dims) == chips)


def resolve(spec: Slice) -> Shape:
    """Machine type and topology of a slice that has passed the shape rules (`rules.shape`)."""
    if spec.machine_type is not None:
        return shape(MACHINES[spec.machine_type], topology.parse(spec.topology or ""))
    generation = GENERATIONS[spec.generation or ""]
    dims = topology.parse(spec.topology) if spec.topology else shapes_of_size(generation, spec.chips or 0)[0]
    return candidates(generation, dims)[0]
