"""What the state keeps of an object: the object itself, and beside it the inputs it was made from."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

from sandbox.kubernetes.api import Object
from sandbox.plugins.kubernetes.metadata import group_of
from sandbox.plugins.values import Secret

# Names are those of upstream's `checkpointObject`; the SDKs hide outputs that start with two underscores.
INPUTS, FIELD_MANAGER, INITIAL_VERSION = "__inputs", "__fieldManager", "__initialApiVersion"
# Fields of `metadata` that the server writes; an import leaves them out of the inputs.
SERVER_FIELDS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")


def outputs_of(live: Object, inputs: Object, manager: str) -> dict[str, Any]:
    """The object, its Secret data marked, and what later calls need. `manager` is empty for what was only planned."""
    shown = dict(without_nulls(live))
    if not group_of(live) and live.get("kind") == "Secret":
        shown |= {key: Secret(live[key]) for key in ("data", "stringData") if key in live}
    # The inputs may hold what the program marks as secret.
    shown |= {INPUTS: Secret(inputs), INITIAL_VERSION: inputs["apiVersion"]}
    return {**shown, FIELD_MANAGER: manager} if manager else shown


def inputs_of(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that state outputs were made from."""
    return dict(outputs.get(INPUTS) or {})


def new_manager() -> str:
    """A field manager of an object's own, so that two Pulumi programs do not take each other's fields for theirs."""
    return f"pulumi-kubernetes-{secrets.token_hex(4)}"


def manager_of(outputs: Mapping[str, Any]) -> str:
    """The object's field manager; one that was imported has none yet."""
    return outputs.get(FIELD_MANAGER) or new_manager()


def without_nulls(value: Any) -> Any:
    """The value without what is null, at any depth."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def refreshed(inputs: Any, live: Any) -> Any:
    """`inputs` with their live values: what the program does not set stays out. Upstream: `pruneLiveState`."""
    if isinstance(inputs, dict) and isinstance(live, dict):
        live = {**live, "stringData": _string_data(live)} if "stringData" in inputs else live
        # The server leaves out what is empty; a program may say it.
        return {k: refreshed(v, live[k]) if k in live else v for k, v in inputs.items() if k in live or not v}
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        return [refreshed(*pair) for pair in zip(inputs, live, strict=True)]
    return live


def _string_data(secret: Object) -> dict[str, str]:
    """The write-only `stringData` of a Secret, from its `data`."""
    return {k: base64.b64decode(v).decode(errors="replace") for k, v in (secret.get("data") or {}).items()}


def imported(live: Object) -> Object:
    """Inputs for an object that no program has described yet."""
    metadata = {k: v for k, v in live["metadata"].items() if k not in SERVER_FIELDS}
    return {**{k: v for k, v in live.items() if k != "status"}, "metadata": metadata}
