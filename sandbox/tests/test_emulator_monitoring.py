"""Cloud Monitoring and Cloud Logging: what is refused, and what of a request comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
