"""`python -m tests.fuzz --cases 5000`: tries many stack files and platforms, and says which promises broke."""

from __future__ import annotations

import typer

from .campaign import EVERY_CLOUD, EVERY_GRAPH, search, written


def main(
    cases: int = 1000, first: int = 1_000_000, graph: int = EVERY_GRAPH, cloud: int = EVERY_CLOUD, show: str = ""
) -> None:
    """CASES numbered from FIRST; of GRAPH accepted platforms one is registered, of CLOUD one is created.

    SHOW prints a case instead, for example `text:1000007`.
    """
    if show:
        kind, _, number = show.partition(":")
        print(written(kind, int(number)))
        return
    tally = search(first, cases, lambda line: print(line, flush=True), graph=graph, cloud=cloud)
    print(tally.summary())
    raise typer.Exit(1 if tally.broken else 0)


app = typer.Typer(pretty_exceptions_enable=False)
app.command()(main)
app()
