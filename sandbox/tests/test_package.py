"""The sandbox is a package of its own: whole when it is installed, and without an import of the program it serves."""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from sandbox.tests.packaging import SANDBOX, wheel

BESIDE = {
    "pyproject.toml",
    "requirements.in",
    "requirements.txt",
    "README.md",
    "toolchain/go-requirements.in",
    "hosts/jax-requirements.in",
}
"""Files of the folder that nothing reads at run time."""
ITSELF = {"sandbox", *sys.stdlib_module_names}


def files() -> Iterator[Path]:
    """The files of the package, without its tests."""
    for path in SANDBOX.rglob("*"):
        parts = path.relative_to(SANDBOX).parts
        if path.is_file() and parts[0] != "tests" and "__pycache__" not in parts:
            yield path


def normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_the_wheel_has_every_file(tmp_path: Path) -> None:
    wanted = {path.relative_to(SANDBOX).as_posix() for path in files()} - BESIDE
    with zipfile.ZipFile(wheel(tmp_path)) as built:
        packed = {name.removeprefix("sandbox/") for name in built.namelist() if name.startswith("sandbox/")}
    assert packed == wanted


def test_it_imports_only_itself_and_what_it_declares() -> None:
    lines = (SANDBOX / "requirements.in").read_text().splitlines()
    declared = {normal(re.split(r"[<>=]", line)[0]) for line in lines if not line.startswith("#")}
    providers = {package: {normal(name) for name in names} for package, names in packages_distributions().items()}
    packages = {package for path in files() if path.suffix == ".py" for package in imported(path)} - ITSELF
    assert {package for package in packages if not providers.get(package, set()) & declared} == set()
    assert declared == {name for package in packages for name in providers[package] & declared}


def test_its_tests_import_nothing_of_the_program_beside_it() -> None:
    packages = {package for path in (SANDBOX / "tests").rglob("*.py") for package in imported(path)}
    assert packages - ITSELF - packages_distributions().keys() == set()


def imported(path: Path) -> Iterator[str]:
    """The first name of every module that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
