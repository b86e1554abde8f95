"""What another version of the program means for a stack, as its state tells."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from components.compute.boot_script import boot_script
from plan.program_version import program_version
from tests.graph.recording import ROOT, inputs, record_stack
from tools import upgrade_check
from tools.__main__ import app

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def state_of(stack: str) -> dict[str, Any]:
    """What `pulumi stack export` would print after an update of a stack of the repository by this program."""
    monitor = record_stack(ROOT / f"Pulumi.{stack}.yaml")
    rows = [{"urn": urn, "type": each.type, "inputs": inputs(each)} for urn, each in monitor.requests.items()]
    [stack_row] = [row for row in rows if row["type"] == upgrade_check.STACK]
    stack_row["outputs"] = monitor.exports
    return {"version": 3, "deployment": {"resources": rows}}


@pytest.fixture(scope="module")
def gke() -> dict[str, Any]:
    return state_of("dev")


@pytest.fixture(scope="module")
def machines() -> dict[str, Any]:
    return state_of("gce")


def resources(state: dict[str, Any], **values: str) -> list[dict[str, Any]]:
    """The resources with these inputs in their metadata, or among their inputs."""
    rows: list[dict[str, Any]] = state["deployment"]["resources"]
    return [
        row
        for row in rows
        if values.items() <= row["inputs"].items() or values.items() <= (row["inputs"].get("metadata") or {}).items()
    ]


@pytest.mark.parametrize("stack", ["gke", "machines"])
def test_a_stack_that_this_version_updated_has_nothing_to_do(stack: str, request: pytest.FixtureRequest) -> None:
    found = upgrade_check.check(request.getfixturevalue(stack))
    assert (found.was, found.now) == (program_version(), program_version())
    assert (found.notes, found.changes) == ([], [])


def test_another_version_of_a_chart_is_found(gke: dict[str, Any]) -> None:
    state = copy.deepcopy(gke)
    [release] = [row for row in resources(state) if row["inputs"].get("name") == "kueue" and "chart" in row["inputs"]]
    now, release["inputs"]["version"] = release["inputs"]["version"], "0.1.0"
    [change] = upgrade_check.check(state).changes
    assert change.startswith(f"chart kueue: 0.1.0 -> {now} ")


def test_another_boot_script_replaces_hosts_and_waits_on_control_planes(machines: dict[str, Any]) -> None:
    state = copy.deepcopy(machines)
    templates = resources(state, **{"startup-script": boot_script("node")})
    control_planes = resources(state, **{"startup-script": boot_script("control_plane")})
    assert templates
    assert control_planes
    for row in (*templates, *control_planes):
        row["inputs"]["metadata"]["startup-script"] = "#!/bin/bash\n"
    changes = upgrade_check.check(state).changes
    assert len(changes) == len(templates) + len(control_planes)
    assert sum("hosts of its slice are replaced" in change for change in changes) == len(templates)
    assert sum("run at the next boot" in change for change in changes) == len(control_planes)


def test_a_stack_with_the_former_outputs_is_told_of_them(gke: dict[str, Any]) -> None:
    state = copy.deepcopy(gke)
    [stack] = [row for row in resources(state) if row["type"] == upgrade_check.STACK]
    del stack["outputs"]["program"]
    assert upgrade_check.check(state).notes == []
    stack["outputs"]["slices"]["serve"]["price_per_hour_usd"] = 1.35
    found = upgrade_check.check(state)
    assert found.was == upgrade_check.UNRECORDED
    assert [note.id for note in found.notes] == ["outputs-renamed"]
    assert "chips_per_slice" in upgrade_check.as_text(found)


def test_a_note_of_a_release_that_the_stack_has_had_is_not_repeated(gke: dict[str, Any]) -> None:
    state = copy.deepcopy(gke)
    [stack] = [row for row in resources(state) if row["type"] == upgrade_check.STACK]
    stack["outputs"]["slices"]["serve"]["price_per_hour_usd"] = 1.35
    assert upgrade_check.check(state).notes == []


def test_an_older_copy_is_named(gke: dict[str, Any]) -> None:
    state = copy.deepcopy(gke)
    [stack] = [row for row in resources(state) if row["type"] == upgrade_check.STACK]
    stack["outputs"]["program"]["version"] = "99.0.0"
    assert "older than the program that updated the stack" in upgrade_check.as_text(upgrade_check.check(state))
    assert CliRunner().invoke(app, ["upgrade-check", "-"], input=json.dumps(state)).exit_code == 1
    stack["outputs"]["program"]["version"] = "99.0.0-rc1"
    assert upgrade_check.check(state).goes_back


def test_every_note_has_its_check_and_the_newest_release_is_this_version() -> None:
    assert {note.id for note in upgrade_check.notes(CHANGELOG)} == set(upgrade_check.CONCERNS)
    versions = [version for version, _ in upgrade_check.RELEASES.findall(CHANGELOG)]
    assert versions[0] == program_version()
    assert versions[-1] == upgrade_check.UNRECORDED
    assert versions == sorted(versions, key=upgrade_check.number, reverse=True)


def test_the_command_reads_standard_input_and_says_by_its_exit_code_whether_something_is_to_do(
    gke: dict[str, Any],
) -> None:
    clean = CliRunner().invoke(app, ["upgrade-check", "-"], input=json.dumps(gke))
    assert clean.exit_code == 0, clean.output
    assert "No migration note concerns it" in clean.output
    state = copy.deepcopy(gke)
    state["deployment"]["resources"] = [row for row in resources(state) if row["type"] == upgrade_check.STACK]
    del state["deployment"]["resources"][0]["outputs"]["program"]
    state["deployment"]["resources"][0]["outputs"]["slices"]["serve"]["price_per_hour_usd"] = 1.35
    concerned = CliRunner().invoke(app, ["upgrade-check", "-", "--json"], input=json.dumps(state))
    assert concerned.exit_code == 1
    assert json.loads(concerned.output)["notes"][0]["version"] == "0.2.0"


@pytest.mark.parametrize(
    "outputs",
    [[1], {"program": "x"}, {"program": {"version": None}}, {"slices": [1]}, {"slices": {"a": None}}],
    ids=str,
)
def test_outputs_of_another_program_are_no_obstacle(outputs: Any) -> None:
    rows = [
        {"type": upgrade_check.STACK, "urn": "urn:pulumi:a::b::c::d", "outputs": outputs},
        {"type": upgrade_check.RELEASE, "urn": "urn:pulumi:a::b::c::e", "inputs": [1]},
    ]
    found = upgrade_check.check({"deployment": {"resources": rows}})
    assert (found.was, found.concerns) == (upgrade_check.UNRECORDED, False)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"deployment": {"resources": [{"urn": "x"}]}}', b"\xff\xfe", "[" * 100_000]
)
def test_what_is_no_export_is_refused(text: str | bytes) -> None:
    refused = CliRunner().invoke(app, ["upgrade-check", "-"], input=text)
    assert refused.exit_code == 2
    assert "pulumi stack export" in " ".join(refused.output.split())
