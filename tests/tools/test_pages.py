"""What the pages tell people to type."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_runs_what_a_stacks_state_says(page: Path) -> None:
    """A shell that evaluates a stack output runs whatever somebody wrote into the state."""
    run = re.findall(r"(?:eval\s+\"?|^\$ )\$\(pulumi[^\n]*", page.read_text(), flags=re.MULTILINE)
    assert not run


WRITTEN = re.compile(r"(?:>|--import-file|--from-file=\w+=)\s*([\w.-]+)")


def test_what_the_pages_say_to_write_is_ignored() -> None:
    """B7 of users.md: kubeconfigs, states and previews were one `git add .` away from the repository."""
    lines = [line for page in PAGES for line in page.read_text().splitlines() if line.startswith("$ ")]
    written = {name for line in lines for name in WRITTEN.findall(line) if not name.startswith(("Pulumi.", "/"))}
    assert {"kubeconfig", "preview.json", "state.json"} <= written
    ignored = {line.lstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert written - ignored == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_cell_of_a_page_says_none(page: Path) -> None:
    """The thresholds of monitoring.md once all meant `None`: pydantic knows no descriptions at import."""
    cells = [cell.strip() for line in page.read_text().splitlines() if line.startswith("|") for cell in line.split("|")]
    assert "None" not in cells


def test_patterns_of_the_reference_are_whole() -> None:
    """A group that only ended a pattern lost its bracket: `.../(0|[1-9][0-9]?` for an address range."""
    page = (ROOT / "docs" / "configuration.md").read_text().replace("\\|", "|")
    patterns = re.findall(r"text `([^`]+)`", page)
    assert len(patterns) > 20
    for pattern in patterns:
        re.compile(pattern)
