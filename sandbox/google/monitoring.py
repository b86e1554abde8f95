"""Cloud Monitoring: dashboards (v1), alert policies and notification channels (v3). Nothing is evaluated or sent.

Rules: the API names what is made, by a number; a dashboard's name has the number of the project. A dashboard has one
layout, whose tiles lie within its columns and do not overlap. A policy has one to six conditions, names channels that
exist, and PromQL conditions are evaluated every so many times 30 seconds. A channel that a policy names is deleted only
by force. Answers lack fields with default values (`default_values.py`). Differences from Google: queries are not read;
e-mail addresses are not verified.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

from sandbox.google.default_values import without_defaults
from sandbox.google.errors import GoogleError, invalid, precondition
from sandbox.google.operations import now
from sandbox.google.project_numbers import project_number
from sandbox.google.service import Call, dig, fingerprint, handles, new_id
from sandbox.google.store import Resource

DASHBOARDS, POLICIES, CHANNELS = "monitoring.dashboards", "monitoring.alertPolicies", "monitoring.notificationChannels"
LAYOUTS = ("gridLayout", "mosaicLayout", "rowLayout", "columnLayout")
MOST_COLUMNS, MOST_CONDITIONS = 48, 6
# The label that a channel of each type must have (Cloud Monitoring, notification channel descriptors).
CHANNEL_LABELS = {
    "email": "email_address",
    "google_chat": "space",
    "pagerduty": "service_key",
    "pubsub": "topic",
    "slack": "channel_name",
    "sms": "number",
    "webhook_basicauth": "url",
    "webhook_tokenauth": "url",
}
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
USER_LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_DASHBOARDS = "monitoring.projects.dashboards"
_POLICIES, _CHANNELS = "monitoring.projects.alertPolicies", "monitoring.projects.notificationChannels"


def _shown(call: Call, schema: str, value: Resource) -> Resource:
    return without_defaults(call.route.document, schema, value)


def _masked(call: Call, old: Resource) -> Resource:
    """The old object with the fields of the mask, or all of the body's, as the body has them."""
    mask = [field for field in call.query.get("updateMask", "").split(",") if field]
    if not mask:
        return {**call.body, "name": old["name"]}
    changed = {key: value for key, value in old.items() if key not in mask}
    return {**changed, **{key: call.body[key] for key in mask if key in call.body}, "name": old["name"]}


def _check_labels(labels: Resource) -> None:
    for key in labels:
        if not USER_LABEL.fullmatch(key):
            raise invalid(
                f'Field userLabels had an invalid value of "{key}": keys are lower case and begin with a letter.'
            )


# --- dashboards -------------------------------------------------------------------------------------------------------


def _dashboard(call: Call) -> Resource:
    name = f"projects/{_number(call)}/dashboards/{call.params['dashboardsId']}"
    found = call.store.get(DASHBOARDS, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"Requested entity was not found: {name}.")
    return found


def _number(call: Call) -> str:
    """The number of the project, which a URL may name instead of its id."""
    return call.project if call.project.isdigit() else project_number(call.project)


def _tiles(layout: Resource) -> Iterator[tuple[int, int, int, int]]:
    for tile in layout.get("tiles", ()):
        yield tuple(int(tile.get(key, 0)) for key in ("xPos", "yPos", "width", "height"))  # type: ignore[misc]


def _check_dashboard(body: Resource) -> None:
    if not body.get("displayName"):
        raise invalid("Field displayName is required and cannot be empty.")
    if sum(layout in body for layout in LAYOUTS) != 1:
        raise invalid(f"A dashboard has exactly one of {', '.join(LAYOUTS)}.")
    if "mosaicLayout" not in body:
        return
    columns = int(body["mosaicLayout"].get("columns", 0))
    if not 1 <= columns <= MOST_COLUMNS:
        raise invalid(f"Field mosaicLayout.columns had an invalid value of {columns}: 1 to {MOST_COLUMNS}.")
    taken: dict[tuple[int, int], int] = {}
    for index, (x, y, width, height) in enumerate(_tiles(body["mosaicLayout"])):
        where = f"mosaicLayout.tiles[{index}]"
        if width < 1 or height < 1 or x < 0 or y < 0 or x + width > columns:
            raise invalid(f"Field {where} does not lie within the {columns} columns.")
        for cell in ((column, row) for column in range(x, x + width) for row in range(y, y + height)):
            if cell in taken:
                raise invalid(f"Field {where} overlaps mosaicLayout.tiles[{taken[cell]}].")
            taken[cell] = index


@handles(f"{_DASHBOARDS}.create")
def create_dashboard(call: Call) -> Resource:
    _check_dashboard(call.body)
    wanted = str(call.body.get("name", "")).rsplit("/", 1)[-1] or str(uuid.uuid4())
    name = f"projects/{_number(call)}/dashboards/{wanted}"
    if call.store.get(DASHBOARDS, name):
        raise GoogleError("ALREADY_EXISTS", f"Dashboard {name} already exists.")
    return _stored_dashboard(call, name)


def _stored_dashboard(call: Call, name: str) -> Resource:
    kept = _shown(call, "Dashboard", {**call.body, "name": name, "etag": ""})
    kept["etag"] = fingerprint({**kept, "version": new_id()})
    if call.query.get("validateOnly") != "true":
        call.store.put(DASHBOARDS, name, kept)
    return kept


@handles(f"{_DASHBOARDS}.get")
def get_dashboard(call: Call) -> Resource:
    return _dashboard(call)


@handles(f"{_DASHBOARDS}.list")
def list_dashboards(call: Call) -> Resource:
    return {"dashboards": list(call.store.all(DASHBOARDS, f"projects/{_number(call)}/").values())}


@handles(f"{_DASHBOARDS}.patch")
def change_dashboard(call: Call) -> Resource:
    old = _dashboard(call)
    _check_dashboard(call.body)
    if call.body.get("etag", old["etag"]) != old["etag"]:
        raise GoogleError("ABORTED", "The etag of the dashboard does not match: somebody else changed it.")
    return _stored_dashboard(call, old["name"])


@handles(f"{_DASHBOARDS}.delete")
def delete_dashboard(call: Call) -> Resource:
    call.store.put(DASHBOARDS, _dashboard(call)["name"], None)
    return {}


# --- notification channels --------------------------------------------------------------------------------------------


def _channel(call: Call) -> Resource:
    name = f"projects/{call.project}/notificationChannels/{call.params['notificationChannelsId']}"
    found = call.store.get(CHANNELS, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"Cannot find notification channel with name={name}.")
    return found


def _check_channel(body: Resource) -> None:
    label = CHANNEL_LABELS.get(body.get("type", ""))
    if label is None:
        raise invalid(f'Field notification_channel.type had an invalid value of "{body.get("type", "")}".')
    value = str((body.get("labels") or {}).get(label, ""))
    if not value or (body["type"] == "email" and not ADDRESS.fullmatch(value)):
        raise invalid(f'Field notification_channel.labels["{label}"] had an invalid value of "{value}".')
    _check_labels(body.get("userLabels") or {})


@handles(f"{_CHANNELS}.create")
def create_channel(call: Call) -> Resource:
    _check_channel(call.body)
    name = f"projects/{call.project}/notificationChannels/{new_id()}"
    made = {"enabled": True, **call.body, "name": name, "creationRecord": {"mutateTime": now()}}
    kept = _shown(call, "NotificationChannel", {**made, "mutationRecords": [{"mutateTime": now()}]})
    call.store.put(CHANNELS, name, kept)
    return kept


@handles(f"{_CHANNELS}.get")
def get_channel(call: Call) -> Resource:
    return _channel(call)


@handles(f"{_CHANNELS}.list")
def list_channels(call: Call) -> Resource:
    return {"notificationChannels": list(call.store.all(CHANNELS, f"projects/{call.project}/").values())}


@handles(f"{_CHANNELS}.patch")
def change_channel(call: Call) -> Resource:
    changed = _masked(call, _channel(call))
    _check_channel(changed)
    kept = _shown(call, "NotificationChannel", changed)
    call.store.put(CHANNELS, kept["name"], kept)
    return kept


@handles(f"{_CHANNELS}.delete")
def delete_channel(call: Call) -> Resource:
    name = _channel(call)["name"]
    users = [
        policy
        for policy in call.store.all(POLICIES, f"projects/{call.project}/").values()
        if name in policy.get("notificationChannels", ())
    ]
    if users and call.query.get("force") != "true":
        raise precondition(f"Cannot delete {name}: alerting policy {users[0]['name']} names it.")
    for policy in users:
        left = [each for each in policy["notificationChannels"] if each != name]
        others = {key: value for key, value in policy.items() if key != "notificationChannels"}
        call.store.put(POLICIES, policy["name"], {**others, **({"notificationChannels": left} if left else {})})
    call.store.put(CHANNELS, name, None)
    return {}


# --- alert policies ---------------------------------------------------------------------------------------------------


def _policy(call: Call) -> Resource:
    name = f"projects/{call.project}/alertPolicies/{call.params['alertPoliciesId']}"
    found = call.store.get(POLICIES, name)
    if found is None:
        raise GoogleError("NOT_FOUND", f"Cannot find alert policy with name={name}.")
    return found


def _check_policy(call: Call, body: Resource) -> None:
    if not body.get("displayName"):
        raise invalid("Field alert_policy.display_name is required.")
    conditions = body.get("conditions") or []
    if not 1 <= len(conditions) <= MOST_CONDITIONS:
        raise invalid(f"Field alert_policy.conditions must have 1 to {MOST_CONDITIONS} conditions.")
    if body.get("combiner", "COMBINE_UNSPECIFIED") == "COMBINE_UNSPECIFIED":
        raise invalid("Field alert_policy.combiner is required.")
    for index, condition in enumerate(conditions):
        _check_condition(f"alert_policy.conditions[{index}]", condition)
    for name in body.get("notificationChannels") or ():
        if call.store.get(CHANNELS, name) is None:
            raise invalid(
                f'Field alert_policy.notification_channels had an invalid value of "{name}": no such channel.'
            )
    _check_labels(body.get("userLabels") or {})


def _check_condition(where: str, condition: Resource) -> None:
    kinds = [key for key in condition if key.startswith("condition")]
    if len(kinds) != 1:
        raise invalid(f"Field {where} must have exactly one kind of condition.")
    promql = condition.get("conditionPrometheusQueryLanguage")
    if promql is None:
        return
    if not promql.get("query"):
        raise invalid(f"Field {where}.condition_prometheus_query_language.query must not be empty.")
    interval = _seconds(promql.get("evaluationInterval", "30s"))
    if interval <= 0 or interval % 30:
        raise invalid(
            f"Field {where}.condition_prometheus_query_language.evaluation_interval: a multiple of 30 seconds."
        )


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def _with_names(policy: Resource, old: Resource) -> Resource:
    """The policy with a name for each condition; one that stays in its place keeps its name."""
    before = [condition["name"] for condition in old.get("conditions", ())]
    conditions: list[dict[str, Any]] = []
    for index, condition in enumerate(policy["conditions"]):
        kept = condition.get("name") or (before[index] if index < len(before) else "")
        conditions.append({**condition, "name": kept or f"{policy['name']}/conditions/{new_id()}"})
    return {**policy, "conditions": conditions}


def _stored_policy(call: Call, policy: Resource, old: Resource) -> Resource:
    _check_policy(call, policy)
    documentation = dig(policy, "documentation")
    if documentation:
        policy = {**policy, "documentation": {"mimeType": "text/markdown", **documentation}}
    kept = _shown(call, "AlertPolicy", _with_names({**policy, "mutationRecord": {"mutateTime": now()}}, old))
    call.store.put(POLICIES, kept["name"], kept)
    return kept


@handles(f"{_POLICIES}.create")
def create_policy(call: Call) -> Resource:
    name = f"projects/{call.project}/alertPolicies/{new_id()}"
    made = {"enabled": True, **call.body, "name": name, "creationRecord": {"mutateTime": now()}}
    return _stored_policy(call, made, {})


@handles(f"{_POLICIES}.get")
def get_policy(call: Call) -> Resource:
    return _policy(call)


@handles(f"{_POLICIES}.list")
def list_policies(call: Call) -> Resource:
    return {"alertPolicies": list(call.store.all(POLICIES, f"projects/{call.project}/").values())}


@handles(f"{_POLICIES}.patch")
def change_policy(call: Call) -> Resource:
    old = _policy(call)
    return _stored_policy(call, {"creationRecord": old["creationRecord"], **_masked(call, old)}, old)


@handles(f"{_POLICIES}.delete")
def delete_policy(call: Call) -> Resource:
    call.store.put(POLICIES, _policy(call)["name"], None)
    return {}
