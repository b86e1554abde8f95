"""Topology maths: which shapes exist, and how many hosts they take.

Two-dimensional generations have a fixed set; three-dimensional ones have four small shapes and every AxBxC of multiples
of 4 with A <= B <= C <= 256 and (A/4)(B/4)(C/4) <= the generation's cubes (xpk `system_characteristics.py` and
cluster-toolkit `hardware.go` agree; the limit of 256 is xpk's).
"""

import math
from functools import cache

from catalogue.generations import MACHINES_BY_GENERATION, Generation, Machine

Dims = tuple[int, ...]

SHAPES_2D: tuple[Dims, ...] = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
SMALL_SHAPES_3D: tuple[Dims, ...] = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
MAX_SIDE = 256


def parse(topology: str) -> Dims:
    """Sides of a topology such as `4x4x8`; raises ValueError when it is not of that form."""
    sides = tuple(int(side) for side in topology.split("x"))
    if len(sides) not in (2, 3) or min(sides) < 1:
        raise ValueError(topology)
    return sides


def render(dims: Dims) -> str:
    """The usual spelling: `4x4x8`."""
    return "x".join(map(str, dims))


def canonical(dims: Dims) -> Dims:
    """The order in which Google names a shape: ascending, except 2x2x1."""
    ascending = tuple(sorted(dims))
    return (2, 2, 1) if ascending == (1, 2, 2) else ascending


def exists(generation: Generation, dims: Dims) -> bool:
    """Whether the generation has this shape, in this order of sides."""
    if any(parse(machine.topology) == dims for machine in MACHINES_BY_GENERATION[generation.name]):
        return True
    if generation.cubes is None:
        return dims in SHAPES_2D
    return dims in SMALL_SHAPES_3D or (
        len(dims) == 3
        and all(side % 4 == 0 and 4 <= side <= MAX_SIDE for side in dims)
        and list(dims) == sorted(dims)
        and math.prod(dims) // 64 <= generation.cubes
    )


@cache
def shapes(generation: Generation) -> tuple[Dims, ...]:
    """Every shape of a generation, by number of chips: 8 in two dimensions; 186 (v4), 414 (v5p), 432 + 1 (tpu7x)."""
    if generation.cubes is None:
        return SHAPES_2D
    side = range(1, MAX_SIDE // 4 + 1)
    large = (
        (4 * a, 4 * b, 4 * c)
        for a in side
        for b in side[a - 1 :]
        for c in side[b - 1 :]
        if a * b * c <= generation.cubes
    )
    single = (parse(machine.topology) for machine in MACHINES_BY_GENERATION[generation.name])
    return tuple(sorted({*single, *SMALL_SHAPES_3D, *large}, key=lambda dims: (math.prod(dims), dims)))


def hosts(machine: Machine, dims: Dims) -> int:
    """Hosts of one slice: its chips divided by the chips of a host; raises ValueError when that is no whole number."""
    whole, rest = divmod(math.prod(dims), machine.chips)
    if rest:
        raise ValueError(f"{render(dims)} is not a whole number of {machine.name} hosts")
    return whole
