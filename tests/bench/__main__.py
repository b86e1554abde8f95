"""`make bench`: how planning scales with the number of slices; writes docs/performance.md.

Three things are measured side by side in one run, each in a process of its own: this program against the recording
monitor, the same resources with the same inputs registered as plain values (what the Pulumi SDK itself costs), and a
preview by the real engine in the sandbox. Then the dev stack is previewed without and with monitoring, in turn.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, Session, running
from tests.bench.platforms import config
from tests.sandbox.conftest import ROOT, link_checkout

SIZES = (10, 100, 1000)
DEV = ROOT / "Pulumi.dev.yaml"
UNSEEN: dict[str, Any] = {"dashboard": False, "count_errors": False, "drop_sidecar_logs": False}
TOLD: dict[str, Any] = {"notify": ["ops@example.com"], "queue_metrics": "own"}
MONITORED: dict[str, dict[str, Any]] = {
    "nothing": UNSEEN,
    "dashboard": {},
    "dashboard, alerts": TOLD,
    "dashboard, alerts, budget": {**TOLD, "budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000}},
}
"""What is measured of the dev stack: `monitoring` of its stack file."""
MONITORING_BUDGET_SECONDS = 1.0
"""What the dashboard and the alerts may add to a preview."""
PAGE = ROOT / "docs" / "performance.md"
REPEATS = 3

SPEC = """
import sys, time
from tests.bench.platforms import platform
from rules.load import load_platform
raw = platform(int(sys.argv[1]))
start = time.perf_counter()
pools = sum(len(plan.pools) for plan in load_platform(raw, project="my-project").slice_plans)
report(time.perf_counter() - start, pools)
"""
PROGRAM = """
import sys, time
from tests.bench.platforms import config
from tests.program import PROGRAM as PARTS
from tests.graph.recording import record_main
settings = config(int(sys.argv[1]))
record_main(config(1), preview=True)  # imports
start = time.perf_counter()
monitor = record_main(settings, preview=True)
report(time.perf_counter() - start, sum(request.custom for request in monitor.requests.values()))
"""
BARE = """
import sys, time
import pulumi
from google.protobuf import json_format
from tests.bench.platforms import config
from tests.program import PROGRAM as PARTS
from tests.graph.recording import record, record_main
requests = record_main(config(int(sys.argv[1]))).requests.values()
inputs = [(r.type, r.name, json_format.MessageToDict(r.object)) for r in requests if r.custom and r.type[:4] == "gcp:"]
def program():
    for type_, name, properties in inputs:
        pulumi.CustomResource(type_, name, properties)
start = time.perf_counter()
monitor = record(program, preview=True)
report(time.perf_counter() - start, sum(request.custom for request in monitor.requests.values()))
"""
REPORT = """
def report(seconds, resources):
    import json, resource
    print(json.dumps([seconds, resources, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""

Figures = tuple[float, int, float]
"""Seconds, resources, peak memory in MB."""


def measured(code: str, size: int) -> Figures:
    """The fastest of several runs, each in a process of its own."""
    runs = []
    for _ in range(REPEATS):
        done = subprocess.run(
            [sys.executable, "-c", REPORT + code, str(size)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(tuple(json.loads(done.stdout)))
    return min(runs)


def engine_preview(session: Session, folder: Path, stack: str, settings: dict[str, Any]) -> Figures:
    """A preview by the real engine; memory is that of the largest process of it."""
    (folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({"config": settings}))
    start = time.perf_counter()
    process = session.start_pulumi("preview", "-s", stack, "--json", capture=True)
    output, errors = process.communicate()
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"pulumi preview failed:\n{output[-2000:]}\n{errors}")
    steps = json.loads(output)["steps"]
    resources = sum("newState" in step and step["newState"].get("custom", False) for step in steps)
    return seconds, resources, largest_child_mb()


def largest_child_mb() -> float:
    """Peak memory of the largest process that this one has waited for so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def sized(size: int) -> dict[str, Any]:
    """The configuration of a stack of so many slices."""
    return {key: json.loads(value) if value.startswith("{") else value for key, value in config(size).items()}


@dataclass(frozen=True)
class Monitored:
    """Previews of one kind: the least of seconds, and of seconds of processor time, which other work on the machine
    changes less."""

    resources: int
    seconds: float
    busy: float


def processor_seconds() -> float:
    """Of all processes that this one has waited for, and those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def monitored(session: Session, folder: Path) -> dict[str, Monitored]:
    """Previews of the dev stack by what it has of monitoring, in turn."""
    runs: dict[str, list[Monitored]] = {name: [] for name in MONITORED}
    for _ in range(REPEATS):
        for number, (name, monitoring) in enumerate(MONITORED.items()):
            settings = yaml.safe_load(DEV.read_text())["config"]
            settings["tpu-platform:platform"]["monitoring"] = monitoring
            before = processor_seconds()
            seconds, resources, _ = engine_preview(session, folder, f"monitored-{number}", settings)
            runs[name].append(Monitored(resources, seconds, processor_seconds() - before))
    return {
        name: Monitored(each[0].resources, min(one.seconds for one in each), min(one.busy for one in each))
        for name, each in runs.items()
    }


def monitored_rows(found: dict[str, Monitored]) -> list[str]:
    """What each adds to the first."""
    base, *_ = found.values()
    return [
        f"| {name} | {each.resources} | {each.seconds:.2f} | {each.seconds - base.seconds:+.2f} "
        f"| {each.busy:.2f} | {each.busy - base.busy:+.2f} |"
        for name, each in found.items()
    ]


def row(size: int, name: str, figures: Figures, base: float) -> str:
    seconds, resources, memory = figures
    each = 1000 * seconds / resources
    return f"| {size} | {name} | {resources} | {seconds:.2f} | {each:.1f} | {memory:.0f} | {seconds / base:.2f} |"


def tables(sizes: tuple[int, ...], show: Callable[[str], None]) -> tuple[list[str], dict[str, Monitored]]:
    """All rows by size, printed as they come, and the figures of monitoring."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        folder = link_checkout(Path(scratch) / "project")
        with running(RunDirectory(Path(scratch) / "run"), Plan(), folder) as session:
            for size in sizes:
                bare = measured(BARE, size)
                for name, figures in (
                    ("spec: read, check, plan", measured(SPEC, size)),
                    ("the SDK alone, same inputs", bare),
                    ("program, recording monitor", measured(PROGRAM, size)),
                    ("program, real engine: preview", engine_preview(session, folder, f"bench-{size}", sized(size))),
                ):
                    rows.append(row(size, name, figures, bare[0]))
                    show(rows[-1])
            found = monitored(session, folder)
            for line in monitored_rows(found):
                show(line)
    return rows, found


def page(rows: list[str], found: dict[str, Monitored]) -> str:
    """docs/performance.md."""
    return "\n".join(
        [
            "# Performance",
            "",
            "Made by `make bench`; all figures of one run, side by side, the fastest of "
            f"{REPEATS} runs (the engine: one). {os.cpu_count()} cores, Python {platform.python_version()}.",
            "Slices are of all generations, evenly mixed, each of them a node pool.",
            "",
            "| slices | what | resources | seconds | ms per resource | peak MB | against the SDK |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "The SDK alone: the same resources with the same inputs, as plain values, without a program around them.",
            "Its work per resource grows with their number (it waits on all open registrations at once), and so the",
            "program's does.",
            "",
            "A first preview of the dev stack by the real engine, by what it has of monitoring; the four in turn, the",
            f"fastest of {REPEATS} each. The dashboard and the alerts may add {MONITORING_BUDGET_SECONDS:.0f} second.",
            "",
            "| monitoring | resources | seconds | added | processor seconds | added |",
            "|---|---|---|---|---|---|",
            *monitored_rows(found),
            "",
        ]
    )


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Numbers of slices; 10 100 1000 if unset.")] = None,
    write: Annotated[bool, typer.Option(help="Write docs/performance.md.")] = True,
    monitoring: Annotated[bool, typer.Option("--monitoring", help="Only monitoring; writes nothing.")] = False,
) -> None:
    """Measure planning at several sizes, and monitoring. Exit code 1: monitoring adds more than it may."""
    console: Any = Console(highlight=False, soft_wrap=True)
    rows, found = tables(() if monitoring else tuple(sizes or SIZES), console.print)
    if write and not monitoring:
        PAGE.write_text(page(rows, found))
    added = found["dashboard, alerts"].seconds - found["nothing"].seconds
    if added > MONITORING_BUDGET_SECONDS:
        sys.exit(f"dashboard and alerts add {added:.2f} s to a preview, more than {MONITORING_BUDGET_SECONDS} s")


if __name__ == "__main__":
    typer.run(main)
