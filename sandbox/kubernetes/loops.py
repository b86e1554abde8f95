"""Waiting, and background work: small loops that look at the cluster and put right what is missing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import httpx

from sandbox.kubernetes.api import ApiError

IDLE_SECONDS = 2.0  # between two looks where nothing says that something has changed
_LOG = logging.getLogger(__name__)


def wait_until(what: str, probe: Callable[[], bool], seconds: float) -> None:
    """Returns as soon as `probe` holds. Raises TimeoutError, naming `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


class Loop:
    """Calls `step` in a thread until stopped: `period` seconds after the last time if there is more to do, otherwise
    when `wake` is set, but at the latest `idle` seconds after it and at the earliest `period`.

    A step says whether there is more to do. One that fails is tried again after `period`. A refusal by the API server
    is only logged: objects change and vanish between look and act. Without `wake` every `period` seconds are a step.
    """

    def __init__(
        self,
        name: str,
        period: float,
        step: Callable[[], bool],
        wake: threading.Event | None = None,
        idle: float = IDLE_SECONDS,
    ) -> None:
        self._period = period
        self._step = step
        self._wake = wake or threading.Event()
        self._rest = max(idle - period, 0.0) if wake else 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """No further step; one that is under way goes on."""
        self._stopping.set()
        self._wake.set()

    def stop(self) -> None:
        """Returns when the step under way has ended."""
        self.cancel()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        more = True
        while not self._stopping.wait(self._period):
            if not more:
                self._wake.wait(self._rest)
            self._wake.clear()  # before the step: what changes while it looks is for the next one
            if self._stopping.is_set():
                return
            more = self._try()

    def _try(self) -> bool:
        try:
            return self._step()
        except (ApiError, httpx.HTTPError) as error:
            _LOG.info("%s: %s", self._thread.name, error)
        except Exception:
            if not self._stopping.is_set():
                _LOG.exception("%s failed", self._thread.name)
        return True
