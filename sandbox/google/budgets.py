"""Cloud Billing budgets (v1). Nothing is billed, and nobody is told.

Rules: the API names what is made. A budget has an amount in the currency of its billing account, at most one label with
one value, and at most five notification channels, which exist and are of type email. Projects come back by their
number, whatever they were named by. Left out, the period is a month, credits are taken off, and thresholds are of what
was spent. Differences from Google: every account of the right form exists, and its currency is USD; spend caps and
custom periods are refused; the permissions on a project that single-project budgets can also do with are not known.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from sandbox.google.default_values import without_defaults
from sandbox.google.errors import GoogleError, invalid, not_found
from sandbox.google.monitoring import CHANNELS
from sandbox.google.project_numbers import project_number
from sandbox.google.service import Call, dig, filled, fingerprint, handles, new_id
from sandbox.google.store import Resource

BUDGETS = "billingbudgets.budgets"
ACCOUNT = re.compile(r"[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}")
CURRENCY = "USD"
LONGEST_NAME, MOST_CHANNELS = 60, 5
UNSERVED = ("spendCap", "budgetFilter.customPeriod")
_DEFAULTS = {"budgetFilter": {"calendarPeriod": "MONTH", "creditTypesTreatment": "INCLUDE_ALL_CREDITS"}}
_METHODS = "billingbudgets.billingAccounts.budgets"
_SCHEMA = "GoogleCloudBillingBudgetsV1Budget"


def _account(call: Call) -> str:
    account = call.params["billingAccountsId"]
    if not ACCOUNT.fullmatch(account):
        raise invalid(f"Invalid billing account ID: {account}.")
    return f"billingAccounts/{account}"


def _budget(call: Call) -> Resource:
    name = f"{_account(call)}/budgets/{call.params['budgetsId']}"
    found = call.store.get(BUDGETS, name)
    if found is None:
        raise not_found(name)
    return found


def _check(call: Call, budget: Resource) -> None:
    for field in UNSERVED:
        if dig(budget, *field.split(".")) is not None:
            raise GoogleError("UNIMPLEMENTED", f"The emulator has no {field} of budgets.")
    if len(budget.get("displayName", "")) > LONGEST_NAME:
        raise invalid(f"display_name must have at most {LONGEST_NAME} characters.")
    _check_amount(budget.get("amount") or {})
    _check_labels(dig(budget, "budgetFilter", "labels") or {})
    for rule in budget.get("thresholdRules") or ():
        if rule.get("thresholdPercent", 0) < 0:
            raise invalid("threshold_percent must not be negative.")
    _check_told(call, budget.get("notificationsRule") or {})


def _check_amount(amount: Resource) -> None:
    if len(amount) != 1:
        raise invalid("amount must have exactly one of specified_amount and last_period_amount.")
    given = amount.get("specifiedAmount")
    if given is None:
        return
    if given.get("currencyCode", CURRENCY) != CURRENCY:
        raise invalid(f"currency_code must match the currency of the billing account, which is {CURRENCY}.")
    if int(given.get("units", 0)) < 0 or int(given.get("nanos", 0)) < 0:
        raise invalid("specified_amount must not be negative.")


def _check_labels(labels: Resource) -> None:
    if len(labels) > 1 or any(len(values) != 1 for values in labels.values()):
        raise invalid("labels must have a single key with a single value.")


def _check_told(call: Call, told: Resource) -> None:
    channels = told.get("monitoringNotificationChannels") or []
    if len(channels) > MOST_CHANNELS:
        raise invalid(f"At most {MOST_CHANNELS} monitoring_notification_channels are allowed.")
    for name in channels:
        if (call.store.get(CHANNELS, name) or {}).get("type") != "email":
            raise invalid(f"{name} is not an email notification channel that exists.")
    if told.get("pubsubTopic") and told.get("schemaVersion") != "1.0":
        raise invalid('schema_version must be "1.0" where there is a pubsub_topic.')


def _stored(call: Call, budget: Resource) -> Resource:
    _check(call, budget)
    kept = filled(budget, _DEFAULTS)
    scope = kept["budgetFilter"]
    if scope.get("projects"):
        kept = {**kept, "budgetFilter": {**scope, "projects": [_by_number(project) for project in scope["projects"]]}}
    if given := dig(kept, "amount", "specifiedAmount"):
        kept = {**kept, "amount": {"specifiedAmount": {"currencyCode": CURRENCY, **given}}}
    basis = {"spendBasis": "CURRENT_SPEND"}
    kept = {**kept, "thresholdRules": [{**basis, **rule} for rule in kept.get("thresholdRules") or ()]}
    kept = without_defaults(call.route.document, _SCHEMA, kept)
    kept["etag"] = fingerprint({**kept, "version": new_id()})
    call.store.put(BUDGETS, kept["name"], kept)
    return kept


def _by_number(project: str) -> str:
    kind, _, name = project.partition("/")
    if kind != "projects" or not name:
        raise invalid(f"Invalid project: {project}; the form is projects/PROJECT.")
    return project if name.isdigit() else f"projects/{project_number(name)}"


def _masked(old: Resource, body: Resource, mask: str) -> Resource:
    """The old budget with the fields of the mask as the body has them; all fields where there is no mask."""
    if not mask:
        return {**body, "name": old["name"]}
    changed: Resource = {key: value for key, value in old.items() if key != "etag"}
    for field in mask.split(","):
        changed = _with(changed, field.split("."), dig(body, *field.split(".")))
    return changed


def _with(holder: Resource, path: list[str], value: Any) -> Resource:
    """A copy with a value at a path; without the field for None."""
    first, *rest = path
    inner = _with(holder.get(first) or {}, rest, value) if rest else value
    others = {key: each for key, each in holder.items() if key != first}
    return others if inner is None or (rest and not inner) else {**others, first: inner}


@handles(f"{_METHODS}.create")
def create_budget(call: Call) -> Resource:
    return _stored(call, {**call.body, "name": f"{_account(call)}/budgets/{uuid.uuid4()}"})


@handles(f"{_METHODS}.get")
def get_budget(call: Call) -> Resource:
    return _budget(call)


@handles(f"{_METHODS}.list")
def list_budgets(call: Call) -> Resource:
    return {"budgets": list(call.store.all(BUDGETS, f"{_account(call)}/").values())}


@handles(f"{_METHODS}.patch")
def change_budget(call: Call) -> Resource:
    old = _budget(call)
    if call.body.get("etag", old["etag"]) != old["etag"]:
        raise GoogleError("ABORTED", "The etag of the budget does not match: somebody else changed it.")
    return _stored(call, _masked(old, call.body, call.query.get("updateMask", "")))


@handles(f"{_METHODS}.delete")
def delete_budget(call: Call) -> Resource:
    call.store.put(BUDGETS, _budget(call)["name"], None)
    return {}
