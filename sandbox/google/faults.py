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


class Fault(BaseModel):
    """One fault; it strikes `times` matching requests and is then used up.

    kind: status (answer `status` without doing anything, with Retry-After), operation (the request is accepted, its
    operation ends with the error `code`), slow (wait `seconds` first), cut (close the connection; `processed` says
    whether the request takes effect before), etag (answer as if the policy or resource had changed meanwhile).
    `path` and `body` are regular expressions searched in the request's path and in its JSON as it was sent: `"spot":
    ?true` makes a fault strike only what asks for spot capacity.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["status", "operation", "slow", "cut", "etag"]
    method: str = ".*"
    path: str = ".*"
    body: str = ""
    times: int = Field(1, ge=1)
    status: Literal[403, 429, 500, 503] = 503
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
        status = {403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE"}[self.status]
        message = "Permission denied." if self.status == 403 else "The service is currently unavailable."
        return GoogleError(status, message, headers={"Retry-After": str(self.retry_after)})

    def hits(self, method: str, path: str, body: str) -> bool:
        sent = re.fullmatch(self.method, method) and re.search(self.path, path)
        return bool(sent and re.search(self.body, body))


class Faults:
    """The faults that are still to strike, oldest first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []
        self._ids = itertools.count(1)

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            added = fault.model_copy(update={"id": next(self._ids)})
            self._pending.append(added)
        return added

    def pending(self) -> list[Fault]:
        with self._lock:
            return list(self._pending)

    def clear(self) -> None:
        with self._lock:
            self._pending.clear()

    def strike(self, method: str, path: str, body: str) -> Fault | None:
        """The fault that hits this request, if any; counts it."""
        with self._lock:
            for i, fault in enumerate(self._pending):
                if fault.hits(method, path, body):
                    left = fault.model_copy(update={"times": fault.times - 1})
                    self._pending[i : i + 1] = [left] if left.times else []
                    return fault
        return None
