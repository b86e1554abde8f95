"""The toolchain: what it takes from the user, what it builds, and how it fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sandbox import toolchain
from sandbox.kubernetes.control_plane import PROGRAMS
from sandbox.toolchain import Binary, ToolchainError
from sandbox.toolchain.kubernetes_binaries import KUBERNETES_VERSION

pytestmark = pytest.mark.sandbox

HELLO = Binary("hello", "hello", "example.invalid/hello", seconds=2, ldflags="-X main.greeting=hi")
PROGRAM = "package main\n\nvar greeting string\n\nfunc main() { println(greeting) }\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Go modules with one small program, and an empty cache for what is built from it."""
    monkeypatch.setattr(toolchain, "HERE", tmp_path)
    monkeypatch.setattr(toolchain, "cache_dir", lambda: tmp_path / "cache")
    (tmp_path / "hello").mkdir()
    (tmp_path / "hello" / "go.mod").write_text("module example.invalid/hello\n\ngo 1.25\n")
    (tmp_path / "hello" / "go.sum").write_text("")
    (tmp_path / "hello" / "main.go").write_text(PROGRAM)
    return tmp_path


def fake_pulumi(folder: Path, version: str, *, language_host: bool = True) -> Path:
    """A folder with a `pulumi` that prints a version, to be put on PATH."""
    folder.mkdir()
    for name in ("pulumi", *(["pulumi-language-python"] if language_host else [])):
        (folder / name).write_text(f"#!/bin/sh\necho {version}\n")
        (folder / name).chmod(0o755)
    return folder


def test_builds_once_with_its_stamp(modules: Path) -> None:
    ticks: list[float] = []
    built = toolchain.build(HELLO, lambda binary, seconds: ticks.append(seconds))
    assert subprocess.run([built], capture_output=True, text=True, check=True).stderr == "hi\n"
    assert ticks, "a build reports its progress"

    ticks.clear()
    before = built.stat().st_mtime_ns
    assert toolchain.build(HELLO, lambda binary, seconds: ticks.append(seconds)) == built
    assert built.stat().st_mtime_ns == before
    assert not ticks, "a cached binary takes no time"


def test_a_changed_pin_or_flag_is_another_binary(modules: Path) -> None:
    first = toolchain.built_path(HELLO)
    (modules / "hello" / "go.sum").write_text("changed\n")
    second = toolchain.built_path(HELLO)
    third = toolchain.built_path(Binary("hello", "hello", HELLO.package, seconds=9, ldflags="-s"))
    assert len({first, second, third}) == 3


def test_a_failing_build_shows_the_compilers_words(modules: Path) -> None:
    (modules / "hello" / "main.go").write_text("package main\n\nfunc main() { undefinedFunction() }\n")
    with pytest.raises(ToolchainError, match=re.compile(r"building hello failed.*undefinedFunction", re.DOTALL)):
        toolchain.build(HELLO)
    assert not toolchain.built_path(HELLO).exists()


def test_two_builders_at_once_build_once(modules: Path) -> None:
    built: list[Path] = []
    threads = [threading.Thread(target=lambda: built.append(toolchain.build(HELLO))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [toolchain.built_path(HELLO)] * 2
    assert subprocess.run([built[0]], check=False).returncode == 0


@pytest.mark.parametrize(
    ("version", "language_host", "taken"),
    [("v3.259.0", True, True), ("v4.0.1", True, True), ("v3.258.9", True, False), ("v3.300.0", False, False)],
)
def test_the_users_own_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, language_host: bool, taken: bool
) -> None:
    folder = fake_pulumi(tmp_path / "own", version, language_host=language_host)
    monkeypatch.setenv("PATH", str(folder))
    assert toolchain.own_engine() == (folder / "pulumi" if taken else None)
    if taken:
        assert toolchain.engine() == folder / "pulumi"
        assert toolchain.missing(toolchain.ENGINE) == []


def test_no_engine_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.own_engine() is None


def test_without_go_and_without_an_index_the_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter without go beside it, and a pip that cannot reach anything."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ToolchainError, match="install Go >= "):
        toolchain.go()


def test_every_binary_has_its_module_with_checksums() -> None:
    for binary in toolchain.BINARIES.values():
        for part in ("go.mod", "go.sum"):
            assert (toolchain.HERE / binary.module / part).stat().st_size > 0, f"{binary.name}: {part}"


def test_a_sandbox_is_made_of_what_it_runs_and_not_of_what_tests_run() -> None:
    assert {*PROGRAMS, "jobset", "kueue", "lws", "helm", "kubectl"} == set(toolchain.SANDBOX) - set(toolchain.ENGINE)
    others = set(toolchain.BINARIES) - set(toolchain.SANDBOX)
    of_tests = {"kubeadm", "crictl", "actionlint", "prometheus", "pulumi-language-yaml"}
    assert others == of_tests | set(toolchain.NODE_BINARIES)


def test_kubeadm_is_a_release() -> None:
    """It deploys clusters of its own version, so it has to know which one it is."""
    kubeadm = toolchain.ensure(["kubeadm"])["kubeadm"]
    printed = subprocess.run([kubeadm, "version", "-o", "short"], capture_output=True, text=True, check=True).stdout
    assert printed == f"v{KUBERNETES_VERSION}\n"


def test_the_engine_folder_is_complete() -> None:
    """The real engine: its language host and that host's executor lie beside it."""
    engine = toolchain.engine()
    printed = subprocess.run([engine, "version"], capture_output=True, text=True, check=True).stdout
    found = tuple(map(int, re.findall(r"\d+", printed)[:3]))
    assert found >= tuple(map(int, toolchain.PULUMI_VERSION.split(".")))
    assert {"pulumi", "pulumi-language-python"} <= {p.name for p in engine.parent.iterdir()}
