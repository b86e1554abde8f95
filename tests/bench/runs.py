"""Runs that are measured: code in a process of its own, and previews by the real engine."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from sandbox.session import Session
from tests.sandbox.conftest import ROOT

REPORT = """
def report(seconds, resources):
    import json, resource
    print(json.dumps([seconds, resources, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


@dataclass(frozen=True, order=True)
class Run:
    """Seconds, custom resources, and peak memory in MB of the process (of an engine: of its largest process).

    `busy`: seconds of processor time, with all child processes; other work on the machine changes it less.
    """

    seconds: float
    resources: int
    memory: float
    busy: float = 0.0

    @property
    def each(self) -> float:
        """Milliseconds for each resource."""
        return 1000 * self.seconds / self.resources


def fastest(code: str, size: int, repeats: int) -> Run:
    """The fastest of several runs of code that calls `report`, each in a process of its own."""
    return min(Run(*reported(REPORT + code, size)) for _ in range(repeats))


def reported(code: str, size: int) -> Any:
    """What code prints as JSON, in a process of its own; it gets `size` as its argument."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(size)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"a measured program failed:\n{done.stderr}")
    return json.loads(done.stdout)


def preview(session: Session, stack: str) -> tuple[Run, str]:
    """A preview by the real engine, and its output."""
    before, start = processor_seconds(), time.perf_counter()
    process = session.start_pulumi("preview", "-s", stack, "--json", capture=True)
    output, errors = process.communicate()
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"pulumi preview failed:\n{output[-2000:]}\n{errors}")
    steps: list[dict[str, Any]] = json.loads(output)["steps"]
    resources = sum("newState" in step and step["newState"].get("custom", False) for step in steps)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Run(seconds, resources, memory, processor_seconds() - before), output


def processor_seconds() -> float:
    """Of all processes that this one has waited for, and those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
