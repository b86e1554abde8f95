"""The demonstration: one stack explained, then through preview, up, a second preview, a workload and destroy.

Everything is done with commands that a person would type: `pulumi`, and those of the program that its adapter names.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandbox import adapter, events, workload
from sandbox.adapter import Outputs, SampleJob
from sandbox.kubernetes.api import ApiError
from sandbox.session import SandboxError, Session

# Google's own durations divided by this: a cluster that takes minutes in the cloud is there in seconds, and the
# progress of long operations is still seen.
TIME_SCALE = 100
# How long the pods of the sample workload run, and how long all of it may take.
RUN_SECONDS, WORKLOAD_SECONDS = 4.0, 120.0


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
        self.program = adapter.load(session.program_dir)
        self.stack = stack
        self.console = console
        self.result = Result()

    def run(self, *, keep: bool) -> Result:
        """All steps in order. A step that fails ends the demonstration; its reason is in the result's problems."""
        steps = list(self._steps(keep))
        for number, step in enumerate(steps, 1):
            self.console.rule(f"[bold]{number}/{len(steps)}  {step.__doc__}", align="left")
            with self._timed():
                step()
            if self.result.problems:
                break
        return self.result

    def _steps(self, keep: bool) -> Iterator[Callable[[], None]]:
        if self.program.explain:
            yield self.explain
        yield from (self.preview, self.up, self.second_preview)
        if self.program.job:
            yield self.workload
        if not keep:
            yield self.destroy

    def explain(self) -> None:
        """Explain: what the stack file amounts to, before anything exists"""
        assert self.program.explain
        arguments = self.program.explain(self.stack)
        self.console.print(f"[bold cyan]$ {shlex.join(['python', *arguments])}", highlight=False)
        printed = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.session.program_dir,
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
        assert self.program.job
        sample = self.program.job(self.stack, self._outputs())
        if sample is None:
            self.console.print("The program has no job for this stack: nothing is submitted.")
            return
        command = shlex.join(["python", *sample.command])
        self.console.print(f"[bold cyan]$ {command} | kubectl apply -f -", highlight=False)
        try:
            self._follow(sample)
        except (workload.WorkloadError, ApiError) as error:
            self._problem(str(error))

    def _follow(self, sample: SampleJob) -> None:
        """Submit the job, and print what changes until it is over, and until its hosts are gone where they go."""
        job = workload.manifest(sample.command, self.session.program_dir, RUN_SECONDS)
        started = time.monotonic()
        said: Mapping[str, str] = {}
        with self.session.cluster_client(sample.endpoint) as client:
            for sight in workload.watch(client, client.apply(job), WORKLOAD_SECONDS, sample.leaves_no_hosts):
                for side, words in sight.text.items():
                    if words != said.get(side, ""):
                        seconds = time.monotonic() - started
                        self.console.print(f"  {seconds:5.1f} s  {side:6} {escape(words or 'none')}", soft_wrap=True)
                said = sight.text
            for pod, line in workload.log_lines(client, job):
                self.console.print(f"  {pod}: {escape(line)}", soft_wrap=True, highlight=False)

    def destroy(self) -> None:
        """Destroy: nothing may be left"""
        log = self._pulumi("destroy", "--yes", *self.program.destroy(self._outputs()))
        self.result.deleted = log.changes.get("delete", 0)
        self.result.left = self.session.inventory()
        if self.result.left:
            self._problem(self.result.inventory)
        if self.result.deleted != self.result.created:
            self._problem(f"{self.result.created} resources were created, but {self.result.deleted} deleted")

    def show(self) -> None:
        """Print what exists now: what the program shows of its outputs, and everything in the emulated cloud."""
        self.console.print("[bold]What now exists")
        for table in (*self.program.tables(self._outputs()), inventory_table(self.session.inventory())):
            self.console.print(table)

    def _outputs(self) -> Outputs:
        printed = self.session.pulumi("stack", "output", "--json", "-s", self.stack)
        if printed.returncode:
            raise SandboxError(f"`pulumi stack output` failed:\n{printed.stderr}")
        outputs: Outputs = json.loads(printed.stdout)
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


def inventory_table(inventory: dict[str, list[str]]) -> Table:
    """Everything in the emulated cloud."""
    table = Table("in the emulated cloud", "names")
    for kind, names in sorted(inventory.items()):
        table.add_row(kind, "\n".join(names))
    return table


def summary(result: Result, seconds: float) -> str:
    """The last line of a demonstration that went through to the end."""
    return (
        f"{result.created} created, second preview {result.second_preview} changes, {result.deleted} deleted, "
        f"{result.inventory} ({seconds:.0f} s)"
    )
