"""Time series of Cloud Monitoring (v3). Nothing measures anything: a series has the points that somebody wrote.

It stands for the store behind `timeSeries.list`, so that readers of metrics have something to read. Rules: a point is
at the end of its interval, points come newest first, and a series without points in the interval is left out. Periods
of alignment end at the end of the interval. Series are reduced over those with the same values of `groupByFields`, and
the other labels go. Differences from Google: metrics of any name can be written, also Google's own, without a
descriptor; all are gauges of numbers, seen at once and kept as long as the emulator's state; filters are equalities
joined by AND; pages and secondary aggregation are refused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import Any

from sandbox.google.errors import GoogleError, invalid
from sandbox.google.service import Call, dig, fingerprint, handles
from sandbox.google.store import Resource

SERIES = "monitoring.timeSeries"
NUMBERS = ("doubleValue", "int64Value")
SHORTEST_PERIOD = 60
Combined = Callable[[Sequence[float]], float]
ALIGNERS: dict[str, Combined] = {
    "ALIGN_MAX": max,
    "ALIGN_MEAN": fmean,
    "ALIGN_MIN": min,
    "ALIGN_NEXT_OLDER": lambda values: values[0],
    "ALIGN_SUM": sum,
}
"""Values of a period, the newest first."""
REDUCERS: dict[str, Combined] = {
    "REDUCE_MAX": max,
    "REDUCE_MEAN": fmean,
    "REDUCE_MIN": min,
    "REDUCE_SUM": sum,
}
Points = dict[datetime, float]
_NONE = ("", "ALIGN_NONE", "REDUCE_NONE")
_EQUALITY = re.compile(r'\s*((?:metric|resource)\.(?:type|labels?\."?[\w.-]+"?))\s*=\s*"((?:[^"\\]|\\.)*)"\s*')
_METHODS = "monitoring.projects.timeSeries"


@handles(f"{_METHODS}.create")
def write(call: Call) -> Resource:
    """Add points to series, which come to be with their first."""
    for each in call.body.get("timeSeries") or ():
        metric, resource = each.get("metric") or {}, each.get("resource") or {}
        if not metric.get("type") or not resource.get("type"):
            raise invalid("Field timeSeries: metric.type and resource.type are required.")
        name = f"projects/{call.project}/{fingerprint([metric, resource])}"
        known = call.store.get(SERIES, name) or {"metric": metric, "resource": resource, "points": []}
        points = [_checked(point) for point in each.get("points") or ()]
        call.store.put(SERIES, name, {**known, "points": [*known["points"], *points]})
    return {}


def _checked(point: Resource) -> Resource:
    kinds = [kind for kind in NUMBERS if kind in (point.get("value") or {})]
    if len(kinds) != 1 or not dig(point, "interval", "endTime"):
        raise invalid(f"Field timeSeries.points: each has interval.endTime and one of {', '.join(NUMBERS)}.")
    return {"at": point["interval"]["endTime"], "value": float(point["value"][kinds[0]])}


@handles(f"{_METHODS}.list")
def read(call: Call) -> Resource:
    """Series of a filter in an interval, aligned and reduced as asked."""
    for unserved in ("pageToken", "secondaryAggregation.perSeriesAligner"):
        if call.query.get(unserved):
            raise GoogleError("UNIMPLEMENTED", f"The emulator's time series have no {unserved}.")
    wanted = _filter(call.query.get("filter", ""))
    if "interval.endTime" not in call.query:
        raise invalid("Field interval.endTime is required.")
    end = _moment(call.query["interval.endTime"])
    start = _moment(call.query.get("interval.startTime", call.query["interval.endTime"]))
    found = [
        (series, {at: point["value"] for point in series["points"] if start <= (at := _moment(point["at"])) <= end})
        for series in call.store.all(SERIES, f"projects/{call.project}/").values()
        if all(_at(series, path) == value for path, value in wanted)
    ]
    return {"timeSeries": [_shown(*each) for each in _aggregated(call, found, end) if each[1]]}


def _filter(text: str) -> list[tuple[str, str]]:
    """Paths and the values they must have. Raises GoogleError for what is no equality."""
    matches = [_EQUALITY.fullmatch(part) for part in text.split(" AND ")]
    found = [(match[1], re.sub(r"\\(.)", r"\1", match[2])) for match in matches if match]
    if len(found) < len(matches) or "metric.type" not in dict(found):
        raise invalid(
            f"Field filter had an invalid value of {text!r}: the emulator takes equalities, one of metric.type."
        )
    return found


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise invalid(f"{text!r} is not a time.") from None


def _at(series: Resource, path: str) -> Any:
    holder, _, rest = path.partition(".")
    if rest == "type":
        return series[holder]["type"]
    return (series[holder].get("labels") or {}).get(rest.partition(".")[2].strip('"'), "")


def _aggregated(call: Call, found: list[tuple[Resource, Points]], end: datetime) -> Iterable[tuple[Resource, Points]]:
    aligner = call.query.get("aggregation.perSeriesAligner", "")
    reducer = call.query.get("aggregation.crossSeriesReducer", "")
    if aligner in _NONE:
        if reducer not in _NONE:
            raise invalid("Series must be aligned before they are reduced.")
        return found
    align, reduce = _known(ALIGNERS, aligner), None if reducer in _NONE else _known(REDUCERS, reducer)
    seconds = float(call.query.get("aggregation.alignmentPeriod", "0s").removesuffix("s"))
    if seconds < SHORTEST_PERIOD:
        raise invalid(f"Field aggregation.alignmentPeriod: at least {SHORTEST_PERIOD}s.")
    aligned = [(series, _aligned(points, align, end, timedelta(seconds=seconds))) for series, points in found]
    if reduce is None:
        return aligned
    return _reduced(aligned, reduce, call.values("aggregation.groupByFields"))


def _known(table: dict[str, Combined], name: str) -> Combined:
    if name not in table:
        raise GoogleError("UNIMPLEMENTED", f"The emulator's time series have no {name}.")
    return table[name]


def _aligned(points: Points, align: Combined, end: datetime, period: timedelta) -> Points:
    """One value for each period; periods end a whole number of periods before `end`."""
    values: dict[datetime, list[float]] = defaultdict(list)
    for at in sorted(points, reverse=True):
        values[end - (end - at) // period * period].append(points[at])
    return {at: align(each) for at, each in values.items()}


def _reduced(
    aligned: list[tuple[Resource, Points]], reduce: Combined, fields: Sequence[str]
) -> Iterator[tuple[Resource, Points]]:
    groups: dict[tuple[str, ...], list[tuple[Resource, Points]]] = defaultdict(list)
    for series, points in aligned:
        groups[tuple(_at(series, field) for field in fields)].append((series, points))
    for group in groups.values():
        first = group[0][0]
        kept: Resource = {holder: {"type": first[holder]["type"]} for holder in ("metric", "resource")}
        for field in fields:
            holder, _, rest = field.partition(".")
            if rest != "type":
                kept[holder].setdefault("labels", {})[rest.partition(".")[2].strip('"')] = _at(first, field)
        values: dict[datetime, list[float]] = defaultdict(list)
        for _, points in group:
            for at, value in points.items():
                values[at].append(value)
        yield kept, {at: reduce(each) for at, each in values.items()}


def _shown(series: Resource, points: Points) -> Resource:
    shown = [
        {"interval": {"startTime": _written(at), "endTime": _written(at)}, "value": {"doubleValue": points[at]}}
        for at in sorted(points, reverse=True)
    ]
    return {
        "metric": series["metric"],
        "resource": series["resource"],
        "metricKind": "GAUGE",
        "valueType": "DOUBLE",
        "points": shown,
    }


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
