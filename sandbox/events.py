"""Reads the engine's event log: what a command planned or did to each resource.

The log is one JSON object per line; its shape is `EngineEvent` of the engine's sdk/go/common/apitype/events.go.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

STACK_TYPE = "pulumi:pulumi:Stack"
COLOURS = {"create": "green", "delete": "red", "update": "yellow", "replace": "magenta", "same": "dim"}


def variables(log: Path) -> dict[str, str]:
    """Environment variables that make an engine command write its event log, the command itself unchanged."""
    return {"PULUMI_DEBUG_COMMANDS": "true", "PULUMI_OPTION_EVENT_LOG": str(log)}


@dataclass(frozen=True)
class Step:
    """One resource in the log: what happens to it, its URN and its parent's, and whether a provider works on it."""

    op: str
    urn: str
    parent: str
    custom: bool = False

    @property
    def type(self) -> str:
        """The type of the resource itself, without those of its parents."""
        return self.urn.split("::", 3)[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[3]

    @property
    def label(self) -> Text:
        """Operation, type and name, as a person reads them."""
        return Text.assemble((f"{self.op:8}", COLOURS.get(self.op, "")), self.type, "  ", (self.name, "bold"))


@dataclass(frozen=True)
class Log:
    """What one command did: its steps in order, the URNs of those that ended, the number of resources by operation."""

    steps: list[Step] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    changes: dict[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """How many resources were or would be touched."""
        return sum(n for op, n in self.changes.items() if op != "same")

    @property
    def under_way(self) -> list[Step]:
        """What the engine waits for, the longest wait first."""
        return [step for step in self.steps if step.custom and step.urn not in self.ended]

    def parts(self) -> Table:
        """A row for each type of resource directly below the stack: how many of it, and of each type below them."""
        known = {step.urn: step for step in self.steps}
        rows: dict[str, tuple[list[str], list[str]]] = {}
        for step in self.steps:
            if top := _top(step, known):
                own, below = rows.setdefault(top.type, ([], []))
                if top is step:
                    own.append(step.type)
                else:
                    below.append(step.type.rsplit(":", 1)[-1])
        table = Table.grid(padding=(0, 2))
        for _, (own, below) in sorted(rows.items()):
            table.add_row(_counted(own), _counted(below))
        return table

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
            log.steps.append(Step(metadata["op"], metadata["urn"], state.get("parent", ""), state.get("custom", False)))
        elif "resOutputsEvent" in event:
            log.ended.add(event["resOutputsEvent"]["metadata"]["urn"])
        elif "summaryEvent" in event:
            log.changes.update(event["summaryEvent"]["resourceChanges"])
    return log


def _events(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            # While a command runs the last line may be half of one.
            yield from (json.loads(line) for line in lines if line.endswith("\n"))


def _top(step: Step, known: Mapping[str, Step]) -> Step | None:
    """The resource directly below the stack that this one is or belongs to. None for the stack and for providers that
    the engine makes."""
    while parent := known.get(step.parent):
        if parent.type == STACK_TYPE:
            return step
        step = parent
    return None


def _counted(types: Iterable[str]) -> str:
    return ", ".join(f"{number} x {name}" if number > 1 else name for name, number in sorted(Counter(types).items()))
