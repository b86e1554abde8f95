"""The sandbox as a package: built as a stranger builds it, and put into a folder of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SANDBOX = Path(__file__).parents[1]
"""The folder of the package."""


def wheel(scratch: Path) -> Path:
    """The package as a wheel. It is built from a copy, since setuptools writes beside what it builds from."""
    source = scratch / "sandbox"
    shutil.copytree(SANDBOX, source, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(scratch / "dist"), str(source))
    [built] = (scratch / "dist").glob("*.whl")
    return built


def installed(scratch: Path) -> Path:
    """A folder for PYTHONPATH with nothing but the package; its dependencies are those of this environment."""
    _pip("install", "--no-deps", "--no-index", "--target", str(scratch / "site"), str(wheel(scratch)))
    return scratch / "site"


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
