"""The hardening page names policies that exist, and every policy stands where its sections of the benchmark are."""

from __future__ import annotations

import re

from policies.rules import RESOURCE_RULES, STACK_RULES
from tests.graph.recording import ROOT

PAGE = (ROOT / "docs" / "hardening.md").read_text(encoding="utf-8")
RULES = {rule.id: rule for rule in (*RESOURCE_RULES, *STACK_RULES)}
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def policies(row: list[str]) -> set[str]:
    """Policies in the last column of a row."""
    return set(re.findall(r"`([a-z0-9-]+)`", row[-1]))


def sections() -> dict[str, set[str]]:
    """Policies by section of the benchmark, for rows of one section."""
    return {row[0]: policies(row) for row in ROWS if re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", row[0])}


def test_every_policy_on_the_page_exists() -> None:
    named = set().union(*map(policies, ROWS))
    assert len(named) > 30
    assert named - RULES.keys() == set()


def test_page_and_rules_agree_on_sections() -> None:
    by_section = sections()
    claimed = {(control, rule.id) for rule in RULES.values() for control in rule.controls}
    assert claimed
    assert {(control, rule) for control, rule in claimed if rule not in by_section.get(control, set())} == set()


def test_every_section_of_the_benchmark_is_answered() -> None:
    """The number of recommendations in each part of CIS GKE Benchmark 1.6.0."""
    counts = {"4.1": 10, "4.2": 1, "4.3": 2, "4.4": 2, "4.5": 1, "4.6": 4}
    counts |= {"5.1": 4, "5.2": 2, "5.3": 1, "5.4": 1, "5.5": 7, "5.6": 7, "5.7": 2, "5.8": 3, "5.9": 2, "5.10": 5}
    expected = {f"{part}.{number}" for part, most in counts.items() for number in range(1, most + 1)}
    assert sections().keys() == expected | {"2.1.1", "3.2.4"}
