"""What is so of a platform now, as judged: rows to show, and findings. `as_json` gives it to machines."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal

from tools.status.readings import Interruption, ReservationReading, Unread

Level = Literal["act", "note"]
"""`act`: a person must do something; `note`: worth knowing, and it passes by itself or is meant so."""

Kind = Literal[
    "pool-missing",
    "pool-error",
    "stockout",
    "reservation-exhausted",
    "hosts-coming",
    "host-missing",
    "host-not-ready",
    "chips-missing",
    "host-leaving",
    "host-cordoned",
    "queue-inactive",
    "worker-away",
    "never-admitted",
    "job-stopped",
    "job-failed",
    "job-restarting",
    "server-idle",
    "job-idle",
    "chips-unqueued",
]


@dataclass(frozen=True)
class Finding:
    """`what` is so of `about` (slices, a queue, a job), and the `next_step` for a person, where there is one.

    `names`: which pools, hosts or jobs it is so of; findings that differ in these only are one.
    """

    level: Level
    kind: Kind
    about: str
    what: str
    next_step: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class SliceRow:
    """Slices of one plan. What the cluster did not say is None.

    - `whole` of `wanted` slices have all their hosts and chips; `most`: that may exist at once
    - `hosts_ready` of `hosts_wanted`; `hosts`: that exist, ready or not
    - `chips_idle`: of ready hosts, held by no pod
    - `cost`, `idle_cost`: USD per hour, now; None where the price is not known. Of a reservation, all that is reserved
    """

    name: str
    shape: str
    one: str
    capacity: str
    whole: int | None
    wanted: int
    most: int
    hosts: int | None
    hosts_ready: int | None
    hosts_wanted: int
    chips_used: int | None
    chips_idle: int | None
    cost: float | None
    idle_cost: float | None


@dataclass(frozen=True)
class QueueRow:
    """A queue, in chips. `waiting` jobs want `waiting_chips`; `longest_wait` is in seconds, None if none waits."""

    name: str
    owned: int
    used: int
    reserved: int
    borrowed: int
    waiting: int | None
    waiting_chips: int | None
    longest_wait: int | None


@dataclass(frozen=True)
class Report:
    """All of it. `known`: whether enough could be read to tell whether all is well."""

    platform: str
    project: str
    place: str
    at: datetime
    slices: tuple[SliceRow, ...]
    queues: tuple[QueueRow, ...] | None
    reservations: tuple[ReservationReading, ...]
    interruptions: tuple[Interruption, ...]
    findings: tuple[Finding, ...]
    unread: tuple[Unread, ...]
    known: bool

    @property
    def needs_a_person(self) -> bool | None:
        """None where nothing that could be read needs one, and not enough could be read to tell."""
        return True if any(each.level == "act" for each in self.findings) else False if self.known else None


def joined(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Findings that differ in their names only as one; what needs a person first."""
    found: dict[Finding, list[str]] = {}
    for each in findings:
        found.setdefault(replace(each, names=()), []).extend(each.names)
    made = [replace(each, names=tuple(dict.fromkeys(names))) for each, names in found.items()]
    return tuple(sorted(made, key=lambda each: each.level))


def as_json(report: Report) -> str:
    """An object with the fields of Report; times as RFC 3339, `needs_a_person` beside them (null: nobody knows)."""
    return json.dumps({"needs_a_person": report.needs_a_person, **asdict(report)}, indent=2, default=_written)


def _written(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
