"""`python -m tools recover` in the sandbox's shell."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.sandbox.conftest import PATIENCE, Project

Json = dict[str, Any]


def recover(project: Project, stack: str, *flags: str, code: int = 0) -> Json:
    """The command's report; it must end with that exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "tools", "recover", "-s", stack, "--yes", "--json", *flags],
        cwd=project.folder,
        env=project.session.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    report: Json = json.loads(done.stdout)
    return report


def actions(report: Json) -> dict[str, str]:
    """By name, what the command meant to do with each resource."""
    return {each["name"]: each["action"] for each in report["found"]}
