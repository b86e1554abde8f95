"""The version of this program. The one place is pyproject.toml; CHANGELOG.md has what each version changes."""

import tomllib
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


@cache
def program_version() -> str:
    """As MAJOR.MINOR.PATCH."""
    return str(tomllib.loads(PROJECT.read_text())["project"]["version"])
