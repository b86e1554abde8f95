"""The campaign's points and its choice among them."""

import random
from collections import Counter

from sandbox.google.faults import Fault
from tests.faults.edit import edited_property
from tests.faults.kinds import CREATE, DELETE, KINDS, PHASES, UPDATE
from tests.faults.points import STACKS, points, resources, sample
from tests.graph.recording import ROOT, record_stack

FOUND = {stack: resources(stack) for stack in STACKS}


def test_every_resource_of_a_provider_is_in_the_campaign() -> None:
    for stack, names in FOUND.items():
        requests = record_stack(ROOT / f"Pulumi.{stack}.yaml").requests.values()
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


def test_a_sample_takes_each_resource_once_and_kinds_evenly() -> None:
    every = list(points("dev", FOUND["dev"]))
    for phase in (CREATE, DELETE):
        chosen = sample(every, phase, {}, random.Random(1), 3)
        assert len({point.resource for point in chosen}) == len(chosen) == len(FOUND["dev"])
        assert sum(point.is_costly for point in chosen) == 3
        counts = Counter(point.fault for point in chosen if not point.is_costly)
        free = {point.fault for point in every if point.phase == phase and not point.is_costly}
        kinds = free - {"stockout"}  # at machines only
        assert max(counts[each] for each in kinds) - min(counts[each] for each in kinds) < len(FOUND["dev"]) / 2
        assert min(counts[each] for each in kinds) > 0


def test_a_sample_takes_first_what_was_tried_least() -> None:
    every = [point for point in points("dev", FOUND["dev"]) if point.resource == FOUND["dev"][0]]
    names = {point.fault for point in every if point.phase == CREATE and not point.is_costly}
    for name in names:
        tried = {(CREATE, each): 5 for each in names - {name}}
        assert [each.fault for each in sample(every, CREATE, tried, random.Random(1), 0)] == [name]
