"""A queue of keys in the manner of controller-runtime: no key twice, none in two hands, back-off after failures."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.005, 1000.0  # seconds
_LOG = logging.getLogger(__name__)


class RequeueError(Exception):
    """Not a failure, but to be tried again with back-off."""


class WorkQueue(Generic[Key]):
    """Keys that wait for `workers` threads.

    `reconcile` handles one and returns after how many seconds it wants it back, None for not at all; an exception puts
    the key back with exponential back-off.
    """

    def __init__(self, name: str, workers: int, reconcile: Callable[[Key], float | None]) -> None:
        self._name = name
        self._workers = workers
        self._reconcile = reconcile
        self._changed = threading.Condition()
        self._ready: deque[Key] = deque()
        self._waiting: set[Key] = set()  # in `_ready`, or to be put there once it is out of hand
        self._in_hand: set[Key] = set()
        self._later: list[tuple[float, int, Key]] = []
        self._count = 0
        self._failures: dict[Key, int] = {}

    def start(self) -> None:
        for number in range(self._workers):
            threading.Thread(target=self._work, name=f"{self._name}-{number}", daemon=True).start()

    def add(self, key: Key) -> None:
        with self._changed:
            self._add(key)

    def _add(self, key: Key) -> None:
        if key not in self._waiting:
            self._waiting.add(key)
            if key not in self._in_hand:
                self._ready.append(key)
                self._changed.notify()

    def _add_later(self, key: Key, seconds: float) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._later, (time.monotonic() + seconds, self._count, key))
            self._changed.notify()

    def _take(self) -> Key:
        with self._changed:
            while True:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._add(heapq.heappop(self._later)[2])
                if self._ready:
                    key = self._ready.popleft()
                    self._waiting.discard(key)
                    self._in_hand.add(key)
                    return key
                self._changed.wait(self._later[0][0] - now if self._later else None)

    def _give_back(self, key: Key) -> None:
        with self._changed:
            self._in_hand.discard(key)
            if key in self._waiting:
                self._ready.append(key)
                self._changed.notify()

    def _work(self) -> None:
        while True:
            key = self._take()
            try:
                again = self._reconcile(key)
                self._failures.pop(key, None)
            except Exception as error:
                if not isinstance(error, RequeueError):
                    _LOG.error("%s: %s: %s", self._name, key, error)
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                again = min(FIRST_BACK_OFF * 2 ** (failures - 1), LONGEST_BACK_OFF)
            self._give_back(key)
            if again is not None:
                self._add_later(key, again)
