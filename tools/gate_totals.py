"""Totals of slices, chips, cost and quota before and after a preview.

Before: what the stack exported at its last update. After: the platform that the preview's own configuration describes,
planned here once more. Both are `Platform.totals`, so they can be compared; what autoscaled pools have at the moment,
and what was changed by hand, is in neither.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.dataclasses import dataclass

from platform_config.errors import ConfigErrors
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY
from rules.load import load_platform
from tools.gate_preview import Effect, Preview

EMPTY: Mapping[str, Any] = {"slices": 0, "hosts": 0, "chips": 0, "price_per_hour_usd": 0.0}

Quotas = Counter[tuple[str, str]]
"""Chips by quota metric and region."""


class UnknownTotalsError(Exception):
    """One side is unknown; the message says why."""


@dataclass(frozen=True)
class Totals:
    """One side. `hourly` is in USD, of chips only, and None where a slice has no known price: those are `unpriced`."""

    slices: int
    hosts: int
    chips: int
    hourly: float | None
    unpriced: tuple[str, ...]
    quotas: Quotas


def before(preview: Preview) -> Totals:
    """The totals that the stack exported; raises UnknownTotalsError where there are none."""
    stack = preview.stack
    if stack is None:
        raise UnknownTotalsError("the preview does not list the stack")
    if stack.effect is Effect.CREATE or stack.old_state is None:
        return _totals(EMPTY, ())
    outputs = stack.old_state.outputs
    if not outputs:
        return _totals(EMPTY, ())  # nothing but a first update that failed
    try:
        return _totals(outputs["totals"], outputs["slices"].values())
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UnknownTotalsError(
            "the stack's outputs `totals` and `slices` are of another program or an older version of this one"
        ) from None


def after(preview: Preview) -> Totals:
    """The totals of the configuration; raises UnknownTotalsError where it is no platform."""
    if preview.stack and preview.stack.effect is Effect.DELETE:
        return _totals(EMPTY, ())
    try:
        raw = json.loads(preview.config.get(PLATFORM_KEY, "null"))
        platform = load_platform(raw, project=preview.config.get(PROJECT_KEY))
    except json.JSONDecodeError:
        raise UnknownTotalsError(f"{PLATFORM_KEY} is not readable; it holds a secret") from None
    except ConfigErrors as errors:  # their text may quote the configuration, which is not for a comment
        places = ", ".join(error.path for error in errors.errors)
        raise UnknownTotalsError(f"the configuration is not valid ({places})") from None
    return _totals(platform.totals, [plan.summary() for plan in platform.slice_plans])


def _totals(totals: Mapping[str, Any], slices: Iterable[Mapping[str, Any]]) -> Totals:
    quotas: Quotas = Counter()
    unpriced = []
    for each in slices:
        if each["group_price_per_hour_usd"] is None:
            unpriced.append(each["name"])
        if quota := each["group_quota"]:
            quotas[quota["metric"], quota["region"]] += quota["chips"]
    return Totals(
        slices=totals["slices"],
        hosts=totals["hosts"],
        chips=totals["chips"],
        hourly=totals["price_per_hour_usd"],
        unpriced=tuple(unpriced),
        quotas=quotas,
    )
