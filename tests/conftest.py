"""What holds for every tier: no variable of the person who runs the tests reaches them, and no tier is left out."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings
from pulumi.runtime import resource
from pulumi.runtime.proto import source_pb2

from sandbox import toolchain
from sandbox.tests.isolation import OBSTACLES, isolate, leave_out, leave_out_real_pods, read_authorities_once
from tests.bootstrap.vm.obstacle import what_vms_miss

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SANDBOX = "sandbox/tests"
"""The tests of the sandbox, which is a package of its own: each folder of them is a tier."""

# Fixtures and markers of what a test starts: VMs, containers and engines; a control plane; nothing.
LONGEST = ({"vms", "real_pods", "sandbox_session"}, {"sandbox"})

# How many objects are made before Python looks for garbage, and how often it looks at older ones. What is collected and
# recorded stays to the end; with Python's own numbers a recorded graph takes a quarter more time.
COLLECTION = (50_000, 20, 100)

# A busy machine is slow: how long an example takes says nothing about the program.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

isolate()
read_authorities_once()


@pytest.fixture(scope="session", autouse=True)
def no_stack_traces() -> Iterator[None]:
    """The SDK notes for each resource which lines of the program made it. That is a third of the time of a program that
    is only recorded, and no test reads it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "_get_stack_trace", source_pb2.StackTrace)
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-tiers", action="store_true", help="fail unless every tier ran and nothing was skipped")
    parser.addoption("--nothing-built", action="store_true", help="leave out the tests that need built programs")


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--all-tiers") and not is_worker:
        config.pluginmanager.register(AllTiers())
    if config.getoption("--nothing-built"):
        for name in ("build", "ensure", "engine"):
            setattr(toolchain, name, refuse)
    gc.set_threshold(*COLLECTION)


def refuse(*_: Any) -> NoReturn:
    """Stands for what builds programs where nothing is built."""
    raise AssertionError("this test asks for a built program: give it the marker `sandbox`")


def tiers() -> set[str]:
    """Every folder of tests, and every test file beside them."""
    files = [*TESTS.rglob("test_*.py"), *(ROOT / SANDBOX).rglob("test_*.py")]
    return {tier(file.relative_to(ROOT).as_posix()) for file in files}


def tier(nodeid: str) -> str:
    """The tier of a test, or of a file of tests."""
    file = nodeid.partition("::")[0]
    if file.startswith(f"{SANDBOX}/"):
        return file.rpartition("/")[0]
    return file.removeprefix(f"{TESTS.name}/").partition("/")[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_real_pods(config, items)
    if any(each.get_closest_marker("vms") for each in items):
        leave_out(config, items, "vms", what_vms_miss())
    if config.getoption("--nothing-built"):
        left_out = [each for each in items if rank(each) < len(LONGEST)]
        items[:] = [each for each in items if rank(each) == len(LONGEST)]
        config.hook.pytest_deselected(items=left_out)
    longest_first(items)


def pytest_collection_finish() -> None:
    gc.freeze()


def longest_first(items: list[pytest.Item]) -> None:
    """Files whose tests take longest run first, so that no process has one left when the others are done."""
    ranks: dict[Path, int] = {}
    for each in items:
        ranks[each.path] = min(ranks.get(each.path, len(LONGEST)), rank(each))
    items.sort(key=lambda each: ranks[each.path])


def rank(item: pytest.Item) -> int:
    """Where a test stands in LONGEST."""
    known = {each.name for each in item.iter_markers()} | set(getattr(item, "fixturenames", ()))
    return next((number for number, names in enumerate(LONGEST) if names & known), len(LONGEST))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for marker, obstacle in config.stash.get(OBSTACLES, {}).items():
        terminalreporter.write_line(f"tests with the marker {marker} were left out: {obstacle}", yellow=True)


class AllTiers:
    """Turns a tier without a passed test, and any skipped test, into a failure of the run."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed[tier(report.nodeid)] += 1
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def problems(self) -> list[str]:
        empty = [f"tier {each}: no test of it passed" for each in sorted(tiers() - self.passed.keys())]
        return empty + [f"skipped: {nodeid}" for nodeid in self.skipped]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.problems() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for problem in self.problems():
            terminalreporter.write_line(f"--all-tiers: {problem}", red=True)
