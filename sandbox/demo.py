"""The demonstration: one stack explained, then through preview, up, a second preview, a workload and destroy.

Everything is done with the commands that a person would type: `pulumi`, and the project's own tools.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandbox import events, workload
from sandbox.kubernetes.api import ApiError, Object
from sandbox.run_directory import CHECKOUT
from sandbox.session import SandboxError, Session

# Google's own durations divided by this: a cluster that takes minutes in the cloud is there in seconds, and the
# progress of long operations is still seen.
TIME_SCALE = 100
# How long the pods of the sample workload run, and how long all of it may take.
RUN_SECONDS, WORKLOAD_SECONDS = 4.0, 120.0
# Columns of the table of slices: heading and key of the stack's `slices` output.
SLICE_COLUMNS = (
    ("machine type", "machine_type"),
    ("topology", "topology"),
    ("capacity", "capacity"),
    ("slices", "count"),
    ("hosts each", "hosts"),
    ("chips each", "chips"),
    ("USD per hour", "price_per_hour_usd"),
)


@dataclass
class Result:
    """What the demonstration has found; `problems` is empty where all of it is as it must be."""

    created: int = 0
    second_preview: int = 0
    deleted: int = 0
    left: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def inventory(self) -> str:
        """The last word of the summary."""
        left = ", ".join(f"{kind}: {' '.join(names)}" for kind, names in self.left.items())
        return f"inventory NOT empty ({left})" if left else "inventory empty"


class Demo:
    """Runs the steps and prints them; `keep` ends before destroy."""

    def __init__(self, session: Session, stack: str, console: Console) -> None:
        self.session = session
        self.stack = stack
        self.console = console
        self.result = Result()

    def run(self, *, keep: bool) -> Result:
        """All steps in order. A step that fails ends the demonstration; its reason is in the result's problems."""
        steps = [self.explain, self.preview, self.up, self.second_preview, self.workload]
        if not keep:
            steps.append(self.destroy)
        for number, step in enumerate(steps, 1):
            self.console.rule(f"[bold]{number}/{len(steps)}  {step.__doc__}", align="left")
            with self._timed():
                step()
            if self.result.problems:
                break
        return self.result

    def explain(self) -> None:
        """Explain: what the stack file amounts to, before anything exists"""
        stack_file = relpath(self.session.program_dir / f"Pulumi.{self.stack}.yaml", CHECKOUT)
        arguments = ["-m", "tools", "explain", "-f", stack_file]
        self.console.print(f"[bold cyan]$ {shlex.join(['python', *arguments])}", highlight=False)
        printed = subprocess.run(
            [sys.executable, *arguments],
            cwd=CHECKOUT,
            env={**os.environ, "COLUMNS": str(self.console.width)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.console.print(printed.stdout, markup=False, highlight=False, soft_wrap=True, end="")
        if printed.returncode:
            self._problem(printed.stderr)

    def preview(self) -> None:
        """Preview: what would be created"""
        log = self._pulumi("preview")
        if not self.console.is_terminal:  # on a terminal the engine draws this tree itself
            self.console.print(log.tree())

    def up(self) -> None:
        """Up: create it"""
        log = self._pulumi("up", "--yes")
        self.result.created = log.changes.get("create", 0)
        if not self.result.problems:
            self.show()

    def second_preview(self) -> None:
        """Second preview: nothing may be left to change"""
        log = self._pulumi("preview", "--expect-no-changes")
        self.result.second_preview = log.changed
        if log.changed:
            self._problem(f"the second preview wants to change {log.changed} resources")

    def workload(self) -> None:
        """Workload: a job from its queue to its end"""
        outputs = self._outputs()
        choice = workload.choose(outputs)
        if choice is None:
            self.console.print("This stack has no queue with slices: nothing is submitted.")
            return
        arguments = workload.arguments(choice, self.session.program_dir / f"Pulumi.{self.stack}.yaml")
        self.console.print(f"[bold cyan]$ {shlex.join(['python', *arguments])} | kubectl apply -f -", highlight=False)
        try:
            self._follow(workload.manifest(arguments, RUN_SECONDS), outputs["cluster"]["endpoint"])
        except (workload.WorkloadError, ApiError) as error:
            self._problem(str(error))

    def _follow(self, job: Object, endpoint: str) -> None:
        """Submit the job, and print what changes until it is over."""
        started = time.monotonic()
        said: Mapping[str, str] = {}
        with self.session.cluster_client(endpoint) as client:
            for sight in workload.watch(client, client.apply(job), WORKLOAD_SECONDS):
                for side, words in sight.text.items():
                    if words != said.get(side, ""):
                        seconds = time.monotonic() - started
                        self.console.print(f"  {seconds:5.1f} s  {side:6} {escape(words or 'none')}", soft_wrap=True)
                said = sight.text

    def destroy(self) -> None:
        """Destroy: nothing may be left"""
        log = self._pulumi("destroy", "--yes")
        self.result.deleted = log.changes.get("delete", 0)
        self.result.left = self.session.inventory()
        if self.result.left:
            self._problem(self.result.inventory)
        if self.result.deleted != self.result.created:
            self._problem(f"{self.result.created} resources were created, but {self.result.deleted} deleted")

    def show(self) -> None:
        """Print what exists now: the cluster, its slices and their cost, and everything in the emulated cloud."""
        outputs = self._outputs()
        self.console.print("[bold]What now exists")
        for table in (cluster_table(outputs), slices_table(outputs), inventory_table(self.session.inventory())):
            self.console.print(table)

    def _outputs(self) -> dict[str, Any]:
        printed = self.session.pulumi("stack", "output", "--json", "-s", self.stack)
        if printed.returncode:
            raise SandboxError(f"`pulumi stack output` failed:\n{printed.stderr}")
        outputs: dict[str, Any] = json.loads(printed.stdout)
        return outputs

    def _pulumi(self, command: str, *flags: str) -> events.Log:
        """Run one engine command before the person's eyes; a failure becomes a problem of the result."""
        arguments = [command, "-s", self.stack, *flags]
        self.console.print(f"[bold cyan]$ {shlex.join(['pulumi', *arguments])}", highlight=False)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "events.json"
            code = self.session.show_pulumi(*arguments, extra=events.variables(path))
            log = events.read(path)
        if code:
            self._problem(f"`pulumi {shlex.join(arguments)}` ended with exit code {code}")
        return log

    def _problem(self, text: str) -> None:
        self.result.problems.append(text)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.console.print(f"[dim]took {time.monotonic() - started:.1f} s\n", highlight=False)


def cluster_table(outputs: dict[str, Any]) -> Table:
    """How to reach the cluster, from the stack's `cluster` output, and what the platform comes to in all."""
    table = Table(show_header=False)
    for section in ("cluster", "totals"):
        for key, value in (outputs.get(section) or {}).items():
            table.add_row(key, _cell(value))
        table.add_section()
    return table


def slices_table(outputs: dict[str, Any]) -> Table:
    """One row per slice of the stack's `slices` output."""
    table = Table("slice", *(heading for heading, _ in SLICE_COLUMNS))
    for name, plan in (outputs.get("slices") or {}).items():
        table.add_row(name, *(_cell(plan.get(key)) for _, key in SLICE_COLUMNS))
    return table


def inventory_table(inventory: dict[str, list[str]]) -> Table:
    """Everything in the emulated cloud."""
    table = Table("in the emulated cloud", "names")
    for kind, names in sorted(inventory.items()):
        table.add_row(kind, "\n".join(names))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else json.dumps(value)


def summary(result: Result, seconds: float) -> str:
    """The last line of a demonstration that went through to the end."""
    return (
        f"{result.created} created, second preview {result.second_preview} changes, {result.deleted} deleted, "
        f"{result.inventory} ({seconds:.0f} s)"
    )
