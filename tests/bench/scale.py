"""Large platforms: time and memory per resource of each command, from 500 to 5,000 resources.

Each command runs in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.bench.platforms import large
from tests.bench.runs import Run, fastest, preview
from tests.sandbox.conftest import link_checkout

SLICES = (100, 300, 1000)
"""About 500, 1,500 and 5,000 resources."""
FLAT = 1.5
"""What a resource of the largest platform may cost beside one of the smallest."""
COMMON = """
import json, resource, sys, time
from tests.bench.platforms import config, large
written = large(int(sys.argv[1]))
settings = {"gcp:project": "my-project", "tpu-platform:platform": json.dumps(written)}
"""
PROGRAM = (
    COMMON
    + """
from tests.graph.recording import record_main
record_main(config(1), preview=True)  # imports
start = time.perf_counter()
monitor = record_main(settings, preview=True)
report(time.perf_counter() - start, sum(request.custom for request in monitor.requests.values()))
"""
)
EXPLAIN = (
    COMMON
    + """
from rich.console import Console
from rules.load import load_platform
from tools.explain import as_text
start = time.perf_counter()
Console(file=open("/dev/null", "w")).print(as_text(load_platform(written, project="my-project")))
report(time.perf_counter() - start, 1)
"""
)
POLICIES = (
    COMMON
    + """
from tests.graph.recording import record_main
from tests.policies.recorded import planned
from tests.policies.sound import findings
stack = planned(record_main(settings, preview=True))
start = time.perf_counter()
found = list(findings(stack))
report(time.perf_counter() - start, len(stack.resources))
"""
)
STATUS = """
import os, sys, time
from unittest import mock
from rich.console import Console
from tests.bench.status import StandInCloud, planned, standing
from tools.status import run
from tools.status.screen import as_text
found = planned(int(sys.argv[1]))
with standing(found) as (kubeconfig, asked), mock.patch.object(run, "Cloud", return_value=StandInCloud(found)):
    with run.watching(found, "bench", {}, kubeconfig) as look:
        look()  # starts kubectl
        start = time.perf_counter()
        Console(file=open(os.devnull, "w")).print(as_text(look()))
        seconds = time.perf_counter() - start
report(seconds, 1)
"""
GATE = """
import sys, time
from pathlib import Path
from tools.gate import judge
from tools.gate_preview import read
start = time.perf_counter()
verdict = judge(read(Path(FILE)))
verdict.problems
report(time.perf_counter() - start, 1)
"""


def section(scratch: Path, show: Callable[[str], None]) -> tuple[list[str], str]:
    """The table, and which commands are not flat."""
    scratch.mkdir(exist_ok=True)
    found: dict[str, list[Run]] = {}
    for size in SLICES:
        for name, run in runs(scratch / str(size), size):
            found.setdefault(name, []).append(run)
            show(f"{size} slices, {name}: {run.resources} resources, {run.seconds:.2f} s, {run.memory:.0f} MB")
    rows = []
    for name, each in found.items():
        times = " | ".join(f"{run.seconds:.2f} s, {run.each:.2f} ms" for run in each)
        first, last = each[0], each[-1]
        added = 1000 * (last.memory - first.memory) / (last.resources - first.resources)
        rows.append(
            f"| {name} | {times} | {last.each / first.each:.2f} | {last.memory:.0f} MB, {max(added, 0):.0f} kB |"
        )
    steep = [name for name, each in found.items() if each[-1].each > FLAT * each[0].each]
    sizes = " | ".join(f"{run.resources:,} resources" for run in next(iter(found.values())))
    return [
        f"{SLICES[-1]:,} slices, wherever possible with DRA, in {SLICES[-1] * 3 // 10} queues, and smaller ones of the",
        "same mix: seconds, and milliseconds for each resource. Flat: the last size beside the first, per resource.",
        "Memory: the peak at the last size, and what each further resource adds.",
        "",
        f"| command | {sizes} | flat | memory |",
        "|---|" + "---|" * (len(SLICES) + 2),
        *rows,
    ], f"not flat: {', '.join(steep)}" if steep else ""


def runs(scratch: Path, size: int) -> Iterator[tuple[str, Run]]:
    """Each command on one platform, by name."""
    program = fastest(PROGRAM, size, 1)
    yield "program, recording monitor", program
    folder = link_checkout(scratch)
    settings = {"gcp:project": "my-project", "tpu-platform:platform": large(size)}
    (folder / "Pulumi.large.yaml").write_text(yaml.safe_dump({"config": settings}))
    with running(RunDirectory(scratch.parent / "run"), Plan(), folder) as session:
        run, output = preview(session, "large")
    yield "`pulumi preview`", run
    file = folder / "preview.json"
    file.write_text(output)
    for name, code in (
        ("`explain`", EXPLAIN),
        ("gate", GATE.replace("FILE", json.dumps(str(file)))),
        ("policy pack's rules", POLICIES),
        ("one look of `status`", STATUS),
    ):
        each = fastest(code, size, 1)
        yield name, Run(each.seconds, program.resources, each.memory)
