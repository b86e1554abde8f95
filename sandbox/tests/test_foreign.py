"""Another program on the same Google services, by the sandbox as it is installed and as its README says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.run_directory import RunDirectory
from sandbox.tests.command import FOREIGN, call, variables
from sandbox.tests.isolation import short_directory
from sandbox.tests.packaging import installed

pytestmark = pytest.mark.sandbox

# What somebody types in `python -m sandbox shell`.
SESSION = """
pulumi preview --expect-no-changes >&2 || exit 1
kubectl get namespace checkout -o jsonpath='{.status.phase}{"\\n"}'
kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.labels.node\\.kubernetes\\.io/instance-type}{"\\n"}{end}'
pulumi destroy --yes --skip-preview >&2 || exit 1
python -m sandbox inventory --json
"""


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    with short_directory() as scratch:
        yield installed(scratch)


def imported_from(folder: Path, environment: dict[str, str]) -> Path:
    """Where a command in the program's folder takes the sandbox from."""
    command = [sys.executable, "-c", "import sandbox; print(sandbox.__file__)"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def test_a_program_of_somebody_else_comes_up_stays_as_it_is_and_goes(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(FOREIGN, folder)
    with short_directory() as scratch:
        run = RunDirectory(scratch / "run")
        assert imported_from(folder, variables(run, package)).is_relative_to(package)
        try:
            kept = call(run, "demo", "--keep", "--time-scale", "0", folder=folder, package=package)
            assert kept.returncode == 0, kept.stdout + kept.stderr
            assert re.search(r"1/3 .*Preview.*2/3 .*Up.*3/3 .*Second preview", kept.stdout, re.DOTALL)
            assert "8 created, second preview 0 changes; kept." in kept.stdout
            shell = call(run, "shell", folder=folder, package=package, stdin=SESSION)
            assert shell.returncode == 0, shell.stdout + shell.stderr
            namespace, *nodes, inventory = shell.stdout.splitlines()
            assert namespace == "Active"
            assert nodes == ["e2-standard-4"] * 2
            assert json.loads(inventory) == {}
        finally:
            down = call(run, "down", folder=folder, package=package)
    assert "stopped and removed" in down.stdout
    assert {path.name for path in folder.iterdir()} == {path.name for path in FOREIGN.iterdir()}
