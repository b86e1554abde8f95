"""`make bench`: how planning scales with the number of slices; writes docs/performance.md.

Three things are measured side by side in one run, each in a process of its own: this program against the recording
monitor, the same resources with the same inputs registered as plain values (what the Pulumi SDK itself costs), and a
preview by the real engine in the sandbox.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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


def engine_preview(session: Session, folder: Path, size: int) -> Figures:
    """A preview by the real engine; memory is that of the largest process of it."""
    stack = f"bench-{size}"
    settings = {key: json.loads(value) if value.startswith("{") else value for key, value in config(size).items()}
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
    import resource

    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def row(size: int, name: str, figures: Figures, base: float) -> str:
    seconds, resources, memory = figures
    each = 1000 * seconds / resources
    return f"| {size} | {name} | {resources} | {seconds:.2f} | {each:.1f} | {memory:.0f} | {seconds / base:.2f} |"


def tables(sizes: tuple[int, ...], show: Callable[[str], None]) -> list[str]:
    """All rows, printed as they come."""
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
                    ("program, real engine: preview", engine_preview(session, folder, size)),
                ):
                    rows.append(row(size, name, figures, bare[0]))
                    show(rows[-1])
    return rows


def page(rows: list[str]) -> str:
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
        ]
    )


def main(
    sizes: Annotated[list[int] | None, typer.Argument(help="Numbers of slices; 10 100 1000 if unset.")] = None,
    write: Annotated[bool, typer.Option(help="Write docs/performance.md.")] = True,
) -> None:
    """Measure planning at several sizes."""
    console: Any = Console(highlight=False, soft_wrap=True)
    rows = tables(tuple(sizes or SIZES), console.print)
    if write:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    typer.run(main)
