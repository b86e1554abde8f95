"""`python -m sandbox.google`: the emulator as a process of its own, without control planes behind its clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandbox.google.server import listen, run
from sandbox.google.world import World


def main(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    state: Annotated[Path | None, typer.Option(help="File that keeps the state; without it the state is lost.")] = None,
    time_scale: Annotated[
        float, typer.Option(min=0, help="Divides realistic durations of operations; 0: they take no time.")
    ] = 0,
    ready_file: Annotated[Path | None, typer.Option(help='Gets {"url", "pid"} once the emulator listens.')] = None,
    parent_pid: Annotated[int | None, typer.Option(help="End when this process ends.")] = None,
    fresh_project: Annotated[bool, typer.Option(help="Projects start with hardly any API enabled.")] = False,
) -> None:
    """Serves the emulated Google Cloud APIs until interrupted."""
    run(World(state, time_scale, fresh_project=fresh_project), listen(port), ready_file, parent_pid)


if __name__ == "__main__":
    typer.run(main)
