"""What the pages tell people to type."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
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


SECTIONS = tomllib.loads((ROOT / "website" / "nav.toml").read_text())["section"]
IN_NAV = [ROOT / page for section in SECTIONS for page in section["pages"]]
FENCE = re.compile(r"^( *)(```+).*?^ *\2$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def test_every_page_has_one_place_in_the_sites_order() -> None:
    assert {*PAGES} - {ROOT / "README.md"} <= {*IN_NAV}, "add the page to website/nav.toml"
    assert [page for page, number in Counter(IN_NAV).items() if number > 1] == []
    assert [page for page in IN_NAV if not page.is_file()] == []


def anchors(page: Path) -> Iterator[str]:
    """The anchors that GitHub, and the site, give the headings of a page."""
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        yield f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1


@pytest.mark.parametrize("page", [ROOT / "README.md", *IN_NAV], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_every_link_leads_somewhere(page: Path) -> None:
    text = CODE.sub("", FENCE.sub("", page.read_text()))
    links = [each for each in LINK.findall(text) if not re.match(r"\w+:", each)]
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), f"{page.name} links to {link}, outside the repository"
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if anchor:
            assert anchor in {*anchors(target)}, f"{page.name} links to {link}: {target.name} has no such heading"
