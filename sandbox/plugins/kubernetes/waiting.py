"""When an object counts as ready: upstream's rules by kind, and the `pulumi.com/waitFor` annotation."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tenacity import (
    RetryError,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_after_delay,
    stop_any,
    stop_when_event_set,
    wait_exponential,
)

from sandbox.kubernetes.api import Object, condition, is_true
from sandbox.plugins.kubernetes import metadata

DEFAULT_SECONDS = 600.0

# Says why an object is not ready yet; empty when it is. Raises NeverReadyError when it will not be.
Check = Callable[[Object], str]


class WaitError(Exception):
    """The wait ended too early: by its timeout or by a cancellation. The message says what was still missing."""


class NeverReadyError(WaitError):
    """The object has failed for good."""


def poll(look: Callable[[], str], timeout: float, cancelled: threading.Event) -> None:
    """Calls `look` until it answers with no reason to wait on. Raises WaitError with the last reason."""
    retrying = Retrying(
        retry=retry_if_result(bool),
        stop=stop_any(stop_after_delay(timeout), stop_when_event_set(cancelled)),
        wait=wait_exponential(multiplier=0.1, exp_base=1.5, max=1),
        sleep=sleep_using_event(cancelled),
    )
    try:
        retrying(look)
    except RetryError as error:
        ended = "was cancelled" if cancelled.is_set() else f"timed out after {timeout:g} s"
        raise WaitError(f"{ended}: {error.last_attempt.result()}") from None


def seconds(obj: Object, custom_timeout: float) -> float:
    """How long to wait for the object. The program's custom timeout, where it sets one, goes before the annotation."""
    given = metadata.annotations_of(obj).get(metadata.TIMEOUT, "")
    return custom_timeout or (float(given) if given.isdecimal() else DEFAULT_SECONDS)


def readiness(inputs: Object) -> Check | None:
    """What to wait for after the object is created or updated. Raises ValueError for a bad `pulumi.com/waitFor`."""
    if metadata.is_true(inputs, metadata.SKIP_AWAIT):
        return None
    if expressions := metadata.annotations_of(inputs).get(metadata.WAIT_FOR):
        return _all_of(expressions)
    return BY_KIND.get((metadata.group_of(inputs), inputs["kind"]))


def _all_of(text: str) -> Check:
    try:
        expressions = json.loads(text) if text.startswith("[") else [text]
    except ValueError:
        expressions = []
    if not expressions or not all(isinstance(each, str) for each in expressions):
        raise ValueError("expected an expression or a JSON array of expressions")
    checks = [_parse(each) for each in expressions]
    return lambda obj: next(filter(None, (check(obj) for check in checks)), "")


def _parse(expression: str) -> Check:
    if found := re.fullmatch(r"condition=([^=]+)(?:=(.+))?", expression):
        return partial(_condition_is, kind=found[1], status=found[2] or "True")
    if found := re.fullmatch(r"jsonpath=\{([^{}]+)\}(?:=(.+))?", expression):
        return partial(_path_is, path=found[1], steps=_steps(found[1]), value=found[2])
    raise ValueError(
        f"expected `condition=TYPE`, `condition=TYPE=STATUS`, `jsonpath={{.path}}` or `jsonpath={{.path}}=VALUE`, "
        f"got {expression!r}"
    )


def _condition_is(obj: Object, kind: str, status: str) -> str:
    found = condition(obj, kind)
    if found.get("status") == status:
        return ""
    said = ": ".join(str(found[key]) for key in ("status", "reason", "message") if found.get(key)) or "not set"
    return f"condition {kind} is not {status} ({said})"


_STEP = re.compile(r"""\.((?:[\w-]|\\.)+)|\['([^']+)'\]|\[(\d+)\]""")


def _steps(path: str) -> list[str | int]:
    """Field names and indexes of a JSONPath without wildcards and filters."""
    if "".join(found[0] for found in _STEP.finditer(path)) != path:
        raise ValueError(f"{{{path}}}: only fields and indexes are known here, as in {{.status.conditions[0].type}}")
    return [
        int(index) if index else quoted or re.sub(r"\\(.)", r"\1", plain)
        for plain, quoted, index in _STEP.findall(path)
    ]


def _path_is(obj: Object, path: str, steps: list[str | int], value: str | None) -> str:
    found: Any = obj
    for step in steps:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return f"{{{path}}} does not exist"
    text = found if isinstance(found, str) else json.dumps(found)
    return "" if value in (None, text) else f"{{{path}}} is {text}, not {value}"


def _observed(obj: Object) -> bool:
    return bool(obj.get("status", {}).get("observedGeneration", 0) >= obj["metadata"].get("generation", 0))


def _rollout(obj: Object, ready: str) -> str:
    """Whether all replicas are of the newest revision, and none of an older one is left; `ready` is a status field."""
    status = obj.get("status", {})
    wanted = obj["spec"].get("replicas", 1)
    updated = status.get("updatedReplicas", 0)
    if _observed(obj) and updated >= wanted and status.get("replicas", 0) <= updated and status.get(ready, 0) >= wanted:
        return ""
    why = [each.get("message") for each in status.get("conditions", []) if each["status"] == "False"]
    return "; ".join([f"{updated} of {wanted} replicas updated, {status.get(ready, 0)} ready", *filter(None, why)])


def _daemon_set(obj: Object) -> str:
    status = obj.get("status", {})
    wanted, updated = status.get("desiredNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
    available = status.get("numberAvailable", 0)
    if _observed(obj) and updated >= wanted and available >= wanted:
        return ""
    return f"{updated} of {wanted} pods updated, {available} available"


def _job(obj: Object) -> str:
    if is_true(obj, "Failed"):
        raise NeverReadyError(f"has failed: {condition(obj, 'Failed').get('message', '')}")
    return "" if is_true(obj, "Complete") else "the Job is not complete"


def _pod(obj: Object) -> str:
    phase = obj.get("status", {}).get("phase", "Pending")
    return "" if phase == "Succeeded" or is_true(obj, "Ready") else f"the Pod is {phase} and not Ready"


def _definition(obj: Object) -> str:
    names = condition(obj, "NamesAccepted")
    if names.get("status") == "False":
        raise NeverReadyError(f"has names that are not accepted: {names.get('message', '')}")
    return _condition_is(obj, "Established", "True")


def _secret(obj: Object) -> str:
    is_token = obj.get("type") == "kubernetes.io/service-account-token"
    return "the Secret has no token yet" if is_token and not obj.get("data", {}).get("token") else ""


BY_KIND: Mapping[tuple[str, str], Check] = {
    ("", "Pod"): _pod,
    ("", "Secret"): _secret,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): partial(_rollout, ready="availableReplicas"),
    ("apps", "StatefulSet"): partial(_rollout, ready="readyReplicas"),
    ("batch", "Job"): _job,
}
