"""Google's error answers: one exception, rendered in the shape every Google client library parses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# google.rpc.Code name -> HTTP status and the `reason` older clients (Compute, the gcp provider) look at.
STATUSES: dict[str, tuple[int, str]] = {
    "INVALID_ARGUMENT": (400, "badRequest"),
    "FAILED_PRECONDITION": (400, "failedPrecondition"),
    "UNAUTHENTICATED": (401, "required"),
    "PERMISSION_DENIED": (403, "forbidden"),
    "NOT_FOUND": (404, "notFound"),
    "ALREADY_EXISTS": (409, "alreadyExists"),
    "ABORTED": (409, "aborted"),
    "CONDITION_NOT_MET": (412, "conditionNotMet"),
    "RESOURCE_EXHAUSTED": (429, "rateLimitExceeded"),
    "INTERNAL": (500, "backendError"),
    "UNIMPLEMENTED": (501, "notImplemented"),
    "UNAVAILABLE": (503, "backendError"),
}


class GoogleError(Exception):
    """A refusal with Google's status name, message and legacy `reason`.

    `details` are google.rpc error details; `headers` go into the HTTP answer (for example Retry-After).
    """

    def __init__(
        self,
        status: str,
        message: str,
        *,
        reason: str = "",
        details: list[dict[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code, default_reason = STATUSES[status]
        self.reason = reason or default_reason
        self.details = details or []
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON answer: `{"error": {"code", "message", "status", "errors", "details"}}`."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "status": self.status,
            "errors": [{"message": self.message, "domain": "global", "reason": self.reason}],
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}


def invalid(message: str, reason: str = "invalid") -> GoogleError:
    return GoogleError("INVALID_ARGUMENT", message, reason=reason)


def violations(found: list[tuple[str, str]]) -> GoogleError:
    """400 for (field path, description) pairs, as Google's JSON front end reports malformed bodies."""
    fields = [{"field": path, "description": text} for path, text in found]
    details = [{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": fields}]
    return GoogleError("INVALID_ARGUMENT", "\n".join(text for _, text in found), details=details)


def not_found(name: str, *, compute: bool = False) -> GoogleError:
    """404; Compute Engine words it differently from every other API."""
    return GoogleError("NOT_FOUND", f"The resource '{name}' was not found" if compute else f"Not found: {name}.")


def exists(name: str, *, compute: bool = False) -> GoogleError:
    """409 ALREADY_EXISTS for a name that is taken (or still being created or deleted)."""
    text = f"The resource '{name}' already exists" if compute else f"Already exists: {name}."
    return GoogleError("ALREADY_EXISTS", text)


def in_use(collection: str, name: str, user: str) -> GoogleError:
    """400 for the deletion of a Compute resource that `user` still refers to."""
    text = f"The {collection} resource '{name}' is already being used by '{user}'"
    return GoogleError("INVALID_ARGUMENT", text, reason="resourceInUseByAnotherResource")


def precondition(message: str) -> GoogleError:
    return GoogleError("FAILED_PRECONDITION", message)


def quota_exceeded(metric: str, region: str, project: str, requested: float, limit: float, used: float) -> GoogleError:
    """403 in GKE's and Compute Engine's words; amounts are in the metric's own unit (chips, vCPUs)."""
    short = requested - (limit - used)
    return GoogleError(
        "PERMISSION_DENIED",
        f"Insufficient regional quota to satisfy request: resource \"{metric}\": request requires '{requested:.1f}'"
        f" and is short '{short:.1f}'. project has a quota of '{limit:.1f}' with '{max(limit - used, 0):.1f}' available"
        f" in region {region}. View and manage quotas at"
        f" https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}.",
        reason="quotaExceeded",
    )
