"""The emulator answers every request of the real gcp provider plugin as recorded.

A run is what the plugin sent for a stack from `up` to `destroy`; README.md beside the recordings says how they were
made. With the recorded answers the plugin's second preview was clean, so an answer that changes may make it dirty.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from functools import cache

import pytest

from sandbox.tests.emulated_google import connected
from sandbox.tests.replay.recording import EXCEPTIONS, NAMES, Request, recorded_run
from sandbox.tests.replay.replaying import FROZEN, Replay

REQUESTS = {"dev": 118, "gce": 341, "all": 291}


@cache
def played(name: str) -> Replay:
    """A run, played once per process."""
    with connected(time_scale=FROZEN) as cloud:
        replay = Replay(cloud, recorded_run(name))
        replay.play()
        assert cloud.inventory() == {}
        return replay


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_request_is_answered_as_recorded(name: str) -> None:
    replay = played(name)
    assert replay.problems == []
    assert len(replay.run) == REQUESTS[name]
    print(f"{name}: {len(replay.run)} of {len(replay.run)} recorded requests answered as recorded")


def test_every_exception_is_needed() -> None:
    """An exception that no answer needs would hide differences to come."""
    assert set().union(*(played(name).excepted for name in NAMES)) == set(EXCEPTIONS)


def _surge(request: Request) -> None:
    request.answer["upgradeSettings"]["maxSurge"] = 1


def _number(request: Request) -> None:
    request.answer["targetId"] = "1" + request.answer["targetId"][1:]


def _status(request: Request) -> None:
    object.__setattr__(request, "status", 409)


CHANGED: dict[str, tuple[Callable[[Request], None], Callable[[Request], bool], str]] = {
    "a field": (_surge, lambda r: r.path.endswith("/nodePools/serve") and r.status == 200, "upgradeSettings.maxSurge"),
    "a number": (_number, lambda r: "targetId" in r.answer and r.answer["status"] == "DONE", "targetId"),
    "a status": (_status, lambda r: r.path.endswith("/clusters") and r.method == "POST", "200, recorded 409"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_difference_is_found(case: str) -> None:
    """The replay is worth something only if it can fail: it names the request and the field."""
    change, wanted, expected = CHANGED[case]
    run = [dataclasses.replace(request, answer=copy.deepcopy(request.answer)) for request in recorded_run("dev")]
    request = next(r for r in run if wanted(r) and r.method != "DELETE")
    change(request)
    with connected(time_scale=FROZEN) as cloud:
        replay = Replay(cloud, run)
        replay.play()
    assert replay.problems
    assert str(request) in replay.problems[0]
    assert expected in replay.problems[0]


def test_no_recorded_answer_holds_a_secret() -> None:
    for name in NAMES:
        assert "PRIVATE KEY" not in json.dumps([r.answer for r in recorded_run(name)])
