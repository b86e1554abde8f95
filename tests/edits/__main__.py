"""`python -m tests.edits`: the edits of the table on a running stack, by the real engine; exit code 1 if any fails."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.edits.campaign import Campaign, Outcome, prepare, report
from tests.edits.table import BASES, GKE, GUEST, ROWS, Effect
from tests.sandbox.conftest import ROOT, Project, link_checkout

# An edit that names a worker's stack needs that stack: tests/sandbox/test_engine_multikueue.py has one.
OTHER_STACK = "organization/"


def main(
    backend: Annotated[str, typer.Option(help="gke or self-managed")] = GKE,
    only: Annotated[str, typer.Option(help="edits whose keys contain this")] = "",
    together: Annotated[int, typer.Option(help="make up to so many edits of different keys in one update")] = 1,
    skip: Annotated[int, typer.Option(help="leave out so many of the first edits")] = 0,
    minutes: Annotated[float, typer.Option(help="begin no further edit after so many minutes")] = 1e9,
) -> None:
    """Make every edit of the table, one by one, and say what did not hold."""
    if backend == GUEST or backend not in BASES:
        raise typer.BadParameter("gke or self-managed; a cluster of others is in tests/sandbox/test_engine_existing.py")
    rows = [row for row in ROWS if backend in dict(row.backends) and only in row.id and OTHER_STACK not in row.id]
    # What is refused needs no update: it comes last, and costs one preview.
    rows.sort(key=lambda row: dict(row.backends)[backend] in (Effect.REFUSED, Effect.ANOTHER_CLUSTER))
    del rows[:skip]
    end = time.monotonic() + 60 * minutes
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="tpu-") as scratch,
        running(RunDirectory(Path(scratch) / "run"), Plan(), ROOT) as session,
    ):
        folder = link_checkout(Path(scratch) / "project")
        project = Project(replace(session, program_dir=folder))
        prepare(project, session.emulator_url, str(BASES[backend]["zone"]))
        campaign = Campaign(project, backend, BASES[backend])
        campaign.begin()
        for outcome in campaign.run(rows, together):
            outcomes.append(outcome)
            edits = "\n     ".join(row.id for row in outcome.rows)
            print(f"{'ok  ' if not outcome.wrong else 'FAIL'} {edits}\n  -> {outcome.planned}", flush=True)
            for wrong in outcome.wrong:
                print(f"     {wrong}", flush=True)
            if time.monotonic() > end:
                break
    print(report(outcomes))
    print(f"{len(rows) - sum(len(outcome.rows) for outcome in outcomes)} edits left")
    sys.exit(any(outcome.wrong for outcome in outcomes))


if __name__ == "__main__":
    typer.run(main)
