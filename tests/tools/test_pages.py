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
