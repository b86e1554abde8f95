"""docs/reliability.md, from the results of the campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from tests.faults.kinds import KINDS
from tests.faults.points import STACKS, Point, points
from tests.faults.results import LOST, NO_REQUEST, NOT_FIRED, STRUCK, Result, latest
from tests.graph.recording import ROOT

PAGE = ROOT / "docs" / "reliability.md"
TITLES = {
    "by itself": "by itself",
    "next command": "next command",
    "recover": "`recover`",
    "up --replace": "`--replace`",
}
"""Of columns: how a trial ended."""
HEAD = """# Reliability

`make faults` lets something go wrong at every resource of a stack, while it is created, updated and deleted, and then
does what this page says: for most faults nothing, or the same command again. All of it runs in the sandbox: the engine,
the program, helm and the API server are real, Google and the provider plugins are stand-ins (docs/sandbox.md).

```console
$ make faults STACKS="dev gce" MINUTES=30 SEED=1     # goes on with what was not tried yet; writes this page
```

## What to do
"""
HOW = """
## How it is tried

A fault is staged at the first request of a resource's step that changes something (of a helm release too), and counts
only if it struck. Many are staged in one `up` or `destroy`, at most one for each resource, and at most one that ends a
process in one command. What has struck least is chosen first; faults that end a process strike along a chain of
resources of which each needs the one before it, so that the next is still to come. Commands run with
`--continue-on-error`, so that more faults strike in each. Then commands are repeated as the table above says until one
succeeds. What proves a trial:

- after creation and update the state has every resource, no operation is pending, no cluster or pool is in ERROR, and
  a second preview finds nothing to change;
- after the deletion of what is in the cluster, state and API server have nothing of it;
- after `destroy` state and cloud are empty.

If that does not hold, all faults of the pass count as lost. The project of Google's is one that nobody has used: no API
is on. Where a process is killed, Google is still at the operation for three seconds, and all that the killed engine has
started ends with it, as when a machine is lost. An update changes one input of each resource (a text, a label, an
annotation). Resources that cannot change in place have no such point, and steps without a request that a fault could
strike are none (an API stays on when its resource is deleted; many of Google's answers are no operation). What was
tried is kept in `~/.cache/tpu-platform/faults/results.jsonl`; without that file the campaign begins anew.
"""


def page(results: Collection[Result], resources: Mapping[str, Collection[str]]) -> str:
    """The page. `resources`: of each stack, "type::name"."""
    found = latest(results)
    every = {point for stack, names in resources.items() for point in points(stack, names)}
    known = {point: each for point, each in found.items() if point in every}
    lines = [HEAD]
    lines += ["| what goes wrong | what to do |", "|---|---|"]
    lines += [f"| {kind.name} | {kind.after} |" for kind in KINDS]
    lines += ["", "## What was tried", "", *_summary(known, every), ""]
    lines += _table(known, every)
    lines += [HOW]
    return "\n".join(lines)


def _summary(known: Mapping[Point, Result], every: Collection[Point]) -> Iterator[str]:
    counts = Counter(each.outcome for each in known.values())
    struck = sum(counts[each] for each in STRUCK)
    there = len(every) - counts[NO_REQUEST]
    if not struck:
        yield f"Nothing was tried yet of {there} points (a point: stack, phase, resource, fault)."
        return
    days = sorted(each.day for each in known.values())
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    parts = ", ".join(f"{counts[each]} {each}" for each in STRUCK if counts[each] or each == LOST)
    yield f"{when}: faults struck at {struck} of {there} points (a point: stack, phase, resource, fault). **{parts}**."
    yield f"At {counts[NOT_FIRED]} more points the fault was staged and did not strike; that counts for nothing."
    yield "Where the table says `0 of`, nothing is known yet; what to do there is from other tests and docs/recover.md."


def _table(known: Mapping[Point, Result], every: Collection[Point]) -> Iterator[str]:
    """A row for each fault and phase: how many points of each stack were struck, of how many, and how all of them
    ended."""
    titles = [TITLES.get(each, each) for each in STRUCK]
    yield f"| fault | phase | {' | '.join((*STACKS, *titles))} |"
    yield f"|---|---|{'---|' * (len(STACKS) + len(titles))}"
    places = Counter((each.stack, each.fault, each.phase) for each in every)
    counts = Counter((each.stack, each.fault, each.phase, known[each].outcome) for each in known)
    for kind in KINDS:
        for phase in kind.phases:
            cells = []
            for stack in STACKS:
                row = (stack, kind.name, phase)
                there = places[row] - counts[*row, NO_REQUEST]
                cells.append(f"{sum(counts[*row, each] for each in STRUCK)} of {there}")
            ends = [sum(counts[stack, kind.name, phase, each] for stack in STACKS) for each in STRUCK]
            yield f"| {' | '.join((kind.name, phase, *cells, *map(str, ends)))} |"
