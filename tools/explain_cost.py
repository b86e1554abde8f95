"""Shows a person what a platform costs while it is idle and while all of it runs, and what quota it needs."""

from collections.abc import Iterator
from typing import Any

from plan.platform import Platform
from plan.slices import HOURS_PER_MONTH, SlicePlan
from plan.words import counted
from platform_config.capacity import Reservation
from tools.paragraphs import Paragraph, few

WHAT = "Costs are estimates from list prices or yours, of chips only: no control plane, CPU nodes, disks, traffic."
NAMED = 6
"""Slices of a quota that are named."""
BOUND = "flex-start and queued are sold below the list price, and Google publishes no rate (prices can name one)"


def costs_summary(platform: Platform) -> dict[str, Any]:
    """`idle` while nothing runs and `full` while all slices run on the dearest of their capacity models, in USD per
    hour, None where a price is unknown. `is_upper_bound`: less may be paid for `full`."""
    return {
        "idle": platform.idle_price_per_hour,
        "full": platform.dearest_price_per_hour,
        "is_upper_bound": any(plan.price_is_upper_bound for plan in platform.slice_plans),
    }


def quotas_summary(platform: Platform) -> list[dict[str, Any]]:
    """Chips that each quota must allow: `metric`, `region`, `chips`, and the `slices` that they are for."""
    return [
        {
            "metric": metric,
            "region": region,
            "chips": sum(plan.total_chips for plan in plans),
            "slices": [plan.name for plan in plans],
        }
        for (metric, region), plans in _quotas(platform).items()
    ]


def slice_cost(plan: SlicePlan) -> str:
    """Of all slices of a group while they run."""
    price, hourly = plan.price_per_chip_hour, plan.price_per_hour
    if price is None or hourly is None:
        return "cost unknown"
    bound = "at most\n" if price.upper_bound else ""
    return f"{bound}{hourly:,.2f} {price.currency}/h\n{hourly * HOURS_PER_MONTH:,.0f} {price.currency}/month"


def cost_lines(platform: Platform) -> Iterator[Paragraph]:
    """What chips cost while nothing runs, and while all run."""
    if not platform.slices:
        return
    idle, full = platform.idle_price_per_hour, platform.dearest_price_per_hour
    if not any(plan.provisioning.on_demand for plan in platform.slice_plans):
        coming = sorted({plan.group for plan in platform.slice_plans if not plan.begun})
        later = f"; {per_hour(full)} when the reservation of {few(coming, NAMED)} has begun" if coming else ""
        yield Paragraph(f"{per_hour(idle if coming else full)}, whether jobs run or not{later}", "cost of chips")
    else:
        booked = sorted({plan.group for plan in platform.slice_plans if isinstance(plan.alternative, Reservation)})
        also = f", and what is reserved for {', '.join(booked)}, which is paid for in any case" if booked else ""
        words = f"{per_hour(idle)} while nothing runs{also}; at most {per_hour(full)}{_dearest(platform)}"
        yield Paragraph(words, "cost of chips")
    if any(plan.price_is_upper_bound for plan in platform.slice_plans):
        yield Paragraph(BOUND, "at most")
    yield Paragraph(WHAT)


def quota_lines(platform: Platform) -> Iterator[Paragraph]:
    """A line for each quota."""
    for quota in quotas_summary(platform):
        chips = counted(quota["chips"], "chip")
        words = f"{quota['metric']} in {quota['region']}: {chips} ({few(quota['slices'], NAMED)})"
        yield Paragraph(words, "quota")


def fallbacks(platform: Platform) -> dict[str, list[SlicePlan]]:
    """The plans of each slice group with several capacity models, in their order."""
    groups: dict[str, list[SlicePlan]] = {}
    for plan in platform.slice_plans:
        groups.setdefault(plan.group, []).append(plan)
    return {name: plans for name, plans in groups.items() if len(plans) > 1}


def per_hour(price: float | None) -> str:
    """USD an hour."""
    return "unknown" if price is None else f"{price:,.2f} USD/h"


def _dearest(platform: Platform) -> str:
    """When slices cost most: with the dearest of their capacity models, where they have several."""
    groups = fallbacks(platform)
    if not groups:
        return " while all run"
    dearest = {name: max(plans, key=lambda plan: plan.price_per_hour or 0) for name, plans in groups.items()}
    models = {plan.capacity for plan in dearest.values()}
    if len(models) == 1 and len(groups) == len({plan.group for plan in platform.slice_plans}):
        return f", if all run on {models.pop()}"
    return ", if all run, " + " and ".join(f"{name} on {plan.capacity}" for name, plan in dearest.items())


def _quotas(platform: Platform) -> dict[tuple[str, str], list[SlicePlan]]:
    """Plans by their quota, alternatives of a fallback included.

    Where pools are created for a slice, it has one of them only, so the group counts once.
    """
    needed: dict[tuple[str, str], list[SlicePlan]] = {}
    counted_groups: set[tuple[str, str, str]] = set()
    for plan in platform.slice_plans:
        if plan.quota is None:
            continue
        key = (plan.quota.metric, plan.quota.region)
        if plan.provisioning.declared or (*key, plan.group) not in counted_groups:
            needed.setdefault(key, []).append(plan)
            counted_groups.add((*key, plan.group))
    return needed
