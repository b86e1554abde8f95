"""How a pass counts what struck; the engine and its sandbox are played, command by command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.faults.engine import Run
from tests.faults.kinds import CREATE, DELETE
from tests.faults.points import Point, kept
from tests.faults.results import AGAIN, ITSELF, LOST, NO_REQUEST, NOT_FIRED, RECOVER
from tests.faults.trial import Pass
from tests.graph.recording import ROOT

NETWORK, ROUTER, ROLE = "gcp:compute/network:Network::n", "gcp:compute/router:Router::r", "gcp:projects/role:Role::o"
NAMES = (NETWORK, ROUTER, ROLE)


class Played:
    """Stands for `Engine` and its project. `runs`: what each command does, and whom it strikes."""

    def __init__(self, *runs: tuple[Run, tuple[str, ...]], resources: tuple[str, ...] = NAMES) -> None:
        self.runs, self.resources_, self.project = list(runs), resources, self
        self.staged: dict[str, int] = {}
        self.hit: list[int] = []
        self.recoveries: list[tuple[str, ...]] = []

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if body:
            self.staged[body["step"].partition(" ")[2]] = len(self.staged) + 1
            return {"id": len(self.staged)}
        return [{"id": each} for each in self.hit] if path == "faults/struck" else []

    def pending_faults(self) -> list[dict[str, Any]]:
        return [{"id": each} for each in self.staged.values() if each not in self.hit]

    def run(self, *_: str) -> Run:
        run, struck = self.runs.pop(0)
        self.hit += [self.staged[each] for each in struck]
        return run

    def recover(self, *flags: str) -> dict[str, Any]:
        self.recoveries.append(flags)
        return {"left": [], "done": []}

    def state(self) -> dict[str, Any]:
        return {}

    def pending(self) -> list[Any]:
        return []

    def resources(self) -> set[str]:
        return set(self.resources_)


def outcomes(engine: Played, *faults: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By resource, how its fault ended."""
    monkeypatch.setattr(Pass, "_in_error", lambda _: "")
    points = [Point("dev", CREATE, resource, fault) for resource, fault in faults]
    found = Pass(engine, CREATE, NAMES, lambda _: None).run(points)  # type: ignore[arg-type]
    return {each.resource: each.outcome for each in found}


def done(*names: str) -> Run:
    return Run(0, done=set(names), changed=set(names))


CLEAN = (Run(0), ())


def test_a_kill_clouds_what_struck_beside_it_and_needs_its_own_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Played((Run(-9, done={ROLE}, changed={ROLE}), NAMES), (done(NETWORK, ROUTER), ()), CLEAN)
    faults = ((NETWORK, "engine killed"), (ROUTER, "429, three times"), (ROLE, "503, three times"))
    assert outcomes(engine, *faults, monkeypatch=monkeypatch) == {NETWORK: RECOVER, ROLE: ITSELF}
    assert engine.recoveries == [()]


def test_a_killed_program_has_ended_its_command_even_where_the_resource_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Played((Run(1, done={NETWORK}, changed={NETWORK}), (NETWORK,)), (done(NETWORK), ()), CLEAN)
    assert outcomes(engine, (NETWORK, "program killed"), monkeypatch=monkeypatch) == {NETWORK: AGAIN}
    assert not engine.recoveries


def test_what_exists_and_is_not_known_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Run(1, failed={NETWORK: "Error 409: already exists"}, said="already exists")
    engine = Played((failed, (NETWORK,)), (done(NETWORK), ()), CLEAN)
    assert outcomes(engine, (NETWORK, "cut after"), monkeypatch=monkeypatch) == {NETWORK: RECOVER}
    assert engine.recoveries == [("--lost-state",)]


def test_a_step_without_a_request_is_no_point(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Played((done(*NAMES), (ROUTER,)), CLEAN)
    faults = ((NETWORK, "429, three times"), (ROUTER, "429, three times"))
    assert outcomes(engine, *faults, monkeypatch=monkeypatch) == {NETWORK: NO_REQUEST, ROUTER: ITSELF}


@pytest.mark.parametrize("kept", [(NETWORK, ROUTER), ()])
def test_what_is_not_whole_in_the_end_was_lost(monkeypatch: pytest.MonkeyPatch, kept: tuple[str, ...]) -> None:
    engine = Played((done(*NAMES), (ROUTER,)), CLEAN, resources=kept)
    assert outcomes(engine, (ROUTER, "429, three times"), monkeypatch=monkeypatch) == {ROUTER: LOST}


def test_a_second_preview_with_changes_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Played((done(*NAMES), (ROUTER,)), (Run(1), ()))
    assert outcomes(engine, (ROUTER, "429, three times"), monkeypatch=monkeypatch) == {ROUTER: LOST}


def test_a_kill_where_nothing_changes_does_not_keep_the_next_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    same, killed = Run(1, done={NETWORK}, failed={ROUTER: "for another reason"}), Run(-9)
    engine = Played((same, ()), (killed, (ROUTER,)), (done(ROUTER), ()), CLEAN)
    faults = ((NETWORK, "program killed"), (ROUTER, "engine killed"))
    assert outcomes(engine, *faults, monkeypatch=monkeypatch) == {NETWORK: NOT_FIRED, ROUTER: RECOVER}


@pytest.mark.parametrize(("further", "left"), [({}, ""), ({"compute.networks": ["n"]}, "compute.networks n")])
def test_buckets_of_teams_are_to_be_there_after_a_destroy(
    tmp_path: Path, further: dict[str, list[str]], left: str
) -> None:
    """The campaign once took them for something that was forgotten, and once looked for the stack in the checkout."""
    engine: Any = Played(resources=())
    shutil.copy(ROOT / "Pulumi.team.yaml", tmp_path / "Pulumi.ours.yaml")
    engine.stack, engine.session, engine.folder = "ours", engine, tmp_path
    engine.inventory = lambda: {"storage.buckets": sorted(kept("team")), **further}
    assert len(kept("team")) == 2
    wrong = Pass(engine, DELETE, NAMES, lambda _: None)._what_is_wrong()
    assert wrong == (f"left after destroy: {[left]}" if left else "")
