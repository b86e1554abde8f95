"""How planning scales with the number of slices, without an engine: beside what the Pulumi SDK itself costs."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.runs import Run, fastest

SIZES = (10, 100, 1000)
REPEATS = 3
OWN_MILLISECONDS = 2.0
"""What the program may add to the SDK for each resource, at the largest size."""

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


def section(show: Callable[[str], None]) -> list[str]:
    """The table by size, and what the program adds to the SDK."""
    rows = []
    for size in SIZES:
        sdk = fastest(BARE, size, REPEATS)
        program = fastest(PROGRAM, size, REPEATS)
        for name, run in (
            ("spec: read, check, plan", fastest(SPEC, size, REPEATS)),
            ("the SDK alone, same inputs", sdk),
            ("program, recording monitor", program),
        ):
            rows.append(_row(size, name, run, sdk))
            show(rows[-1])
    own = 1000 * (program.seconds - sdk.seconds * program.resources / sdk.resources) / program.resources
    verdict = (
        f"The program's own share at {SIZES[-1]:,} slices: {own:.1f} ms a resource, of {OWN_MILLISECONDS:.0f} wanted."
    )
    show(verdict)
    return [
        f"Slices are of all generations, evenly mixed, each of them a node pool. The fastest of {REPEATS} runs. A",
        "monitor that records stands for the engine. The SDK alone: the same resources with the same inputs, as plain",
        "values, without a program around them.",
        "",
        "| slices | what | resources | seconds | ms per resource | peak MB | against the SDK |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        verdict,
    ]


def _row(size: int, name: str, run: Run, sdk: Run) -> str:
    return (
        f"| {size} | {name} | {run.resources} | {run.seconds:.2f} | {run.each:.1f} | {run.memory:.0f} "
        f"| {run.seconds / sdk.seconds:.2f} |"
    )
