"""Budgets of billing accounts (upstream: `services/billing`).

Differs from upstream: a budget whose `calendarPeriod` is left out shows a change from MONTH, which the API fills in.
An update sends what changed, and not also what stays. Custom periods are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.plugins.gcp import links
from sandbox.plugins.gcp.mapping import Field, Json, renamed
from sandbox.plugins.gcp.resources.rest import Context, Inputs, Rest, Variables, named_errors

_FILTERS = (
    "projects",
    "resourceAncestors",
    "labels",
    "calendarPeriod",
    "customPeriod",
    "services",
    "creditTypesTreatment",
    "creditTypes",
    "subaccounts",
)
_NOTICES = (
    "pubsubTopic",
    "schemaVersion",
    "monitoringNotificationChannels",
    "disableDefaultIamRecipients",
    "enableProjectLevelRecipients",
)
# What upstream names in the mask where a part of the body has changed; other parts are named whole.
MASKS = {
    "amount": tuple(f"amount.specifiedAmount.{field}" for field in ("currencyCode", "units", "nanos")),
    "budgetFilter": tuple(f"budgetFilter.{field}" for field in _FILTERS),
    "notificationsRule": tuple(f"notificationsRule.{field}" for field in _NOTICES),
}


@dataclass(frozen=True, kw_only=True)
class _Budget(Rest):
    """The API makes the name, whose last word is the state's."""

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        variables = self.variables(context.settings, inputs)
        with named_errors(f"Error creating {context.schema.title}"):
            made = self.post(context, variables, inputs)
        variables = {**variables, "name": links.last(str(made["name"]))}
        identity = self.id(variables)
        return identity, self.settled(context, identity, variables, inputs)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        values = super().outputs(context, identity, variables, found, known)
        return {**values, "name": links.last(str(found["name"]))}

    def _patch(self, context: Context, variables: Variables, rest: Json, olds: Inputs) -> None:
        mask = ",".join(name for part in sorted(rest) for name in MASKS.get(part, (part,)))
        with named_errors(f"Error updating {context.schema.title}"):
            what = f"{context.schema.title} to be updated"
            self.act(context, variables, "PATCH", "", what, rest, {"updateMask": mask})


BUDGET = _Budget(
    type="gcp:billing/budget:Budget",
    api="budgets",
    collection="billingAccounts/{billingAccount}/budgets",
    item="billingAccounts/{billingAccount}/budgets/{name}",
    fields={
        "allUpdatesRule": renamed("notificationsRule"),
        "amount.lastPeriodAmount": Field(send=lambda on: {} if on else None, receive=lambda _found: True),
        "billingAccount": None,
        # One value for a key, which the API has as a list.
        "budgetFilter.labels": Field(
            send=lambda labels: {key: [value] for key, value in labels.items()},
            receive=lambda labels: {key: values[-1] for key, values in labels.items()},
        ),
    },
)

ROWS = (BUDGET,)
