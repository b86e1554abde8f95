"""The campaign: stack after stack, created, updated and destroyed with faults, until the time is over."""

from __future__ import annotations

import json
import math
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from tests.faults.edit import edited_property
from tests.faults.engine import Engine
from tests.faults.kinds import API, CLUSTER, CREATE, DELETE, UPDATE
from tests.faults.points import Point, chain, graph, points, resources, sample
from tests.faults.results import FILE, LOST, SETTLED, Result, add, latest, read
from tests.faults.trial import Pass
from tests.sandbox.conftest import ROOT, Project, link_checkout
from tests.sandbox.warm_python import warm_up

Say = Callable[[str], None]


@contextmanager
def project(stack: str) -> Iterator[Project]:
    """A sandbox, and a project in it whose program can be edited."""
    with (
        tempfile.TemporaryDirectory(prefix="tpu-") as scratch,
        running(RunDirectory(Path(scratch) / "run"), Plan(), ROOT) as session,
    ):
        warm_up(session.run)
        folder = link_checkout(Path(scratch) / "project")
        make_editable(folder, stack)
        yield Project(replace(session, program_dir=folder))


def make_editable(folder: Path, stack: str) -> None:
    """Put the campaign's program before that of a linked checkout."""
    main = folder / "__main__.py"
    main.rename(folder / "platform_main.py")
    main.write_text((Path(__file__).parent / "program.py").read_text())
    types = {name.partition("::")[0] for name in resources(stack)}
    properties = {type_: name for type_ in sorted(types) if (name := edited_property(type_))}
    (folder / "edit.json").write_text(json.dumps(properties))


def commit() -> str:
    """Of the checkout, with a mark where something is not committed."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def turn_apis_off(found: Project, stack: str) -> None:
    """Nobody has used the project of Google's yet, so that the creation of an API sends something."""
    session = found.session
    for request in graph(stack).requests.values():
        if request.type == API:
            httpx.post(
                f"{session.emulator_url}/su/v1/projects/my-project/services/{request.object['service']}:disable",
                headers={"Authorization": f"Bearer {session.run.token_file.read_text()}"},
                timeout=30,
                trust_env=False,
            ).raise_for_status()


def life(
    found: Project,
    stack: str,
    free: Sequence[Point],
    tried: Mapping[tuple[str, str], int],
    seed: int,
    costly: int,
    say: Say,
    end: float = math.inf,
    again: Collection[Point] = (),
) -> Iterator[list[Result]]:
    """Creation, update and deletion of a stack, each with faults at points that are `free`; the results of each.
    `tried`: how often each kind struck, by phase and kind. `again`: points that come before all others. After `end` (by
    `time.monotonic`) nothing more strikes, and no further pass begins.

    What is in the cluster is deleted first: with the whole stack it would end with the cluster, and no provider be
    asked to delete it.
    """
    chance, order = random.Random(f"{seed} {stack}"), resources(stack)
    found.start_over()
    found.copy_stack(stack)
    turn_apis_off(found, stack)
    in_cluster = [point for point in free if point.type.startswith(CLUSTER)]
    outside = [point for point in free if not point.type.startswith(CLUSTER)]
    passes = ((CREATE, free, False), (UPDATE, free, False), (DELETE, in_cluster, True), (DELETE, outside, False))
    edit, counted = "", Counter(tried)
    for phase, choice, inside in passes:
        if time.monotonic() > end:
            return
        chosen = sample(choice, phase, counted, chance, costly, chain(stack, chance), again)
        say(f"{stack} {phase}: {len(chosen)} faults{' in the cluster' if inside else ''}")
        edit = edit or (str(seed) if phase == UPDATE else "")
        engine = Engine(found, stack, edit)
        results = Pass(engine, phase, order, say, commit(), inside, end).run(chosen)
        counted.update((each.phase, each.fault) for each in results if each.struck)
        yield results
        if any(each.outcome == LOST for each in results):
            say(f"{stack}: given up after {phase}")
            return


def untried(stack: str, results: Collection[Result]) -> list[Point]:
    """The points of a stack at which no fault has struck yet, or where the last one was lost."""
    done = {point for point, each in latest(results).items() if each.outcome in SETTLED}
    return [point for point in points(stack, resources(stack)) if point not in done]


def lost(stack: str, results: Collection[Result]) -> list[Point]:
    """The points of a stack that have been lost, and nothing since."""
    return [point for point, each in latest(results).items() if point.stack == stack and each.outcome == LOST]


def strikes(stack: str, results: Collection[Result]) -> Counter[tuple[str, str]]:
    """At how many points of a stack each kind has struck, by phase and kind."""
    found = latest(results).items()
    return Counter((point.phase, point.fault) for point, each in found if point.stack == stack and each.struck)


def campaign(stacks: Sequence[str], minutes: float, seed: int, costly: int, say: Say, file: Path = FILE) -> bool:
    """Runs lives of the stacks in turn until the time is over; whether nothing was lost."""
    end, sound = time.monotonic() + 60 * minutes, True
    while time.monotonic() < end:
        for stack in stacks:
            known = read(file)
            free = untried(stack, known)
            if not free or time.monotonic() > end:
                continue
            start = time.monotonic()
            with project(stack) as found:
                for results in life(
                    found, stack, free, strikes(stack, known), seed, costly, say, end, lost(stack, known)
                ):
                    add(results, file)
                    counts = Counter(each.outcome for each in results)
                    say(f"{stack} {results[0].phase if results else ''}: {dict(counts)}")
                    sound = sound and LOST not in counts
            say(f"{stack}: {time.monotonic() - start:.0f} s")
        seed += 1
        known = read(file)
        if not any(untried(stack, known) for stack in stacks):
            break
    return sound
