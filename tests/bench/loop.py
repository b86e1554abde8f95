"""The loop of a developer: the commands of the Makefile that are run between two edits, with all that is built."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

from tests.bench.runs import processor_seconds
from tests.sandbox.conftest import ROOT

COMMANDS = {"make check": 60, "make demo": None}
"""With the seconds that are wanted."""
PASSED = re.compile(r"^(\d+) passed in", re.MULTILINE)


def section(show: Callable[[str], None]) -> list[str]:
    """The table."""
    rows = []
    for command, wanted in COMMANDS.items():
        subprocess.run(
            ["make", "lint"], cwd=ROOT, check=True, capture_output=True
        )  # what mypy has in its cache is warm
        before, start = processor_seconds(), time.perf_counter()
        done = subprocess.run(command.split(), cwd=ROOT, capture_output=True, text=True, check=False)
        seconds, busy = time.perf_counter() - start, processor_seconds() - before
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        tests = PASSED.search(done.stdout)
        rows.append(f"| `{command}` | {tests[1] if tests else '-'} | {seconds:.0f} | {busy:.0f} | {wanted or '-'} |")
        show(rows[-1])
    return [
        "Everything is built and installed. `make demo` brings the dev stack up, runs a job and takes it down.",
        "",
        "| command | tests | seconds | processor seconds | seconds wanted |",
        "|---|---|---|---|---|",
        *rows,
    ]
