"""Waiting, and background work: small loops that look at the cluster and put right what is missing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import httpx

from sandbox.kubernetes.api import ApiError

_LOG = logging.getLogger(__name__)


def wait_until(what: str, probe: Callable[[], bool], seconds: float) -> None:
    """Returns as soon as `probe` holds. Raises TimeoutError, naming `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


class Loop:
    """Calls `step` every `period` seconds in a thread until stopped.

    A refusal by the API server is logged and the step tried again: objects change and vanish between look and act.
    """

    def __init__(self, name: str, period: float, step: Callable[[], None]) -> None:
        self._period = period
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def cancel(self) -> None:
        """No further step; one that is under way goes on."""
        self._stopping.set()

    def stop(self) -> None:
        """Returns when the step under way has ended."""
        self.cancel()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._period):
            try:
                self._step()
            except (ApiError, httpx.HTTPError) as error:
                _LOG.info("%s: %s", self._thread.name, error)
            except Exception:
                if not self._stopping.is_set():
                    _LOG.exception("%s failed", self._thread.name)
