"""Engine commands of a trial: what each did to each resource, and how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from sandbox.plugins.steps import VARIABLE
from tests.faults.kinds import CLUSTER, GOOGLE
from tests.sandbox.conftest import PATIENCE, Project

Json = dict[str, Any]
LOOK_SECONDS = 0.5
"""Between looks at what an engine has started: each reads all processes of the machine."""
SUMMARY = 400
"""Characters of what the engine says, in a result."""


def resource_of(urn: str) -> str:
    """ "type::name" of a URN."""
    _, _, types, name = urn.split("::", 3)
    return f"{types.rpartition('$')[2]}::{name}"


@dataclass
class Run:
    """One command. `done`: resources that stand as they should, `changed`: those of them that it changed; `failed`:
    those whose step failed, and what was said; `killed`: the engine itself; `said`: its errors."""

    code: int
    done: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass(frozen=True)
class Engine:
    """Commands on one stack of the campaign's project. `edit`: which edit of the program holds, "" for none."""

    project: Project
    stack: str
    edit: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """What commands get beside the sandbox's own variables."""
        return {VARIABLE: "1", "FAULTS_EDIT": self.edit, "PULUMI_DEBUG_COMMANDS": "true"}

    def run(self, *arguments: str) -> Run:
        """Run `pulumi` to its end, whatever that is; nothing of it is left running."""
        with tempfile.TemporaryDirectory(prefix="tpu-") as folder:
            log = Path(folder) / "events"
            command = (*arguments, "-s", self.stack, "--non-interactive", "--event-log", str(log))
            process = self.project.session.start_pulumi(*command, capture=True, extra=self.variables)
            family = {process.pid: psutil.Process(process.pid)}
            output = _watched(process, family)
            run = Run(process.returncode)
            _read(run, log)
            run.said = run.said or " ".join(output[-SUMMARY:].split())
            return run

    def state(self) -> Json:
        return self.project.state(self.stack)

    def resources(self) -> set[str]:
        """What the state has of providers' resources."""
        urns = (each["urn"] for each in self.state().get("resources") or ())
        return {each for each in map(resource_of, urns) if each.startswith((GOOGLE, CLUSTER))}

    def pending(self) -> list[Json]:
        """Operations that began and whose end was not noted."""
        found: list[Json] = self.state().get("pending_operations") or []
        return found

    def recover(self, *flags: str) -> Json:
        """The recovery's report."""
        command = [sys.executable, "-m", "tools", "recover", "-s", self.stack, "--yes", "--json", *flags]
        environment = {**self.project.session.environment, **self.variables}
        try:
            done = subprocess.run(
                command,
                cwd=self.project.folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            report: Json = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            report = {"recovered": False, "left": [], "printed": f"nothing: it has not ended after {PATIENCE:.0f} s"}
        except ValueError:
            report = {"recovered": False, "left": [], "printed": done.stdout + done.stderr}
        return report


def _watched(process: subprocess.Popen[str], family: dict[int, psutil.Process]) -> str:
    """Waits for a command. When its engine is killed, everything that it started is: that is how a machine is lost."""
    waited = 0.0
    while True:
        with suppress(psutil.NoSuchProcess):
            family.update({each.pid: each for each in family[process.pid].children(recursive=True)})
        try:
            output, errors = process.communicate(timeout=LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            waited += LOOK_SECONDS
            if process.poll() is not None:  # the engine is gone, and what it started holds its output
                _end(family)
            elif waited > PATIENCE:
                process.send_signal(signal.SIGINT)
                waited = 0.0
            continue
        _end(family)
        return output + errors


def _end(family: Mapping[int, psutil.Process]) -> None:
    for each in family.values():
        with suppress(psutil.NoSuchProcess):
            if each.pid != os.getpid():
                each.kill()


def _read(run: Run, log: Path) -> None:
    """Takes what happened from the engine's event log."""
    said = []
    for event in _events(log):
        if done := event.get("resOutputsEvent"):
            name = resource_of(done["metadata"]["urn"])
            run.done.add(name)
            if done["metadata"]["op"] != "same":
                run.changed.add(name)
        if failed := event.get("resOpFailedEvent"):
            run.failed.setdefault(resource_of(failed["metadata"]["urn"]), "")
        message = event.get("diagnosticEvent") or {}
        if message.get("severity") == "error":
            text = " ".join(str(message.get("message", "")).split())
            said.append(text[:SUMMARY])
            if (urn := message.get("urn")) and resource_of(urn).startswith((GOOGLE, CLUSTER)):
                run.failed[resource_of(urn)] = text[:SUMMARY]
    run.said = " | ".join(said)[: 3 * SUMMARY]


def _events(log: Path) -> Iterator[Json]:
    if log.exists():
        for line in log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                yield json.loads(line)
