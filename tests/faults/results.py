"""What came of each trial, as JSON lines in the user's cache: a campaign goes on where the last one stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.toolchain import cache_dir
from tests.faults.points import Point

ITSELF, AGAIN, RECOVER, REPLACE, LOST, NOT_FIRED, NO_REQUEST = OUTCOMES = (
    "by itself",
    "next command",
    "recover",
    "up --replace",
    "lost",
    "not fired",
    "no such request",
)
"""How a trial ended. `no such request`: the step was made without a request that the fault could strike (an API stays
on when its resource is deleted; many answers are no operation), so there is no such point; `not fired`: the step
was not made by a provider, which says nothing."""
STRUCK = (ITSELF, AGAIN, RECOVER, REPLACE, LOST)
SETTLED = (ITSELF, AGAIN, RECOVER, REPLACE, NO_REQUEST)
"""What need not be tried again."""
FILE = cache_dir() / "faults" / "results.jsonl"


@dataclass(frozen=True)
class Result:
    """`day`: of the trial, ISO. `commit`: of the checkout. `said`: what the engine said at the resource, shortened."""

    stack: str
    phase: str
    resource: str
    fault: str
    outcome: str
    day: str
    commit: str = ""
    said: str = ""

    @property
    def point(self) -> Point:
        return Point(self.stack, self.phase, self.resource, self.fault)

    @property
    def struck(self) -> bool:
        return self.outcome in STRUCK


def read(file: Path = FILE) -> list[Result]:
    """All results so far, oldest first."""
    if not file.exists():
        return []
    return [Result(**json.loads(line)) for line in file.read_text().splitlines()]


def add(results: Iterable[Result], file: Path = FILE) -> None:
    """Write results down, all or none of them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(asdict(result))}\n" for result in results)
    with file.open("a") as output:
        output.write(text)


def latest(results: Iterable[Result]) -> dict[Point, Result]:
    """By point, its last result; one that did not fire does not hide an earlier one that did."""
    found: dict[Point, Result] = {}
    for result in results:
        if result.outcome != NOT_FIRED or result.point not in found:
            found[result.point] = result
    return found
