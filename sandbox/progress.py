"""Shows a person what is being built, why, and roughly how long it will take; and how far a long command has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sandbox.toolchain import Binary, Tick

# Where the output is not a terminal (CI), a line this often says that the build is alive.
LINE_EVERY_SECONDS = 20


@contextmanager
def building(console: Console, missing: list[Binary]) -> Iterator[Tick]:
    """A `Tick` that shows progress on the builds of `missing`; shows nothing where nothing is missing."""
    if missing:
        minutes = max(1, round(sum(b.seconds for b in missing) / 60))
        names = ", ".join(b.name for b in missing)
        console.print(
            f"Building {names} from their Go modules: they are not on this machine yet. Once per machine and version; "
            f"about {minutes} min on 2 cores. Everything goes into the per-user cache, nothing into the checkout.",
            highlight=False,
        )
    if console.is_terminal:
        with _bars(console) as tick:
            yield tick
    else:
        yield _lines(console)


@contextmanager
def running(console: Console, so_far: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """What to call while a command runs whose own output is not shown; it says how far the command has come.

    On a terminal this is one line that goes with the command. Elsewhere it is a line after `LINE_EVERY_SECONDS`, and
    one more whenever twice the time has passed: few lines, however slow the machine.
    """
    started = time.monotonic()
    if console.is_terminal:
        with console.status("") as status:
            yield lambda: status.update(escape(f"{time.monotonic() - started:.0f} s  {so_far()}"))
        return
    due = LINE_EVERY_SECONDS

    def tick() -> None:
        nonlocal due
        if (seconds := time.monotonic() - started) >= due:
            due *= 2
            console.print(f"  {seconds:.0f} s  {escape(so_far())}", highlight=False, soft_wrap=True)

    yield tick


@contextmanager
def _bars(console: Console) -> Iterator[Tick]:
    columns = (TextColumn("  {task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[about]}"))
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console) as progress:

        def tick(binary: Binary, seconds: float) -> None:
            if binary.name not in tasks:
                for finished in tasks.values():
                    progress.update(finished, completed=1)
                about = f"of about {binary.seconds} s"
                tasks[binary.name] = progress.add_task(f"building {binary.name}", total=1, about=about)
            # The estimate may be too short; the bar fills only when the build ends.
            progress.update(tasks[binary.name], completed=min(0.97, seconds / binary.seconds))

        yield tick
        for finished in tasks.values():
            progress.update(finished, completed=1)


def _lines(console: Console) -> Tick:
    printed: dict[str, float] = {}

    def tick(binary: Binary, seconds: float) -> None:
        if binary.name not in printed or seconds >= printed[binary.name] + LINE_EVERY_SECONDS:
            printed[binary.name] = seconds
            console.print(f"  building {binary.name}: {seconds:.0f} s of about {binary.seconds} s", highlight=False)

    return tick
