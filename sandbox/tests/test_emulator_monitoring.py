"""Cloud Monitoring, Cloud Logging and Cloud Billing budgets: what is refused, and what of a request comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from sandbox.google.project_numbers import project_number
from sandbox.tests.emulated_google import PROJECT, Body, Cloud, connected

DASHBOARDS = f"/monitoring/v1/projects/{PROJECT}/dashboards"
POLICIES = f"/monitoring/v3/projects/{PROJECT}/alertPolicies"
CHANNELS = f"/monitoring/v3/projects/{PROJECT}/notificationChannels"
METRICS = f"/logging/v2/projects/{PROJECT}/metrics"
EXCLUSIONS = f"/logging/v2/projects/{PROJECT}/exclusions"
CHANNEL = {"type": "email", "displayName": "Ops", "labels": {"email_address": "ops@example.com"}}
QUERY = {"query": "up == 0", "duration": "60s", "evaluationInterval": "60s", "disableMetricValidation": True}
METRIC = {"name": "stockouts", "filter": 'resource.type="gke_nodepool"'}


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with connected() as cloud:
        yield cloud


def tile(**place: Any) -> Body:
    series = {"timeSeriesQuery": {"prometheusQuery": "up"}, "plotType": "LINE"}
    return {"width": 16, "height": 8, "widget": {"title": "t", "xyChart": {"dataSets": [series]}}, **place}


def dashboard(*tiles: Body, **settings: Any) -> Body:
    return {"displayName": "d", "mosaicLayout": {"columns": 48, "tiles": list(tiles)}, **settings}


def policy(*, channels: tuple[str, ...] = (), **condition: Any) -> Body:
    conditions = [{"displayName": "c", "conditionPrometheusQueryLanguage": {**QUERY, **condition}}]
    return {"displayName": "p", "combiner": "OR", "conditions": conditions, "notificationChannels": list(channels)}


def test_a_dashboard_comes_back_with_the_projects_number(cloud: Cloud) -> None:
    sent = dashboard(tile(), tile(xPos=16))
    made = cloud.ok("POST", DASHBOARDS, sent)
    assert made["name"].startswith(f"projects/{project_number(PROJECT)}/dashboards/")
    assert {key: made[key] for key in sent} == sent
    by_number = cloud.ok("GET", f"/monitoring/v1/{made['name']}")
    assert by_number == made == cloud.ok("GET", f"{DASHBOARDS}/{made['name'].rsplit('/', 1)[1]}")
    assert made in cloud.ok("GET", DASHBOARDS)["dashboards"]


def test_what_a_dashboard_says_of_defaults_is_dropped(cloud: Cloud) -> None:
    """The traps of hashicorp/terraform-provider-google #7242 and #16173."""
    sent = tile(xPos=0, yPos=0)
    sent["widget"]["xyChart"] |= {"timeshiftDuration": "0s", "thresholds": [], "chartOptions": {}}
    sent["widget"]["xyChart"]["dataSets"][0] |= {"targetAxis": "TARGET_AXIS_UNSPECIFIED", "legendTemplate": ""}
    made = cloud.ok("POST", DASHBOARDS, dashboard(sent, labels={}))
    expected = tile()
    expected["widget"]["xyChart"]["chartOptions"] = {}
    assert made["mosaicLayout"]["tiles"] == [expected]
    assert "labels" not in made


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (dashboard(tile(xPos=40)), "does not lie within"),
        (dashboard(tile(), tile(xPos=8)), "overlaps"),
        (dashboard(gridLayout={"widgets": []}), "exactly one of"),
        ({"displayName": "d"}, "exactly one of"),
        (dashboard(displayName=""), "displayName"),
    ],
)
def test_a_dashboard_that_cannot_be_drawn_is_refused(cloud: Cloud, wrong: Body, words: str) -> None:
    assert words in cloud.refused(400, "POST", DASHBOARDS, wrong)["message"]


def test_a_dashboard_that_somebody_else_changed_is_not_overwritten(cloud: Cloud) -> None:
    made = cloud.ok("POST", DASHBOARDS, dashboard(tile()))
    path = f"/monitoring/v1/{made['name']}"
    changed = cloud.ok("PATCH", path, dashboard(tile(), displayName="new", etag=made["etag"]))
    assert changed["displayName"] == "new"
    assert cloud.refused(409, "PATCH", path, dashboard(tile(), etag=made["etag"]))["status"] == "ABORTED"
    cloud.ok("DELETE", path)
    cloud.refused(404, "GET", path)


def test_an_alert_policy_names_its_conditions_and_tells_channels_that_exist(cloud: Cloud) -> None:
    channel = cloud.ok("POST", CHANNELS, CHANNEL)["name"]
    made = cloud.ok("POST", POLICIES, policy(channels=(channel,)))
    assert made["enabled"] is True
    assert made["conditions"][0]["name"].startswith(f"{made['name']}/conditions/")
    changed = cloud.ok("PATCH", f"/monitoring/v3/{made['name']}?updateMask=severity", {"severity": "ERROR"})
    assert changed["severity"] == "ERROR"
    assert changed["conditions"] == made["conditions"]
    assert "names it" in cloud.refused(400, "DELETE", f"/monitoring/v3/{channel}")["message"]
    cloud.ok("DELETE", f"/monitoring/v3/{channel}?force=true")
    assert "notificationChannels" not in cloud.ok("GET", f"/monitoring/v3/{made['name']}")
    cloud.ok("DELETE", f"/monitoring/v3/{made['name']}")
    assert "monitoring.alertPolicies" not in cloud.inventory()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (policy(channels=(f"projects/{PROJECT}/notificationChannels/1",)), "no such channel"),
        (policy(evaluationInterval="45s"), "a multiple of 30 seconds"),
        (policy(query=""), "must not be empty"),
        ({**policy(), "conditions": []}, "1 to 6 conditions"),
        ({**policy(), "userLabels": {"Team": "a"}}, "lower case"),
        ({**policy(), "combiner": "COMBINE_UNSPECIFIED"}, "combiner"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(cloud: Cloud, wrong: Body, words: str) -> None:
    assert words in cloud.refused(400, "POST", POLICIES, wrong)["message"]


@pytest.mark.parametrize(
    "wrong", [{"type": "email"}, {"type": "pigeon"}, {**CHANNEL, "labels": {"email_address": "x"}}]
)
def test_a_channel_that_reaches_nobody_is_refused(cloud: Cloud, wrong: Body) -> None:
    assert "invalid value" in cloud.refused(400, "POST", CHANNELS, wrong)["message"]


def test_a_metric_of_log_entries_is_a_counter_until_it_is_deleted(cloud: Cloud) -> None:
    made = cloud.ok("POST", METRICS, METRIC)
    assert made["metricDescriptor"]["type"] == "logging.googleapis.com/user/stockouts"
    assert made["metricDescriptor"]["metricKind"] == "DELTA"
    cloud.refused(409, "POST", METRICS, METRIC)
    assert cloud.ok("PUT", f"{METRICS}/stockouts", {**METRIC, "description": "d"})["description"] == "d"
    cloud.refused(400, "PUT", f"{METRICS}/stockouts", {**METRIC, "name": "other"})
    cloud.refused(400, "POST", METRICS, {"name": "no-filter"})
    cloud.ok("DELETE", f"{METRICS}/stockouts")
    cloud.refused(404, "GET", f"{METRICS}/stockouts")


def test_an_exclusion_changes_by_its_mask_alone(cloud: Cloud) -> None:
    sent = {"name": "sidecar", "filter": "a", "disabled": False}
    made = cloud.ok("POST", EXCLUSIONS, sent)
    assert "disabled" not in made
    changed = cloud.ok("PATCH", f"{EXCLUSIONS}/sidecar?updateMask=description", {"description": "d", "filter": "b"})
    assert (changed["description"], changed["filter"]) == ("d", "a")
    cloud.refused(400, "PATCH", f"{EXCLUSIONS}/sidecar", sent)
    cloud.refused(409, "POST", EXCLUSIONS, sent)
    cloud.ok("DELETE", f"{EXCLUSIONS}/sidecar")
    assert "exclusions" not in cloud.ok("GET", EXCLUSIONS) or not cloud.ok("GET", EXCLUSIONS)["exclusions"]


# --- budgets ----------------------------------------------------------------------------------------------------------

BUDGETS = "/budgets/v1/billingAccounts/01ABCD-23EF45-678901/budgets"


def budget(amount: Body | None = None, **settings: Any) -> Body:
    return {"displayName": "b", "amount": amount or {"specifiedAmount": {"units": "100"}}, **settings}


def test_a_budget_comes_back_with_the_projects_number_and_what_was_left_out(cloud: Cloud) -> None:
    rules = [{"thresholdPercent": 0.5}, {"thresholdPercent": 1, "spendBasis": "FORECASTED_SPEND"}]
    sent = budget(budgetFilter={"projects": [f"projects/{PROJECT}"]}, thresholdRules=rules)
    made = cloud.ok("POST", BUDGETS, sent)
    assert made["name"].startswith("billingAccounts/01ABCD-23EF45-678901/budgets/")
    assert made["amount"] == {"specifiedAmount": {"units": "100", "currencyCode": "USD"}}
    assert made["budgetFilter"] == {
        "projects": [f"projects/{project_number(PROJECT)}"],
        "calendarPeriod": "MONTH",
        "creditTypesTreatment": "INCLUDE_ALL_CREDITS",
    }
    assert made["thresholdRules"][0] == {"thresholdPercent": 0.5, "spendBasis": "CURRENT_SPEND"}
    assert made in cloud.ok("GET", BUDGETS)["budgets"]
    assert made["name"].rsplit("/", 1)[1] in cloud.inventory()["billingbudgets.budgets"]


def test_a_budget_changes_by_its_mask_alone(cloud: Cloud) -> None:
    made = cloud.ok("POST", BUDGETS, budget(budgetFilter={"labels": {"team": ["a"]}}))
    path = f"/budgets/v1/{made['name']}"
    mask = "updateMask=amount.specifiedAmount.units,budgetFilter.labels"
    changed = cloud.ok("PATCH", f"{path}?{mask}", budget({"specifiedAmount": {"units": "5"}}, displayName="new"))
    assert changed["amount"]["specifiedAmount"] == {"units": "5", "currencyCode": "USD"}
    assert changed["displayName"] == "b"
    assert "labels" not in changed["budgetFilter"]
    assert cloud.refused(409, "PATCH", path, budget(etag=made["etag"]))["status"] == "ABORTED"
    cloud.ok("DELETE", path)
    cloud.refused(404, "GET", path)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (budget({"lastPeriodAmount": {}, "specifiedAmount": {"units": "1"}}), "exactly one of"),
        (budget({"specifiedAmount": {"units": "1", "currencyCode": "EUR"}}), "must match the currency"),
        (budget({"specifiedAmount": {"units": "-1"}}), "not be negative"),
        (budget(displayName="b" * 61), "at most 60 characters"),
        (budget(budgetFilter={"labels": {"a": ["1"], "b": ["2"]}}), "a single key"),
        (budget(budgetFilter={"labels": {"a": ["1", "2"]}}), "a single value"),
        (budget(budgetFilter={"projects": ["proj"]}), "the form is projects/PROJECT"),
        (budget(thresholdRules=[{"thresholdPercent": -1}]), "not be negative"),
        (budget(notificationsRule={"monitoringNotificationChannels": ["c"] * 6}), "At most 5"),
        (budget(notificationsRule={"monitoringNotificationChannels": ["c"]}), "not an email notification channel"),
    ],
)
def test_a_budget_that_cannot_be_kept_is_refused(cloud: Cloud, wrong: Body, words: str) -> None:
    assert words in cloud.refused(400, "POST", BUDGETS, wrong)["message"]


def test_a_budget_tells_channels_of_email_alone(cloud: Cloud) -> None:
    topic = {"type": "pubsub", "labels": {"topic": f"projects/{PROJECT}/topics/t"}}
    email, other = (cloud.ok("POST", CHANNELS, sent)["name"] for sent in (CHANNEL, topic))
    cloud.ok("POST", BUDGETS, budget(notificationsRule={"monitoringNotificationChannels": [email]}))
    wrong = budget(notificationsRule={"monitoringNotificationChannels": [other]})
    assert "not an email" in cloud.refused(400, "POST", BUDGETS, wrong)["message"]


def test_no_budget_without_its_api_and_its_permission() -> None:
    with connected(fresh_project=True) as cloud:
        refused = cloud.refused(403, "POST", BUDGETS, budget())
        assert "billingbudgets.googleapis.com has not been used" in refused["message"]
        cloud.ok("POST", f"/su/v1/projects/{PROJECT}/services/billingbudgets.googleapis.com:enable")
        cloud.control("permissions", {"granted": ["billing.budgets.get"]})
        assert "billing.budgets.create" in cloud.refused(403, "POST", BUDGETS, budget())["message"]
        cloud.control("permissions", {"granted": ["billing.budgets.create"]})
        cloud.ok("POST", BUDGETS, budget())


# --- time series ------------------------------------------------------------------------------------------------------

SERIES = f"/monitoring/v3/projects/{PROJECT}/timeSeries"
DUTY = "kubernetes.io/node/accelerator/duty_cycle"


def points(node: str, chip: str, **values: float) -> Body:
    """Points of a chip, each at a minute such as `m05` of the same hour."""
    metric = {"type": DUTY, "labels": {"accelerator_id": chip}}
    shown = [
        {"interval": {"endTime": f"2026-01-01T00:{minute[1:]}:00Z"}, "value": {"doubleValue": value}}
        for minute, value in values.items()
    ]
    return {"metric": metric, "resource": {"type": "k8s_node", "labels": {"node_name": node}}, "points": shown}


@pytest.fixture(scope="module")
def measured(cloud: Cloud) -> Cloud:
    rows = [points("a", "0", m01=5, m05=0, m20=90), points("a", "1", m06=40), points("b", "0", m03=0), points("c", "0")]
    cloud.ok("POST", SERIES, {"timeSeries": rows})
    return cloud


def series(cloud: Cloud, **query: str) -> dict[tuple[str, ...], list[tuple[str, float]]]:
    """By the values of its labels: the minutes and values of each series in the first ten minutes."""
    asked = {
        "filter": f'metric.type = "{DUTY}"',
        "interval.startTime": "2026-01-01T00:00:00Z",
        "interval.endTime": "2026-01-01T00:10:00Z",
        **{key.replace("_", ".", 1): value for key, value in query.items()},
    }
    found = cloud.ok("GET", f"{SERIES}?{urlencode(asked)}").get("timeSeries", [])
    return {
        (*each["resource"].get("labels", {}).values(), *each["metric"].get("labels", {}).values()): [
            (point["interval"]["endTime"][14:16], point["value"]["doubleValue"]) for point in each["points"]
        ]
        for each in found
    }


def test_series_have_their_points_of_the_interval_the_newest_first(measured: Cloud) -> None:
    assert series(measured) == {("a", "0"): [("05", 0), ("01", 5)], ("a", "1"): [("06", 40)], ("b", "0"): [("03", 0)]}
    of_b = f'metric.type = "{DUTY}" AND resource.labels.node_name = "b"'
    assert series(measured, filter=of_b).keys() == {("b", "0")}
    assert series(measured, filter='metric.type = "other"') == {}


def test_series_are_aligned_and_then_reduced(measured: Cloud) -> None:
    aligned = {"aggregation_alignmentPeriod": "300s", "aggregation_perSeriesAligner": "ALIGN_MAX"}
    assert series(measured, **aligned) == {
        ("a", "0"): [("05", 5)],
        ("a", "1"): [("10", 40)],
        ("b", "0"): [("05", 0)],
    }
    whole = {**aligned, "aggregation_alignmentPeriod": "600s"}
    by_node = {"aggregation_crossSeriesReducer": "REDUCE_MAX", "aggregation_groupByFields": "resource.labels.node_name"}
    assert series(measured, **whole, **by_node) == {("a",): [("10", 40)], ("b",): [("10", 0)]}
    assert series(measured, **whole, aggregation_crossSeriesReducer="REDUCE_SUM") == {(): [("10", 45)]}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"filter": f'metric.type = starts_with("{DUTY}")'}, "the emulator takes equalities"),
        ({"filter": 'resource.type = "k8s_node"'}, "one of metric.type"),
        ({"aggregation_crossSeriesReducer": "REDUCE_MAX"}, "must be aligned before"),
        ({"aggregation_perSeriesAligner": "ALIGN_MAX", "aggregation_alignmentPeriod": "30s"}, "at least 60s"),
        ({"interval_endTime": "now"}, "is not a time"),
    ],
)
def test_series_that_cannot_be_read_are_refused(cloud: Cloud, query: dict[str, str], words: str) -> None:
    asked = {
        "filter": f'metric.type = "{DUTY}"',
        "interval.endTime": "2026-01-01T00:10:00Z",
        **{key.replace("_", ".", 1): value for key, value in query.items()},
    }
    assert words in cloud.refused(400, "GET", f"{SERIES}?{urlencode(asked)}")["message"]


def test_a_point_is_a_number_at_a_time(cloud: Cloud) -> None:
    wrong = points("a", "0", m01=1)
    wrong["points"][0]["value"] = {"stringValue": "x"}
    assert "one of doubleValue, int64Value" in cloud.refused(400, "POST", SERIES, {"timeSeries": [wrong]})["message"]
