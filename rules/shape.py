"""Whether a slice has one machine type and topology. Later rules build on earlier ones: the first refusal ends it."""

import math
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from catalogue import topology
from catalogue.generations import FOREIGN_MACHINES, GENERATIONS, MACHINES, Generation
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.shape import candidates, resolve, shapes_of_size
from plan.words import counted
from platform_config.fields import shown
from platform_config.slice import Slice
from rules.registry import SHAPE, Finding

WAYS = (("machine_type", "topology"), ("generation", "topology"), ("generation", "chips"))
OTHER_NAMES = {other: each.name for each in GENERATIONS.values() for other in each.other_names}
SUGGESTIONS = 8


@SHAPE.rule(
    "no-bare-suffix",
    reason="Tools read the number in v5p-8 differently: as TensorCores (xpk) or as chips (cluster-toolkit, kinetic).",
    source="xpk system_characteristics.py; cluster-toolkit pkg/config/hardware.go",
)
def no_bare_suffix(spec: Slice) -> Iterator[Finding]:
    for key in ("machine_type", "generation"):
        match = re.fullmatch(r"([a-z0-9]{1,20})-([0-9]{1,6})", (getattr(spec, key) or "").lower())
        generation = match and GENERATIONS.get(OTHER_NAMES.get(match[1], match[1]))
        if match and generation:
            yield Finding(key, *_readings(getattr(spec, key), generation, int(match[2])))


def _readings(name: str, generation: Generation, number: int) -> tuple[str, str]:
    """What a name such as v5p-8 may mean, and how to write each meaning."""
    if generation.tensor_cores == 1:
        return (
            f"{name} names a whole slice, not its machine type or generation",
            f"write generation: {generation.name} and {_sized(generation, number)}",
        )
    chips = number // generation.tensor_cores
    return (
        f"{name} has two readings: {number} TensorCores are {chips} chips (xpk), or {number} chips (cluster-toolkit)",
        f"write generation: {generation.name} and {_sized(generation, chips)} for the first, "
        f"or {_sized(generation, number)} for the second",
    )


def _sized(generation: Generation, chips: int) -> str:
    shapes = shapes_of_size(generation, chips)
    if not shapes:
        return f"the topology you mean (none has {chips} chips)"
    return "topology: " + " or ".join(map(topology.render, shapes[:SUGGESTIONS]))


@SHAPE.rule(
    "one-shape",
    reason="The same topology can be one host or several: 2x4 is one ct6e-standard-8t or two ct6e-standard-4t.",
    source="GKE documentation; cluster-autoscaler IsMultiHostTpuPodslice",
)
def one_shape(spec: Slice) -> Iterator[Finding]:
    given = tuple(key for key in ("machine_type", "generation", "topology", "chips") if getattr(spec, key) is not None)
    if given not in WAYS:
        yield Finding(
            "",
            f"{' and '.join(given) or 'nothing'} given; a slice is exactly one of: "
            "machine_type and topology, generation and topology, generation and chips",
            _example(spec),
        )


def _example(spec: Slice) -> str:
    """An example of a slice, with the generation that the person probably meant."""
    named = f"{spec.machine_type or ''} {spec.generation or ''}".lower()
    machine = MACHINES.get((spec.machine_type or "").lower())
    generation = machine.generation if machine else next((g for g in GENERATIONS.values() if g.name in named), None)
    if generation is None or generation.name == "v6e":
        return "for example machine_type: ct6e-standard-4t with topology: 4x4"
    several = next(dims for dims in topology.shapes(generation) if len(candidates(generation, dims)) == 1)
    return f"for example generation: {generation.name} with topology: {topology.render(several)}"


@SHAPE.rule(
    "known-generation",
    reason="Host counts, labels and limits follow from the generation.",
    source="cluster-autoscaler machine type tables",
)
def known_generation(spec: Slice) -> Iterator[Finding]:
    name = spec.generation
    if name is not None and name not in GENERATIONS:
        lowered = name.lower()
        close = [OTHER_NAMES[lowered]] if lowered in OTHER_NAMES else get_close_matches(lowered, GENERATIONS, 1)
        yield Finding("generation", f"{shown(name)} is not a TPU generation", _choice(close, GENERATIONS))


@SHAPE.rule(
    "known-machine-type",
    reason="Only hosts of these machine types are built as slices.",
    source="cluster-autoscaler machinetypes tables",
)
def known_machine_type(spec: Slice) -> Iterator[Finding]:
    name = spec.machine_type
    if name is None or name in MACHINES:
        return
    if name in FOREIGN_MACHINES:
        yield Finding("machine_type", f"{name} is not offered here: {FOREIGN_MACHINES[name]}", _choice([], MACHINES))
        return
    close = get_close_matches(name.lower(), MACHINES, 1)
    yield Finding("machine_type", f"{shown(name)} is not a TPU machine type", _choice(close, MACHINES))


def _choice(close: list[str], known: Iterable[str]) -> str:
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"


@SHAPE.rule(
    "topology-form",
    reason="A topology is its sides in chips, joined by x.",
    source="GKE documentation, label cloud.google.com/gke-tpu-topology",
)
def topology_form(spec: Slice) -> Iterator[Finding]:
    if spec.topology is None or re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){1,2}", spec.topology):
        return
    hint = "for example 4x4, or 4x4x8 in three dimensions"
    if re.fullmatch(r"\s*[1-9][0-9]{0,3}(\s*[xX*,]\s*[1-9][0-9]{0,3}){1,2}\s*", spec.topology):
        hint = f"write {'x'.join(re.findall('[0-9]+', spec.topology))}"
    yield Finding("topology", f"{shown(spec.topology)} is not a topology", hint)


@SHAPE.rule(
    "topology-dimensions",
    reason="v5e and v6e are wired in two dimensions; v4, v5p and tpu7x in three.",
    source="Cloud TPU documentation",
)
def topology_dimensions(spec: Slice) -> Iterator[Finding]:
    dims, generation = _dims(spec), _generation(spec)
    if dims and len(dims) != generation.dimensions:
        words = {2: "two", 3: "three"}
        yield Finding(
            "topology",
            f"{spec.topology} has {words[len(dims)]} dimensions; {generation.name} has {words[generation.dimensions]}",
            _suggest(spec, math.prod(dims)),
        )


@SHAPE.rule(
    "topology-order",
    reason="Google names a shape by its sides in ascending order (and 2x2x1), and refuses other orders late.",
    source="cluster-toolkit pkg/config/hardware.go Validate3DTopology",
)
def topology_order(spec: Slice) -> Iterator[Finding]:
    dims, generation = _dims(spec), _generation(spec)
    if dims and dims != (usual := topology.canonical(dims)) and topology.exists(generation, usual):
        yield Finding(
            "topology", f"{spec.topology} is not in the usual order of sides", f"write {topology.render(usual)}"
        )


@SHAPE.rule(
    "topology-exists",
    reason="Two-dimensional generations have eight shapes; the others multiples of 4, up to a number of cubes.",
    source="xpk system_characteristics.py; cluster-toolkit pkg/config/hardware.go",
)
def topology_exists(spec: Slice) -> Iterator[Finding]:
    dims, generation = _dims(spec), _generation(spec)
    if dims and not topology.exists(generation, dims):
        small = ", ".join(map(topology.render, topology.SMALL_SHAPES_3D))
        large = f"sides are multiples of 4, at most {generation.cubes} 4x4x4 cubes, but for {small}"
        limit = f" ({large})" if generation.cubes else ""
        yield Finding(
            "topology",
            f"{generation.name} has no topology {spec.topology}{limit}",
            _suggest(spec, math.prod(dims)),
        )


@SHAPE.rule(
    "machine-fits-topology",
    reason="Hosts of 1 or 8 chips never form a multi-host slice, and a slice consists of whole hosts.",
    source="GKE documentation; cluster-autoscaler machine type tables",
)
def machine_fits_topology(spec: Slice) -> Iterator[Finding]:
    dims, machine = _dims(spec), MACHINES.get(spec.machine_type or "")
    if not dims or machine is None or any(shape.machine is machine for shape in candidates(machine.generation, dims)):
        return
    fitting = candidates(machine.generation, dims)
    several = (
        "" if machine.multi_host else f": {machine.name} is a slice by itself, {machine.topology}, never part of one"
    )
    yield Finding(
        "topology",
        f"{machine.name} cannot build {spec.topology}{several}",
        f"write topology: {machine.topology}, or machine_type: {fitting[0].machine.name}"
        if fitting
        else f"write topology: {machine.topology}",
    )


@SHAPE.rule(
    "one-machine-type",
    reason="The same topology can be one large host or several smaller ones.",
    source="xpk, kinetic and cluster-autoscaler disagree with SkyPilot about 2x4 on 4-chip hosts",
)
def one_machine_type(spec: Slice) -> Iterator[Finding]:
    dims = _dims(spec)
    if spec.generation and dims and len(candidates(GENERATIONS[spec.generation], dims)) > 1:
        yield Finding("topology", *_several_machines(GENERATIONS[spec.generation], dims))


def _several_machines(generation: Generation, dims: topology.Dims) -> tuple[str, str]:
    ways = [(shape.machine.name, counted(shape.hosts, "host")) for shape in candidates(generation, dims)]
    readings = " or ".join(f"{hosts} of {name}" for name, hosts in ways)
    return (
        f"{topology.render(dims)} of {generation.name} is {readings}",
        f"write machine_type: {' or '.join(name for name, _ in ways)} instead of generation",
    )


@SHAPE.rule(
    "chips-unambiguous",
    reason="Several shapes can have the same number of chips, and differ in bandwidth.",
    source="xpk aliases and cluster-toolkit shorthands differ",
)
def chips_unambiguous(spec: Slice) -> Iterator[Finding]:
    if spec.generation is None or spec.chips is None:
        return
    generation = GENERATIONS[spec.generation]
    shapes = shapes_of_size(generation, spec.chips)
    if not shapes:
        yield Finding(
            "chips", f"no topology of {generation.name} has {counted(spec.chips, 'chip')}", _suggest(spec, spec.chips)
        )
    elif len(shapes) > 1:
        more = f" or {len(shapes) - SUGGESTIONS} more" if len(shapes) > SUGGESTIONS else ""
        yield Finding(
            "chips",
            f"{len(shapes)} topologies of {generation.name} have {counted(spec.chips, 'chip')}",
            f"write topology: {' or '.join(map(topology.render, shapes[:SUGGESTIONS]))}{more}",
        )
    elif len(candidates(generation, shapes[0])) > 1:
        yield Finding("chips", *_several_machines(generation, shapes[0]))


@SHAPE.rule(
    "pool-size",
    reason="Hosts of a slice, or single-host slices together, are one managed instance group: at most 2,000 VMs.",
    source="cluster-autoscaler gceLimitOnMigSizes",
)
def pool_size(spec: Slice) -> Iterator[Finding]:
    shape = resolve(spec)
    if shape.hosts > MAX_HOSTS_PER_POOL:
        yield Finding(
            "topology",
            f"{shape.topology} takes {shape.hosts} hosts; a slice has at most {MAX_HOSTS_PER_POOL}",
            f"use several slices of at most {MAX_HOSTS_PER_POOL * shape.machine.chips} chips",
        )
    elif not shape.multi_host and spec.count > MAX_HOSTS_PER_POOL:
        yield Finding(
            "count",
            f"{spec.count} single-host slices share one pool, which has at most {MAX_HOSTS_PER_POOL} hosts",
            "split them over several entries",
        )


def _generation(spec: Slice) -> Generation:
    return MACHINES[spec.machine_type].generation if spec.machine_type else GENERATIONS[spec.generation or ""]


def _dims(spec: Slice) -> topology.Dims | None:
    return topology.parse(spec.topology) if spec.topology else None


def _suggest(spec: Slice, chips: int) -> str:
    """Topologies close in size, of those that the machine type can build."""
    possible = [
        dims
        for dims in topology.shapes(_generation(spec))
        if any(spec.machine_type in (None, shape.machine.name) for shape in candidates(_generation(spec), dims))
    ]
    nearest = sorted(possible, key=lambda dims: (abs(math.prod(dims) - chips), max(dims)))[:2]
    return "for example " + " or ".join(
        f"{topology.render(dims)} ({counted(math.prod(dims), 'chip')})" for dims in sorted(nearest, key=math.prod)
    )
