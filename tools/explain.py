"""Shows a person the plan of a platform: slices, hosts, chips, waits, cost and quota."""

import json
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plan.hosts import HostGroup, slice_groups
from plan.images import repositories
from plan.monitoring import ChartPlan, alerts, charts
from plan.platform import Platform
from plan.slices import HOURS_PER_MONTH, SlicePlan
from plan.words import counted
from platform_config.capacity import Reservation
from platform_config.errors import ConfigErrors
from rules.check import warnings
from tools.drawing import cluster_words
from tools.explain_teams import team_lines, teams_summary

NEVER_WRAPPED = ("slices", "one slice")


def as_json(platform: Platform) -> str:
    """The platform's plan as JSON; shapes as in `SlicePlan.summary` and `Platform.totals`.

    - `inside`: what the slices and queues use in the cluster, by who installs it
    - `idle_price_per_hour_usd`: of hosts that stand while nothing runs
    - `teams`: by team its members, queues, stores and variables; `images`: address of each registry
    - `monitoring`: titles of the dashboard's charts, names of the alerts, and the budget as it is written
    - `groups`: managed instance groups of a platform without GKE
    """
    return json.dumps(
        {
            "cluster": {"kind": platform.cluster.kind, "backend": platform.backend, "location": platform.location},
            "inside": _inside(platform),
            "slices": [plan.summary() for plan in platform.slice_plans],
            "policies": [
                {"name": policy.name, "topology": policy.topology, "mode": policy.mode}
                for policy in platform.workload_policies
            ],
            "groups": [_group(group) for plan in platform.slice_plans for group in _groups(platform, plan)],
            "teams": teams_summary(platform),
            "images": {plan.name: plan.address for plan in repositories(platform)},
            "monitoring": {
                "charts": [plan.chart.title for plan in _shown(platform)],
                "alerts": [plan.alert.name for plan in alerts(platform)],
                "budget": budget.model_dump() if (budget := platform.monitoring.budget) else None,
            },
            "totals": platform.totals,
            "idle_price_per_hour_usd": platform.idle_price_per_hour,
            "warnings": [_notice(warning) for warning in warnings(platform)],
        },
        indent=2,
    )


def _inside(platform: Platform) -> dict[str, list[str]]:
    used = platform.used_inside
    return {
        "installed": [part for part in used if platform.installs(part)],
        "provided": [part for part in used if not platform.installs(part)],
    }


def _groups(platform: Platform, plan: SlicePlan) -> tuple[HostGroup, ...]:
    return slice_groups(platform, plan) if platform.backend == "compute" else ()


def _group(group: HostGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "size": group.size,
        "mode": "BULK" if group.bulk else "INDIVIDUAL",
        "policy": group.policy,
        "provisioning_model": group.template.scheduling.provisioning_model,
        "hosts": list(group.host_names),
    }


def errors_as_json(errors: ConfigErrors) -> str:
    """`{"errors": [{"path", "message", "hint", "line"}]}`; the line is null where it is not known."""
    return json.dumps({"errors": [{**_notice(error), "line": error.line} for error in errors.errors]}, indent=2)


def _notice(error: Any) -> dict[str, str]:
    return {"path": error.path, "message": error.message, "hint": error.hint}


def as_text(platform: Platform) -> RenderableType:
    """Heading, a row for each group of slices, totals, quotas, software and warnings, for rich to print."""
    heading = Text.assemble(
        (platform.name, "bold"),
        f" in {platform.project}: {cluster_words(platform)}, slices in {platform.zone}",
    )
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, leading=1)
    for column in ("slices", "one slice", "all together", "capacity", "cost"):
        table.add_column(column, no_wrap=column in NEVER_WRAPPED, overflow="fold")
    for plan in platform.slice_plans:
        table.add_row(*_row(plan))
    notices = [
        Text(f"warning: {warning.path}\n  {warning.message}\n  -> {warning.hint}") for warning in warnings(platform)
    ]
    coming = [*_on_demand(platform), *_quotas(platform), *_inside_lines(platform), *team_lines(platform)]
    coming.append(_monitoring(platform))
    return Group(heading, table, _totals(platform), *coming, *notices)


def _row(plan: SlicePlan) -> tuple[str, ...]:
    generation = plan.generation
    return (
        f"{plan.name}\n{plan.count} x {generation.name} {plan.topology}",
        f"{counted(plan.hosts, 'host')}\n{plan.machine.name}\n{counted(plan.chips, 'chip')}",
        f"{counted(plan.total_chips, 'chip')}\n{_memory(plan.total_chips * generation.hbm_gib)} HBM\n"
        f"{_flops(plan.total_chips * generation.bf16_tflops)} bf16",
        f"{plan.capacity}{_hosts_come(plan)}\nwait: {plan.wait}",
        _cost(plan),
    )


def _hosts_come(plan: SlicePlan) -> str:
    """How the number of hosts changes, or that all are created at once; empty for a fixed number."""
    if plan.provisioning.on_demand:
        return f", {plan.provisioning.name}"
    return ", all hosts at once" if plan.backend == "compute" and plan.multi_host else ""


def _cost(plan: SlicePlan) -> str:
    price, hourly = plan.price_per_chip_hour, plan.price_per_hour
    if price is None or hourly is None:
        return "unknown"
    return f"{hourly:,.2f} {price.currency}/h\n{hourly * HOURS_PER_MONTH:,.0f} {price.currency}/month"


def _on_demand(platform: Platform) -> list[Text]:
    """For each slice group whose hosts come and go: what exists from the start, what follows, and when it goes."""
    groups = {plan.group: plan.provisioning for plan in platform.slice_plans if plan.provisioning.on_demand}
    lines = [Text(f"{name}: from the start {way.begins}; {way.comes}; {way.goes}") for name, way in groups.items()]
    if lines:
        idle, full = platform.idle_price_per_hour, platform.dearest_price_per_hour
        booked = sorted({plan.group for plan in platform.slice_plans if isinstance(plan.alternative, Reservation)})
        also = f", and what is reserved for {', '.join(booked)}, which is paid for in any case" if booked else ""
        when = _dearest(platform)
        lines.append(
            Text(f"cost of chips: {_per_hour(idle)} while nothing runs{also}; at most {_per_hour(full)}{when}")
        )
    return lines


def _fallbacks(platform: Platform) -> dict[str, list[SlicePlan]]:
    """The plans of each slice group with several capacity models, in their order."""
    groups: dict[str, list[SlicePlan]] = {}
    for plan in platform.slice_plans:
        groups.setdefault(plan.group, []).append(plan)
    return {name: plans for name, plans in groups.items() if len(plans) > 1}


def _dearest(platform: Platform) -> str:
    """When slices cost most: with the dearest of their capacity models, where they have several."""
    groups = _fallbacks(platform)
    if not groups:
        return " while all run"
    dearest = {name: max(plans, key=lambda plan: plan.price_per_hour or 0) for name, plans in groups.items()}
    models = {plan.capacity for plan in dearest.values()}
    if len(models) == 1 and len(groups) == len({plan.group for plan in platform.slice_plans}):
        return f", if all run on {models.pop()}"
    return ", if all run, " + " and ".join(f"{name} on {plan.capacity}" for name, plan in dearest.items())


def _per_hour(price: float | None) -> str:
    return "unknown" if price is None else f"{price:,.2f} USD/h"


def _quotas(platform: Platform) -> list[Text]:
    """Chips that each quota must allow, alternatives of a fallback included.

    Where pools are created for a slice, it has one of them only, so the group counts once.
    """
    needed: dict[tuple[str, str], list[SlicePlan]] = {}
    for plan in platform.slice_plans:
        if plan.quota:
            plans = needed.setdefault((plan.quota.metric, plan.quota.region), [])
            if plan.provisioning.declared or plan.group not in {each.group for each in plans}:
                plans.append(plan)
    return [
        Text(
            f"quota: {metric} in {region}: {counted(sum(plan.total_chips for plan in plans), 'chip')}"
            f" ({', '.join(plan.name for plan in plans)})"
        )
        for (metric, region), plans in needed.items()
    ]


def _inside_lines(platform: Platform) -> list[Text]:
    words = {"installed": "put into the cluster", "provided": "in the cluster already"}
    return [Text(f"{words[key]}: {', '.join(parts)}") for key, parts in _inside(platform).items() if parts]


def _shown(platform: Platform) -> tuple[ChartPlan, ...]:
    """The charts of the dashboard, where there is one."""
    return charts(platform) if platform.monitoring.dashboard else ()


def _monitoring(platform: Platform) -> Text:
    """What is shown and told, and the keys of what is not."""
    dashboard, told = len(_shown(platform)), len(alerts(platform))
    shown = f"a dashboard of {counted(dashboard, 'chart')}" if dashboard else "no dashboard"
    alerted = counted(told, "alert") if told else "no alerts (monitoring.notify)"
    unseen = platform.queues and platform.monitoring.queue_metrics == "none"
    queues = "; nothing of queues (monitoring.queue_metrics: none)" if unseen else ""
    written = platform.monitoring.budget
    budget = f", a budget of {written.amount:,} {written.currency}/month" if written else ""
    return Text(f"monitoring: {shown}, {alerted}{budget}{queues}")


def _totals(platform: Platform) -> Text:
    totals = platform.totals
    hourly, monthly = totals["price_per_hour_usd"], totals["price_per_month_usd"]
    first = ", ".join(dict.fromkeys(plans[0].capacity for plans in _fallbacks(platform).values()))
    when = f"with the first capacity ({first})" if first else "while all run"
    cost = "cost unknown" if hourly is None else f"{hourly:,.2f} USD/h, {monthly:,.0f} USD/month {when}"
    return Text.assemble(
        ("total: ", "bold"),
        ", ".join(
            [
                counted(totals["slices"], "slice"),
                counted(totals["hosts"], "host"),
                counted(totals["chips"], "chip"),
                f"{_memory(totals['hbm_gib'])} HBM",
                f"{_flops(totals['bf16_tflops'])} bf16",
                cost,
            ]
        ),
        "\nCosts are estimates from list prices or yours, of chips only: no control plane, CPU nodes, disks, traffic.",
    )


def _memory(gib: int) -> str:
    return f"{gib:,} GiB" if gib < 1024 else f"{gib / 1024:,.1f} TiB"


def _flops(tflops: int) -> str:
    if tflops < 1000:
        return f"{tflops:,} TFLOP/s"
    return f"{tflops / 1000:,.1f} PFLOP/s" if tflops < 1_000_000 else f"{tflops / 1_000_000:,.1f} EFLOP/s"
