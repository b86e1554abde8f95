"""Engines that are ended in the middle of a command, and `python -m tools recover` in the sandbox's shell."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

from tests.sandbox.conftest import PATIENCE, Project

Json = dict[str, Any]
UP = ("up", "--yes", "--skip-preview")


def recover(project: Project, stack: str, *flags: str, code: int = 0) -> Json:
    """The command's report; it must end with that exit code."""
    return tool(project, "recover", "-s", stack, "--yes", "--json", *flags, code=code)


def tool(project: Project, *arguments: str, code: int | None = None) -> Json:
    """What `python -m tools` prints as JSON; it must end with that exit code, if one is given."""
    done = subprocess.run(
        [sys.executable, "-m", "tools", *arguments],
        cwd=project.folder,
        env=project.session.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert code in (None, done.returncode), done.stdout + done.stderr
    report: Json = json.loads(done.stdout)
    return report


def actions(report: Json) -> dict[str, str]:
    """By name, what the command meant to do with each resource."""
    return {each["name"]: each["action"] for each in report["found"]}


def row(project: Project, stack: str, name: str) -> dict[str, Any]:
    """What the state has of a resource."""
    [found] = [each for each in project.state(stack)["resources"] if each["urn"].endswith(f"::{name}")]
    resource: dict[str, Any] = found
    return resource


# How long the engine is given to notice a signal, before the cloud answers to the request that it waits for.
NOTICE_SECONDS = 2.0
# Prepares a moment in an update of a stack, and returns what says that it has come.
Moment = Callable[[Project, str], Callable[[], bool]]


def during(request: dict[str, str]) -> Moment:
    """While the cloud takes its time to answer to a request, which is until `end` has the faults cleared."""

    def prepare(project: Project, _stack: str) -> Callable[[], bool]:
        project.inject(kind="slow", seconds=600, **request)
        return lambda: not project.pending_faults()

    return prepare


def during_nothing_but(request: dict[str, str]) -> Moment:
    """The same, once everything that the engine does beside it is over."""

    def prepare(project: Project, stack: str) -> Callable[[], bool]:
        struck = during(request)(project, stack)
        return lambda: struck() and len(project.state(stack).get("pending_operations") or ()) == 1

    return prepare


def end(project: Project, stack: str, command: tuple[str, ...], moment: Moment, number: signal.Signals) -> None:
    """Start an engine command, and send it a signal at a moment."""
    has_come = moment(project, stack)
    engine = project.session.start_pulumi(*command, "-s", stack, capture=True)
    try:
        deadline = time.monotonic() + PATIENCE
        while not has_come():
            assert engine.poll() is None, engine.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parts = psutil.Process(engine.pid).children(recursive=True)
        engine.send_signal(number)
        if number != signal.SIGKILL:
            time.sleep(NOTICE_SECONDS)
        project.call("DELETE", "faults")
        engine.communicate(timeout=PATIENCE)
        # A killed engine leaves its language host and plugins behind; those only notice after a while.
        for part in parts:
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
    finally:
        engine.kill()
        engine.wait()
    assert engine.returncode != 0
