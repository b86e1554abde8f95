"""Server-side apply of an object that the program has created, under the object's own field manager."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from tenacity import retry, retry_if_exception, stop_after_attempt

from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.plugins.kubernetes.checkpoint import without_nulls
from sandbox.plugins.kubernetes.metadata import PATCH_FORCE, identity, is_true


def get(client: ApiClient, obj: Object) -> Object | None:
    """The live object that `obj` names; None when it does not exist."""
    metadata = obj["metadata"]
    live = client.get(obj["apiVersion"], obj["kind"], metadata["name"], metadata.get("namespace", ""))
    return live and dict(without_nulls(live))


def apply(client: ApiClient, inputs: Object, manager: str, ignore: Sequence[str], *, dry_run: bool) -> Object:
    """The object after the apply. `ignore` are the paths of `ignore_changes`. Raises ApiError."""
    live = _existing(client, inputs)
    is_first = any(_is_creation(each, manager) for each in live["metadata"].get("managedFields", []))
    if is_first and not dry_run:
        _own_by_apply(client, inputs, manager)
    force = is_true(inputs, PATCH_FORCE) or (is_first and dry_run)
    return client.apply(_leaving(inputs, live, ignore), manager, force=force, dry_run=dry_run)


def _is_creation(entry: Object, manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Update" and not entry.get("subresource"))


def _existing(client: ApiClient, obj: Object) -> Object:
    live = get(client, obj)
    if live is None:
        raise ApiError(404, "NotFound", f'{obj["kind"]} "{identity(obj)}" not found', {})
    return live


@retry(
    retry=retry_if_exception(lambda error: isinstance(error, ApiError) and error.status == 409),
    stop=stop_after_attempt(10),
    reraise=True,
)
def _own_by_apply(client: ApiClient, obj: Object, manager: str) -> None:
    """Turns the ownership of fields that the creation gave into one by apply, as upstream's `fixCSAFieldManagers`.

    Otherwise the apply would conflict with our own creation, and a field that the program drops would stay. Tries again
    when somebody else has changed the object in between.
    """
    live = _existing(client, obj)
    entries = copy.deepcopy(live["metadata"]["managedFields"])
    for each in entries:
        if _is_creation(each, manager):
            each["operation"] = "Apply"
    change = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
    ]
    client.patch(live, change, "json")


def _leaving(inputs: Object, live: Object, ignore: Sequence[str]) -> Object:
    """The inputs with the live values at ignored paths, so that the apply changes nothing there."""
    left = copy.deepcopy(inputs)
    for path in ignore:
        *parents, last = [quoted or plain for quoted, plain in re.findall(r'"([^"]+)"|([\w$/-]+)', path)]
        found: Any = live
        target: Any = left
        for key in parents:
            found = found.get(key) if isinstance(found, dict) else None
            target = target.setdefault(key, {}) if isinstance(target, dict) else None
        if isinstance(found, dict) and isinstance(target, dict) and last in found:
            target[last] = found[last]
    return left
