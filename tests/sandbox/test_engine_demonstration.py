"""The demonstration as a person starts it: with a workload where there is a queue, kept or to the end."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.environment import PLUGINS_VARIABLE, STAND_INS, Plugins, module_command
from sandbox.run_directory import RUN_VARIABLE, RunDirectory
from sandbox.tests.isolation import short_directory
from tests.sandbox.conftest import ROOT, SLIM, Project


@pytest.fixture
def run() -> Iterator[RunDirectory]:
    """A run directory of the test's own; a sandbox that a failed test leaves in it is stopped."""
    with short_directory() as scratch:
        directory = RunDirectory(scratch / "run")
        try:
            yield directory
        finally:
            call(directory, "down")


def call(run: RunDirectory, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m sandbox ...` in a run directory."""
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments],
        cwd=ROOT,
        env={**os.environ, RUN_VARIABLE: str(run.root), **variables},
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
    created = re.search(r"(\d+) created, second preview 0 changes; kept", kept.stdout)
    assert created
    for page in ("README.md", "docs/first-month.md"):
        whole = f"{created[1]} created, second preview 0 changes, {created[1]} deleted, inventory empty"
        assert whole in (ROOT / page).read_text(), f"{page} shows another result"
    table = ("ct6e-standard-1t", "hosts", "chips", "USD per hour", "endpoint")
    steps = (
        "tools explain -f",
        "PREEMPTIBLE-TPU-V6E-per-project-region in us-east5: 1 chip (serve)",
        "tools workload train serve --queue team",
        "admitted, v6e-1x1",
        "1 Running",
        "1 allocated to 1 claims",
        "completed",
    )
    for word in (*table, *steps):
        assert word in kept.stdout
    assert len(kept.stdout.splitlines()) < 120
    assert kept.stdout.index("1 chip in use") < kept.stdout.rindex("0 chips in use")
    assert str(run.kubeconfig) in kept.stdout
    kubeconfig = json.loads(run.kubeconfig.read_text())
    assert kubeconfig["current-context"] == "gke_my-project_us-east5_tpu-dev"
    assert json.loads(call(run, "inventory", "--json").stdout)
    assert "running already" in call(run, *arguments(project.folder, "dev")).stdout
    assert "stopped and removed" in call(run, "down").stdout


def test_plugins_in_the_users_own_folder_are_found_and_a_stack_without_queues_leaves_nothing(
    project: Project, run: RunDirectory, tmp_path: Path
) -> None:
    """Whoever has run `pulumi install` gets the same last line: no `no resource plugin found in the workspace`."""
    project.write_stack("slim", **SLIM)
    home, started = tmp_path / "home", tmp_path / "started"
    for name, module in STAND_INS.items():
        version = importlib.metadata.version(f"pulumi-{name}")
        executable = home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"
        executable.parent.mkdir(parents=True)
        command = shlex.join(module_command(module))
        executable.write_text(f'#!/bin/sh\necho {name} >> {shlex.quote(str(started))}\nexec {command} "$@"\n')
        executable.chmod(0o755)
    installed = {"PULUMI_HOME": str(home), PLUGINS_VARIABLE: Plugins.INSTALLED}
    whole = call(run, *arguments(project.folder, "slim"), **installed)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    first, last = whole.stdout.split("1/6")[0], whole.stdout.rstrip().splitlines()[-1]
    assert re.search(rf"gcp plugin +\S+, installed in {home}/plugins/resource-gcp-v", first)
    assert re.search(rf"kubernetes plugin +\S+, installed in {home}/plugins/resource-kubernetes-v", first)
    assert re.search(r"choice of plugins +SANDBOX_PLUGINS=installed", first)
    assert re.fullmatch(r"(\d+) created, second preview 0 changes, \1 deleted, inventory empty \(\d+ s\)", last)
    assert {*started.read_text().split()} == {"gcp", "kubernetes"}
    assert "nothing is submitted" in whole.stdout
    assert not run.root.exists()
