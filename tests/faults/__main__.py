"""`make faults`: faults at every resource and in every phase of whole stacks; writes docs/reliability.md."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tests.faults.campaign import campaign
from tests.faults.page import PAGE, page
from tests.faults.points import STACKS, resources
from tests.faults.results import read


def main(
    stacks: Annotated[list[str] | None, typer.Argument(help="Stack files of the checkout; all four if unset.")] = None,
    minutes: Annotated[float, typer.Option(help="Begin no stack after so many minutes.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the choice among points that were not tried.")] = 1,
    costly: Annotated[int, typer.Option(help="Faults that take minutes to come back from, in each phase.")] = 6,
) -> None:
    """Try faults that were not tried yet, evenly over phases and kinds. Exit code 1: something was lost."""
    sound = campaign(stacks or STACKS, minutes, seed, costly, lambda line: print(line, flush=True))
    PAGE.write_text(page(read(), {stack: resources(stack) for stack in STACKS}))
    sys.exit(not sound)


if __name__ == "__main__":
    typer.run(main)
