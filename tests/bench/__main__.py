"""`make bench`: what the program and its tests cost, in parts; each writes its own section of docs/performance.md.

`python -m tests.bench scale makespan` runs some of them and leaves the other sections as they are.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tests.bench import bare, limits, loop, makespan, monitored, planning, scale
from tests.sandbox.conftest import ROOT

PAGE = ROOT / "docs" / "performance.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
Show = Callable[[str], None]
Found = tuple[list[str], str]
"""Lines of a section, and what is wrong, if anything."""


class Part(StrEnum):
    """A part, by the name that the command takes."""

    BARE = "bare"
    PLANNING = "planning"
    MAKESPAN = "makespan"
    SCALE = "scale"
    MONITORING = "monitoring"
    LOOP = "loop"


TITLES = {
    Part.BARE: "A preview beside a bare program's",
    Part.PLANNING: "Planning without an engine",
    Part.MAKESPAN: "How long an update takes",
    Part.SCALE: "Large platforms",
    Part.MONITORING: "What monitoring adds",
    Part.LOOP: "The loop while you edit",
}
LIMITS = "What breaks first on real Google"


def run(part: Part, scratch: Path, show: Show) -> Found:
    """Measure one part in an empty folder."""
    match part:
        case Part.BARE:
            return bare.section(scratch, show), ""
        case Part.PLANNING:
            return planning.section(show), ""
        case Part.MAKESPAN:
            return makespan.section(scratch, show), ""
        case Part.SCALE:
            return scale.section(scratch, show)
        case Part.MONITORING:
            return monitored.section(scratch, show)
        case Part.LOOP:
            return loop.section(show), ""


def standing() -> dict[str, str]:
    """The page's sections as they are, by title."""
    _, *parts = SECTION.split(PAGE.read_text())
    return {title: text.strip() for title, text in zip(parts[::2], parts[1::2], strict=True)}


def page(sections: dict[str, str]) -> str:
    """docs/performance.md."""
    order = [*TITLES.values(), LIMITS]
    parts = [f"## {title}\n\n{sections[title]}\n" for title in order if title in sections]
    return "\n".join(
        [
            "# Performance\n",
            "Written by `make bench`; `python -m tests.bench PART ...` makes single sections anew. The figures of a",
            "section are of one run, side by side. Other work on the machine makes them worse.\n",
            *parts,
        ]
    )


def main(
    parts: Annotated[list[Part] | None, typer.Argument(help="All if unset.")] = None,
    write: Annotated[bool, typer.Option(help="Write docs/performance.md.")] = True,
) -> None:
    """Measure. Exit code 1: something is above its budget; the page is written all the same."""
    chosen = parts or list(Part)
    if len(chosen) > 1:
        # A process learns only the largest memory of all its children, so each part gets a process of its own.
        command = [sys.executable, "-m", "tests.bench", "--write" if write else "--no-write"]
        sys.exit(max(subprocess.run([*command, part], cwd=ROOT, check=False).returncode for part in chosen))
    if problem := measure(*chosen, write):
        sys.exit(problem)


def measure(part: Part, write: bool) -> str:
    """Measure one part and write its section; returns what is above its budget, if anything."""
    console: Any = Console(highlight=False, soft_wrap=True)
    console.print(f"\n{TITLES[part]}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        lines, problem = run(part, Path(scratch), console.print)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {time.monotonic() - start:.0f} s in all."
    section = "\n".join([*lines, "", f"{machine} `python -m tests.bench {part}`"])
    if write:
        PAGE.write_text(page(standing() | {TITLES[part]: section, LIMITS: "\n".join(limits.section())}))
    return problem


if __name__ == "__main__":
    typer.run(main)
