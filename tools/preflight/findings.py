"""What a check finds, and how people and machines read it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from plan.words import counted

Level = Literal["ok", "warning", "blocks", "not checked"]
STYLES: dict[Level, str] = {"ok": "green", "warning": "yellow", "blocks": "red", "not checked": "dim"}


@dataclass(frozen=True)
class Finding:
    """One line of the answer: `what` is so, and the `next_step` where there is one.

    `blocks`: an update fails or never ends; `warning`: it may; `not checked`: it could not be found out.
    """

    level: Level
    what: str
    next_step: str = ""


@dataclass(frozen=True)
class Row:
    """A finding of a check."""

    check: str
    finding: Finding


def as_table(rows: Sequence[Row]) -> Table:
    """One line for each finding."""
    table = Table("check", "", "what", "next step", box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    # A path or a command is one long word: cut off, nobody could copy it.
    table.columns[2].overflow = table.columns[3].overflow = "fold"
    for row in rows:
        level = row.finding.level
        # Text, since what Google says may look like rich's markup.
        table.add_row(row.check, Text(level, STYLES[level]), Text(row.finding.what), Text(row.finding.next_step))
    return table


def as_json(rows: Sequence[Row]) -> str:
    """The same for machines."""
    return json.dumps({"findings": [{"check": row.check, **asdict(row.finding)} for row in rows]}, indent=2)


def summary(rows: Sequence[Row]) -> str:
    """The last line: how many of each level."""
    levels = Counter(row.finding.level for row in rows)
    blocking = levels["blocks"]
    words = {
        "ok": f"{levels['ok']} ok",
        "warning": counted(levels["warning"], "warning"),
        "blocks": f"{blocking} {'blocks' if blocking == 1 else 'block'} an update",
        "not checked": f"{levels['not checked']} not checked",
    }
    return ", ".join(words[level] for level in STYLES if levels[level])
