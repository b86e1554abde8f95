"""Faults on demand: what the cloud does wrong when a test asks for it."""

from __future__ import annotations

import itertools
import re
import threading
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sandbox.google.errors import GoogleError

STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED"

# Codes an operation can end with, and Google's message for each.
OPERATION_ERRORS = {
    STOCKOUT: (
        8,
        "The zone does not currently have sufficient capacity for the requested resources"
        " (ZONE_RESOURCE_POOL_EXHAUSTED). Try a different zone, or try again later.",
    ),
    "QUOTA_EXCEEDED": (8, "Quota exceeded for the requested resources (QUOTA_EXCEEDED). Request a higher quota."),
    "INTERNAL_ERROR": (13, "Internal error. Please try again or contact Google Support. (INTERNAL_ERROR)"),
}


_AWAY = "The service is currently unavailable."
REFUSALS = {
    401: (
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid"
        " authentication credential.",
    ),
    403: ("PERMISSION_DENIED", "Permission denied."),
    429: ("RESOURCE_EXHAUSTED", _AWAY),
    500: ("INTERNAL", _AWAY),
    503: ("UNAVAILABLE", _AWAY),
}
"""Google's status word and message by HTTP status."""


class Fault(BaseModel):
    """One fault; it strikes `times` matching requests and is then used up.

    kind: status (answer `status` without doing anything, with Retry-After), operation (the request is accepted, its
    operation ends with the error `code`), slow (wait `seconds` first; where a request goes to Google, no longer than
    until the faults are cleared), slow-operation (the operation takes `seconds`), cut (close the connection;
    `processed` says whether the request takes effect before), etag (answer as if the policy or resource had changed
    meanwhile), webhook (an API server's answer when an admission webhook fails), kill (the
    request is processed, its operation takes `seconds`, and `victim` is killed when the answer is there; an API server
    is killed before the request is sent, and starts again). `path` and `body` are regular expressions searched in the
    request's path and in its JSON as it was sent: `"spot": ?true` makes a fault strike only what asks for spot
    capacity. `step`: only requests of this step of an update (`sandbox.plugins.steps`), also those to API servers;
    `skip`: not the first ones that match. A fault of an operation waits for a request that has one.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["status", "operation", "slow", "slow-operation", "cut", "etag", "webhook", "kill"]
    method: str = ".*"
    path: str = ".*"
    body: str = ""
    times: int = Field(1, ge=1)
    skip: int = Field(0, ge=0)
    step: str = ""
    victim: Literal["engine", "plugin", "program", "api-server"] = "engine"
    status: Literal[401, 403, 429, 500, 503] = 503
    retry_after: int = Field(1, ge=0)
    code: Literal["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL_ERROR"] = "INTERNAL_ERROR"
    seconds: float = Field(1.0, ge=0)
    processed: bool = False
    id: int = 0

    @field_validator("method", "path", "body")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from problem
        return value

    def refusal(self) -> GoogleError:
        """What a fault of kind status answers."""
        status, message = REFUSALS[self.status]
        return GoogleError(status, message, headers={"Retry-After": str(self.retry_after)})

    def hits(self, method: str, path: str, body: str, step: str = "") -> bool:
        if self.step and self.step != step:
            return False
        sent = re.fullmatch(self.method, method) and re.search(self.path, path)
        return bool(sent and re.search(self.body, body))


class Faults:
    """The faults that are still to strike, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []
        self._struck: list[Fault] = []
        self._ids = itertools.count(1)
        self._cleared = threading.Event()  # what slow requests that are under way wait for

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            added = fault.model_copy(update={"id": next(self._ids)})
            self._pending.append(added)
        return added

    def pending(self) -> list[Fault]:
        with self._lock:
            return list(self._pending)

    def clear(self) -> None:
        """Nothing more strikes."""
        with self._lock:
            self._pending.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def struck(self) -> list[Fault]:
        """Each blow that was dealt so far, oldest first."""
        with self._lock:
            return list(self._struck)

    def strike(self, method: str, path: str, body: str, step: str = "", *, at_once: bool = False) -> Fault | None:
        """The fault that hits this request, if any; counts it. Where it is slow, returns when its time is over, unless
        somebody else waits."""
        with self._lock:
            fault, cleared = self._taken(method, path, body, step), self._cleared
        if fault and fault.kind == "slow" and not at_once:
            cleared.wait(fault.seconds)
        return fault

    def _taken(self, method: str, path: str, body: str, step: str) -> Fault | None:
        for i, fault in enumerate(self._pending):
            if not fault.hits(method, path, body, step):
                continue
            if fault.skip:
                self._pending[i] = fault.model_copy(update={"skip": fault.skip - 1})
                continue
            left = fault.model_copy(update={"times": fault.times - 1})
            self._pending[i : i + 1] = [left] if left.times else []
            self._struck.append(fault)
            return fault
        return None

    def take_back(self, fault: Fault) -> None:
        """A blow met a request on which it has no effect: the fault goes on waiting."""
        with self._lock:
            self._struck.remove(fault)
            left = next((each for each in self._pending if each.id == fault.id), None)
            if left is None:
                self._pending.insert(0, fault)
            else:
                self._pending[self._pending.index(left)] = fault
