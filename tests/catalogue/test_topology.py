"""Topology maths, on every shape there is and on many there are not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES, Generation, Machine
from catalogue.limits import MAX_HOSTS_PER_POOL
from plan.shape import candidates
from tests.platforms import ZONES, errors, load, raw

generations = st.sampled_from(list(GENERATIONS.values()))
machines = st.sampled_from(list(MACHINES.values()))


def buildable(machine: Machine) -> list[topology.Dims]:
    return [
        dims
        for dims in topology.shapes(machine.generation)
        if any(shape.machine is machine for shape in candidates(machine.generation, dims))
    ]


# (machine, topology, hosts): the multi-host table of GKE's documentation, and every single-host machine.
DOCUMENTED = [
    *[("ct4p-hightpu-4t", t, n) for t, n in [("2x2x1", 1), ("2x2x2", 2), ("2x2x4", 4), ("2x4x4", 8), ("4x4x4", 16)]],
    *[(m, "1x1", 1) for m in ("ct5lp-hightpu-1t", "ct6e-standard-1t")],
    *[
        (machine, shape, hosts)
        for machine in ("ct5lp-hightpu-4t", "ct6e-standard-4t")
        for shape, hosts in [("2x2", 1), ("2x4", 2), ("4x4", 4), ("4x8", 8), ("8x8", 16), ("8x16", 32), ("16x16", 64)]
    ],
    *[(m, "2x4", 1) for m in ("ct5lp-hightpu-8t", "ct6e-standard-8t")],
    *[("ct5p-hightpu-4t", t, n) for t, n in [("2x2x1", 1), ("2x2x2", 2), ("4x4x4", 16), ("16x16x24", 1536)]],
    ("tpu7x-standard-1t", "1x1x1", 1),
    *[
        ("tpu7x-standard-4t", t, n)
        for t, n in [("2x2x1", 1), ("2x2x2", 2), ("2x4x4", 8), ("4x4x4", 16), ("8x8x8", 128)]
    ],
]


@pytest.mark.parametrize(("machine", "shape", "hosts"), DOCUMENTED)
def test_documented_host_counts(machine: str, shape: str, hosts: int) -> None:
    (plan,) = load(
        {"s": {"machine_type": machine, "topology": shape}}, zone=ZONES[MACHINES[machine].generation.name]
    ).slice_plans
    assert (plan.hosts, plan.topology, plan.multi_host) == (hosts, shape, hosts > 1)
    assert [pool.node_count for pool in plan.pools] == [hosts]


def test_every_machine_type_is_documented_here() -> None:
    assert {machine for machine, _, _ in DOCUMENTED} == set(MACHINES)


@pytest.mark.parametrize(("generation", "shapes"), [("v4", 186), ("v5e", 8), ("v5p", 414), ("v6e", 8), ("tpu7x", 433)])
def test_number_of_shapes(generation: str, shapes: int) -> None:
    """The counts that xpk's enumeration gives; tpu7x has 1x1x1 of its one-chip machine on top."""
    assert len(topology.shapes(GENERATIONS[generation])) == shapes


def test_shapes_beyond_a_pool() -> None:
    """116 shapes of the 3-D generations exceed the 2,000 VMs of a pool: 49 of v5p, 67 of tpu7x, none of v4."""
    too_large = {
        name: sum(math.prod(dims) > 4 * MAX_HOSTS_PER_POOL for dims in topology.shapes(generation))
        for name, generation in GENERATIONS.items()
    }
    assert too_large == {"v4": 0, "v5e": 0, "v5p": 49, "v6e": 0, "tpu7x": 67}


@given(st.data(), machines)
def test_hosts_times_chips_is_the_product(data: st.DataObject, machine: Machine) -> None:
    dims = data.draw(st.sampled_from(buildable(machine)))
    written = raw(
        {"s": {"machine_type": machine.name, "topology": topology.render(dims)}}, zone=ZONES[machine.generation.name]
    )
    if math.prod(dims) > MAX_HOSTS_PER_POOL * machine.chips:
        (error,) = errors(written)
        assert error.path.endswith(".topology")
        return
    assert errors(written) == ()
    (plan,) = load(written["slices"], zone=written["zone"]).slice_plans
    assert plan.hosts * plan.chips_per_host == math.prod(dims) == plan.chips


@given(machines, st.lists(st.integers(1, 300), min_size=2, max_size=3).map(tuple))
def test_everything_else_is_refused_with_a_suggestion(machine: Machine, dims: topology.Dims) -> None:
    written = raw(
        {"s": {"machine_type": machine.name, "topology": topology.render(dims)}}, zone=ZONES[machine.generation.name]
    )
    found = errors(written)
    if dims in buildable(machine) and math.prod(dims) <= MAX_HOSTS_PER_POOL * machine.chips:
        assert found == ()
    else:
        (error,) = found
        assert error.path == "tpu-platform:platform.slices.s.topology"
        assert error.hint


@given(generations, st.data())
def test_unsorted_shapes_are_refused_with_the_usual_order(generation: Generation, data: st.DataObject) -> None:
    usual = data.draw(st.sampled_from([dims for dims in topology.shapes(generation) if len(set(dims)) > 1]))
    other = data.draw(st.permutations(usual).map(tuple).filter(lambda dims: dims != usual))
    (error,) = errors(
        raw({"s": {"generation": generation.name, "topology": topology.render(other)}}, zone=ZONES[generation.name])
    )
    assert error.hint == f"write {topology.render(usual)}"


@given(generations, st.data())
def test_canonical_shapes_are_their_own_canonical_form(generation: Generation, data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from(topology.shapes(generation)))
    assert topology.canonical(dims) == dims
    assert topology.exists(generation, dims)
    assert topology.parse(topology.render(dims)) == dims
