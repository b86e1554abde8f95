"""What a platform can see of itself: charts and alerts by what it has, their queries, and the dashboard's form."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from catalogue.queries import ALERTS, CHARTS, SOURCES, Alert
from plan.monitoring import COLUMNS, alerts, charts, dashboard, dropped_logs, log_counts, tiles, watched
from plan.platform import Platform
from platform_config.monitoring import Thresholds
from sandbox.google.default_values import without_defaults
from sandbox.google.discovery import document
from tests.platforms import EXISTING, EXISTING_NETWORK, load

WHOLE = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
SINGLE = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
TOLD = {"notify": ["ops@example.com"]}
QUEUE = {"queues": {"q": {"namespaces": ["a"], "slices": {"s": 1}}}, "monitoring": {**TOLD, "queue_metrics": "own"}}
RESERVED = {**WHOLE, "capacity": {"model": "reservation", "name": "r"}}
PLATFORMS: dict[str, Platform] = {
    "gke": load({"s": WHOLE}, monitoring=TOLD),
    "queues": load({"s": WHOLE}, **QUEUE),
    "reserved": load({"s": RESERVED}, monitoring=TOLD),
    "dra": load({"s": {**SINGLE, "devices": "dra"}}, monitoring=TOLD),
    "self-managed": load({"s": WHOLE, "t": SINGLE}, cluster={"kind": "self-managed"}, monitoring=TOLD),
    "existing": load({"s": WHOLE}, cluster=EXISTING, network=EXISTING_NETWORK, monitoring=TOLD),
    "none": load({}, monitoring=TOLD),
}


def names(platform: Platform) -> tuple[set[str], set[str]]:
    return {plan.chart.name for plan in charts(platform)}, {plan.alert.name for plan in alerts(platform)}


def test_every_chart_and_alert_is_some_platforms() -> None:
    found = [names(platform) for platform in PLATFORMS.values()]
    assert set.union(*(each for each, _ in found)) == {chart.name for chart in CHARTS}
    assert set.union(*(each for _, each in found)) == {alert.name for alert in ALERTS}
    assert {watched.source for watched in (*CHARTS, *ALERTS)} == SOURCES.keys()


def test_names_are_given_once() -> None:
    for rows in (CHARTS, ALERTS):
        assert len({row.name for row in rows}) == len({row.title for row in rows}) == len(rows)


ONE_IS_ENOUGH = {"stockouts"}
"""Alerts that are to tell of each event."""


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_one_event_does_not_hold_an_alert(alert: Alert) -> None:
    """An event stays in a query over a time for that time: held for less, each event alone would tell somebody."""
    if alert.window:
        assert "[$window]" in alert.query
        assert seconds(hold(alert)) > seconds(alert.window)
    elif "increase(" in alert.query + alert.part and alert.name not in ONE_IS_ENOUGH:
        # What counts against the alert, over the time that it is about.
        assert re.search(r" unless \(sum by \(cluster_queue\) \(.* or increase\(", alert.query)
        assert "[$stuck_for]" in alert.query


def hold(alert: Alert) -> str:
    return alert.hold if alert.hold[0].isdigit() else str(Thresholds.model_fields[alert.hold].default)


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


def test_each_threshold_is_of_an_alert() -> None:
    used = {word for alert in ALERTS for word in (alert.hold, *re.findall(r"\$(\w+)", alert.query))}
    assert Thresholds.model_fields.keys() <= used


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_queries_are_filled_in(platform: Platform) -> None:
    for query in [*(plan.query for plan in charts(platform)), *(plan.query for plan in alerts(platform))]:
        assert "$" not in query
        assert query.strip()


def test_what_has_no_series_has_no_chart() -> None:
    of_dra, _ = names(PLATFORMS["dra"])
    assert of_dra & {"duty-cycle", "idle-chips", "memory", "tensorcore"} == set()
    without_gke, told = names(PLATFORMS["self-managed"])
    assert without_gke == {"hosts-missing", "stockouts", "logs"}
    assert told == {"hosts-missing", "stockouts"}
    assert not any(chart.section == "Queues" and chart.name in names(PLATFORMS["gke"])[0] for chart in CHARTS)


def test_without_gke_chips_are_seen_where_the_device_plugin_is_read() -> None:
    written = {**TOLD, "queue_metrics": "install", "device_metrics": True}
    platform = load({"s": SINGLE}, queues=QUEUE["queues"], cluster={"kind": "self-managed"}, monitoring=written)
    shown, told = names(platform)
    assert {"duty-cycle", "idle-chips", "memory"} <= shown
    assert "tensorcore" not in shown
    assert "idle-chips" in told
    [query] = [plan.query for plan in charts(platform) if plan.chart.name == "memory"]
    assert query == 'max by (model) (100 * memory_used_node{cluster="tpu"} / memory_total_node{cluster="tpu"})'


def test_missing_hosts_are_counted_by_the_groups_of_the_plan() -> None:
    [query] = [plan.query for plan in charts(PLATFORMS["self-managed"]) if plan.chart.name == "hosts-missing"]
    assert "(4 - max by (instance_group_name) (compute_googleapis_com:instance_group_size{" in query
    assert 'instance_group_name=~"tpu-s-[0-9]+"' in query
    assert 'instance_group_name=~"tpu-t"' in query


@pytest.mark.parametrize("capacity", ["spot", "flex-start"])
def test_hosts_that_may_be_absent_are_shown_as_missing_but_alert_nobody(capacity: str) -> None:
    slices = {"s": {**WHOLE, "capacity": capacity}, "t": SINGLE}
    platform = load(slices, cluster={"kind": "self-managed"}, monitoring=TOLD)
    [shown] = [plan.query for plan in charts(platform) if plan.chart.name == "hosts-missing"]
    [told] = [plan.query for plan in alerts(platform) if plan.alert.name == "hosts-missing"]
    assert ("tpu-s-[0-9]+" in shown, "tpu-s-[0-9]+" in told) == (True, False)
    assert '"tpu-t"' in told
    alone = load({"s": slices["s"]}, cluster={"kind": "self-managed"}, monitoring=TOLD)
    assert "hosts-missing" in names(alone)[0] - names(alone)[1]


def test_idle_chips_cost_what_the_plan_says() -> None:
    platform = PLATFORMS["queues"]
    (plan,) = platform.slice_plans
    assert plan.price_per_chip_hour
    [query] = [each.query for each in charts(platform) if each.chart.name == "idle-cost"]
    assert query.startswith(f"{plan.price_per_chip_hour.amount} * (32 - sum(")
    assert f'flavor=~"{plan.flavor}"' in query


COME_AND_GO = {
    "autoscaled": {"provisioning": "autoscaled"},
    "queued": {"capacity": "queued"},
    "compute-class": {"provisioning": "compute-class"},
    "spot": {"capacity": "spot"},
}


@pytest.mark.parametrize("how", COME_AND_GO.values(), ids=COME_AND_GO)
def test_hosts_that_come_and_go_are_neither_missed_nor_paid_for_while_idle(how: dict[str, Any]) -> None:
    shown, told = names(load({"s": {**WHOLE, **how}}, **QUEUE))
    assert {"idle-cost", "not-whole", "pool-error"} & (shown | told) == set()
    assert "used" in shown
    shown, told = names(PLATFORMS["queues"])
    assert {"idle-cost", "not-whole"} <= shown & told
    assert "pool-error" in told


def test_only_pools_that_stand_are_watched() -> None:
    slices = {"fixed": WHOLE, "also": WHOLE, "spot": {**WHOLE, "capacity": "spot"}, "single": SINGLE}
    found = alerts(load(slices, monitoring=TOLD))
    for name in ("not-whole", "pool-error"):
        [query] = [plan.query for plan in found if plan.alert.name == name]
        [pattern] = re.findall(r'node_pool_name=~"([^"]+)"', query)
        matched = [pool for pool in ("fixed-0", "also-1", "spot-0", "single", "fixed") if re.fullmatch(pattern, pool)]
        assert matched == ["fixed-0", "also-1"]
    not_begun = {**RESERVED, "capacity": {"model": "reservation", "name": "r", "active": False}}
    assert "not-whole" not in names(load({"s": not_begun}, monitoring=TOLD))[1]


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_metrics_of_logs_name_their_resource(platform: Platform) -> None:
    """Without it Cloud Monitoring refuses a metric that can have several types of resource."""
    queries = [*(plan.query for plan in charts(platform)), *(plan.query for plan in alerts(platform))]
    selectors = [found for query in queries for found in re.findall(r"googleapis_com:user_(\w+)(\{[^}]*\})?", query)]
    wanted = {"stockouts": "gce_instance"} if platform.backend == "compute" else {"autoscaler_errors": "k8s_cluster"}
    for key, resource in wanted.items():
        [name] = [count.name for count in log_counts(platform) if count.key == key] or [""]
        assert {labels for metric, labels in selectors if metric == name} == (
            {f'{{monitored_resource="{resource}"}}'} if name else set()
        )
    for _, labels in selectors:
        assert labels.startswith('{monitored_resource="')


def test_stockouts_on_gke_are_found_under_either_resource() -> None:
    [query] = [plan.query for plan in alerts(PLATFORMS["gke"]) if plan.alert.name == "stockouts"]
    assert re.findall(r'monitored_resource="(\w+)"', query) == ["gke_nodepool", "global"]
    assert "}[1h]) or increase(" in query


def test_late_points_of_reservations_are_averaged() -> None:
    """A selector alone looks back five minutes; points come up to 30 minutes late."""
    for row in (*CHARTS, *ALERTS):
        for metric in ("reservation_used", "reservation_reserved"):
            if metric in row.query:
                assert re.search(rf"avg_over_time\(compute_googleapis_com:{metric}\{{[^}}]*\}}\[60m\]\)", row.query)


def test_nobody_told_is_no_alert() -> None:
    assert alerts(load({"s": WHOLE})) == ()
    channels = {"channels": ["projects/p/notificationChannels/1"], "silent": ["not-whole"]}
    told = names(load({"s": WHOLE}, monitoring=channels))[1]
    assert "not-ready" in told
    assert "not-whole" not in told


def test_holds_and_limits_are_the_platforms() -> None:
    thresholds = {"slice_down_for": "30m", "interruptions": 7}
    found = {
        plan.alert.name: plan for plan in alerts(load({"s": WHOLE}, monitoring={**TOLD, "thresholds": thresholds}))
    }
    assert found["not-whole"].hold == "1800s"
    assert found["interruptions"].query.endswith(">= 7")


def test_everything_can_be_off() -> None:
    off = {"dashboard": False, "count_errors": False, "drop_sidecar_logs": False}
    assert not watched(load({"s": {**SINGLE, "devices": "dra"}}, monitoring=off))
    assert watched(load({"s": WHOLE}))


def test_the_sidecar_of_the_dra_driver_is_dropped_where_it_runs() -> None:
    assert dropped_logs(PLATFORMS["gke"]) is None
    dropped = dropped_logs(PLATFORMS["dra"])
    assert dropped
    assert 'container_name="sidecar-log-collector"' in dropped
    assert [count.key for count in log_counts(PLATFORMS["self-managed"])] == ["stockouts"]


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_a_dashboard_has_nothing_that_the_api_drops(platform: Platform) -> None:
    """Otherwise every preview would show a change."""
    written: dict[str, Any] = json.loads(json.dumps(dashboard(platform)))
    assert without_defaults(document("monitoring.v1"), "Dashboard", written) == written
    assert {"name", "etag"} & written.keys() == set()


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=PLATFORMS)
def test_tiles_lie_side_by_side(platform: Platform) -> None:
    cells = [
        (x, y)
        for tile in tiles(platform)
        for x in range(tile.x, tile.x + tile.width)
        for y in range(tile.y, tile.y + tile.height)
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < COLUMNS
