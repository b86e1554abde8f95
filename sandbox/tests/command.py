"""`python -m sandbox` as somebody types it who has a program of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sandbox.run_directory import IMPORT_ROOT, RUN_VARIABLE, RunDirectory

FOREIGN = Path(__file__).parent / "foreign"
"""The program of somebody else, with nothing that an adapter would have to say."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sandbox", *arguments]


def variables(run: RunDirectory, package: Path = IMPORT_ROOT) -> dict[str, str]:
    """The environment of a command on this run directory; `package` is the folder that `sandbox` is imported from."""
    return {**os.environ, RUN_VARIABLE: str(run.root), "PYTHONPATH": str(package), "COLUMNS": "200"}


def call(
    run: RunDirectory, *arguments: str, folder: Path = FOREIGN, package: Path = IMPORT_ROOT, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in the folder of a program."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=variables(run, package),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
