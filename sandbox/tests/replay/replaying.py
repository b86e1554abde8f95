"""Sends a recorded run to an emulator and holds each answer against the recording."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sandbox.google.compute_types import relative
from sandbox.tests.emulated_google import Cloud
from sandbox.tests.replay.recording import (
    ADDRESSES,
    EXCEPTIONS,
    MADE_UP,
    OPERATION,
    PROGRESS,
    TIMES,
    UNDER_WAY,
    UNORDERED,
    ZONES,
    Json,
    Request,
)

# No operation ends by itself: the replay ends each where the recording saw it ended.
FROZEN = 1e-5


class Names:
    """What this server calls the things that the recorded server made up a name for."""

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._recorded: dict[str, str] = {}

    def learn(self, recorded: str, ours: str) -> bool:
        """Whether the two may stand for each other: they do from now on, or did before."""
        first, second = self._ours.setdefault(recorded, ours), self._recorded.setdefault(ours, recorded)
        return first == ours and second == recorded

    def translated(self, text: str) -> str:
        """A recorded text in this server's names."""
        if text in self._ours:
            return self._ours[text]
        for recorded, ours in self._ours.items():
            if len(recorded) > 8 and recorded in text:
                text = text.replace(recorded, ours)
        return text

    def body(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.translated(k): self.body(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.body(item) for item in value]
        return self.translated(value) if isinstance(value, str) else value

    # Comparing

    def differences(self, recorded: Any, ours: Any, path: str = "", key: str = "") -> Iterator[tuple[str, str]]:
        """Every field that differs: its path, and what was recorded and what came."""
        if isinstance(recorded, dict) and isinstance(ours, dict):
            operation = "operationType" in recorded
            for name in [*recorded, *(n for n in ours if n not in recorded)]:
                where = f"{path}.{name}" if path else name
                if name not in ours or name not in recorded:
                    shown = json.dumps(recorded.get(name, ours.get(name)))[:200]
                    yield where, f"{shown} " + ("is missing" if name in recorded else "was not recorded")
                elif operation and name in PROGRESS and _under_way(recorded) and _under_way(ours):
                    continue
                else:
                    yield from self.differences(recorded[name], ours[name], where, name)
        elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
            if key in UNORDERED:
                recorded, ours = sorted(recorded, key=_own_name), sorted(ours, key=_own_name)
            for number, (one, other) in enumerate(zip(recorded, ours, strict=True)):
                yield from self.differences(one, other, f"{path}[{number}]", key)
        elif not self._same(recorded, ours, key):
            yield path, f"recorded {json.dumps(recorded)[:300]}, came {json.dumps(ours)[:300]}"

    def _same(self, recorded: Any, ours: Any, key: str) -> bool:
        if type(recorded) is not type(ours):
            return False
        if not isinstance(recorded, str):
            return bool(recorded == ours)
        if key in TIMES:
            return _is_time(recorded) and _is_time(ours)
        if recorded in ADDRESSES:
            return bool(ours)
        if key in MADE_UP or OPERATION.fullmatch(recorded):
            return self.learn(recorded, ours)
        return ours in (recorded, self.translated(recorded))


def _own_name(item: Any) -> str:
    return str(item.get("name", "")) if isinstance(item, dict) else str(item)


def _under_way(operation: Json) -> bool:
    return operation["status"] in UNDER_WAY


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class Replay:
    """A run against a cloud: `problems` are the answers that are not as recorded, `excepted` the exceptions in use."""

    def __init__(self, cloud: Cloud, run: Sequence[Request]) -> None:
        self.cloud = cloud
        for zone in ZONES:
            cloud.control("zones", zone)
        self.run = run
        self.names = Names()
        self.problems: list[str] = []
        self.excepted: set[tuple[str, str]] = set()
        self._ends = dict(_ends(run))

    def play(self) -> None:
        """Send every request, in order."""
        for request in self.run:
            if request.method == "GET" and _settled(request.answer):
                self._finish_instances(request.answer["selfLink"])
            self._send(request)
            for name in self._ends.get(request.number, ()):
                self.cloud.emulator.world.operations.finish(self.names.translated(name))

    def _finish_instances(self, group: str) -> None:
        operations = self.cloud.emulator.world.operations
        for operation in operations.all():
            is_its = operation.method.startswith("compute.groupMembers.") and f"{relative(group)}/" in operation.target
            if is_its and not operation.done:
                operations.finish(operation.name)

    def _send(self, request: Request) -> None:
        path = self.names.translated(request.path)
        body = self.names.body(request.body)
        answer = self.cloud.http.request(request.method, f"{path}?{request.query}", json=body)
        if answer.status_code != request.status:
            self.problems.append(f"{request}: {answer.status_code}, recorded {request.status}: {answer.text[:300]}")
            return
        for field, text in self.names.differences(request.answer, answer.json()):
            excepted = next((e for e in EXCEPTIONS if _is_excepted(e, request.path, field)), None)
            if excepted is None:
                self.problems.append(f"{request}: {field}: {text}")
            else:
                self.excepted.add(excepted)


def _is_excepted(exception: tuple[str, str], path: str, field: str) -> bool:
    return all(re.fullmatch(pattern, text) for pattern, text in zip(exception, (path, field), strict=True))


def _settled(answer: Json) -> bool:
    """Whether an answer shows a group of hosts that are all there."""
    status = answer.get("status")
    return isinstance(status, dict) and bool(status.get("isStable"))


def _ends(run: Sequence[Request]) -> Iterator[tuple[int, list[str]]]:
    """Line -> the operations that are over after it.

    That is after the last answer that shows them under way, by themselves or by the state of the node pool they are
    about, and after every operation that began before their end.
    """
    pools = [(r.number, pool) for r in run for pool in (r.answer or {}).get("nodePools", ())]
    moving = [(number, pool["selfLink"]) for number, pool in pools if pool["status"] != "RUNNING"]
    shown = [(r.number, r.answer) for r in run if "operationType" in (r.answer or {})]
    by_line: dict[int, list[str]] = {}
    for line, answer in shown:
        if answer["status"] in UNDER_WAY:
            continue
        name, end = answer["name"], answer["endTime"]
        before = [n for n, a in shown if n < line and (a["name"] == name or _began(a) < end)]
        before += [n for n, link in moving if n < line and link == answer["targetLink"]]
        by_line.setdefault(max(before), []).append(name)
    yield from by_line.items()


def _began(operation: Json) -> str:
    return str(operation["startTime"])
