"""What the demonstration reads from the engine and shows to a person."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from sandbox import events, progress
from sandbox.demo import Demo, Result, inventory_table, summary
from sandbox.run_directory import RunDirectory
from sandbox.session import Session

STACK = "urn:pulumi:dev::tpu::pulumi:pulumi:Stack::tpu-dev"
COMPONENT = "urn:pulumi:dev::tpu::tpu:gke:Cluster::cluster"
CHILD = "urn:pulumi:dev::tpu::tpu:gke:Cluster$gcp:container/cluster:Cluster::odd::name"


def printed(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def before(op: str, urn: str, parent: str, **new: Any) -> dict[str, Any]:
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": urn, "new": {"parent": parent, **new}}}}


def after(urn: str) -> dict[str, Any]:
    return {"resOutputsEvent": {"metadata": {"op": "create", "urn": urn}}}


def written(folder: Path, *found: dict[str, Any]) -> Path:
    path = folder / "events.json"
    path.write_text("".join(f"{json.dumps(event)}\n" for event in found))
    return path


def test_a_log_becomes_the_tree_of_its_resources(tmp_path: Path) -> None:
    log = events.read(
        written(
            tmp_path,
            {"preludeEvent": {"config": {}}},
            before("create", STACK, ""),
            before("create", COMPONENT, STACK),
            before("same", CHILD, COMPONENT),
            {"summaryEvent": {"resourceChanges": {"create": 2, "same": 1}}},
        )
    )
    assert log.changed == 2
    assert [line.rstrip() for line in printed(log.tree()).splitlines()] == [
        "create  pulumi:pulumi:Stack  tpu-dev",
        "└── create  tpu:gke:Cluster  cluster",
        "    └── same    gcp:container/cluster:Cluster  odd::name",
    ]


def test_a_log_is_summed_up_by_the_kinds_of_resource_below_the_stack(tmp_path: Path) -> None:
    twin, loose = COMPONENT.replace("::cluster", "::twin"), "urn:pulumi:dev::tpu::gcp:compute/network:Network::loose"
    log = events.read(
        written(
            tmp_path,
            before("create", STACK, ""),
            before("create", "urn:pulumi:dev::tpu::pulumi:providers:gcp::default", ""),
            *(before("create", urn, STACK) for urn in (COMPONENT, twin, loose)),
            *(before("create", f"{CHILD}-{number}", parent) for number, parent in enumerate((COMPONENT, twin))),
        )
    )
    assert [re.split(r"\s{2,}", line.strip()) for line in printed(log.parts()).splitlines()] == [
        ["gcp:compute/network:Network"],
        ["2 x tpu:gke:Cluster", "2 x Cluster"],
    ]


def test_a_command_that_runs_says_what_it_waits_for(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        before("create", COMPONENT, STACK),
        *(before("create", f"{CHILD}-{number}", COMPONENT, custom=True) for number in (1, 2)),
        after(f"{CHILD}-1"),
    )
    with path.open("a") as log:
        log.write('{"resOutputsEvent": {"metadata": {"urn":')
    assert [step.name for step in events.read(path).under_way] == ["odd::name-2"]


def test_a_slow_command_prints_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("sandbox.progress.time.monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), width=120)
    with progress.running(console, lambda: "1 of [2]") as tick:
        for second in range(600):
            now[0] = second
            tick()
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "  20 s  1 of [2]"
    assert len(lines) == 5


@dataclass(frozen=True)
class Refusing(Session):
    """Stands for a sandbox whose engine refuses everything; it starts no process."""

    def log_pulumi(self, *arguments: str, log: Path, extra: Mapping[str, str], tick: Callable[[], None]) -> int:
        tick()
        log.write_text("Diagnostics:\n  error: quota [limit] exceeded\n")
        return 255


def test_a_step_that_fails_shows_what_the_engine_has_said(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.sandbox]\nadapter = "sandbox.adapter:PLAIN"\n')
    console = Console(file=io.StringIO(), width=120)
    result = Demo(Refusing(RunDirectory(tmp_path / "run"), "", 0, tmp_path), "dev", console).run(keep=False)
    assert result.problems == ["`pulumi preview -s dev` ended with exit code 255"]
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "  error: quota [limit] exceeded\n" in shown
    assert "2/4" not in shown


def test_a_command_that_never_started_has_an_empty_log(tmp_path: Path) -> None:
    assert events.read(tmp_path / "nothing.json") == events.Log()


def test_the_inventory_is_a_table() -> None:
    assert "tpu-net" in printed(inventory_table({"compute.networks": ["tpu-net"]}))


def test_the_summary_says_how_it_ended() -> None:
    good = Result(created=28, deleted=28)
    assert summary(good, 12.4) == "28 created, second preview 0 changes, 28 deleted, inventory empty (12 s)"
    left = Result(created=2, deleted=1, left={"compute.networks": ["a", "b"]})
    assert left.inventory == "inventory NOT empty (compute.networks: a b)"
