"""Formatting, lint and types of the whole repository, as `make lint` checks them."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command", [["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]], ids=" ".join
)
def test_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_parts_of_googles_sdk_that_the_program_uses_are_checked() -> None:
    """mypy skips the others (pyproject.toml): of a part that it skips everything passes."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    [checked] = [each["module"] for each in settings if each.get("follow_imports") == "normal"]
    texts = [
        file.read_text()
        for room in ("components", "sandbox", "tools", "policies")
        for file in (ROOT / room).rglob("*.py")
    ]
    used = {part for text in texts if "import pulumi_gcp" in text for part in parts(ast.parse(text))}
    assert "pulumi_gcp.compute" in used
    assert {f"{each}.*" for each in used} <= set(checked)


def parts(module: ast.Module) -> Iterator[str]:
    """The packages of Google's SDK that a module names: as `gcp.compute`, or in an import of its own."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gcp":
            if node.attr.islower():
                yield f"pulumi_gcp.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pulumi_gcp"):
            yield ".".join((node.module or "").split(".")[:2])
        elif isinstance(node, ast.Import):
            yield from (
                ".".join(each.name.split(".")[:2]) for each in node.names if each.name.startswith("pulumi_gcp.")
            )
