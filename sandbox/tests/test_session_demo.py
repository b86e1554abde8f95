"""What the demonstration reads from the engine and shows to a person."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from sandbox import events
from sandbox.demo import Result, inventory_table, summary

STACK = "urn:pulumi:dev::tpu::pulumi:pulumi:Stack::tpu-dev"
COMPONENT = "urn:pulumi:dev::tpu::tpu:gke:Cluster::cluster"
CHILD = "urn:pulumi:dev::tpu::tpu:gke:Cluster$gcp:container/cluster:Cluster::odd::name"


def printed(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def before(op: str, urn: str, parent: str) -> dict[str, Any]:
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": urn, "new": {"parent": parent}}}}


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


def test_a_command_that_never_started_has_an_empty_log(tmp_path: Path) -> None:
    assert events.read(tmp_path / "nothing.json") == events.Log()


def test_the_inventory_is_a_table() -> None:
    assert "tpu-net" in printed(inventory_table({"compute.networks": ["tpu-net"]}))


def test_the_summary_says_how_it_ended() -> None:
    good = Result(created=28, deleted=28)
    assert summary(good, 12.4) == "28 created, second preview 0 changes, 28 deleted, inventory empty (12 s)"
    left = Result(created=2, deleted=1, left={"compute.networks": ["a", "b"]})
    assert left.inventory == "inventory NOT empty (compute.networks: a b)"
