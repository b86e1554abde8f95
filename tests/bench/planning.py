"""How planning scales with the number of slices, without an engine: beside what the Pulumi SDK itself costs."""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.runs import Run, fastest, reported

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

# Shares of a profiled run. What the interpreter has built in counts for who calls it.
PROFILE = """
import cProfile, json, pstats, sys
from collections import Counter
from tests.bench.platforms import config
from tests.program import PROGRAM as PARTS
from tests.graph.recording import ROOT, record_main
PLACES = {
    "the SDK: types": ("/pulumi/_types.py", "/typing.py"),
    "the SDK: what is sent and what comes back": ("/pulumi/runtime/rpc.py", "/google/protobuf/"),
    "the SDK: all else": ("/pulumi/",),
    "asyncio": ("/asyncio/",),
    "the provider SDKs": ("/pulumi_gcp/", "/pulumi_kubernetes/"),
    "the program": tuple(f"{ROOT}/{part}/" for part in PARTS),
}
def place(file):
    found = (name for name, parts in PLACES.items() if any(part in file for part in parts))
    return next(found, "the standard library and others")
settings = config(int(sys.argv[1]))
record_main(config(1), preview=True)  # imports
profile = cProfile.Profile()
profile.runcall(record_main, settings, preview=True)
shares = Counter()
for (file, *_), (*_, seconds, _, callers) in pstats.Stats(profile).stats.items():
    if file == "~":
        for (caller, *_), (*_, part, _) in callers.items():
            shares[place(caller)] += part
    else:
        shares[place(file)] += seconds
print(json.dumps({name: part / shares.total() for name, part in shares.most_common()}))
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
        "",
        f"Where the time of a run at {SIZES[-1]:,} slices goes (cProfile):",
        "",
        "| where | share |",
        "|---|---|",
        *(f"| {name} | {share:.0%} |" for name, share in reported(PROFILE, SIZES[-1]).items()),
    ]


def _row(size: int, name: str, run: Run, sdk: Run) -> str:
    return (
        f"| {size} | {name} | {run.resources} | {run.seconds:.2f} | {run.each:.1f} | {run.memory:.0f} "
        f"| {run.seconds / sdk.seconds:.2f} |"
    )
