"""Prints a report on one screen. A group of slices, a queue, a reservation have a line each, however large they are."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from plan.words import counted
from tools.status.readings import Interruption, ReservationReading, Unread
from tools.status.report import Finding, QueueRow, Report, SliceRow

UNKNOWN = "?"
SHOWN_NAMES = 3
SHOWN_FINDINGS = 12
SHOWN_QUEUES = 20


def as_text(report: Report) -> RenderableType:
    """All of it, for rich to print."""
    parts: list[RenderableType] = [_heading(report), _summary(report)]
    if report.slices:
        parts += ["", _slices(report.slices)]
    if report.queues:
        parts += ["", _queues(report.queues)]
        if more := len(report.queues) - SHOWN_QUEUES:
            parts += [Text(f"and {counted(more, 'queue')} with less to show")] if more > 0 else []
    if report.reservations:
        parts += ["", _reservations(report.reservations)]
    if report.interruptions:
        parts += ["", Text("last interruptions", "bold"), *_interruptions(report.interruptions, report.at)]
    parts += _findings("needs a person", "red", [each for each in report.findings if each.level == "act"])
    parts += _findings("to know", "yellow", [each for each in report.findings if each.level == "note"])
    parts += _unread(report.unread)
    return Group(*parts)


def _heading(report: Report) -> Text:
    at = f"{report.at:%Y-%m-%d %H:%M:%S} UTC"
    return Text.assemble((report.platform, "bold"), f" in {report.project}: {report.place}; {at}")


def _summary(report: Report) -> Text:
    if report.needs_a_person:
        verdict = Text("needs a person", "bold red")
    elif report.known:
        verdict = Text("needs nobody", "bold green")
    else:
        verdict = Text("not known", "bold yellow")
    return Text.assemble(verdict, ": ", ", ".join(_totals(report)))


def _totals(report: Report) -> Iterable[str]:
    rows = report.slices
    if rows:
        yield f"{_of(_sum(row.whole for row in rows), sum(row.wanted for row in rows))} slices whole"
        yield f"{_of(_sum(row.hosts_ready for row in rows), sum(row.hosts_wanted for row in rows))} hosts ready"
        yield f"{_number(_sum(row.chips_used for row in rows))} chips used"
        yield f"{_number(_sum(row.chips_idle for row in rows))} idle"
        yield f"{_money(_total(row.cost for row in rows))} USD/h"
        yield f"{_money(_total(row.idle_cost for row in rows))} of it for idle chips"
    if report.queues is not None:
        yield f"{_jobs(_sum(row.waiting for row in report.queues))} waiting"


def _sum(values: Iterable[int | None]) -> int | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


def _total(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if None in found else sum(value or 0 for value in found)


def _of(part: int | None, whole: int) -> str:
    return f"{_number(part)} of {whole:,}"


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _money(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.2f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _slices(rows: Sequence[SliceRow]) -> Table:
    table = _table("slices", "shape", "capacity", "whole", "hosts ready", "chips used", "idle", "USD/h")
    for column in table.columns[1:3]:
        column.justify = "left"
    for row in rows:
        table.add_row(
            row.name,
            row.shape,
            row.capacity,
            _of(row.whole, row.wanted) + (f" (most {row.most:,})" if row.most != row.wanted else ""),
            _of(row.hosts_ready, row.hosts_wanted),
            _number(row.chips_used),
            _number(row.chips_idle),
            _money(row.cost),
        )
    return table


def _queues(rows: Sequence[QueueRow]) -> Table:
    table = _table("queues, in chips", "owns", "used", "borrowed", "waiting", "longest wait")
    # Where there are more than fit, those in which something happens.
    ranked = sorted(rows, key=lambda row: (-(row.longest_wait or -1), -row.reserved, row.name))
    shown = ranked[:SHOWN_QUEUES] if len(rows) > SHOWN_QUEUES else rows
    for row in shown:
        coming = f" (+{row.reserved - row.used:,} to come)" if row.reserved > row.used else ""
        waiting = "0" if row.waiting == 0 else f"{_number(row.waiting_chips)} in {_jobs(row.waiting)}"
        wait = "-" if row.longest_wait is None else duration(row.longest_wait)
        table.add_row(row.name, _number(row.owned), f"{row.used:,}{coming}", _number(row.borrowed), waiting, wait)
    return table


def _jobs(number: int | None) -> str:
    return UNKNOWN if number is None else counted(number, "job")


def duration(seconds: int) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if not minutes:
        return f"{seconds} s"
    if not hours:
        return f"{minutes} min"
    return f"{days} d {hours % 24} h" if days else f"{hours} h {minutes % 60} min"


def _reservations(rows: Sequence[ReservationReading]) -> Table:
    table = _table("reservations", "project", "status", "hosts in use")
    for row in rows:
        used = UNKNOWN if row.count is None else _of(row.used, row.count)
        table.add_row(row.name, row.project, row.status, used)
    return table


def _line(text: str, indent: int = 2) -> Padding:
    """A line that is not cut off, since it may hold a command; folded, it keeps its indentation."""
    return Padding(Text(text, overflow="fold"), (0, 0, 0, indent))


def _interruptions(found: Sequence[Interruption], now: datetime) -> Iterable[Padding]:
    for each in found:
        ago = duration(max(int((now - each.at).total_seconds()), 0))
        yield _line(f"{ago} ago  {each.what}: {each.why}")


def _findings(title: str, style: str, found: Sequence[Finding]) -> Sequence[RenderableType]:
    if not found:
        return []
    lines: list[RenderableType] = ["", Text(title, f"bold {style}")]
    for each in found[:SHOWN_FINDINGS]:
        lines.append(_line(f"{each.about}: {each.what}{_names(each.names)}"))
        if each.next_step:
            lines.append(_line(f"-> {each.next_step}", 4))
    if more := len(found[SHOWN_FINDINGS:]):
        lines.append(_line(f"and {more} more: --json has them all"))
    return lines


def _names(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = len(names) - SHOWN_NAMES
    return f" [{', '.join(names[:SHOWN_NAMES])}{f' and {more} more' if more > 0 else ''}]"


def _unread(unread: Sequence[Unread]) -> Sequence[RenderableType]:
    if not unread:
        return []
    return ["", Text("not read", "bold"), *(_line(f"{each.what}: {each.why}") for each in unread)]
