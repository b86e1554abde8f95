"""Runs a Pulumi program in this process, under a monitor that stands for the engine: no CLI, no plugins."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any
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


@contextmanager
def _own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop for one run; one worker thread keeps registrations in a stable order.

    A failing program leaves futures behind whose errors the caller already has: they are dropped, not logged.
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    # asyncio.all_tasks would look at the tasks of every earlier run, too.
    tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def made(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        tasks.add(task)
        return task

    loop.set_task_factory(made)
    asyncio.set_event_loop(loop)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    try:
        yield loop
    finally:
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(None)
