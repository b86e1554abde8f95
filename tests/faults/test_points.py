"""The campaign's points and its choice among them."""

import random
from itertools import pairwise

from sandbox.google.faults import Fault
from tests.faults.edit import edited_property
from tests.faults.kinds import API, CREATE, DELETE, KINDS, NOTHING, PHASES, UPDATE
from tests.faults.points import FAILING, STACKS, chain, graph, points, resources, sample
from tests.graph.recording import reachable

FOUND = {stack: resources(stack) for stack in STACKS}


def test_every_resource_of_a_provider_is_in_the_campaign() -> None:
    for stack, names in FOUND.items():
        requests = graph(stack).requests.values()
        custom = {f"{each.type}::{each.name}" for each in requests if each.custom}
        assert {each.partition(":")[0] for each in custom - set(names)} == {"pulumi"}
        assert len(names) == len(set(names))


def test_every_kind_has_points_in_each_of_its_phases_on_every_stack() -> None:
    for stack, names in FOUND.items():
        found = {(point.fault, point.phase) for point in points(stack, names)}
        assert found == {(kind.name, phase) for kind in KINDS for phase in kind.phases}


def test_only_what_changes_in_place_has_an_update() -> None:
    found = {point.type for point in points("team", FOUND["team"]) if point.phase == UPDATE}
    assert "gcp:projects/iAMMember:IAMMember" not in found
    assert {"gcp:compute/firewall:Firewall", "kubernetes:helm.sh/v3:Release", "kubernetes:core/v1:Namespace"} <= found
    assert all(edited_property(type_) for type_ in found)


def test_a_kind_is_a_fault_that_the_emulated_cloud_takes() -> None:
    for kind in KINDS:
        assert Fault.model_validate({**kind.fault, "step": "create a::b"}).kind == kind.fault["kind"]
        assert set(kind.phases) <= set(PHASES)


def test_nothing_is_a_point_where_no_request_could_be_struck() -> None:
    found = {(point.type, point.phase, point.fault) for each in STACKS for point in points(each, FOUND[each])}
    assert (API, CREATE, "cut before") in found
    assert not [each for each in found if each[:2] == (API, DELETE)], "an API stays on"
    assert ("gcp:projects/iAMMember:IAMMember", CREATE, "operation error") not in found, "no operation"
    assert ("gcp:compute/firewall:Firewall", CREATE, "operation error") in found


def test_a_chain_is_as_deep_as_the_graph_and_each_needs_the_one_before_it() -> None:
    for stack in STACKS:
        monitor = graph(stack)
        urns = {f"{each.type}::{each.name}": urn for urn, each in monitor.requests.items()}
        found = chain(stack, random.Random(1))
        assert len(found) > 8
        assert {each.partition(":")[0] for each in found} == {"gcp", "kubernetes"}
        for earlier, later in pairwise(found):
            assert urns[earlier] in reachable(monitor, urns[later])


def test_a_sample_takes_each_resource_once_and_every_kind() -> None:
    for stack in STACKS:
        every, line = list(points(stack, FOUND[stack])), chain(stack, random.Random(2))
        for phase in PHASES:
            chosen = sample(every, phase, {}, random.Random(1), 5, line)
            assert len({point.resource for point in chosen}) == len(chosen)
            assert {point.fault for point in chosen} == {kind.name for kind in KINDS if phase in kind.phases}
            costly = [point for point in chosen if point.is_costly]
            assert len({point.fault for point in costly}) == len(costly) <= 5
            assert {point.resource for point in costly} <= set(line)
            failing = [point for point in chosen if not point.is_costly and point.kind.after != NOTHING]
            assert len(failing) <= FAILING + len(KINDS)
            assert len(chosen) > len(FOUND[stack]) / 3


def test_a_sample_takes_first_what_struck_least() -> None:
    every = [point for point in points("dev", FOUND["dev"]) if point.resource == FOUND["dev"][0]]
    names = {point.fault for point in every if point.phase == CREATE and not point.is_costly}
    for name in names:
        tried = {(CREATE, each): 5 for each in names - {name}}
        assert [each.fault for each in sample(every, CREATE, tried, random.Random(1), 0)] == [name]


def test_a_sample_takes_what_was_lost_before_all_others() -> None:
    """A lost point of a costly kind was struck again only where the chain happened to pass."""
    every = [point for point in points("dev", FOUND["dev"]) if point.phase == CREATE]
    for point in every:
        assert point in sample(every, CREATE, {}, random.Random(1), 0, ("none",), [point])
