"""Whole lives of a stack through the real engine: up, clean second preview, update, refresh, destroy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from sandbox.run_directory import CHECKOUT, RUN_VARIABLE, RunDirectory
from tests.sandbox.conftest import PLATFORM, Project, short_directory

DEV = yaml.safe_load((CHECKOUT / "Pulumi.dev.yaml").read_text())["config"][PLATFORM]


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_the_dev_stack_comes_up_changes_and_goes_away(project: Project) -> None:
    shutil.copy(CHECKOUT / "Pulumi.dev.yaml", project.folder)
    before = files(project.folder)

    changes = project.up("dev")
    assert changes.keys() == {"create"}
    names = {name for found in project.session.inventory().values() for name in found}
    assert any(DEV["name"] in name for name in names), names
    project.assert_clean("dev")
    project.succeed("refresh", "-s", "dev", "--yes", "--skip-preview", "--expect-no-changes")
    assert files(project.folder) == before, "running a stack writes nothing beside the program"

    project.write_stack("dev", slices={**DEV["slices"], "second": next(iter(DEV["slices"].values()))})
    changes = project.up("dev")
    assert not changes.keys() - {"create", "update", "same"}, "a second slice takes nothing away from the first"
    assert changes["create"] >= 1
    project.assert_clean("dev")

    project.destroy("dev")


def demonstrate(project: Project, run: RunDirectory, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m sandbox ...` in a run directory of its own, by a person without installed plugins."""
    home = run.root.with_name("home")
    return subprocess.run(
        [sys.executable, "-m", "sandbox", *arguments],
        cwd=CHECKOUT,
        env={**os.environ, RUN_VARIABLE: str(run.root), "PULUMI_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_demonstration(project: Project) -> None:
    """A kept one refuses a second beside it, and can be looked at; then a whole one in the same place."""
    shutil.copy(CHECKOUT / "Pulumi.dev.yaml", project.folder)
    demo = ("demo", "--program-dir", str(project.folder), "--time-scale", "0")
    with short_directory() as scratch:
        run = RunDirectory(scratch / "run")
        try:
            kept = demonstrate(project, run, *demo, "--keep")
            assert kept.returncode == 0, kept.stdout + kept.stderr
            created = re.search(r"(\d+) created, second preview 0 changes; kept", kept.stdout)
            assert created, kept.stdout
            for word in ("ct6e-standard-1t", "hosts", "chips", "USD per hour", "endpoint", DEV["name"]):
                assert word in kept.stdout
            assert json.loads(demonstrate(project, run, "inventory", "--json").stdout)
            assert "running already" in demonstrate(project, run, *demo).stdout
        finally:
            stopped = demonstrate(project, run, "down")
        assert "stopped and removed" in stopped.stdout

        whole = demonstrate(project, run, *demo)
        assert whole.returncode == 0, whole.stdout + whole.stderr
        n = created[1]
        last = whole.stdout.rstrip().splitlines()[-1]
        assert re.fullmatch(rf"{n} created, second preview 0 changes, {n} deleted, inventory empty \(\d+ s\)", last)
        assert not run.root.exists()
