"""What monitoring adds to a first preview of the dev stack, by the real engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.bench.runs import Run, preview
from tests.sandbox.conftest import ROOT, link_checkout

DEV = ROOT / "Pulumi.dev.yaml"
REPEATS = 3
UNSEEN: dict[str, Any] = {"dashboard": False, "count_errors": False, "drop_sidecar_logs": False}
TOLD: dict[str, Any] = {"notify": ["ops@example.com"], "queue_metrics": "own"}
MONITORED: dict[str, dict[str, Any]] = {
    "nothing": UNSEEN,
    "dashboard": {},
    "dashboard, alerts": TOLD,
    "dashboard, alerts, budget": {**TOLD, "budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000}},
}
"""What is measured of the dev stack: `monitoring` of its stack file."""
BUDGET_SECONDS = 1.0
"""What the dashboard and the alerts may add to a preview."""


def section(scratch: Path, show: Callable[[str], None]) -> tuple[list[str], str]:
    """The table, and what is wrong with it: nothing, or that the dashboard and the alerts add too much."""
    folder = link_checkout(scratch / "monitored")
    runs: dict[str, list[Run]] = {name: [] for name in MONITORED}
    with running(RunDirectory(scratch / "run"), Plan(), folder) as session:
        for _ in range(REPEATS):
            for number, (name, monitoring) in enumerate(MONITORED.items()):
                content = yaml.safe_load(DEV.read_text())
                content["config"]["tpu-platform:platform"]["monitoring"] = monitoring
                (folder / f"Pulumi.monitored-{number}.yaml").write_text(yaml.safe_dump(content))
                runs[name].append(preview(session, f"monitored-{number}")[0])
    seconds = {name: min(run.seconds for run in each) for name, each in runs.items()}
    busy = {name: min(run.busy for run in each) for name, each in runs.items()}
    base = next(iter(MONITORED))
    rows = [
        f"| {name} | {each[0].resources} | {seconds[name]:.2f} | {seconds[name] - seconds[base]:+.2f} "
        f"| {busy[name]:.2f} | {busy[name] - busy[base]:+.2f} |"
        for name, each in runs.items()
    ]
    for row in rows:
        show(row)
    added = seconds["dashboard, alerts"] - seconds[base]
    wrong = f"dashboard and alerts add {added:.2f} s to a preview, more than {BUDGET_SECONDS} s"
    return [
        "A first preview of the dev stack by the real engine, by what it has of monitoring; the four in turn, the",
        f"fastest of {REPEATS} each. The dashboard and the alerts may add {BUDGET_SECONDS:.0f} second.",
        "",
        "| monitoring | resources | seconds | added | processor seconds | added |",
        "|---|---|---|---|---|---|",
        *rows,
    ], wrong if added > BUDGET_SECONDS else ""
