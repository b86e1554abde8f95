"""The demonstration as a person starts it: with a workload where there is a queue, kept or to the end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.run_directory import CHECKOUT, RUN_VARIABLE, RunDirectory
from tests.sandbox.conftest import SLIM, Project, short_directory


@pytest.fixture
def run() -> Iterator[RunDirectory]:
    """A run directory of the test's own; a sandbox that a failed test leaves in it is stopped."""
    with short_directory() as scratch:
        directory = RunDirectory(scratch / "run")
        try:
            yield directory
        finally:
            call(directory, "down")


def call(run: RunDirectory, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m sandbox ...` in a run directory, by a person without installed plugins."""
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, RUN_VARIABLE: str(run.root), "PULUMI_HOME": str(run.root.with_name("home"))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def arguments(folder: Path, stack: str) -> tuple[str, ...]:
    return ("demo", "--stack", stack, "--program-dir", str(folder), "--time-scale", "0")


def test_a_kept_demonstration_has_run_a_workload_and_can_be_looked_at(project: Project, run: RunDirectory) -> None:
    project.copy_stack("dev")
    kept = call(run, *arguments(project.folder, "dev"), "--keep")
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert re.search(r"\d+ created, second preview 0 changes; kept", kept.stdout)
    table = ("ct6e-standard-1t", "hosts", "chips", "USD per hour", "endpoint")
    steps = (
        "tools explain -f",
        "PREEMPTIBLE-TPU-V6E-per-project-region in us-east5: 1 chip (serve)",
        "tools workload serve --queue team",
        "admitted, v6e-1x1",
        "1 Running",
        "1 allocated to 1 claims",
        "completed",
    )
    for word in (*table, *steps):
        assert word in kept.stdout
    assert kept.stdout.index("1 chips in use") < kept.stdout.rindex("0 chips in use")
    assert str(run.kubeconfig) in kept.stdout
    kubeconfig = json.loads(run.kubeconfig.read_text())
    assert kubeconfig["current-context"] == "gke_my-project_us-east5_tpu-dev"
    assert json.loads(call(run, "inventory", "--json").stdout)
    assert "running already" in call(run, *arguments(project.folder, "dev")).stdout
    assert "stopped and removed" in call(run, "down").stdout


def test_a_demonstration_without_queues_says_so_and_leaves_nothing(project: Project, run: RunDirectory) -> None:
    project.write_stack("slim", **SLIM)
    whole = call(run, *arguments(project.folder, "slim"))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert "no queue with slices" in whole.stdout
    last = whole.stdout.rstrip().splitlines()[-1]
    assert re.fullmatch(r"(\d+) created, second preview 0 changes, \1 deleted, inventory empty \(\d+ s\)", last)
    assert not run.root.exists()
