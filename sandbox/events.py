"""Reads the engine's event log: what a command planned or did to each resource.

The log is one JSON object per line; its shape is `EngineEvent` of the engine's sdk/go/common/apitype/events.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text
from rich.tree import Tree

COLOURS = {"create": "green", "delete": "red", "update": "yellow", "replace": "magenta", "same": "dim"}


def variables(log: Path) -> dict[str, str]:
    """Environment variables that make an engine command write its event log, the command itself unchanged."""
    return {"PULUMI_DEBUG_COMMANDS": "true", "PULUMI_OPTION_EVENT_LOG": str(log)}


@dataclass(frozen=True)
class Step:
    """One resource in the log: what happens to it, its URN and its parent's."""

    op: str
    urn: str
    parent: str

    @property
    def label(self) -> Text:
        """Operation, type and name, as a person reads them."""
        _, _, types, name = self.urn.split("::", 3)
        return Text.assemble((f"{self.op:8}", COLOURS.get(self.op, "")), types.rsplit("$", 1)[-1], "  ", (name, "bold"))


@dataclass(frozen=True)
class Log:
    """What one command did: its steps in order, and how many resources each operation touched."""

    steps: list[Step] = field(default_factory=list)
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """How many resources were or would be touched."""
        return sum(n for op, n in self.changes.items() if op != "same")

    def tree(self) -> Tree:
        """The resources under their parents, as the engine draws them on a terminal."""
        root = Tree("", hide_root=True)
        nodes: dict[str, Tree] = {"": root}
        for step in self.steps:
            if step.urn not in nodes:
                nodes[step.urn] = nodes.get(step.parent, root).add(step.label)
        return root


def read(path: Path) -> Log:
    """The log that a command has written. A missing file is an empty log: the command ended before its first step."""
    log = Log()
    for event in _events(path):
        if "resourcePreEvent" in event:
            metadata = event["resourcePreEvent"]["metadata"]
            state = metadata.get("new") or metadata.get("old") or {}
            log.steps.append(Step(metadata["op"], metadata["urn"], state.get("parent", "")))
        elif "summaryEvent" in event:
            log.changes.update(event["summaryEvent"]["resourceChanges"])
    return log


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            yield from map(json.loads, lines)
