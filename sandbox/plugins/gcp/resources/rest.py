"""The plain REST life cycle (POST, GET, PATCH, DELETE, operations) that most resource types share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sandbox.plugins.gcp import labels, links
from sandbox.plugins.gcp.check import DEFAULTS
from sandbox.plugins.gcp.client import (
    DONE,
    Cancelled,
    Client,
    Deadline,
    operation_failure,
)
from sandbox.plugins.gcp.diff import Rule
from sandbox.plugins.gcp.mapping import Field, Fields, Json, from_rest, get, merged, put, to_rest
from sandbox.plugins.gcp.schema import Property, Schema
from sandbox.plugins.gcp.settings import Settings
from sandbox.plugins.provider import Change, Failure, InitializationFailed, ProviderError

Inputs = Mapping[str, Any]
Variables = dict[str, str]

# Where a resource lives is part of its URL, not of its body.
PLACES = ("project", "region", "zone", "location")
# Provider-only properties that any type may have.
COMMON: Fields = {"deletionPolicy": None, "effectiveLabels": None, "pulumiLabels": None, "timeouts": None}


@dataclass(frozen=True)
class Context:
    """One call of the engine: the connection, the resource's schema and the time it may take."""

    client: Client
    schema: Schema
    deadline: Deadline

    @property
    def settings(self) -> Settings:
        return self.client.settings


@dataclass(frozen=True)
class Setter:
    """An update that has a method of its own: `properties` are the top-level properties it covers.

    `body` gets the new inputs, the REST object they make and the resource's current outputs.
    """

    properties: tuple[str, ...]
    method: str
    suffix: str
    body: Callable[[Inputs, Json, Inputs], Json | None]
    query: Callable[[Inputs], Mapping[str, str]] = lambda _inputs: {}


@dataclass(frozen=True, kw_only=True)
class Rest:
    """A resource type. `collection` is the URL to POST to, in terms of `variables`; `item` that of one resource.

    `fields`: properties whose REST name or form differs. `always`: sent even if the program does not set it, under what
    it sets. `identity`: the resource id, by default `item`. `rules`: replacements decided in provider code.
    `patches`: the method for what no setter covers, empty where nothing else can be updated; PATCH sends what changed,
    PUT the whole body. `place`: the property in PLACES that is also sent, as the link that the generated code of the
    provider makes of it. `fingerprinted`: it carries the fingerprint that was read. `guards`: properties that, while
    true, forbid deletion.
    """

    type: str
    api: str
    collection: str
    item: str
    identity: str = ""
    fields: Mapping[str, Field | None] = field(default_factory=dict)
    always: Json = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    setters: Sequence[Setter] = ()
    place: str = ""
    patches: str = "PATCH"
    masked: bool = False
    fingerprinted: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    create_query: Mapping[str, str] = field(default_factory=dict)
    guards: tuple[str, ...] = ()
    outputs_from: Mapping[str, Callable[[Variables, Json], Any]] = field(default_factory=dict)

    # --- where a resource lives -------------------------------------------------------------------------------------

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        """What the URL templates need. Raises ProviderError for a place that neither program nor configuration sets."""
        values = {k: str(v) for k, v in inputs.items() if isinstance(v, str | int)}
        zone = links.last(values.get("zone") or settings.zone)
        region = links.last(values.get("region") or settings.region or zone.rpartition("-")[0])
        known = {
            **values,
            "project": values.get("project") or settings.project,
            "zone": zone,
            "region": region,
            "location": values.get("location") or region or zone,
        }
        for name in self._placeholders():
            if links.is_link(known.get(name, "")):
                known[name] = links.last(known[name])
            if not known.get(name):
                raise ProviderError(f"{name}: required field is not set; set it on the resource or as gcp:{name}")
        return known

    def _placeholders(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.collection)

    def id(self, variables: Variables) -> str:
        return (self.identity or self.item).format(**variables)

    def parse(self, settings: Settings, identity: str, known: Inputs | None = None) -> Variables:
        """The variables of an id, in any form the real provider imports: full, short, or without project.

        `known` are inputs or outputs that say what an id does not.
        """
        template = self.identity or self.item
        names = list(dict.fromkeys(re.findall(r"{(\w+)}", template)))
        forms = [template, "/".join(f"{{{n}}}" for n in names)]
        forms += [form.replace("{project}/", "", 1) for form in forms[1:]]
        for form in forms:
            pattern = re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", re.sub(r"([.$?])", r"\\\1", form))
            # The last name may hold slashes (role, member); the others may not.
            pattern = re.sub(r"\[\^/\]\+\)$", ".+)", pattern) if form == template and "member" in names else pattern
            if match := re.fullmatch(pattern, links.relative(identity)):
                return self.variables(settings, {**_texts(known or {}), **match.groupdict()})
        raise ProviderError(f"invalid id {identity!r} for {self.type}: write {template}")

    # --- what the provider refuses by itself ------------------------------------------------------------------------

    def refused(self, olds: Inputs, inputs: Inputs) -> Iterator[Failure]:
        """What the type's own code refuses before anything is sent, beside what its table of properties says.

        `olds` are the inputs of the resource as it is, none for a new one.
        """
        return iter(())

    # --- the life cycle ---------------------------------------------------------------------------------------------

    def create(self, context: Context, inputs: Inputs) -> tuple[str, Json]:
        """Create the resource and wait for it; its id and outputs."""
        variables = self.variables(context.settings, inputs)
        identity = self.id(variables)
        with named_errors(f"Error creating {context.schema.title}"):
            operation = self.post(context, variables, inputs)
        with kept_if_it_exists(self, context, identity, inputs, f"Error creating {context.schema.title}"):
            self.wait(context, variables, operation, f"{context.schema.title} to be created")
            return identity, self.settled(context, identity, variables, inputs)

    def post(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        """Send the create call; the operation (or the resource, where creating takes no operation)."""
        query = {k: v.format(**variables) for k, v in self.create_query.items()}
        url = self.collection.format(**variables)
        return context.client.call(
            "POST", self.api, url, context.deadline, self.body(context, variables, inputs), query
        )

    def settled(self, context: Context, identity: str, variables: Variables, inputs: Inputs) -> Json:
        """The outputs right after create or update."""
        found = self.fetch(context, variables)
        if found is None:
            raise ProviderError(f"{context.schema.title} {identity} was created but cannot be read")
        return self.outputs(context, identity, variables, found, inputs)

    def read(self, context: Context, identity: str, known: Inputs) -> Json | None:
        """The outputs once no change is under way, None if the resource is gone. `known`: inputs or older outputs."""
        return self.snapshot(context, identity, known)

    def snapshot(self, context: Context, identity: str, known: Inputs) -> Json | None:
        """The outputs at this moment, None if the resource does not exist."""
        variables = self.parse(context.settings, identity, known)
        found = self.fetch(context, variables)
        return None if found is None else self.outputs(context, self.id(variables), variables, found, known)

    def update(self, context: Context, identity: str, olds: Inputs, news: Inputs, changes: Sequence[Change]) -> Json:
        """Bring the resource in line with `news`: one PATCH, then a call for each setter concerned.

        In this order, as the provider does: a setter such as `resize` gives the resource another fingerprint, and PATCH
        carries the one that was read (upstream: `resourceComputeInstanceGroupManagerUpdate`).
        """
        variables = self.parse(context.settings, identity, news)
        changed = {c.top for c in changes}
        body = self.body(context, variables, news)
        setters = [setter for setter in self.setters if changed & set(setter.properties)]
        rest = self._patched(context.schema, changed - {name for s in setters for name in s.properties}, body)
        if rest:
            self._patch(context, variables, body if self.patches == "PUT" else rest, olds)
        for setter in setters:
            self._set(context, variables, setter, news, body, olds)
        return self.settled(context, identity, variables, news)

    def _patched(self, schema: Schema, changed: set[str], body: Json) -> Json:
        """The part of the full body that holds the changed properties.

        What the program no longer sets is sent as null, a flag as false, labels as an empty object.
        """
        own_labels = labels.property_of(schema)
        names = {own_labels if own_labels and n in (labels.EFFECTIVE, labels.PULUMI) else n for n in changed}
        fields = {**COMMON, **self.fields}
        rest: Json = {}
        for name in sorted(names - set(PLACES) - {"name"}):
            target = fields.get(name, Field())
            if target is not None:
                path = (target.rest or name).lstrip("/")
                value = get(body, path)
                each = schema.properties.get(name)
                if value is None and name == own_labels:
                    value = {}
                put(rest, path, False if value is None and each and each.kind == "Bool" else value)
        return rest

    def _set(
        self, context: Context, variables: Variables, setter: Setter, news: Inputs, body: Json, olds: Inputs
    ) -> None:
        content = setter.body(news, body, olds)
        what = f"{context.schema.title} to be updated"
        with named_errors(f"Error updating {context.schema.title}"):
            self.act(context, variables, setter.method, setter.suffix, what, content, setter.query(news))

    def _patch(self, context: Context, variables: Variables, rest: Json, olds: Inputs) -> None:
        if not self.patches:
            raise ProviderError(f"{context.schema.title} cannot be updated in place: {', '.join(sorted(rest))}")
        query = {"updateMask": ",".join(sorted(rest))} if self.masked else {}
        if self.fingerprinted and olds.get("fingerprint"):
            rest = {**rest, "fingerprint": olds["fingerprint"]}
        with named_errors(f"Error updating {context.schema.title}"):
            self.act(context, variables, self.patches, "", f"{context.schema.title} to be updated", rest, query)

    def delete(self, context: Context, identity: str, outputs: Inputs) -> None:
        """Delete the resource and wait until it is gone. What is gone already counts as deleted."""
        variables = self.parse(context.settings, identity, outputs)
        refuse_guarded(self.guards, context.schema, outputs)
        with named_errors(f"Error deleting {context.schema.title}"):
            operation = context.client.find("DELETE", self.api, self.item.format(**variables), context.deadline)
            if operation is not None:
                self.wait(context, variables, operation, f"{context.schema.title} to be deleted")

    # --- bodies and outputs -----------------------------------------------------------------------------------------

    def body(self, context: Context, variables: Variables, inputs: Inputs) -> Json:
        """The REST object for the inputs."""
        placed: Fields = {**dict.fromkeys(PLACES), **COMMON, **self.fields}
        label_property = labels.property_of(context.schema) or ""
        body = merged(self.always, to_rest(context.schema.properties, inputs, {**placed, label_property: None}))
        if self.place:
            body[self.place] = f"projects/{{project}}/global/{self.place}s/{{{self.place}}}".format(**variables)
        if label_property and (wanted := labels.wanted(context.schema, context.settings, inputs)):
            target = placed.get(label_property, Field()) or Field()
            put(body, (target.rest or label_property).lstrip("/"), wanted)
        return body

    def fetch(self, context: Context, variables: Variables) -> Json | None:
        """GET the resource, None if it does not exist."""
        return context.client.find("GET", self.api, self.item.format(**variables), context.deadline, query=self.query)

    def outputs(self, context: Context, identity: str, variables: Variables, found: Json, known: Inputs) -> Json:
        """The outputs for the REST object `found`; what no API knows comes from `known` (inputs or older outputs)."""
        schema = context.schema
        values = from_rest(schema.properties, found, {**dict.fromkeys(PLACES), **COMMON, **self.fields})
        for name, each in schema.properties.items():
            if name in PLACES and variables.get(name):
                values[name] = variables[name]
            elif name not in values and self._kept(name, each) and known.get(name) is not None:
                values[name] = without_markers(known[name])
            elif name not in values and each.is_input and name in self._placeholders():
                values[name] = variables[name]  # of an imported resource only the id says it
        values.update({n: make(variables, found) for n, make in self.outputs_from.items()})
        if "deletionPolicy" in schema.properties:
            values["deletionPolicy"] = known.get("deletionPolicy") or "DELETE"
        self._label_outputs(context, values, known, found)
        return {**values, "id": identity}

    def _kept(self, name: str, each: Property) -> bool:
        target = self.fields.get(name, Field())
        return each.is_input and (target is None or not target.readable)

    def _label_outputs(self, context: Context, values: Json, known: Inputs, found: Json) -> None:
        name = labels.property_of(context.schema)
        if name is None:
            return
        target = self.fields.get(name) or Field()
        present = get(found, (target.rest or name).lstrip("/")) or {}
        mine = labels.own(context.schema, known)
        values.pop(name, None)
        if mine:
            values[name] = {k: present[k] for k in mine if k in present}
        values[labels.EFFECTIVE] = dict(present)
        ours = known.get(labels.PULUMI) or labels.wanted(context.schema, context.settings, known)
        values[labels.PULUMI] = {k: v for k, v in ours.items() if present.get(k) == v}

    # --- operations -------------------------------------------------------------------------------------------------

    def act(
        self,
        context: Context,
        variables: Variables,
        method: str,
        suffix: str,
        what: str,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> None:
        """A call on the resource, with `suffix` at the end of its URL, and its operation. `what` is waited for."""
        url = f"{self.item}{suffix}".format(**variables)
        operation = context.client.call(method, self.api, url, context.deadline, body, query)
        self.wait(context, variables, operation, what)

    def wait(self, context: Context, variables: Variables, operation: Json, what: str) -> None:
        """Poll a long operation to its end. Raises OperationError, TimedOut or Cancelled."""
        if not _is_operation(operation):
            return
        url = self.operation_url(variables, operation)
        finished = context.client.poll(
            lambda: context.client.call("GET", self.api, url, context.deadline),
            lambda op: op.get("status") == DONE or op.get("done") is True,
            context.deadline,
            what,
            first=operation,
        )
        if failure := operation_failure(finished):
            raise failure

    def operation_url(self, variables: Variables, operation: Json) -> str:
        """Operations live in the scope of the collection: zones/Z, regions/R, locations/L or global; or name it."""
        if str(operation["name"]).startswith("projects/"):
            return str(operation["name"])
        scope = re.match(r"projects/{project}/(?:global|(?:zones|regions|locations)/{\w+})", self.collection)
        if scope is None:
            return str(operation["name"])
        return f"{scope.group().format(**variables)}/operations/{operation['name']}"


def _is_operation(answer: Json) -> bool:
    return "operationType" in answer or str(answer.get("kind", "")).endswith("#operation") or "done" in answer


def _texts(values: Inputs) -> Variables:
    return {k: v for k, v in values.items() if isinstance(v, str) and k not in (*PLACES, "name")}


def without_markers(value: Any) -> Any:
    """A value without the `__defaults` bookkeeping of inputs, as it is kept in outputs."""
    if isinstance(value, Mapping):
        return {k: without_markers(v) for k, v in value.items() if k != DEFAULTS}
    return [without_markers(v) for v in value] if isinstance(value, list) else value


def refuse_guarded(guards: Sequence[str], schema: Schema, outputs: Inputs) -> None:
    """Raise ProviderError where deletion is forbidden by the resource's own settings."""
    for guard in guards:
        if outputs.get(guard):
            raise ProviderError(
                f"Cannot destroy {schema.title} because {guard} is set to true. Set it to false and run up."
            )
    if outputs.get("deletionPolicy") == "PREVENT":
        raise ProviderError(f"Cannot destroy {schema.title}: its deletionPolicy is PREVENT.")


@contextmanager
def named_errors(prefix: str) -> Iterator[None]:
    """Prefix the message of any ProviderError with what was being done."""
    try:
        yield
    except InitializationFailed:
        raise
    except ProviderError as error:
        raise ProviderError(f"{prefix}: {error}") from error


@contextmanager
def kept_if_it_exists(row: Rest, context: Context, identity: str, inputs: Inputs, prefix: str) -> Iterator[None]:
    """A failure while waiting for a new resource: if the resource is there all the same, the engine must know it.

    The real provider does so after a stockout (the pool exists in ERROR) and when a wait is cut short; without it the
    resource would be lost to the state and the next `up` would meet its own leftover.
    """
    try:
        yield
    except Cancelled as error:
        # No more calls: what was asked for is all there is to know.
        outputs = {**without_markers(inputs), **_planned_labels(context, inputs), "id": identity}
        raise InitializationFailed(identity, outputs, f"{prefix}: {error}") from error
    except ProviderError as error:
        found = _last_look(row, context, identity, inputs)
        if found is None:
            raise ProviderError(f"{prefix}: {error}") from error
        raise InitializationFailed(identity, found, f"{prefix}: {error}") from error


def _planned_labels(context: Context, inputs: Inputs) -> Json:
    if labels.property_of(context.schema) is None:
        return {}
    wanted = labels.wanted(context.schema, context.settings, inputs)
    return {labels.EFFECTIVE: wanted, labels.PULUMI: wanted}


def _last_look(row: Rest, context: Context, identity: str, inputs: Inputs) -> Json | None:
    """The outputs of what exists. The step's own time may be used up; this gets a little more."""
    try:
        return row.snapshot(Context(context.client, context.schema, Deadline(30.0)), identity, inputs)
    except ProviderError:
        return None
