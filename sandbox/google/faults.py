"""Faults on demand: what the cloud does wrong when a test asks for it."""

from __future__ import annotations

import itertools
import re
import threading
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

# Codes an operation can end with, and Google's message for each.
OPERATION_ERRORS = {
    "ZONE_RESOURCE_POOL_EXHAUSTED": (
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
    `path` is a regular expression searched in the request path.
    """

    model_config = ConfigDict(extra="forbid")

    kind: Literal["status", "operation", "slow", "cut", "etag"]
    method: str = ".*"
    path: str = ".*"
    times: int = Field(1, ge=1)
    status: Literal[403, 429, 500, 503] = 503
    retry_after: int = Field(1, ge=0)
    code: Literal["ZONE_RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "INTERNAL_ERROR"] = "INTERNAL_ERROR"
    seconds: float = Field(1.0, ge=0)
    processed: bool = False
    id: int = 0

    @field_validator("method", "path")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as problem:
            raise ValueError(f"not a regular expression: {problem}") from problem
        return value


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

    def strike(self, method: str, path: str) -> Fault | None:
        """The fault that hits this request, if any; counts it."""
        with self._lock:
            for i, fault in enumerate(self._pending):
                if re.fullmatch(fault.method, method) and re.search(fault.path, path):
                    left = fault.model_copy(update={"times": fault.times - 1})
                    self._pending[i : i + 1] = [left] if left.times else []
                    return fault
        return None
