"""What is wrong with a stack file, and what goes wrong in the cloud: a clear end, and the next update converges."""

from __future__ import annotations

import yaml

from tests.sandbox.conftest import SLIM, Project

CREATE_POOL = {"method": "POST", "path": "/nodePools$"}
# What the cloud does wrong for a while, and the provider gets over by itself.
PASSING = (
    {"kind": "status", "status": 429, "times": 3},
    {"kind": "status", "status": 503, "times": 3},
    {"kind": "cut", "method": "GET", "times": 2},
)


def test_a_bad_stack_file_ends_in_one_list_of_errors(project: Project) -> None:
    """All mistakes at once, each with its place, and what to write instead."""
    slices = {
        "train": {"machine_type": "ct6e-standard-4t", "topology": "2*4", "count": 0},
        "odd": {"machine_type": "ct6e-standard-4t", "topology": "3x3"},
    }
    project.write_stack("mistakes", slices=slices, zon="us-east5-b")
    output = project.fail("preview", "-s", "mistakes")
    places = ("slices.train.topology", "slices.train.count", "slices.odd.topology", "zon")
    instead = ("2x4", "zone")
    for word in (*places, *instead):
        assert word in output
    assert "Traceback" not in output
    assert "gcp:" not in output.replace("gcp:project", ""), "nothing registers"
    assert project.requests() == []


def test_a_missing_project_is_named(project: Project) -> None:
    project.write_stack("homeless")
    path = project.folder / "Pulumi.homeless.yaml"
    content = yaml.safe_load(path.read_text())
    del content["config"]["gcp:project"]
    path.write_text(yaml.safe_dump(content))
    output = project.fail("up", "-s", "homeless", "--yes", "--skip-preview")
    assert "gcp:project" in output
    assert "Traceback" not in output
    assert project.session.inventory() == {}


def test_passing_trouble_is_got_over_and_a_stockout_is_mended_by_the_next_update(project: Project) -> None:
    """Google's passing errors fail nothing. A pool that found no capacity stays in state ERROR until it is replaced."""
    project.write_stack("trouble", **SLIM)
    for fault in PASSING:
        project.inject(**fault)
    project.inject(kind="operation", code="ZONE_RESOURCE_POOL_EXHAUSTED", **CREATE_POOL)
    output = project.fail("up", "-s", "trouble", "--yes", "--skip-preview")
    assert not project.pending_faults(), "every fault has struck"
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in output
    assert not any(word in output for word in ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "disconnected"))
    [broken] = [each["urn"] for each in project.state("trouble")["resources"] if each.get("initErrors")]
    project.up("trouble", "--replace", broken)
    project.assert_clean("trouble")
