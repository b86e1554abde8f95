"""The preview gate on what the real engine says about edits of a running stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.sandbox.conftest import Project
from tools.__main__ import app

STACK = "gated"
Json = dict[str, Any]

SERVE: Json = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot"}
TRAIN: Json = {"machine_type": "ct6e-standard-4t", "topology": "2x4", "count": 2, "capacity": "spot"}
TEAM: Json = {"namespaces": ["team"], "slices": {"serve": 1, "train": 2}}
GUEST: Json = {"namespaces": ["team"], "slices": {"serve": 0}}
POOLS = {"slices-train-0", "slices-train-1"}
OLD_FLAVOR = "queues-resourceflavor-v6e-2x4-4t-spot"


def write(project: Project, *, train: Json | None = None, queues: Json | None = None) -> None:
    project.write_stack(
        STACK,
        slices={"serve": SERVE, "train": {**TRAIN, **(train or {})}},
        queues={"team": TEAM, "guest": GUEST} if queues is None else queues,
    )


@pytest.fixture
def previewed(project: Project, tmp_path: Path) -> Callable[..., Path]:
    """Runs `pulumi preview --json` on the stack as it is written now, however it ends; returns its output."""

    def preview(*flags: str) -> Path:
        file = tmp_path / "preview.json"
        file.write_text(project.session.pulumi("preview", "-s", STACK, "--json", *flags).stdout)
        return file

    return preview


def gate(preview: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(app, ["gate", str(preview), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def judged(preview: Path, *allow: str) -> Json:
    """The gate's JSON; its exit code must say the same."""
    result = gate(preview, "--json", *(word for name in allow for word in ("--allow", name)))
    verdict: Json = json.loads(result.stdout)
    assert result.exit_code == (0 if verdict["passes"] else 1)
    return verdict


def names(verdict: Json, *, allowed: bool = False) -> set[str]:
    return {finding["name"] for finding in verdict["findings"] if finding["allowed"] is allowed}


def rename_in_state(project: Project, new: str, old: str) -> None:
    """Give a resource in the state the logical name that the program gave it before."""
    exported = project.succeed("stack", "export", "-s", STACK)
    assert new in exported
    file = project.folder / "renamed.json"
    file.write_text(exported.replace(new, old))
    project.succeed("stack", "import", "-s", STACK, "--file", str(file))


def test_the_gate_stops_what_gives_up_capacity_and_passes_what_does_not(
    project: Project, previewed: Callable[..., Path], tmp_path: Path
) -> None:
    write(project)
    first = judged(previewed())
    assert first["passes"]
    assert (first["before"]["chips"], first["after"]["chips"]) == (0, 17)
    project.up(STACK)
    rename_in_state(project, "queues-localqueue-team.team", "queues-localqueue-team-team")
    project.assert_clean(STACK)  # a stack that knows local queues by their former names keeps them

    write(project, train={"labels": {"team": "a"}})
    labelled = judged(previewed())
    assert labelled["passes"]
    assert labelled["resources"] == {
        "gcp:container/nodePool:NodePool": {"create": 0, "update": 2, "delete": 0, "replace": 0}
    }
    assert labelled["before"] == labelled["after"] == first["after"]

    write(project, queues={"team": TEAM})
    queue = judged(previewed())
    assert names(queue) == {"queues-clusterqueue-guest", "queues-localqueue-guest.team"}
    assert {finding["kind"] for finding in queue["findings"]} == {"queue"}
    only_one = judged(previewed(), "queues-clusterqueue-guest")
    assert names(only_one, allowed=True) == {"queues-clusterqueue-guest"}
    assert not only_one["passes"]

    write(project, train={"topology": "4x4"})
    preview = previewed()
    reshaped = judged(preview)
    assert names(reshaped) == {*POOLS, OLD_FLAVOR}
    for finding in reshaped["findings"]:
        if finding["name"] in POOLS:
            assert finding["operation"] == "replace"
            assert finding["causes"] == ["topology: 2x4 -> 4x4"]
    assert (reshaped["before"]["chips"], reshaped["after"]["chips"]) == (17, 33)
    assert judged(previewed("--show-replacement-steps")) == reshaped, "the engine's longer account changes nothing"
    assert names(judged(preview, "slices-train-1")) == {"slices-train-0", OLD_FLAVOR}
    refused = gate(preview, "--allow", "slices-serve-0")
    assert refused.exit_code == 2
    assert "slices-serve-0" in refused.stderr
    assert judged(preview, *POOLS, OLD_FLAVOR)["passes"]
    assert judged(preview, "slices-train-*(2)", OLD_FLAVOR)["passes"]

    summary = tmp_path / "summary.md"
    assert gate(preview, "--markdown", str(summary)).stdout == summary.read_text()
    for words in (
        "`slices-train-0, slices-train-1` (2) are replaced",
        "--allow 'slices-train-*(2)'",
        "| chips | 17 | 33 | +16 |",
        "| USD per hour | 22.95 | 44.55 | +21.60 |",
    ):
        assert words in summary.read_text()
    token = project.session.run.token_file.read_text()
    assert token in preview.read_text(), "the preview itself shows the configuration"
    assert token not in summary.read_text() + gate(preview, "--json").stdout

    project.up(STACK)
    totals = project.outputs(STACK)["totals"]
    assert {key: totals[key] for key in ("slices", "hosts", "chips", "price_per_hour_usd")} == {
        key: reshaped["after"][key] for key in ("slices", "hosts", "chips", "price_per_hour_usd")
    }
    unchanged = judged(previewed())
    assert unchanged["passes"]
    assert unchanged["resources"] == {}
    assert unchanged["before"] == unchanged["after"] == reshaped["after"]
    project.destroy(STACK)


def test_a_preview_that_fails_or_comes_as_a_stream_is_not_taken_for_a_good_one(
    project: Project, previewed: Callable[..., Path], tmp_path: Path
) -> None:
    write(project, train={"topology": "3x3"})
    mistaken = judged(previewed())
    assert not mistaken["passes"]
    assert any("3x3" in problem for problem in mistaken["problems"])
    assert "unknown" in mistaken["after"]

    write(project)
    engine = project.session.start_pulumi(
        "preview", "-s", STACK, "--json", capture=True, extra={"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
    )
    stream = tmp_path / "stream.json"
    stream.write_text(engine.communicate()[0])
    refused = gate(stream)
    assert refused.exit_code == 2
    assert "event stream" in refused.stderr
