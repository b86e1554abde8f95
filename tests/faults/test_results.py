"""The file of results, and the page that is made of it."""

from pathlib import Path

from tests.faults.campaign import untried
from tests.faults.kinds import CREATE, DELETE, UPDATE
from tests.faults.page import PAGE, page
from tests.faults.points import STACKS, points, resources
from tests.faults.results import ITSELF, LOST, NO_REQUEST, NOT_FIRED, RECOVER, Result, add, latest, read

NAMES = {stack: resources(stack) for stack in STACKS}
NETWORK = next(each for each in NAMES["dev"] if each.startswith("gcp:compute/network:Network::"))


def result(outcome: str, phase: str = CREATE, fault: str = "cut after", day: str = "2026-11-23") -> Result:
    return Result("dev", phase, NETWORK, fault, outcome, day)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "below" / "results.jsonl"
    assert read(file) == []
    add([result(ITSELF)], file)
    add([result(RECOVER, DELETE), result(LOST, UPDATE)], file)
    assert read(file) == [result(ITSELF), result(RECOVER, DELETE), result(LOST, UPDATE)]


def test_the_last_result_of_a_point_counts_unless_its_fault_did_not_strike() -> None:
    assert latest([result(LOST), result(RECOVER)]) == {result("").point: result(RECOVER)}
    assert latest([result(RECOVER), result(NOT_FIRED)]) == {result("").point: result(RECOVER)}
    assert latest([result(NOT_FIRED), result(LOST)]) == {result("").point: result(LOST)}


def test_a_point_is_tried_once_its_fault_has_struck() -> None:
    every = set(points("dev", NAMES["dev"]))
    assert set(untried("dev", [])) == every
    assert set(untried("dev", [result(NOT_FIRED)])) == every
    for outcome in (ITSELF, RECOVER, NO_REQUEST):
        assert set(untried("dev", [result(outcome)])) == every - {result("").point}
    assert set(untried("dev", [result(LOST)])) == every, "what was lost is tried again"


def test_the_page_counts_what_struck_and_nothing_else() -> None:
    total = sum(len(list(points(stack, names))) for stack, names in NAMES.items())
    tried = [
        result(ITSELF, fault="slow operation"),
        result(RECOVER, day="2026-11-25"),
        result(NOT_FIRED, DELETE),
        result(NO_REQUEST, DELETE, "operation error"),
        Result("dev", CREATE, "gcp:compute/network:Network::gone", "cut after", LOST, "2026-11-24"),
    ]
    text = page(tried, NAMES)
    assert f"2026-11-23 to 2026-11-25: faults struck at 2 of {total - 1} points" in text
    assert "**1 by itself, 1 recover, 0 lost**" in text
    assert "At 1 more points the fault was staged and did not strike" in text
    others = " | ".join(f"0 of {len(NAMES[stack])}" for stack in STACKS if stack != "dev")
    [row] = [line for line in text.splitlines() if line.startswith("| cut after | create |")]
    assert row == f"| cut after | create | 1 of {len(NAMES['dev'])} | {others} | 0 | 0 | 1 | 0 | 0 |"


def test_a_page_without_results_claims_nothing() -> None:
    text = page([], NAMES)
    assert "Nothing was tried yet" in text
    assert "lost**" not in text


def test_the_committed_page_is_made_of_todays_kinds_and_words() -> None:
    """Its figures are those of a campaign; all else follows from the code, so it may not differ."""
    made, committed = (text.split("## What was tried")[0] for text in (page([], NAMES), PAGE.read_text()))
    assert committed == made
    assert PAGE.read_text().endswith(page([], NAMES).split("## How it is tried")[1])
