"""What came of each trial, as JSON lines in the user's cache: a campaign goes on where the last one stopped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from sandbox.toolchain import cache_dir
from tests.faults.points import Point

ITSELF, AGAIN, RECOVER, REPLACE, LOST, NOT_FIRED, NO_OPERATION = OUTCOMES = (
    "by itself",
    "next command",
    "recover",
    "up --replace",
    "lost",
    "not fired",
    "no operation",
)
"""How a trial ended. `no operation`: a fault of an operation where Google answers without one, so there is no such
point; `not fired`: the fault did not strike, which says nothing."""
STRUCK = (ITSELF, AGAIN, RECOVER, REPLACE, LOST)
SETTLED = (ITSELF, AGAIN, RECOVER, REPLACE, NO_OPERATION)
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
