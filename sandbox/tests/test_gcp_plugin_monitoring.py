"""Types of monitoring, logging and budgets: names that the API makes, and how dashboards are compared."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from sandbox.plugins.gcp.dashboards import same
from sandbox.plugins.provider import ProviderError
from sandbox.tests.gcp_plugin_support import FakeGoogle, configured, plain_outputs, subject

DASHBOARD, POLICY = "gcp:monitoring/dashboard:Dashboard", "gcp:monitoring/alertPolicy:AlertPolicy"
BUDGET = "gcp:billing/budget:Budget"
METRIC, EXCLUSION = "gcp:logging/metric:Metric", "gcp:logging/projectExclusion:ProjectExclusion"
BOARD = {"displayName": "d", "gridLayout": {"widgets": [{"title": "a"}, {"title": "b"}]}}
READ = {**BOARD, "name": "projects/1/dashboards/x", "etag": "e"}


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (BOARD, READ, True),
        (BOARD, {**READ, "labels": {"a": ""}}, True),
        (BOARD, {**BOARD, "gridLayout": {"widgets": [{"title": "a", "id": "1"}, {"title": "b"}]}}, True),
        ({**BOARD, "name": "projects/p/dashboards/x"}, READ, False),
        ({**BOARD, "gridLayout": {"widgets": [{"title": "a"}, {"title": "b"}], "columns": "0"}}, READ, False),
        ({**BOARD, "gridLayout": {"widgets": [{"title": "a"}]}}, READ, False),
        ({**BOARD, "displayName": "e"}, READ, False),
    ],
)
def test_what_only_the_api_has_is_no_change(new: Any, old: Any, expected: bool) -> None:
    assert same(json.dumps(new), json.dumps(old)) is expected


def test_a_dashboard_is_named_by_the_api_and_updated_with_its_etag() -> None:
    google = FakeGoogle()
    provider = configured(google)
    inputs = {"dashboardJson": json.dumps(BOARD), "project": "other"}
    made = provider.create(subject(DASHBOARD, "d"), inputs, 0, False)
    outputs = plain_outputs(made.outputs)
    assert made.id == "projects/other/dashboards/1000"
    assert outputs["project"] == "other"
    assert provider.diff(subject(DASHBOARD, "d"), outputs, inputs, []).changes == []
    changed = {**inputs, "dashboardJson": json.dumps({**BOARD, "displayName": "new"})}
    provider.update(subject(DASHBOARD, "d"), made.id, outputs, changed, [], 0, False)
    [sent] = [call for call in google.calls if call["method"] == "PATCH"]
    assert sent["path"] == "/monitoring/v1/projects/other/dashboards/1000"
    assert sent["body"] == {**BOARD, "displayName": "new", "etag": "1"}


def test_a_dashboard_that_is_no_json_is_refused() -> None:
    with pytest.raises(ProviderError, match="is not valid JSON"):
        configured(FakeGoogle()).create(subject(DASHBOARD, "d"), {"dashboardJson": "{", "project": "proj"}, 0, False)


def test_an_alert_policy_is_changed_by_its_mask() -> None:
    google = FakeGoogle()
    provider = configured(google)
    inputs = {"displayName": "p", "combiner": "OR", "conditions": [{"displayName": "c"}], "project": "proj"}
    made = provider.create(subject(POLICY, "p"), inputs, 0, False)
    outputs = plain_outputs(made.outputs)
    provider.update(subject(POLICY, "p"), made.id, outputs, {**inputs, "severity": "ERROR"}, [], 0, False)
    [sent] = [call for call in google.calls if call["method"] == "PATCH"]
    assert sent["query"] == "updateMask=severity"
    assert sent["body"] == {"severity": "ERROR"}


def test_a_metric_is_put_whole_and_an_exclusion_patched() -> None:
    google = FakeGoogle()
    provider = configured(google)
    for token, name in ((METRIC, "m"), (EXCLUSION, "x")):
        inputs = {"name": name, "filter": "a", "project": "other"}
        made = provider.create(subject(token, name), inputs, 0, False)
        changed = {**inputs, "description": "d"}
        outputs = provider.update(subject(token, name), made.id, plain_outputs(made.outputs), changed, [], 0, False)
        assert plain_outputs(outputs)["project"] == "other"
        assert provider.read(subject(token, name), made.id, changed, plain_outputs(outputs)).id == made.id
        provider.delete(subject(token, name), made.id, plain_outputs(outputs), 0)
    [put] = [call for call in google.calls if call["method"] == "PUT"]
    [patch] = [call for call in google.calls if call["method"] == "PATCH"]
    assert put["path"] == "/logging/v2/projects/other/metrics/m"
    assert put["body"] == {"name": "m", "filter": "a", "description": "d"}
    assert patch["path"] == "/logging/v2/projects/other/exclusions/x"
    assert patch["body"] == {"description": "d"}


def test_a_budget_is_named_by_the_api_and_changed_by_its_mask() -> None:
    google = FakeGoogle()
    provider = configured(google)
    inputs = {
        "billingAccount": "01ABCD-23EF45-678901",
        "amount": {"specifiedAmount": {"units": "100"}},
        "budgetFilter": {"calendarPeriod": "MONTH", "labels": {"team": "a"}},
        "allUpdatesRule": {"monitoringNotificationChannels": ["projects/proj/notificationChannels/1"]},
    }
    made = provider.create(subject(BUDGET, "b"), inputs, 0, False)
    outputs = plain_outputs(made.outputs)
    assert made.id == "billingAccounts/01ABCD-23EF45-678901/budgets/1000"
    assert (outputs["name"], outputs["budgetFilter"]["labels"]) == ("1000", {"team": "a"})
    [post] = [call for call in google.calls if call["method"] == "POST"]
    assert post["body"]["budgetFilter"]["labels"] == {"team": ["a"]}
    assert post["body"]["notificationsRule"] == inputs["allUpdatesRule"]
    assert provider.diff(subject(BUDGET, "b"), outputs, inputs, []).changes == []
    changed = {**inputs, "amount": {"specifiedAmount": {"units": "200"}}}
    provider.update(subject(BUDGET, "b"), made.id, outputs, changed, [], 0, False)
    [sent] = [call for call in google.calls if call["method"] == "PATCH"]
    fields = ("currencyCode", "units", "nanos")
    assert sent["query"] == "updateMask=" + "%2C".join(f"amount.specifiedAmount.{field}" for field in fields)
    imported = provider.read(subject(BUDGET, "b"), made.id, {}, {})
    assert plain_outputs(imported.outputs)["billingAccount"] == "01ABCD-23EF45-678901"
    moved = {**inputs, "billingAccount": "098765-FEDCBA-123456"}
    assert provider.diff(subject(BUDGET, "b"), outputs, moved, []).replaces
    provider.delete(subject(BUDGET, "b"), made.id, outputs, 0)
    assert [call["path"] for call in google.calls if call["method"] == "DELETE"] == [f"/budgets/v1/{made.id}"]


def test_calls_use_the_quota_of_the_project_that_is_named() -> None:
    google, payers = FakeGoogle(), []

    def answer(request: httpx.Request) -> httpx.Response:
        payers.append(request.headers.get("x-goog-user-project"))
        return google.handle_request(request)

    inputs = {"dashboardJson": json.dumps(BOARD), "project": "proj"}
    overrides: list[dict[str, str]] = [
        {},
        {"userProjectOverride": "true"},
        {"userProjectOverride": "true", "billingProject": "payer"},
    ]
    for settings in overrides:
        provider = configured(httpx.MockTransport(answer), **settings)
        provider.create(subject(DASHBOARD, "d"), inputs, 0, False)
    assert payers == [None, None, "proj", "proj", "payer", "payer"]
