"""A sandbox starts, is found, stops, and leaves nothing behind, whatever ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, SandboxError, attach, running, start, stop
from sandbox.tests.command import FOREIGN, call, command, variables
from sandbox.tests.isolation import short_directory

pytestmark = pytest.mark.sandbox

PLAN = Plan()


@pytest.fixture
def run() -> Iterator[RunDirectory]:
    """A run directory of the test's own; a sandbox that the test has left in it is stopped."""
    with short_directory() as scratch:
        directory = RunDirectory(scratch / "run")
        yield directory
        if directory.locked() and directory.ready_file.exists() and (left := attach(directory)):
            stop(left)


def eventually(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether the condition comes to hold."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_sandbox_lives_as_long_as_its_block(run: RunDirectory) -> None:
    with running(run, PLAN, FOREIGN) as session:
        assert run.locked()
        assert session.inventory() == {}
        attached = attach(run)
        assert attached is not None
        assert attached.emulator_url == session.emulator_url
        assert run.root.stat().st_mode & 0o077 == 0, "state and token are for this user only"
    assert not run.locked()
    assert not run.root.exists()
    assert not psutil.pid_exists(session.emulator_pid)
    assert attach(run) is None


def test_a_command_that_hangs_ends_with_what_it_has_printed(run: RunDirectory) -> None:
    """A test's `up` hung until the test's own limit, and nothing of its output was left."""
    with running(run, PLAN, FOREIGN) as session:
        (run.bin / "pulumi").write_text("#!/bin/sh\nsleep 600 &\necho plugin $!\nwait\n")
        with pytest.raises(SandboxError, match=r"(?s)pulumi up has not ended after 5 s.*plugin \d+") as raised:
            session.pulumi("up", seconds=5)
    plugin = int(str(raised.value).split()[-1])
    assert eventually(lambda: not psutil.pid_exists(plugin))


def test_the_emulator_listens_on_the_loopback_interface_only(run: RunDirectory) -> None:
    with running(run, PLAN, FOREIGN) as session:
        connections = psutil.Process(session.emulator_pid).net_connections(kind="tcp")
        listening = [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
    assert set(listening) == {"127.0.0.1"}


def test_a_second_sandbox_in_the_same_place_is_refused(run: RunDirectory) -> None:
    with running(run, PLAN, FOREIGN) as session:
        with pytest.raises(SandboxError, match="running already"):
            start(run, PLAN, FOREIGN)
        assert session.inventory() == {}, "the first one is not disturbed"


def test_sandboxes_in_two_places_do_not_meet(run: RunDirectory) -> None:
    other = RunDirectory(run.root.with_name("other"))
    with running(run, PLAN, FOREIGN) as first, running(other, PLAN, FOREIGN) as second:
        assert first.emulator_url != second.emulator_url


def test_what_a_killed_sandbox_left_is_removed_at_the_next_start(run: RunDirectory) -> None:
    session = start(run, PLAN, FOREIGN)
    (run.root / "marker").touch()
    killed = psutil.Process(session.emulator_pid)
    killed.kill()
    killed.wait()
    assert not run.locked()
    assert attach(run) is None
    with running(run, PLAN, FOREIGN) as anew:
        assert not (run.root / "marker").exists()
        assert anew.inventory() == {}


def test_stopping_a_sandbox_that_has_died_removes_it(run: RunDirectory) -> None:
    session = start(run, PLAN, FOREIGN)
    killed = psutil.Process(session.emulator_pid)
    killed.kill()
    killed.wait()
    stop(session)
    assert not run.root.exists()
    with pytest.raises(SandboxError, match="does not answer"):
        session.inventory()


def test_an_emulator_that_cannot_start_is_explained(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxError, match="the emulator did not start"):
        start(run, PLAN, FOREIGN)
    assert not run.locked()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_everything_ends_with_the_shell_that_started_it(run: RunDirectory, number: signal.Signals) -> None:
    """The shell's stdin stays open, so that it waits for commands until the signal comes."""
    shell = subprocess.Popen(
        command("shell"),
        cwd=FOREIGN,
        env=variables(run),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert shell.stdin
    assert eventually(run.ready_file.exists)
    emulator = json.loads(run.ready_file.read_text())["pid"]
    os.killpg(shell.pid, number)
    shell.stdin.close()
    shell.wait(120)
    assert eventually(lambda: has_ended(emulator))
    assert eventually(lambda: not run.locked())


def test_up_status_inventory_env_down(run: RunDirectory) -> None:
    """The commands in the order a person uses them; `up` outlives the process that called it."""
    assert call(run, "status").returncode == 1
    refused = call(run, "inventory")
    assert refused.returncode == 1
    assert "no sandbox of this program is running" in refused.stdout
    assert "Traceback" not in refused.stdout + refused.stderr

    up = call(run, "up")
    assert up.returncode == 0, up.stdout + up.stderr
    assert run.locked()
    assert "-m sandbox down" in up.stdout
    status = call(run, "status")
    assert status.returncode == 0
    assert "127.0.0.1" in status.stdout
    assert re.search(
        r"kubernetes plugin +stand-in for .*\n +choice of plugins +SANDBOX_PLUGINS=stand-in\n", status.stdout
    )
    assert json.loads(call(run, "inventory", "--json").stdout) == {}
    exports = call(run, "env").stdout
    assert re.search(r"^export PULUMI_BACKEND_URL=file://", exports, re.MULTILINE)

    again = call(run, "up")
    assert again.returncode == 1
    assert "running already" in again.stdout
    # A shell in a running sandbox leaves it running.
    inside = call(run, "shell", stdin="pulumi version; exit 3\n")
    assert inside.returncode == 3
    assert inside.stdout.startswith("v")
    assert run.locked()

    down = call(run, "down")
    assert down.returncode == 0
    assert not run.root.exists()
    assert "No sandbox" in call(run, "down").stdout


def test_a_shell_of_its_own_stops_with_it(run: RunDirectory) -> None:
    inside = call(
        run, "shell", "--stack", "dev", stdin="echo stack=$PULUMI_STACK; python -m sandbox inventory --json\n"
    )
    assert inside.returncode == 0, inside.stdout + inside.stderr
    assert inside.stdout.splitlines()[:2] == ["stack=dev", "{}"]
    assert not run.root.exists()


def test_unknown_names_are_answered_with_the_known_ones(run: RunDirectory, tmp_path: Path) -> None:
    built = call(run, "build", "docker")
    assert built.returncode == 1
    assert "kube-apiserver" in built.stdout
    shown = call(run, "demo", "--stack", "nowhere")
    assert shown.returncode == 1
    assert re.search(r"no Pulumi\.nowhere\.yaml in .*dev", shown.stdout)
    assert not run.root.exists()
