"""What holds for every tier: no variable of the person who runs the tests reaches them, and no tier is left out."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from sandbox.environment import FOREIGN, PLUGINS_VARIABLE, Plugins
from sandbox.run_directory import RUN_VARIABLE

TESTS = Path(__file__).parent

for name in list(os.environ):
    if name.startswith((*FOREIGN, RUN_VARIABLE)):
        del os.environ[name]
os.environ[PLUGINS_VARIABLE] = Plugins.STAND_IN


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-tiers", action="store_true", help="fail unless every tier ran and nothing was skipped")


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.getoption("--all-tiers") and not is_worker:
        config.pluginmanager.register(AllTiers())


def tiers() -> set[str]:
    """Every folder of tests, and every test file beside them."""
    folders = {p.relative_to(TESTS).parts[0] for p in TESTS.glob("*/**/test_*.py")}
    return folders | {p.name for p in TESTS.glob("test_*.py")}


class AllTiers:
    """Turns a tier without a passed test, and any skipped test, into a failure of the run."""

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tier = report.nodeid.removeprefix(f"{TESTS.name}/").split("/")[0].split("::")[0]
        if report.when == "call" and report.passed:
            self.passed[tier] += 1
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def problems(self) -> list[str]:
        empty = [f"tier {tier}: no test of it passed" for tier in sorted(tiers() - self.passed.keys())]
        return empty + [f"skipped: {nodeid}" for nodeid in self.skipped]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.problems() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for problem in self.problems():
            terminalreporter.write_line(f"--all-tiers: {problem}", red=True)
