"""The table of edits for docs/operations.md: what each kind of edit does to slices that run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.edits.table import GKE, ROWS, SELF_MANAGED, Effect, Row
from tests.graph.recording import ROOT

PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- edits: begin, made from tests/edits/table.py -->", "<!-- edits: end -->"

# In the order of what is lost: word, what happens to slices that run, what to do first.
EFFECTS = {
    Effect.NOTHING: ("nothing", "Nothing runs differently; at most outputs change.", "nothing"),
    Effect.ADDED: (
        "added or removed",
        "What the edit names is made or deleted; everything else stays. A slice or a queue that is taken out is gone, "
        "with its jobs.",
        "before you take something out: hold its queue, and wait for its jobs",
    ),
    Effect.IN_PLACE: ("in place", "The setting changes; hosts and pods of slices stay.", "nothing"),
    Effect.OTHERS: (
        "others anew",
        "Hosts without TPUs, or the control plane's machine, are made anew or restarted. Slices go on; controllers and "
        "the API server may be away for minutes.",
        "choose a quiet hour",
    ),
    Effect.HOSTS: (
        "hosts anew",
        "Every host of the slice is made anew. Its jobs fail and are restarted.",
        "hold the queue and wait for its jobs; a protected slice refuses",
    ),
    Effect.REPLACED: (
        "slice replaced",
        "The slice is deleted, then made again. Its capacity goes back to Google in between.",
        "hold the queue and wait for its jobs; make sure that the capacity is yours; a protected slice refuses",
    ),
    Effect.ANOTHER_CLUSTER: (
        "refused: another cluster",
        "Nothing: `preview` and `up` end before anything registers.",
        "take another stack for another cluster",
    ),
    Effect.REFUSED: (
        "refused",
        "Nothing: the configuration does not allow it, and the error says why.",
        "write what the error says",
    ),
}
# Names of one's own in keys, and the two kinds of slice that the table edits.
NAMED = re.compile(
    r"(?<=\bslices\.)[^.]+|(?<=\bqueues\.)[^.]+|(?<=\bcpu_pools\.)[^.]+|(?<=\bcohorts\.)[^.]+|(?<=\bworkers\.)[^.]+"
    r"|(?<=\bteams\.)[^.]+|(?<=\bstorage\.)[^.]+|(?<=\bimages\.)[^.]+"
)
SEVERAL, SINGLE = "slices.train", "slices.serve"


def render() -> str:
    """The two tables, as Markdown."""
    return "\n".join([*_effects(), "", *_keys()])


def fresh(text: str) -> str:
    """The page with the tables as they should be."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{render()}\n{END}{tail}"


def _effects() -> Iterator[str]:
    yield "| effect | on slices that run | what to do first |"
    yield "|---|---|---|"
    for word, happens, first in EFFECTS.values():
        yield f"| {word} | {happens} | {first} |"


def _keys() -> Iterator[str]:
    """Keys with the same effects share a line, the harmless ones first."""
    yield "| edit | GKE | without GKE |"
    yield "|---|---|---|"
    lines: dict[tuple[str, str], list[str]] = {}
    for key in dict.fromkeys(key for row in ROWS for key in _said(row)):
        rows = [row for row in ROWS if key in _said(row)]
        lines.setdefault((_cell(rows, GKE), _cell(rows, SELF_MANAGED)), []).append(key)
    order = [word for word, _, _ in EFFECTS.values()]
    for cells in sorted(lines, key=lambda pair: max(_place(order, cell) for cell in pair)):
        yield f"| {', '.join(lines[cells])} | {cells[0]} | {cells[1]} |"


def _place(order: list[str], cell: str) -> int:
    return max((order.index(word) for word in order if word in cell), default=0)


def _said(row: Row) -> list[str]:
    """What the row is an edit of: its own words, or the keys that it sets."""
    return [row.words] if row.words else [f"`{NAMED.sub('*', key)}`" for key in row.after]


def _cell(rows: list[Row], backend: str) -> str:
    """The effects of rows with the same key; slices of several hosts and pools of single hosts apart if need be."""
    found: dict[Effect, set[str]] = {}
    for row in rows:
        effect = row.gke if backend == GKE else row.without
        if effect:
            found.setdefault(effect, set()).update(_subject(row))
    if not found:
        return "-"
    if len(found) == 1:
        return EFFECTS[next(iter(found))][0]
    return "; ".join(f"{' and '.join(sorted(of))}: {EFFECTS[effect][0]}" for effect, of in found.items())


def _subject(row: Row) -> set[str]:
    starts = {SEVERAL: "several hosts", SINGLE: "single hosts"}
    return {words for key in row.after for start, words in starts.items() if key.startswith(start)} or {"other"}
