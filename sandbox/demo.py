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
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sandbox import adapter, events, progress, workload
from sandbox.adapter import Outputs, SampleJob
from sandbox.kubernetes.api import ApiError
from sandbox.session import SandboxError, Session

# Google's own durations divided by this: a cluster that takes minutes in the cloud is there in seconds, and the
# progress of long operations is still seen.
TIME_SCALE = 100
# How long the pods of the sample workload run, and how long all of it may take.
RUN_SECONDS, WORKLOAD_SECONDS = 4.0, 120.0
# How many resources are named that a command waits for.
WAITS = 3


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
    """Runs the steps and prints what they come to, and all that the engine says where `verbose`.

    What the engine has said of a step that fails is printed in any case.
    """

    def __init__(self, session: Session, stack: str, console: Console, *, verbose: bool = False) -> None:
        self.session = session
        self.program = adapter.load(session.program_dir)
        self.stack = stack
        self.console = console
        self.verbose = verbose
        self.result = Result()
        self._last = events.Log()
        self._unseen = ""

    def run(self, *, keep: bool) -> Result:
        """All steps in order; `keep` leaves out the last. A step that fails ends the demonstration: see `problems`."""
        steps = list(self._steps(keep))
        for number, step in enumerate(steps, 1):
            self.console.rule(f"[bold]{number}/{len(steps)}  {step.__doc__}", align="left")
            started = time.monotonic()
            self._unseen = ""
            said = step()
            if self.result.problems:
                self._raw(self._unseen)
            seconds = time.monotonic() - started
            self.console.print(f"[bold]{said}[/] [dim]({seconds:.1f} s)[/]\n", highlight=False, soft_wrap=True)
            if self.result.problems:
                break
        return self.result

    def _steps(self, keep: bool) -> Iterator[Callable[[], str]]:
        if self.program.explain:
            yield self.explain
        yield from (self.preview, self.up, self.second_preview)
        if self.program.job:
            yield self.workload
        if not keep:
            yield self.destroy

    def explain(self) -> str:
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
        self._raw(printed.stdout)
        if printed.returncode:
            self._problem(printed.stderr)
        return "not explained" if printed.returncode else "explained"

    def preview(self) -> str:
        """Preview: what would be created"""
        log = self._pulumi("preview")
        if not self.verbose:
            self.console.print(log.parts())
        elif not self.console.is_terminal:  # on a terminal the engine draws this tree itself
            self.console.print(log.tree())
        return f"{log.changes.get('create', 0)} to create"

    def up(self) -> str:
        """Up: create it"""
        log = self._pulumi("up", "--yes")
        self.result.created = log.changes.get("create", 0)
        if not self.result.problems:
            self.show()
        return f"{self.result.created} created"

    def second_preview(self) -> str:
        """Second preview: nothing may be left to change"""
        log = self._pulumi("preview", "--expect-no-changes")
        self.result.second_preview = log.changed
        if log.changed:
            self._problem(f"the second preview wants to change {log.changed} resources")
        return f"{log.changed} changes, {log.changes.get('same', 0)} unchanged"

    def workload(self) -> str:
        """Workload: a job from its queue to its end"""
        assert self.program.job
        sample = self.program.job(self.stack, self._outputs())
        if sample is None:
            return "The program has no job for this stack: nothing is submitted."
        command = shlex.join(["python", *sample.command])
        self.console.print(f"[bold cyan]$ {command} | kubectl apply -f -", highlight=False)
        try:
            self._follow(sample)
        except (workload.WorkloadError, ApiError) as error:
            self._problem(str(error))
            return "the job has not ended as it must"
        return "the job has ended, and its quota is free again"

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

    def destroy(self) -> str:
        """Destroy: nothing may be left"""
        log = self._pulumi("destroy", "--yes", *self.program.destroy(self._outputs()))
        self.result.deleted = log.changes.get("delete", 0)
        self.result.left = self.session.inventory()
        if self.result.left:
            self._problem(self.result.inventory)
        if self.result.deleted != self.result.created:
            self._problem(f"{self.result.created} resources were created, but {self.result.deleted} deleted")
        return f"{self.result.deleted} deleted, {escape(self.result.inventory)}"

    def show(self) -> None:
        """Print what exists now: what the program shows of its outputs, and what is in the emulated cloud."""
        inventory = self.session.inventory()
        for table in self.program.tables(self._outputs()):
            self.console.print(table)
        if self.verbose:
            self.console.print(inventory_table(inventory))
        else:
            kinds = ", ".join(f"{kind} {len(names)}" for kind, names in sorted(inventory.items()))
            self.console.print(f"in the emulated cloud: {kinds}", highlight=False, soft_wrap=True)

    def _outputs(self) -> Outputs:
        printed = self.session.pulumi("stack", "output", "--json", "-s", self.stack)
        if printed.returncode:
            raise SandboxError(f"`pulumi stack output` failed:\n{printed.stderr}")
        outputs: Outputs = json.loads(printed.stdout)
        return outputs

    def _pulumi(self, command: str, *flags: str) -> events.Log:
        """Run one engine command; a failure becomes a problem of the result."""
        arguments = [command, "-s", self.stack, *flags]
        self.console.print(f"[bold cyan]$ {shlex.join(['pulumi', *arguments])}", highlight=False)
        with tempfile.TemporaryDirectory() as scratch:
            path, output = Path(scratch) / "events.json", Path(scratch) / "output"
            extra = events.variables(path)
            if self.verbose:
                code = self.session.show_pulumi(*arguments, extra=extra)
            else:
                with progress.running(self.console, lambda: self._so_far(path)) as tick:
                    code = self.session.log_pulumi(*arguments, log=output, extra=extra, tick=tick)
            log = self._last = events.read(path)
            self._unseen = "" if self.verbose else output.read_text()
        if code:
            self._problem(f"`pulumi {shlex.join(arguments)}` ended with exit code {code}")
        return log

    def _so_far(self, path: Path) -> str:
        """How far a command has come that works on the resources of the one before it."""
        log = events.read(path)
        names = [step.name for step in log.under_way]
        waits = f"; waits for {', '.join(names[:WAITS])}{' ...' if names[WAITS:] else ''}" if names else ""
        return f"{len(log.ended)} of {len(self._last.steps) or '?'} resources{waits}"

    def _raw(self, text: str) -> None:
        """Print what a command has written."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True, end="")

    def _problem(self, text: str) -> None:
        self.result.problems.append(text)


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
