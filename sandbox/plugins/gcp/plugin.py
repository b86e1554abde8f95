"""The stand-in for `pulumi-resource-gcp`.

It stands for the real provider plugin, for the resource types in `resources.ROWS`: same checks, same plans, same HTTP
calls (as recorded from it). It differs in this: it refuses, by name, types, functions and inputs that the platform does
not use and that would need code of their own; it only ever talks to an emulator on this machine; it waits no longer
than the API takes (the real one pauses for propagation after creating accounts and policies); it does not batch calls;
outputs that the API leaves out are absent instead of zero.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.plugins.gcp import check, diff, labels, schema
from sandbox.plugins.gcp.schema import Property, Schema
from sandbox.plugins.gcp.settings import Settings, SettingsError, parse
from sandbox.plugins.provider import Change, Checked, Difference, ProviderError, State, Subject
from sandbox.plugins.values import UNKNOWN, Secret, has_unknown

if TYPE_CHECKING:
    import httpx

    from sandbox.plugins.gcp.client import Client
    from sandbox.plugins.gcp.resources.rest import Context, Rest

# The release of the SDK this project pins; its recordings and property table are from 9.35.
VERSION = "10.2.0"
# Where the table gives no default timeout (seconds), the Terraform SDK's own applies.
DEFAULT_TIMEOUT = 1200.0
Values = dict[str, Any]


class GcpProvider:
    """One plugin process: at most one configuration. `transport` replaces the network in tests."""

    name = "gcp"
    version = VERSION

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._transport = transport
        self._client: Client | None = None
        self._settings = Settings()
        self._cancelled = threading.Event()

    # --- configuration ----------------------------------------------------------------------------------------------

    def check_config(self, news: Values) -> Checked:
        try:
            parse(news)
        except SettingsError as error:
            return Checked(news, error.failures)
        return Checked(news)

    def diff_config(self, olds: Values, news: Values) -> Difference:
        return Difference([Change(k, "update") for k in sorted({*olds, *news}) if olds.get(k) != news.get(k)])

    def configure(self, inputs: Values) -> None:
        from sandbox.plugins.gcp.client import Client  # httpx is only needed from here on

        try:
            self._settings = parse(inputs)
        except SettingsError as error:
            raise ProviderError(str(error)) from error
        self._client = Client(self._settings, self._transport)
        if self._cancelled.is_set():
            self._client.cancel()

    def cancel(self) -> None:
        self._cancelled.set()
        if self._client is not None:
            self._client.cancel()

    # --- planning ---------------------------------------------------------------------------------------------------

    def check(self, subject: Subject, olds: Values, news: Values, seed: bytes) -> Checked:
        row, table = self._known(subject.type)
        checked = check.check(table, subject.name, olds, news, seed)
        return Checked(checked.inputs, [*checked.failures, *row.refused(olds, checked.inputs)])

    def diff(self, subject: Subject, olds: Values, news: Values, ignore: Sequence[str]) -> Difference:
        row, table = self._known(subject.type)
        planned = diff.diff(table, olds, news, row.rules, ignore)
        derived = list(labels.changes(table, self._settings, olds, news))
        ignored = labels.property_of(table) in ignore
        return Difference([*planned.changes, *([] if ignored else derived)], planned.delete_before_replace)

    # --- doing ------------------------------------------------------------------------------------------------------

    def create(self, subject: Subject, news: Values, timeout: float, preview: bool) -> State:
        row, table = self._known(subject.type)
        if preview:
            return State("", self._planned(table, news), news)
        identity, outputs = row.create(self._context(table, "create", timeout), news)
        return State(identity, _sealed(table, outputs), news)

    def read(self, subject: Subject, identity: str, inputs: Values, outputs: Values) -> State:
        row, table = self._known(subject.type)
        known = {**inputs, **outputs}
        found = row.read(self._context(table, "read", 0), identity, known)
        if found is None:
            return State("", {}, {})
        return State(str(found["id"]), _sealed(table, found), _refreshed(table.properties, inputs, found))

    def update(
        self,
        subject: Subject,
        identity: str,
        olds: Values,
        news: Values,
        ignore: Sequence[str],
        timeout: float,
        preview: bool,
    ) -> Mapping[str, Any]:
        row, table = self._known(subject.type)
        if preview:
            wanted = _with_kept_parts(table.properties, olds, _without_markers(news))
            return _sealed(table, {**olds, **wanted, **self._planned_labels(table, news)})
        changes = self.diff(subject, olds, news, ignore).changes
        outputs = row.update(self._context(table, "update", timeout), identity, olds, news, changes)
        return _sealed(table, outputs)

    def delete(self, subject: Subject, identity: str, outputs: Values, timeout: float) -> None:
        row, table = self._known(subject.type)
        if outputs.get("deletionPolicy") != "ABANDON":
            row.delete(self._context(table, "delete", timeout), identity, outputs)

    def invoke(self, token: str, arguments: Values) -> Mapping[str, Any]:
        from sandbox.plugins.gcp.invokes import invoke

        return invoke(self._connected(), token, arguments)

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _known(self, token: str) -> tuple[Rest, Schema]:
        from sandbox.plugins.gcp.resources import ROWS

        if token not in ROWS:
            raise ProviderError(f"the sandbox's gcp plugin does not know {token}; it knows {', '.join(sorted(ROWS))}")
        return ROWS[token], schema.of(token)

    def _connected(self) -> Client:
        if self._client is None:
            raise ProviderError("the gcp plugin is not configured")
        return self._client

    def _context(self, table: Schema, step: str, timeout: float) -> Context:
        from sandbox.plugins.gcp.client import Deadline
        from sandbox.plugins.gcp.resources.rest import Context

        return Context(self._connected(), table, Deadline(timeout or table.timeouts.get(step, DEFAULT_TIMEOUT)))

    def _planned(self, table: Schema, news: Values) -> Values:
        """What a resource that does not exist yet is going to be: its inputs, and unknown what the API decides."""
        given = _without_markers(news)
        computed = {n: UNKNOWN for n, p in table.properties.items() if p.computed and given.get(n) is None}
        return {**computed, **_with_unknown_parts(table.properties, given), **self._planned_labels(table, news)}

    def _planned_labels(self, table: Schema, news: Values) -> Values:
        if labels.property_of(table) is None:
            return {}
        wanted: Any = labels.wanted(table, self._settings, news)
        wanted = UNKNOWN if has_unknown(wanted) else Secret(wanted)
        return {labels.EFFECTIVE: wanted, labels.PULUMI: wanted}


def _without_markers(values: Values) -> Values:
    from sandbox.plugins.gcp.resources.rest import without_markers

    cleaned: Values = without_markers(values)
    return cleaned


def _with_unknown_parts(properties: Mapping[str, Property], given: Values) -> Values:
    """The given values, with the computed properties of their blocks unknown as well."""
    planned = dict(given)
    for name, each in properties.items():
        value = planned.get(name)
        if each.is_object and isinstance(value, dict):
            computed = {n: UNKNOWN for n, p in each.properties.items() if p.computed and value.get(n) is None}
            planned[name] = {**computed, **_with_unknown_parts(each.properties, value)}
    return planned


def _with_kept_parts(properties: Mapping[str, Property], olds: Values, given: Values) -> Values:
    """The given values, with what the API decided about their blocks as it is: an update keeps, say, an endpoint."""
    planned = dict(given)
    for name, each in properties.items():
        old, value = olds.get(name), planned.get(name)
        if each.is_object and isinstance(value, dict) and isinstance(old, dict):
            kept = {n: old[n] for n, p in each.properties.items() if p.computed and value.get(n) is None and n in old}
            planned[name] = {**kept, **_with_kept_parts(each.properties, old, value)}
    return planned


def _sealed(table: Schema, outputs: Values) -> Values:
    """The outputs with secrets marked: sensitive properties, and the derived label maps as upstream does."""
    hidden = {n for n, p in table.properties.items() if p.sensitive} | {labels.EFFECTIVE, labels.PULUMI}
    sealed = {k: Secret(v) if k in hidden and not isinstance(v, Secret) else v for k, v in outputs.items()}
    for name, each in table.properties.items():
        value = sealed.get(name)
        if each.is_object and isinstance(value, dict):
            inner = {k for k, p in each.properties.items() if p.sensitive}
            sealed[name] = {k: Secret(v) if k in inner else v for k, v in value.items()}
    return sealed


def _refreshed(properties: Mapping[str, Property], inputs: Values, outputs: Values) -> Values:
    """The inputs brought up to date with what was read; for an import, all inputs that have a value.

    Only what the program had set is taken over, so that what the API fills in does not become an input.
    """
    if not inputs:
        found = {n: outputs[n] for n, p in properties.items() if p.is_input and not diff.is_empty(outputs.get(n))}
        return {**found, check.DEFAULTS: []}
    refreshed: Values = {}
    for name, value in inputs.items():
        each = properties.get(name)
        now = outputs.get(name)
        if name == check.DEFAULTS or each is None:
            refreshed[name] = value
        elif each.is_object and isinstance(value, dict) and isinstance(now, dict):
            refreshed[name] = _refreshed(each.properties, value, now) if value else value
        elif now is not None and not _same(each, value, now):
            refreshed[name] = now
        elif now is not None or diff.is_empty(value):
            refreshed[name] = value
    return refreshed


def _same(each: Property, value: Any, now: Any) -> bool:
    return not list(diff.property_changes(each, value, now, ""))
