"""An event loop in a thread of its own, for servers of the sandbox that the rest calls without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs from `start` to `stop`, and not again."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it in the thread, and returns what it returns. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[[], None]) -> None:
        """Runs it in the thread soon, without waiting."""
        self._loop.call_soon_threadsafe(work)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs `last` in the thread and ends it. A thread that was never started has nothing to end."""
        if self._thread.is_alive():
            self.run(last())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
