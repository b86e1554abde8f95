"""Dashboards, alert policies and notification channels (upstream: `services/monitoring`), metrics of log entries and
exclusions (`services/logging`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.plugins.gcp.mapping import Field, Json, int64, renamed
from sandbox.plugins.gcp.resources.rest import Context, Inputs, Rest, Variables, named_errors
from sandbox.plugins.gcp.settings import Settings
from sandbox.plugins.provider import Change, ProviderError


@dataclass(frozen=True, kw_only=True)
class _NamedByApi(Rest):
    """The API makes the name, which is the id. It may have the project's number; the state keeps what the program
    wrote."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        found = super().variables(settings, {k: v for k, v in inputs.items() if k != "name"})
        return {"owner": found["project"], **found}

    def parse(self, settings: Settings, identity: str, known: Inputs | None = None) -> Variables:
        found = super().parse(settings, identity, known)
        owner = "" if found["owner"].isdigit() else found["owner"]
        return {**found, "project": str((known or {}).get("project") or owner or settings.project)}

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        with named_errors(f"Error creating {context.schema.title}"):
            identity = str(self.post(context, variables, inputs)["name"])
        named = self.parse(context.settings, identity, inputs)
        return identity, self.settled(context, identity, named, inputs)


@dataclass(frozen=True, kw_only=True)
class _Dashboard(_NamedByApi):
    """Its one property is the whole body. An update carries the etag of what it changes."""

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        try:
            return dict(json.loads(inputs["dashboardJson"]))
        except ValueError as error:
            raise ProviderError(f"dashboardJson is not valid JSON: {error}") from error

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        return {**values, "dashboardJson": json.dumps(found, separators=(",", ":"), sort_keys=True)}

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        variables = self.parse(context.settings, identity, news)
        etag = json.loads(olds["dashboardJson"])["etag"]
        with named_errors(f"Error updating {context.schema.title}"):
            what = f"{context.schema.title} to be updated"
            self.act(context, variables, "PATCH", "", what, {**self.body(context, variables, news), "etag": etag})
        return self.settled(context, identity, variables, news)


DASHBOARD = _Dashboard(
    type="gcp:monitoring/dashboard:Dashboard",
    api="monitoring",
    collection="v1/projects/{project}/dashboards",
    item="v1/projects/{owner}/dashboards/{number}",
    identity="projects/{owner}/dashboards/{number}",
)

ALERT_POLICY = _NamedByApi(
    type="gcp:monitoring/alertPolicy:AlertPolicy",
    api="monitoring",
    collection="v3/projects/{project}/alertPolicies",
    item="v3/projects/{owner}/alertPolicies/{number}",
    identity="projects/{owner}/alertPolicies/{number}",
    fields={
        "alertStrategy.notificationChannelStrategies": renamed("notificationChannelStrategy"),
        "conditions.conditionSql.rowCountTest.threshold": int64(),
        "creationRecords": Field("creationRecord", receive=lambda record: [record]),
    },
    masked=True,
)

NOTIFICATION_CHANNEL = _NamedByApi(
    type="gcp:monitoring/notificationChannel:NotificationChannel",
    api="monitoring",
    collection="v3/projects/{project}/notificationChannels",
    item="v3/projects/{owner}/notificationChannels/{number}",
    identity="projects/{owner}/notificationChannels/{number}",
    fields={"forceDelete": None},
    masked=True,
)


@dataclass(frozen=True, kw_only=True)
class _Metric(Rest):
    """Its id is its name alone, so the project is the resource's own."""

    def parse(self, settings: Settings, identity: str, known: Inputs | None = None) -> Variables:
        project = str((known or {}).get("project") or settings.project)
        return {**super().parse(settings, identity, known), "project": project}


METRIC = _Metric(
    type="gcp:logging/metric:Metric",
    api="logging",
    collection="projects/{project}/metrics",
    item="projects/{project}/metrics/{name}",
    identity="{name}",
    patches="PUT",
)

EXCLUSION = Rest(
    type="gcp:logging/projectExclusion:ProjectExclusion",
    api="logging",
    collection="projects/{project}/exclusions",
    item="projects/{project}/exclusions/{name}",
    masked=True,
)

ROWS = (ALERT_POLICY, DASHBOARD, EXCLUSION, METRIC, NOTIFICATION_CHANNEL)
