"""Shows a person the plan of a platform: slices, hosts, chips, waits, cost, quota, queues, teams, what watches it."""

import json
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plan.hosts import HostGroup, slice_groups
from plan.images import repositories
from plan.monitoring import ChartPlan, alerts, charts
from plan.platform import Platform
from plan.provisioning import Provisioning
from plan.slices import SlicePlan
from plan.words import counted
from platform_config.errors import ConfigErrors, ConfigWarning
from platform_config.self_managed import SelfManagedCluster
from rules.check import warnings
from tools.drawing import cluster_words
from tools.explain_cost import cost_lines, costs_summary, fallbacks, quota_lines, quotas_summary, slice_cost
from tools.explain_queues import queue_lines, queue_table, queues_summary, unowned_slices
from tools.explain_teams import team_lines, teams_summary
from tools.paragraphs import Paragraph, few

NAMED = 6
"""Slice groups, or places of one warning, that are named."""


def as_json(platform: Platform) -> str:
    """The platform's plan as JSON; shapes as in `SlicePlan.summary` and `Platform.totals`.

    - `waits`: by slice the longest wait for hosts, in words
    - `from_the_start`: what exists after `up`; `on_demand`: by slice group what begins, comes and goes with work
    - `inside`: what the slices and queues use in the cluster, by who installs it
    - `queues`, `costs` and `quotas`: as of `queues_summary`, `costs_summary` and `quotas_summary`
    - `unowned_slices`: by slice group, how many no queue owns
    - `teams`: by team its members, queues, stores and variables; `images`: address of each registry
    - `monitoring`: titles of the dashboard's charts, names of the alerts, and the budget as it is written
    - `groups`: managed instance groups of a platform without GKE
    """
    return json.dumps(
        {
            "cluster": {"kind": platform.cluster.kind, "backend": platform.backend, "location": platform.location},
            "inside": _inside(platform),
            "slices": [plan.summary() for plan in platform.slice_plans],
            "waits": {plan.name: plan.wait for plan in platform.slice_plans},
            "from_the_start": _from_the_start(platform),
            "on_demand": {
                group: {"begins": way.begins, "comes": way.comes, "goes": way.goes}
                for way, groups in _on_demand(platform).items()
                for group in groups
            },
            "policies": [
                {"name": policy.name, "topology": policy.topology, "mode": policy.mode}
                for policy in platform.workload_policies
            ],
            "groups": [_group(group) for plan in platform.slice_plans for group in _groups(platform, plan)],
            "queues": queues_summary(platform),
            "unowned_slices": unowned_slices(platform),
            "teams": teams_summary(platform),
            "images": {plan.name: plan.address for plan in repositories(platform)},
            "monitoring": {
                "charts": [plan.chart.title for plan in _shown(platform)],
                "alerts": [plan.alert.name for plan in alerts(platform)],
                "budget": budget.model_dump() if (budget := platform.monitoring.budget) else None,
            },
            "quotas": quotas_summary(platform),
            "totals": platform.totals,
            "costs_per_hour_usd": costs_summary(platform),
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


def _from_the_start(platform: Platform) -> dict[str, Any]:
    """`control_plane_machines`: of a self-managed cluster; `cpu_pools`; `slices`: hosts by slice group."""
    cluster = platform.cluster
    hosts: dict[str, int] = {}
    for plan in platform.slice_plans:
        if not plan.provisioning.on_demand:
            hosts[plan.group] = hosts.get(plan.group, 0) + plan.most_hosts
    return {
        "control_plane_machines": cluster.control_plane.replicas if isinstance(cluster, SelfManagedCluster) else 0,
        "cpu_pools": [
            {"name": pool.name, "machine_type": pool.machine_type, "min": pool.min_nodes, "max": pool.max_nodes}
            for pool in platform.all_cpu_pools
        ],
        "slices": hosts,
    }


def _on_demand(platform: Platform) -> dict[Provisioning, list[str]]:
    """Slice groups whose hosts come and go, by the way in which they do."""
    found: dict[Provisioning, dict[str, None]] = {}
    for plan in platform.slice_plans:
        if plan.provisioning.on_demand:
            found.setdefault(plan.provisioning, {})[plan.group] = None
    return {way: list(groups) for way, groups in found.items()}


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
    """Slices, totals, cost, hosts and quota; queues; teams; software and monitoring; warnings. For rich to print."""
    parts: list[RenderableType] = [
        Text.assemble(
            (platform.name, "bold"),
            f" in {platform.project}: {cluster_words(platform)}, slices in {platform.zone}",
        )
    ]
    if platform.slices:
        parts += [_slices(platform), _totals(platform), *cost_lines(platform)]
    parts += [*_hosts_lines(platform), *quota_lines(platform), Text()]
    if platform.queues:
        parts.append(queue_table(platform))
    parts += [*queue_lines(platform), *_dispatched(platform), Text()]
    if teams := list(team_lines(platform)):
        parts += [*teams, Text()]
    parts += [*_inside_lines(platform), _monitoring(platform)]
    if found := warnings(platform):
        parts += [Text(), *_warning_lines(found)]
    return Group(*parts)


def _slices(platform: Platform) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, leading=1)
    for column in ("slices", "one slice", "all together", "capacity"):
        table.add_column(column, overflow="fold")
    for plan in platform.slice_plans:
        table.add_row(*_row(plan))
    return table


def _row(plan: SlicePlan) -> tuple[str, ...]:
    generation = plan.generation
    return (
        f"{plan.name}\n{plan.count} x {generation.name} {plan.topology}",
        f"{counted(plan.hosts, 'host')}\n{plan.machine.name}\n{counted(plan.chips, 'chip')}",
        f"{counted(plan.total_chips, 'chip')}, {_memory(plan.total_chips * generation.hbm_gib)} HBM\n"
        f"{_flops(plan.total_chips * generation.bf16_tflops)} bf16\n{slice_cost(plan)}",
        f"{plan.capacity}\n{_hosts_come(plan)}wait: {plan.wait}",
    )


def _hosts_come(plan: SlicePlan) -> str:
    """How the number of hosts changes, or that all are created at once; empty for a fixed number."""
    if plan.provisioning.on_demand:
        return f"{plan.provisioning.name}\n"
    return "all hosts at once\n" if plan.backend == "compute" and plan.multi_host else ""


def _hosts_lines(platform: Platform) -> Iterator[Paragraph]:
    """What exists after `up`, and what comes and goes with work."""
    start = _from_the_start(platform)
    hosts = [f"{group} ({counted(number, 'host')})" for group, number in start["slices"].items()]
    machines = start["control_plane_machines"]
    pools = [
        f"{pool['name']} ({_bounds(pool['min'], pool['max'])} x {pool['machine_type']})" for pool in start["cpu_pools"]
    ]
    parts = [
        f"slices {few(hosts, NAMED)}" if hosts else "",
        f"control plane of {counted(machines, 'machine')}" if machines else "",
        f"CPU nodes {few(pools, NAMED)}" if pools else "",
    ]
    yield Paragraph("; ".join(part for part in parts if part) or "nothing but what runs inside", "from the start")
    for way, groups in _on_demand(platform).items():
        yield Paragraph(f"{few(groups, NAMED)}: from the start {way.begins}; {way.comes}; {way.goes}", "on demand")


def _bounds(fewest: int, most: int) -> str:
    return str(fewest) if fewest == most else f"{fewest} to {most}"


def _dispatched(platform: Platform) -> Iterator[Paragraph]:
    """Where the jobs of a manager run."""
    if platform.multikueue and platform.is_manager:
        yield Paragraph(f"jobs run in {few(list(platform.multikueue.workers), NAMED)}, never here", "MultiKueue")
    elif platform.is_worker:
        yield Paragraph("takes jobs from a manager as well", "MultiKueue")


def _inside_lines(platform: Platform) -> Iterator[Paragraph]:
    words = {"installed": "put into the cluster", "provided": "in the cluster already"}
    for key, parts in _inside(platform).items():
        if parts:
            yield Paragraph(", ".join(parts), words[key])


def _shown(platform: Platform) -> tuple[ChartPlan, ...]:
    """The charts of the dashboard, where there is one."""
    return charts(platform) if platform.monitoring.dashboard else ()


def _monitoring(platform: Platform) -> Paragraph:
    """What is shown and told, and the keys of what is not."""
    dashboard, told = len(_shown(platform)), len(alerts(platform))
    shown = f"a dashboard of {counted(dashboard, 'chart')}" if dashboard else "no dashboard"
    alerted = counted(told, "alert") if told else "no alerts (monitoring.notify)"
    unseen = platform.queues and platform.monitoring.queue_metrics == "none"
    queues = "; nothing of queues (monitoring.queue_metrics: none)" if unseen else ""
    written = platform.monitoring.budget
    budget = f", a budget of {written.amount:,} {written.currency}/month" if written else ""
    return Paragraph(f"{shown}, {alerted}{budget}{queues}", "monitoring")


def _warning_lines(found: tuple[ConfigWarning, ...]) -> Iterator[Paragraph]:
    """Each warning once, with all the places that it is for."""
    places: dict[tuple[str, str], list[str]] = {}
    for warning in found:
        places.setdefault((warning.message, warning.hint), []).append(warning.path)
    for (message, hint), paths in places.items():
        yield Paragraph(paths[0], "warning")
        if len(paths) > 1:
            yield Paragraph(f"also {few([_short(path) for path in paths[1:]], NAMED)}", indent=2)
        yield Paragraph(message, indent=2)
        yield Paragraph(f"-> {hint}", indent=2)


def _short(path: str) -> str:
    """The path below the platform."""
    return path.partition(".")[2]


def _totals(platform: Platform) -> Paragraph:
    totals = platform.totals
    hourly, monthly = totals["price_per_hour_usd"], totals["price_per_month_usd"]
    first = ", ".join(dict.fromkeys(plans[0].capacity for plans in fallbacks(platform).values()))
    when = f"with the first capacity ({first})" if first else "while all run"
    bound = "at most " if platform.price_is_upper_bound else ""
    cost = "cost unknown" if hourly is None else f"{bound}{hourly:,.2f} USD/h, {monthly:,.0f} USD/month {when}"
    return Paragraph(
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
        "total",
    )


def _memory(gib: int) -> str:
    return f"{gib:,} GiB" if gib < 1024 else f"{gib / 1024:,.1f} TiB"


def _flops(tflops: int) -> str:
    if tflops < 1000:
        return f"{tflops:,} TFLOP/s"
    return f"{tflops / 1000:,.1f} PFLOP/s" if tflops < 1_000_000 else f"{tflops / 1_000_000:,.1f} EFLOP/s"
