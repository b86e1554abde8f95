"""Monitoring in the graph and in the emulated cloud: what is registered, and that it stays as it was made."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.graph.emulated import UPDATE, emulated_cloud, recorded
from tests.graph.recording import GraphMonitor, short
from tests.platforms import raw

WHOLE = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
DRA = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "devices": "dra"}
TOLD: dict[str, Any] = {"notify": ["ops@example.com", "lead@example.com"], "queue_metrics": "own"}
CLUSTERS: dict[str, dict[str, Any]] = {"gke": {"kind": "gke"}, "self-managed": {"kind": "self-managed"}}
KINDS = ("gcp:monitoring/", "gcp:logging/")


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


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_what_was_made_stays_as_it_is(cluster: str) -> None:
    """Dashboards come back without defaults and under another name; still a second preview has no change."""
    wanted = graph(cluster, json.dumps(TOLD))
    with emulated_cloud() as cloud:
        cloud.make(wanted)
        assert cloud.plan(wanted) == {}
        cloud.update(wanted)
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
