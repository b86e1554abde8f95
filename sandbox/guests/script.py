"""A startup script's life: it begins when the machine has booted, and does not give up until it is through."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import httpx
from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    stop_when_event_set,
    wait_exponential,
)
from tenacity.nap import sleep_using_event

from sandbox.google.errors import GoogleError
from sandbox.google.guests import GuestCloud, Machine
from sandbox.guests.attributes import MetadataError
from sandbox.guests.network import UnreachableError
from sandbox.kubernetes.api import ApiError
from sandbox.kubernetes.joining import JoinError
from sandbox.kubernetes.supervisor import ProcessError

# Between tries: seconds on a real machine, and the shortest here, where time is scaled away.
FIRST_WAIT, LONGEST_WAIT, SHORTEST_WAIT = 10.0, 60.0, 0.5
# What a script waits for to become right. Anything else is a mistake of the simulation's own.
EXPECTED = (
    ApiError,
    GoogleError,
    JoinError,
    MetadataError,
    OSError,
    ProcessError,
    TimeoutError,
    UnreachableError,
    httpx.HTTPError,
)
_LOG = logging.getLogger(__name__)

Step = Callable[[], None]


class Script:
    """Runs in a thread of its own from the machine's boot to its end.

    `start` is tried until it succeeds, then `renew` every `renew_seconds` (real ones: what it renews is real); `end` is
    called when the machine is gone. Each new reason of a failure is a line in the machine's serial port.
    """

    def __init__(
        self,
        cloud: GuestCloud,
        machine: Machine,
        boot_seconds: float,
        start: Step,
        end: Step,
        renew: Step | None = None,
        renew_seconds: float | None = None,
    ) -> None:
        self._cloud = cloud
        self.machine = machine
        self._boot_seconds = boot_seconds
        self._start, self._end, self._renew = start, end, renew
        self._renew_seconds = renew_seconds
        self._said = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"machine {machine.short_name}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """The machine is gone: the script ends soon."""
        self._stopping.set()

    def abandon(self) -> None:
        """The machine stays, but the sandbox ends: nothing is told to anybody. Returns when the script has ended."""
        self._end = lambda: None
        self._stopping.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """A line on the machine's serial port."""
        self._cloud.log(self.machine, f"startup-script: {text}")

    def _run(self) -> None:
        try:
            if not self._stopping.wait(self._cloud.seconds(self._boot_seconds)):
                self._until_done(self._start)
            while not self._stopping.wait(self._renew_seconds):
                if self._renew:
                    self._until_done(self._renew)
        except Exception:
            _LOG.exception("the simulation of %s failed", self.machine.name)
            self.say("failed; the emulator's log says how")
            self._stopping.wait()
        finally:
            try:
                self._end()
            except EXPECTED as error:
                _LOG.info("the end of %s: %s", self.machine.name, error)

    def _until_done(self, step: Step) -> None:
        retrying = Retrying(
            retry=retry_if_exception_type(EXPECTED),
            stop=stop_when_event_set(self._stopping),
            wait=wait_exponential(
                multiplier=max(self._cloud.seconds(FIRST_WAIT), SHORTEST_WAIT),
                max=max(self._cloud.seconds(LONGEST_WAIT), SHORTEST_WAIT),
            ),
            sleep=sleep_using_event(self._stopping),
            before_sleep=self._complain,
        )
        try:
            retrying(step)
        except RetryError:  # cancelled
            return
        self._said = ""

    def _complain(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        text = f"{error}; trying again" if str(error) else f"{error!r}; trying again"
        if text != self._said:
            self._said = text
            self.say(text)
