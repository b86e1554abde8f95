"""HTTP calls to Google's APIs: authorised, retried, and with long operations waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import tenacity

from sandbox.plugins.gcp.settings import ENDPOINTS, Settings
from sandbox.plugins.provider import ProviderError
from sandbox.plugins.steps import KILL_HEADER, STEP_HEADER, current, is_change, kill

Json = dict[str, Any]
RETRIED_STATUSES = frozenset({429, 500, 502, 503})
# GKE runs one operation per cluster at a time and answers 400 FAILED_PRECONDITION meanwhile (gke: "operation ... is
# currently upgrading/creating cluster"); the provider waits and tries again.
BUSY_MARKS = ("is currently", "operation in progress", "incompatible operation", "too many operations")
DONE = "DONE"
# How long one call is tried again, in seconds (provider: the retry transport gives up after 90 s). A busy cluster is
# waited for until the resource's own timeout.
PATIENCE = 90.0


class Cancelled(ProviderError):
    """The engine asked to stop while this call was waiting."""

    def __init__(self) -> None:
        super().__init__("cancelled")


class TimedOut(ProviderError):
    """The resource's timeout (`custom_timeouts`, else the provider's default) is over."""


class GoogleError(ProviderError):
    """An error answer in Google's shape. `status` is the HTTP code, `reason` Google's status word."""

    def __init__(self, status: int, message: str, reason: str, retry_after: float | None = None) -> None:
        super().__init__(f"googleapi: Error {status}: {message}" + (f", {reason}" if reason else ""))
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after = retry_after

    @property
    def is_busy(self) -> bool:
        return self.reason == "FAILED_PRECONDITION" and any(m in self.message.lower() for m in BUSY_MARKS)


class OperationError(ProviderError):
    """A long operation ended in error: the message is `CODE: text`, lines for several."""


@dataclass
class Deadline:
    """How long a resource's step may take, in seconds from its creation."""

    limit: float
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        return self.limit - (time.monotonic() - self.started)


class Client:
    """The connections of a configured provider; safe for many threads. `transport` replaces the network in tests."""

    def __init__(
        self, settings: Settings, transport: httpx.BaseTransport | None = None, patience: float = PATIENCE
    ) -> None:
        self.settings = settings
        self.patience = patience
        self._stopped = threading.Event()
        self._locks: dict[str, threading.Lock] = {}
        self._locks_guard = threading.Lock()
        self._http = httpx.Client(
            headers=_headers(settings),
            timeout=settings.request_timeout,
            transport=transport,
            # The endpoints are on this machine; a proxy from the environment must not see the calls.
            trust_env=False,
            limits=httpx.Limits(max_connections=256),
        )

    def cancel(self) -> None:
        """Make every running and later wait end with Cancelled."""
        self._stopped.set()

    def close(self) -> None:
        self._http.close()

    @contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """Read-modify-write of one shared document (an IAM policy, a router): one at a time within this provider."""
        with self._locks_guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield

    def pause(self, duration: float) -> None:
        """Sleep that ends at once with Cancelled when the engine cancels."""
        if self._stopped.wait(duration):
            raise Cancelled

    def call(
        self,
        method: str,
        api: str,
        path: str,
        deadline: Deadline,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """One request, retried while it may still succeed. Raises GoogleError, TimedOut, Cancelled or ProviderError."""
        url = f"{self.base(api)}/{path}"
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_transient),
            wait=self._wait,
            stop=lambda state: deadline.left <= 0 or self._out_of_patience(state),
            sleep=self.pause,
            reraise=True,
        )
        try:
            answer: Json = retrying(self._once, method, url, body, query)
        except httpx.TransportError as error:
            raise ProviderError(f"{method} {url}: {error or type(error).__name__}") from error
        return answer

    def find(
        self,
        method: str,
        api: str,
        path: str,
        deadline: Deadline,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json | None:
        """As `call`, but None where what the request is about does not exist."""
        try:
            return self.call(method, api, path, deadline, body, query)
        except GoogleError as error:
            if error.status == 404:
                return None
            raise

    def base(self, api: str) -> str:
        """The base URL of an API, without a trailing slash. Raises ProviderError where none is configured."""
        if api not in self.settings.endpoints:
            raise ProviderError(f"gcp:{ENDPOINTS[api]} is not set: the sandbox's gcp plugin needs it for this resource")
        return self.settings.endpoints[api]

    def _once(self, method: str, url: str, body: Json | None, query: Mapping[str, str] | None) -> Json:
        if self._stopped.is_set():
            raise Cancelled
        headers = {STEP_HEADER: step} if (step := current()) and is_change(method, url) else {}
        response = self._http.request(method, url, json=body, params=query, headers=headers)
        if victim := response.headers.get(KILL_HEADER):
            kill(victim)
        if response.is_success:
            return response.json() if response.content else {}
        raise _google_error(response)

    def _out_of_patience(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        busy = isinstance(error, GoogleError) and error.is_busy
        return not busy and (state.seconds_since_start or 0) >= self.patience

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, GoogleError) and error.retry_after is not None:
            return error.retry_after
        return min(self.settings.poll_interval * 2.0 ** (state.attempt_number - 1), 10.0)

    def poll(
        self,
        read: Callable[[], Json],
        done: Callable[[Json], bool],
        deadline: Deadline,
        what: str,
        first: Json | None = None,
    ) -> Json:
        """Call `read` every poll interval until `done`. `first` is an answer that is already there."""
        answer = read() if first is None else first
        while not done(answer):
            if deadline.left <= 0:
                raise TimedOut(f"timeout after {deadline.limit:g}s while waiting for {what}")
            self.pause(min(self.settings.poll_interval, max(deadline.left, 0.01)))
            answer = read()
        return answer


def _headers(settings: Settings) -> dict[str, str]:
    """Who calls, and whose quota it uses."""
    own = {"Authorization": f"Bearer {settings.access_token}"}
    return own | ({"X-Goog-User-Project": settings.quota_project} if settings.quota_project else {})


def _google_error(response: httpx.Response) -> GoogleError:
    try:
        error = response.json()["error"]
        message, reason = str(error["message"]), str(error.get("status") or _first_reason(error))
    except (ValueError, KeyError, TypeError):
        message, reason = response.text.strip() or response.reason_phrase, ""
    header = response.headers.get("Retry-After", "")
    return GoogleError(response.status_code, message, reason, float(header) if header.isdigit() else None)


def _first_reason(error: Json) -> str:
    return next((str(e["reason"]) for e in error.get("errors", ()) if e.get("reason")), "")


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, GoogleError):
        return error.status in RETRIED_STATUSES or error.is_busy
    return isinstance(error, httpx.TransportError)


def operation_failure(operation: Json) -> OperationError | None:
    """The error of a finished operation, whichever of Google's three shapes it has (compute, GKE, long-running)."""
    error = operation.get("error")
    if not error:
        return None
    if "errors" in error:
        lines = [f"{e.get('code', 'ERROR')}: {e.get('message', '')}" for e in error["errors"]]
        return OperationError("\n".join(lines))
    message = str(error.get("message") or operation.get("statusMessage") or error)
    return OperationError(message)
