"""Kubernetes objects of any kind: checked, previewed by the server's dry run, created, applied, awaited, deleted."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenacity import (
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_any,
    stop_when_event_set,
    wait_exponential,
)

from sandbox.kubernetes.api import ApiClient, ApiError, Object, UnknownKindError
from sandbox.plugins.kubernetes import checkpoint, differences, metadata, waiting
from sandbox.plugins.kubernetes.applying import apply, get
from sandbox.plugins.kubernetes.cluster import HOW_TO_FORGET, Cluster
from sandbox.plugins.kubernetes.metadata import identity
from sandbox.plugins.provider import (
    Change,
    Checked,
    Difference,
    Failure,
    InitializationFailed,
    ProviderError,
    State,
    Subject,
)
from sandbox.plugins.values import UNKNOWN, has_unknown

CREATE_ATTEMPTS = 6  # with 1, 2, 4, 8 and 16 s between them
IMMUTABLE = "field is immutable"
NAME_LIMIT = 63
CONFLICT_HELP = (
    "https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources"
)
NO_SUCH_KIND = (
    "reported that the apiVersion for this resource does not exist. Verify that any required CRDs have been created"
)
NOT_LIVE = "reported that it failed to fully initialize or become live"


class Objects:
    """Handles every type but Helm releases. Methods are those of `sandbox.plugins.provider.Provider`."""

    def __init__(self, cluster: Cluster, cancelled: threading.Event) -> None:
        self._cluster = cluster
        self._cancelled = cancelled

    def check(self, subject: Subject, olds: dict[str, Any], news: dict[str, Any], seed: bytes) -> Checked:
        api_version, kind = metadata.type_of(subject)
        inputs = {"metadata": {}, **checkpoint.without_nulls(news), "apiVersion": api_version, "kind": kind}
        given = inputs["metadata"]
        if given is UNKNOWN:
            return Checked(inputs)
        if not isinstance(given, dict):
            return Checked(news, [Failure("metadata", f"expected an object, got {type(given).__name__}")])
        if "generateName" in given:
            return Checked(news, [Failure("metadata.generateName", "give a name, or none to have one made here")])
        inputs["metadata"] = named = metadata.named(subject, inputs, olds, seed)
        if "namespace" not in named and not self._cluster.unreachable and self._namespaced(inputs):
            inputs["metadata"] = {**named, "namespace": self._cluster.namespace}
        return Checked(inputs, list(_bad_annotations(inputs)))

    def diff(self, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str]) -> Difference:
        """By inputs, as upstream. Where the server calls a changed field immutable, the change replaces the object."""
        new = self._scoped(news)
        old = self._scoped({"apiVersion": new["apiVersion"], "kind": new["kind"], **checkpoint.inputs_of(olds)})
        changes = [
            replace(change, replace=_replaces(old, new, change.path))
            for change in differences.changes(old, new)
            if not any(differences.covers(path, change.path) for path in ignore)
        ]
        if changes and not any(change.replace for change in changes):
            changes = self._with_immutable(changes, checkpoint.manager_of(olds), new)
        return Difference(changes, delete_before_replace=metadata.same_place(old, new))

    def create(self, news: dict[str, Any], timeout: float, preview: bool) -> State:
        if preview:
            return State("", self._previewed(news, self._preview_create), news)
        client = self._cluster.client
        inputs = self._scoped(news)
        manager = checkpoint.new_manager()
        try:
            live = self._retrying()(client.create, inputs, manager)
        except UnknownKindError as error:
            raise ProviderError(
                f"creation of resource {identity(inputs)} failed because the Kubernetes API server "
                f"{NO_SUCH_KIND}: {error}"
            ) from error
        except ApiError as error:
            raise ProviderError(
                f"resource {identity(inputs)} was not successfully created by the Kubernetes API server: {error}"
            ) from error
        problem = f"resource {identity(live)} was successfully created, but the Kubernetes API server {NOT_LIVE}"
        return State(identity(live), self._settled(live, news, manager, timeout, problem), news)

    def read(self, subject: Subject, identity: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> State:
        """A refresh keeps the inputs the program gave, with their live values; an import takes the whole object."""
        api_version, kind = metadata.type_of(subject)
        namespace, _, name = identity.rpartition("/")
        try:
            live = self._cluster.client.get(outputs.get("apiVersion", api_version), kind, name, namespace)
        except UnknownKindError:
            live = None
        if not live:
            return State("", {}, {})
        known = inputs or checkpoint.inputs_of(outputs)
        live_inputs = checkpoint.refreshed(known, live) if known else checkpoint.imported(live)
        return State(identity, checkpoint.outputs_of(live, live_inputs, checkpoint.manager_of(outputs)), live_inputs)

    def update(
        self, olds: dict[str, Any], news: dict[str, Any], ignore: Sequence[str], timeout: float, preview: bool
    ) -> Mapping[str, Any]:
        """Server-side apply of the inputs, under the field manager that the object was created with."""
        manager = checkpoint.manager_of(olds)

        def applied(inputs: Object) -> Object:
            return apply(self._cluster.client, inputs, manager, ignore, dry_run=preview)

        if preview:
            return self._previewed(news, applied)
        try:
            live = applied(self._scoped(news))
        except ApiError as error:
            raise ProviderError(_update_failure(identity(news), error)) from error
        problem = (
            f"the Kubernetes API server reported that {identity(live)!r} failed to fully initialize or become live"
        )
        return self._settled(live, news, manager, timeout, problem)

    def delete(self, identity: str, outputs: dict[str, Any], timeout: float) -> None:
        """Returns when the object is gone, finalizers and all. What is not there is deleted."""
        if self._cluster.forgotten:
            return
        if self._cluster.unreachable:
            reason = self._cluster.unreachable
            raise ProviderError(f"configured Kubernetes cluster is unreachable. {HOW_TO_FORGET}. Reason: {reason}")
        client = self._cluster.client
        obj = {key: outputs[key] for key in ("apiVersion", "kind", "metadata")}
        inputs = checkpoint.inputs_of(outputs)
        policy = metadata.annotations_of(inputs).get(metadata.PROPAGATION, "foreground").capitalize()
        try:
            if not client.delete(obj, policy):
                return
        except UnknownKindError:
            return
        except ApiError as error:
            # A namespace on its way out refuses a second deletion.
            if error.status != 409 or not (get(client, obj) or {}).get("metadata", {}).get("deletionTimestamp"):
                raise
        try:
            waiting.poll(lambda: _still_there(client, obj), waiting.seconds(inputs, timeout), self._cancelled)
        except waiting.WaitError as error:
            raise ProviderError(f"deletion of {obj['kind']} {identity} {error}") from None

    def _namespaced(self, obj: Object) -> bool:
        """Of a kind that the server does not know, upstream assumes that it is namespaced."""
        try:
            return self._cluster.client.namespaced(obj["apiVersion"], obj["kind"])
        except UnknownKindError:
            return True

    def _scoped(self, inputs: Object) -> Object:
        """The inputs with a namespace exactly where their kind has one. Without a server, all kinds have one."""
        placed = dict(inputs.get("metadata", {}))
        if self._cluster.unreachable or self._namespaced(inputs):
            placed.setdefault("namespace", "default")
        else:
            placed.pop("namespace", None)
        return {**inputs, "metadata": placed}

    def _previewed(self, news: Object, dry_run: Callable[[Object], Object]) -> Mapping[str, Any]:
        """What the object would be, or just its inputs where the server cannot tell.

        It cannot where the cluster or a value is unknown, where the kind or the namespace is not there yet, and where a
        webhook knows no dry run.
        """
        if self._cluster.unreachable or has_unknown(news):
            return news
        try:
            return checkpoint.outputs_of(dry_run(self._scoped(news)), news, "")
        except UnknownKindError:
            return news
        except ApiError as error:
            if _is_namespace_missing(error) or "does not support dry run" in error.message:
                return news
            raise

    def _preview_create(self, inputs: Object) -> Object:
        """A dry run, under another name where the name is taken: by the object that a replacement deletes before."""
        client = self._cluster.client
        try:
            return client.create(inputs, dry_run=True)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        name, suffix = inputs["metadata"]["name"], secrets.token_hex(2)
        free = f"{name[: NAME_LIMIT - len(suffix) - 1]}-{suffix}"
        live = client.create({**inputs, "metadata": {**inputs["metadata"], "name": free}}, dry_run=True)
        return {**live, "metadata": {**live["metadata"], "name": name}}

    def _retrying(self) -> Retrying:
        """Upstream's patience with a namespace or a CRD that is still to come; other errors surface at once."""
        return Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ApiError) and error.status == 404),
            wait=wait_exponential(multiplier=1, max=16),
            stop=stop_any(stop_after_attempt(CREATE_ATTEMPTS), stop_when_event_set(self._cancelled)),
            sleep=sleep_using_event(self._cancelled),
            reraise=True,
        )

    def _with_immutable(self, changes: list[Change], manager: str, new: Object) -> list[Change]:
        """The changes, those to fields that the server calls immutable marked as replacing."""
        if self._cluster.unreachable or has_unknown(new):
            return changes
        try:
            apply(self._cluster.client, new, manager, (), dry_run=True)
        except ApiError as error:
            if error.status == 422 and IMMUTABLE in error.message:
                fields = [each.get("field", "") for each in error.body.get("details", {}).get("causes", [])]
                hit = {change.path for change in changes if any(_overlap(field, change.path) for field in fields)}
                return [replace(change, replace=not hit or change.path in hit) for change in changes]
        return changes

    def _settled(self, live: Object, news: Object, manager: str, timeout: float, problem: str) -> dict[str, Any]:
        """Outputs of the object once it is ready. Raises InitializationFailed, with what there is, when it is not."""
        client = self._cluster.client
        ready = waiting.readiness(news)
        latest = live

        def look() -> str:
            nonlocal latest
            found = get(client, live)
            if found is None:
                raise waiting.NeverReadyError("was deleted in the meantime")
            latest = found
            return ready(found) if ready else ""

        try:
            waiting.poll(look, waiting.seconds(news, timeout), self._cancelled)
        except waiting.WaitError as error:
            reason = f"{problem}: {live['metadata']['name']!r} {error}"
            outputs = checkpoint.outputs_of(latest, news, manager)
            raise InitializationFailed(identity(live), outputs, reason) from None
        return checkpoint.outputs_of(latest, news, manager)


def _bad_annotations(inputs: Object) -> Iterator[Failure]:
    try:
        if not has_unknown(metadata.annotations_of(inputs)):
            waiting.readiness(inputs)
    except ValueError as error:
        yield Failure(f'metadata.annotations["{metadata.WAIT_FOR}"]', str(error))


def _replaces(old: Object, new: Object, path: str) -> bool:
    """Another version of the same group is the same object."""
    if path == "apiVersion":
        return metadata.group_of(old) != metadata.group_of(new)
    return differences.replaces(metadata.group_of(new), new["kind"], path)


def _overlap(one: str, other: str) -> bool:
    return bool(one) and (differences.covers(one, other) or differences.covers(other, one))


def _still_there(client: ApiClient, obj: Object) -> str:
    """Why the object is not gone yet; empty when it is, or when another one has its name."""
    try:
        live = get(client, obj)
    except UnknownKindError:
        return ""
    if not live or live["metadata"]["uid"] != obj["metadata"].get("uid", live["metadata"]["uid"]):
        return ""
    finalizers = [*live["metadata"].get("finalizers", []), *live.get("spec", {}).get("finalizers", [])]
    # NamespaceDeletionDiscoveryFailure, NamespaceFinalizersRemaining and their like
    said = (each for each in live.get("status", {}).get("conditions", []) if each["status"] == "True")
    why = [each["message"] for each in said if each["type"].startswith("Namespace")]
    return "; ".join([f"it still has the finalizers {finalizers}", *why])


def _is_namespace_missing(error: ApiError) -> bool:
    return error.status == 404 and error.body.get("details", {}).get("kind") == "namespaces"


def _update_failure(name: str, error: ApiError) -> str:
    if isinstance(error, UnknownKindError):
        return f"update of resource {name} failed because the Kubernetes API server {NO_SUCH_KIND}: {error}"
    conflict = (
        f"Server-Side Apply field conflict detected. See {CONFLICT_HELP} for troubleshooting help\n: "
        if error.reason == "Conflict"
        else ""
    )
    return f"update of resource {name} failed because the Kubernetes API server {NOT_LIVE}: {conflict}{error}"
