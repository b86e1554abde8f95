"""Monitoring in the graph and in the emulated cloud: what is registered, and that it stays as it was made."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from platform_config.platform import PLATFORM_KEY
from sandbox.google.project_numbers import project_number
from tests.graph.emulated import REPLACE, UPDATE, emulated_cloud, lay_for_teams, recorded
from tests.graph.recording import STACK_FILES, GraphMonitor, record_main, short, stack_config
from tests.platforms import raw

WHOLE = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
DRA = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "devices": "dra"}
TOLD: dict[str, Any] = {"notify": ["ops@example.com", "lead@example.com"], "queue_metrics": "own"}
CLUSTERS: dict[str, dict[str, Any]] = {"gke": {"kind": "gke"}, "self-managed": {"kind": "self-managed"}}
KINDS = ("gcp:monitoring/", "gcp:logging/", "gcp:billing/")
BUDGET: dict[str, Any] = {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000, "forecast": [1.0]}


@cache
def graph(cluster: str, monitoring: str) -> GraphMonitor:
    queues = {"q": {"namespaces": ["a"], "slices": {"train": 1}}}
    slices = {"train": WHOLE, "serve": DRA}
    return recorded(raw(slices, cluster=CLUSTERS[cluster], queues=queues, monitoring=json.loads(monitoring)))


def registered(graph: GraphMonitor) -> dict[str, dict[str, Any]]:
    """Short name -> inputs of everything that is registered for monitoring."""
    found = {urn: request for urn, request in graph.requests.items() if request.type.startswith(KINDS)}
    return {short(urn): dict(request.object) for urn, request in found.items()}


def test_by_default_nothing_that_is_paid_for() -> None:
    assert registered(graph("gke", "{}")).keys() == {
        "Dashboard monitoring-dashboard",
        "Metric monitoring-stockouts",
        "Metric monitoring-autoscaler-errors",
        "ProjectExclusion monitoring-sidecar-logs",
    }
    assert registered(graph("self-managed", "{}")).keys() == {
        "Dashboard monitoring-dashboard",
        "Metric monitoring-stockouts",
    }


def test_every_alert_tells_all_that_are_to_be_told() -> None:
    others = ["projects/my-project/notificationChannels/1"]
    found = registered(graph("gke", json.dumps({**TOLD, "channels": others})))
    channels = [name for name in found if name.startswith("NotificationChannel")]
    assert len(channels) == 2
    policies = {name: inputs for name, inputs in found.items() if name.startswith("AlertPolicy")}
    assert len(policies) > 8
    for inputs in policies.values():
        assert len(inputs["notificationChannels"]) == 3
        assert inputs["notificationChannels"][-1] == others[0]
        [condition] = inputs["conditions"]
        promql = condition["conditionPrometheusQueryLanguage"]
        assert promql["disableMetricValidation"] is True
        assert promql["duration"].endswith("s")


def test_a_budget_is_of_the_project_and_tells_the_addresses() -> None:
    others = {"channels": ["projects/my-project/notificationChannels/1"]}
    found = registered(graph("gke", json.dumps({**TOLD, **others, "budget": BUDGET})))
    budget = found["Budget budget-month"]
    assert budget["amount"] == {"specifiedAmount": {"currencyCode": "USD", "units": "20000"}}
    assert budget["budgetFilter"] == {
        "calendarPeriod": "MONTH",
        "projects": [f"projects/{project_number('my-project')}"],
    }
    rules = [(rule["thresholdPercent"], rule["spendBasis"]) for rule in budget["thresholdRules"]]
    spent = [(share, "CURRENT_SPEND") for share in (0.5, 0.9, 1.0)]
    assert rules == [*spent, (1.0, "FORECASTED_SPEND")]
    addresses = [f"channel of monitoring/{address}" for address in TOLD["notify"]]
    assert budget["allUpdatesRule"] == {"monitoringNotificationChannels": addresses}


def test_without_addresses_a_budget_tells_the_administrators_alone() -> None:
    alone = {"dashboard": False, "count_errors": False, "drop_sidecar_logs": False}
    found = registered(graph("gke", json.dumps({**alone, "budget": {**BUDGET, "of": "platform"}})))
    assert found.keys() == {"Budget budget-month"}
    assert "allUpdatesRule" not in found["Budget budget-month"]
    assert found["Budget budget-month"]["budgetFilter"]["labels"] == {"tpu-platform": "tpu"}


@pytest.mark.parametrize("of", ["project", "platform"])
@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_was_made_stays_as_it_is(cluster: str, of: str) -> None:
    """Dashboards come back without defaults and under another name, and budgets with the number of their project;
    still a second preview has no change."""
    wanted = graph(cluster, json.dumps({**TOLD, "budget": {**BUDGET, "of": of}}))
    with emulated_cloud() as cloud:
        cloud.make(wanted)
        assert cloud.plan(wanted) == {}
        cloud.update(wanted)
        assert cloud.plan(wanted) == {}


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.name.split(".")[1])
def test_a_second_preview_of_every_stack_has_no_change_with_all_monitoring_on(path: Path) -> None:
    config = stack_config(path)
    platform = json.loads(config[PLATFORM_KEY])
    assert platform["queues"]
    whole = {**config, PLATFORM_KEY: json.dumps({**platform, "monitoring": {**TOLD, "budget": BUDGET}})}
    wanted = record_main(whole, stack=path.name.split(".")[1])
    kinds = {request.type.split("/")[0] for request in wanted.requests.values()}
    assert kinds >= {"gcp:monitoring", "gcp:logging", "gcp:billing"}
    with emulated_cloud() as cloud:
        lay_for_teams(cloud, platform["zone"].rpartition("-")[0])
        cloud.make(wanted)
        assert cloud.plan(wanted) == {}


def test_a_threshold_changes_its_alerts_alone() -> None:
    changed = graph("gke", json.dumps({**TOLD, "thresholds": {"slice_down_for": "1h"}}))
    with emulated_cloud() as cloud:
        cloud.make(graph("gke", json.dumps(TOLD)))
        assert {short(urn): plan.operation for urn, plan in cloud.plan(changed).items()} == {
            "AlertPolicy monitoring-not-whole": UPDATE,
            "AlertPolicy monitoring-pool-error": UPDATE,
        }
        cloud.update(changed)
        assert cloud.plan(changed) == {}


def test_a_budget_changes_in_place_but_for_its_account() -> None:
    def with_budget(**changes: Any) -> GraphMonitor:
        return graph("gke", json.dumps({**TOLD, "budget": {**BUDGET, **changes}}))

    changed = with_budget(amount=30_000, of="platform", spent=[1.0])
    moved = with_budget(billing_account="098765-FEDCBA-123456")
    with emulated_cloud() as cloud:
        cloud.make(with_budget())
        assert {short(urn): plan.operation for urn, plan in cloud.plan(changed).items()} == {
            "Budget budget-month": UPDATE
        }
        cloud.update(changed)
        assert cloud.plan(changed) == {}
        assert {short(urn): plan.operation for urn, plan in cloud.plan(moved).items()} == {
            "Budget budget-month": REPLACE
        }


def test_a_name_or_a_zero_in_a_dashboard_would_change_in_every_preview() -> None:
    """The test above can fail: with a field that the API drops, it does."""
    wanted = graph("gke", "{}")
    with emulated_cloud() as cloud:
        [request] = [r for r in wanted.requests.values() if r.type == "gcp:monitoring/dashboard:Dashboard"]
        before = request.object["dashboardJson"]
        spoiled = json.loads(before)
        spoiled["mosaicLayout"]["tiles"][0]["xPos"] = 0
        try:
            request.object["dashboardJson"] = json.dumps(spoiled)
            cloud.make(wanted)
            assert {short(urn) for urn in cloud.plan(wanted)} == {"Dashboard monitoring-dashboard"}
        finally:
            request.object["dashboardJson"] = before
