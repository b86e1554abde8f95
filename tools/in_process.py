"""Runs a Pulumi program in this process, under a monitor that stands for the engine: no CLI, no plugins."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, cast
from weakref import WeakSet

import pulumi
import yaml
from pulumi.runtime import mocks

from tools.generated import ROOT


def run(
    program: Callable[[], Any],
    monitor: mocks.MockMonitor,
    *,
    stack: str,
    preview: bool,
    config: Mapping[str, str] | None = None,
    secrets: tuple[str, ...] = (),
) -> None:
    """Run `program` as the language host would; errors in `apply` and in registration are raised, too.

    `config`: by full key, objects as JSON; `secrets`: the keys among them that are secret.
    """
    with _own_loop() as loop:
        try:
            pulumi.runtime.reset_options()
            pulumi.runtime.set_all_config(dict(config or {}), list(secrets))
            pulumi.runtime.configure(
                pulumi.runtime.Settings(
                    project=_project(),
                    stack=stack,
                    organization="organization",
                    root_directory=str(ROOT),
                    dry_run=preview,
                    monitor=monitor,
                    engine=mocks.MockEngine(None),
                )
            )
            loop.run_until_complete(pulumi.runtime.run_in_stack(program))
        finally:
            pulumi.runtime.reset_options()


@cache
def _project() -> str:
    return str(yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["name"])


class _Loop(asyncio.SelectorEventLoop):
    """A loop for one run. What a program would do in a thread, a registration above all, is done at once, in a stable
    order: the monitor is in this process and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        # A failing program leaves futures behind whose errors the caller already has: they are dropped, not logged.
        self.set_exception_handler(lambda _loop, _context: None)
        self.set_task_factory(self._made)

    @staticmethod
    def _made(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        cast(_Loop, loop).tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            # Whoever waits goes on in its turn, as after a thread.
            self.call_soon(future.set_result, func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop for one run; what a failing program leaves behind is cancelled."""
    loop = _Loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        for task in loop.tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        for task in loop.tasks:
            # What a run leaves behind may stay in memory (`gc.freeze` in components/platform.py), and whoever ends a
            # loop in this process looks at every task that asyncio knows.
            asyncio.tasks._unregister_task(task)
        asyncio.set_event_loop(None)
