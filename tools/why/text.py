"""Answers in one screen, and for machines."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from tools.why.answer import Answer

WORDS = {"done": "has ended", "runs": "runs", "waits": "waits", "person": "needs a person"}


def as_json(answers: Sequence[Answer], unread: Sequence[str]) -> str:
    """`{jobs, unread}`: a list of objects with the fields of Answer, and what may not be read."""
    return json.dumps({"jobs": [asdict(each) for each in answers], "unread": list(unread)}, indent=2)


def headline(answer: Answer) -> str:
    """The job's state and its reason."""
    return f"{answer.job} {WORDS[answer.state]}: {answer.reason}"


def as_table(answer: Answer) -> Table:
    """A row for each side; what holds the job back is marked."""
    table = Table(show_header=False, box=None, pad_edge=False)
    for side in answer.sides:
        table.add_row(">" if side.holds else "", side.name, Text(side.text))
    return table


def as_list(answers: Sequence[Answer]) -> Table:
    """A row for each job."""
    table = Table("job", "queue", "state", "reason", box=None, pad_edge=False)
    for each in answers:
        table.add_row(each.job, each.queue, WORDS[each.state], Text(each.reason))
    return table
