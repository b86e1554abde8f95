"""What a program hands to the sandbox: where it is looked for, and the errors where it cannot be used."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import adapter
from sandbox.adapter import PLAIN, AdapterError, Chart
from sandbox.kubernetes.registry import SOURCES, require
from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, start
from sandbox.tests.command import FOREIGN
from sandbox.toolchain.kubernetes_binaries import KUEUE_VERSION

KUEUE = "oci://registry.k8s.io/kueue/charts/kueue"
MODULE = """
from sandbox.adapter import Chart, Program
PROGRAM = Program(charts=(Chart("oci://registry.k8s.io/kueue/charts/kueue", ("0.1.0",)),))
WORDS = "no program"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a program, with a module `adapter_of_the_test`."""
    (tmp_path / "adapter_of_the_test.py").write_text(MODULE)
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop("adapter_of_the_test", None)


def setting(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_a_program_without_anything_special_takes_the_sandboxs_own() -> None:
    assert adapter.load(FOREIGN) is PLAIN


def test_it_is_found_in_the_programs_folder(folder: Path) -> None:
    setting(folder, '[tool.sandbox]\nadapter = "adapter_of_the_test:PROGRAM"\n')
    assert adapter.load(folder).charts == (Chart(KUEUE, ("0.1.0",)),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "",
            r"\[tool.sandbox\] adapter is missing -> write adapter = \"module:object\", or .*\"sandbox.adapter:PLAIN\"",
        ),
        ("[tool.sandbox]\n", "adapter is missing -> write"),
        ('[tool.sandbox]\nadaptor = "a:b"\n', "knows no adaptor -> write"),
        ('[tool.sandbox]\nadapter = "module"\n', "adapter is 'module' -> write"),
        ('[tool.sandbox]\nadapter = "module:"\n', "adapter is 'module:' -> write"),
        ("[tool.sandbox]\nadapter = 1\n", "adapter is '1' -> write"),
        ('[tool.sandbox]\nadapter = "nowhere_at_all:X"\n', "cannot be had: No module named 'nowhere_at_all'"),
        ('[tool.sandbox]\nadapter = "adapter_of_the_test:X"\n', "cannot be had: module .* has no attribute 'X'"),
        ('[tool.sandbox]\nadapter = "adapter_of_the_test:WORDS"\n', "is no sandbox.adapter.Program: 'no program'"),
        ("[tool.sandbox\n", "cannot be read: "),
    ],
)
def test_what_cannot_be_used_is_named_with_its_file(folder: Path, text: str, reason: str) -> None:
    setting(folder, text)
    with pytest.raises(AdapterError, match=rf"^{re.escape(str(folder / 'pyproject.toml'))}.*{reason}"):
        adapter.load(folder)


def test_without_a_file_the_message_says_what_to_write(folder: Path) -> None:
    with pytest.raises(AdapterError, match=r"^there is no .*pyproject.toml; below \[tool.sandbox\] write adapter = "):
        adapter.load(folder)


def test_a_version_that_the_sandbox_cannot_run_is_refused_before_anything_starts(folder: Path) -> None:
    setting(folder, '[tool.sandbox]\nadapter = "adapter_of_the_test:PROGRAM"\n')
    run = RunDirectory(folder / "run")
    with pytest.raises(AdapterError, match=rf"installs {KUEUE} in version 0.1.0; the sandbox runs {KUEUE_VERSION} "):
        start(run, Plan(), folder)
    assert not run.root.exists()


def test_a_chart_that_the_sandbox_does_not_know_is_answered_with_those_that_it_knows() -> None:
    with pytest.raises(AdapterError, match=r"cannot serve the chart oci://a/b; it can serve oci://registry\.k8s\.io/"):
        require([Chart("oci://a/b", ())])
    require([Chart(address, source.versions) for address, source in SOURCES.items()])
