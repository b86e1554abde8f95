"""A long search: cases by number, so that `--first N --cases 1` shows a case again."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sandbox import google
from tests.graph.emulated import EmulatedCloud

from . import generate, outcomes

EVERY_GRAPH, EVERY_CLOUD = 10, 40
"""Of so many accepted platforms one is registered, and one created."""


@dataclass
class Tally:
    """What a search found. `broken`: by promise and reason, the cases."""

    tried: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    registered: int = 0
    created: int = 0
    slowest: tuple[float, str] = (0.0, "none")
    broken: list[tuple[str, str, str]] = field(default_factory=list)

    def summary(self) -> str:
        promises = Counter(promise for promise, _, _ in self.broken)
        later = sum(count for promise, count in promises.items() if promise.startswith("refused by"))
        tried, accepted = self.tried.total(), self.accepted.total()
        refused = tried - accepted - sum(promises.values()) + later
        return "\n".join(
            [
                f"cases tried            {tried} ({', '.join(f'{n} {kind}s' for kind, n in self.tried.items())})",
                f"accepted               {accepted} ({self.registered} registered, {self.created} created)",
                f"refused with errors    {refused}",
                f"crashes                {promises['crash']}",
                f"slow, large, no path   {promises['slow'] + promises['large'] + promises['without a path']}",
                f"accepted, then refused {later}",
                f"slowest                {self.slowest[0]:.2f} s of CPU time: {self.slowest[1]}",
            ]
        )


def search(first: int, cases: int, show: Callable[[str], None], *, graph: int, cloud: int) -> Tally:
    """Try cases by number: each a stack file and a platform."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as directory, clouds() as made:
        for number in range(first, first + cases):
            for kind in ("text", "platform"):
                try:
                    _try(kind, number, Path(directory) / "Pulumi.fuzz.yaml", tally, made, graph, cloud)
                except outcomes.Broken as broken:
                    case = f"{kind} {number}"
                    if not any(reason == str(broken) for _, reason, _ in tally.broken):
                        show(f"{case}: {broken}")
                    tally.broken.append((broken.promise, str(broken), case))
    return tally


def _try(kind: str, number: int, path: Path, tally: Tally, cloud: EmulatedCloud, graph: int, every_cloud: int) -> None:
    random = Random(f"{kind} {number}")
    tally.tried[kind] += 1
    if kind == "text":
        outcome = outcomes.of_text(generate.text(random), path)
        raw = None
    else:
        raw = generate.platform(random)
        outcome = outcomes.of_platform(raw)
    tally.slowest = max(tally.slowest, (outcome.seconds, f"{kind} {number}"))
    if outcome.platform is None:
        return
    tally.accepted[kind] += 1
    if raw is not None and outcomes.stands_alone(outcome.platform) and tally.accepted[kind] % graph == 0:
        tally.registered += 1
        monitor = outcomes.registered(raw)
        if tally.registered % max(1, every_cloud // graph) == 0:
            tally.created += 1
            outcomes.created(outcome.platform, monitor, cloud)


@contextmanager
def clouds() -> Iterator[EmulatedCloud]:
    """An emulated cloud for all cases."""
    with google.serving() as emulator, closing(EmulatedCloud(emulator.url)) as cloud:
        yield cloud


def written(kind: str, number: int) -> str:
    """A case as it was tried."""
    random = Random(f"{kind} {number}")
    return generate.text(random) if kind == "text" else json.dumps(generate.platform(random), indent=2)
