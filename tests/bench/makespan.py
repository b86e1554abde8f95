"""How long `up` takes at Google's durations, beside the longest chain of the graph and beside one step after another.

The emulator's operations take as long as Google's, divided by SCALE (`SECONDS` of sandbox/google/operations.py). What
runs inside the cluster takes as long as it takes here and is not divided, so it counts SCALE times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import yaml

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.sandbox.conftest import ROOT, link_checkout

SCALE = 5.0
PARALLEL = 64
"""Operations of the engine at once. By default it runs four for each processor."""
STACK = "makespan"
SLICES: dict[str, Any] = {
    "serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot", "devices": "dra"},
    "train": {"machine_type": "ct6e-standard-4t", "topology": "2x4", "count": 12, "capacity": "spot"},
}
QUEUES: dict[str, Any] = {"research": {"namespaces": ["team"], "slices": {"serve": 1, "train": 12}}}
PICTURE = ROOT / "docs" / "pictures" / "timeline.svg"
ENABLED = "gcp:projects/service:Service"
"""Tutorials enable all of these with one command."""
WIDTH, NAME, ROW, HEAD = 960, 250, 15, 44


@dataclass(frozen=True)
class Operation:
    """What the engine did for one resource: seconds since `pulumi` was started."""

    urn: str
    start: float
    end: float

    @property
    def type(self) -> str:
        return self.urn.split("::")[2].rpartition("$")[2]

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Timeline:
    """An `up`: its operations, what each of them waits for, and how long the command took, in seconds."""

    operations: Mapping[str, Operation]
    needs: Mapping[str, frozenset[str]]
    seconds: float

    @cached_property
    def chain(self) -> list[Operation]:
        """The operations that take longest one after another, each of which waits for the one before it."""
        length: dict[str, float] = {}
        before: dict[str, str | None] = {}
        # An operation starts after everything that it needs has ended, so this order has needs first.
        for operation in sorted(self.operations.values(), key=lambda each: each.start):
            needed = [urn for urn in self.needs.get(operation.urn, ()) if urn in length]
            last = max(needed, key=length.__getitem__, default=None)
            before[operation.urn] = last
            length[operation.urn] = operation.seconds + (length[last] if last else 0)
        urn: str | None = max(length, key=length.__getitem__)
        found = []
        while urn:
            found.append(self.operations[urn])
            urn = before[urn]
        return found[::-1]

    @property
    def critical(self) -> float:
        """Seconds of the longest chain."""
        return sum(each.seconds for each in self.chain)

    @property
    def serial(self) -> float:
        """Seconds of all operations one after another; services are enabled by one command."""
        services = [each.seconds for each in self.operations.values() if each.type == ENABLED]
        others = [each.seconds for each in self.operations.values() if each.type != ENABLED]
        return sum(others) + max(services, default=0)


def measure(scratch: Path) -> Timeline:
    """One `up` of a new stack, and what the engine said meanwhile."""
    folder = link_checkout(scratch / "makespan")
    content = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    content["config"]["tpu-platform:platform"].update(slices=SLICES, queues=QUEUES)
    (folder / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump(content))
    with running(RunDirectory(scratch / "run"), Plan(time_scale=SCALE), folder) as session:
        start = time.monotonic()
        arguments = ("up", "-s", STACK, "--yes", "--skip-preview", "--json", "--parallel", str(PARALLEL))
        process = session.start_pulumi(*arguments, capture=True)
        assert process.stdout is not None
        operations = dict(operations_in(stamped(process.stdout, start)))
        process.wait()
        seconds = time.monotonic() - start
        if process.returncode:
            assert process.stderr is not None
            sys.exit(f"pulumi up failed: {process.stderr.read()}")
        state = json.loads(session.pulumi("stack", "export", "-s", STACK).stdout)
    return Timeline(operations, needs_in(state["deployment"]["resources"]), seconds)


def stamped(lines: Iterable[str], start: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Each event of the engine with the time of its arrival: its own time is in whole seconds."""
    for line in lines:
        if line.startswith("{"):
            yield time.monotonic() - start, json.loads(line)


def operations_in(events: Iterable[tuple[float, dict[str, Any]]]) -> Iterator[tuple[str, Operation]]:
    """Operations on resources, without components, by URN."""
    begun: dict[str, float] = {}
    for at, event in events:
        if before := event.get("resourcePreEvent"):
            begun[before["metadata"]["urn"]] = at
        if after := event.get("resOutputsEvent"):
            metadata = after["metadata"]
            if (metadata.get("new") or {}).get("custom") and metadata["urn"] in begun:
                yield metadata["urn"], Operation(metadata["urn"], begun[metadata["urn"]], at)


def needs_in(resources: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """What the engine waits for before it starts on a resource: what it depends on, and its provider."""
    return {
        each["urn"]: frozenset(
            [*each.get("dependencies", ()), *([each["provider"].rpartition("::")[0]] if each.get("provider") else [])]
        )
        for each in resources
    }


def text(found: Timeline) -> list[str]:
    """What docs/performance.md says of it."""
    chain = ", ".join(each.urn.rpartition("::")[2] for each in found.chain if each.seconds * SCALE >= 1)
    return [
        f"`pulumi up --parallel {PARALLEL}` of a new stack with {SLICES['train']['count']} multi-host slices, DRA,",
        f"JobSet and Kueue. Operations of Google take as long as on the real service, {SCALE:.0f} times as fast; what",
        f"runs in the cluster is not faster, and counts {SCALE:.0f} times.",
        "",
        "| | minutes | `up` beside it |",
        "|---|---|---|",
        _minutes("`up`, from the command to its end", found.seconds, found.seconds),
        _minutes("the longest chain of the graph", found.critical, found.seconds),
        _minutes("all operations one after another, as tutorials do", found.serial, found.seconds, inverse=True),
        "",
        f"The longest chain: {chain}.",
        "",
        f"![Every operation of this run as a bar](pictures/{PICTURE.name})",
    ]


def _minutes(name: str, seconds: float, up: float, *, inverse: bool = False) -> str:
    ratio = f"{seconds / up:.1f} times shorter" if inverse else f"{up / seconds:.2f}"
    return f"| {name} | {seconds * SCALE / 60:.1f} | {ratio} |"


def svg(found: Timeline) -> str:
    """The operations as bars on a line of minutes of the real service, those of the longest chain in another colour."""
    shown = sorted(found.operations.values(), key=lambda each: (each.start, each.end))
    chain = {each.urn for each in found.chain}
    minutes = found.seconds * SCALE / 60
    scale = (WIDTH - NAME - 20) / minutes
    height = HEAD + ROW * len(shown) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        "<title>Timeline of pulumi up</title><style>text{font:11px system-ui,sans-serif;fill:#202124}"
        ".h{font-size:13px;font-weight:600}line{stroke:#dadce0}rect{fill:#8ab4f8}.c{fill:#c5221f}"
        "@media(prefers-color-scheme:dark){text{fill:#e8eaed}line{stroke:#3c4043}.c{fill:#f28b82}}</style>",
        f'<text class="h" x="10" y="18">pulumi up: {minutes:.1f} minutes at Google\'s durations; '
        "red: the longest chain</text>",
    ]
    for minute in range(0, int(minutes) + 1, max(1, round(minutes / 12))):
        x = NAME + minute * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD - 6}" y2="{height - 6}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEAD - 10}" text-anchor="middle">{minute}</text>')
    for row, each in enumerate(shown):
        y = HEAD + row * ROW
        x, width = NAME + each.start * SCALE / 60 * scale, max(each.seconds * SCALE / 60 * scale, 1.5)
        css = ' class="c"' if each.urn in chain else ""
        parts.append(f'<text x="{NAME - 8}" y="{y + 10}" text-anchor="end">{escape(_short(each.urn))}</text>')
        parts.append(f'<rect{css} x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 4}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _short(urn: str) -> str:
    name = urn.rpartition("::")[2]
    return name if len(name) <= 38 else f"{name[:37]}\N{HORIZONTAL ELLIPSIS}"


def section(scratch: Path, show: Callable[[str], None]) -> list[str]:
    """Measure, draw, and return the section of the page."""
    found = measure(scratch)
    PICTURE.write_text(svg(found))
    lines = text(found)
    for line in lines:
        show(line)
    return lines
