"""One pass: faults are staged at many resources, and commands are run, as a person would, until the stack stands.

A pass is the creation, the update or the deletion of a whole stack, or of what is inside its cluster. Each fault counts
by itself: it must have struck, and what the pass ends with must be whole: the state has every resource, a second
preview finds nothing to change and nothing is in ERROR; or, after `destroy`, state and cloud are empty. Else everything
that struck in the pass is lost.
"""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from sandbox.kubernetes.api import ApiError
from tests.faults.engine import Engine, Run, resource_of
from tests.faults.kinds import CLUSTER, DELETE, RELEASE
from tests.faults.points import Point, kept
from tests.faults.results import AGAIN, ITSELF, LOST, NO_REQUEST, NOT_FIRED, RECOVER, REPLACE, Result

COMMANDS = 60
"""After so many a pass is given up."""
READY_SECONDS = 90
FLAGS = ("--yes", "--skip-preview", "--continue-on-error")
EXISTING = ("already exists", "cannot re-use a name")
FOR_RECOVER = ("currently locked", "another operation (install/upgrade/rollback) is in progress", *EXISTING)
"""Words for which docs/sandbox.md sends a person to `recover`."""
BROKEN = ("gcp:container/cluster:Cluster", "gcp:container/nodePool:NodePool")
"""Types that Google keeps in ERROR when their creation failed."""
Json = dict[str, Any]


@dataclass
class Struck:
    """A fault that struck. `outcome`: by what its resource came through, worse from command to command. `clouded`: a
    process was killed in the same command, before the resource had come through: what it would have taken is unknown.
    """

    point: Point
    outcome: str = ITSELF
    said: str = ""
    open: bool = True
    clouded: bool = False


@dataclass
class Pass:
    """`order`: the stack's resources, as the program registers them. `say`: shows what goes on. `inside`: only what is
    in the cluster is deleted, which `destroy` of a whole stack leaves to the cluster's own end. `end`: by the clock of
    `time.monotonic`; after it nothing more strikes, and what has struck is brought to its end."""

    engine: Engine
    phase: str
    order: Sequence[str]
    say: Callable[[str], None]
    commit: str = ""
    inside: bool = False
    end: float = math.inf
    struck: dict[int, Struck] = field(default_factory=dict)
    staged: dict[int, Point] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    """Resources that the engine has come past, changed or not: what waits at one of them strikes no more."""
    failed: set[str] = field(default_factory=set)
    failed_twice: set[str] = field(default_factory=set)
    over: bool = False
    killers: set[str] = field(default_factory=set)
    """Where a process was killed in the last command."""
    objects: list[tuple[str, str, str, str]] = field(default_factory=list)
    unproved: str = ""

    def run(self, chosen: Sequence[Point]) -> list[Result]:
        """Stages the faults, runs commands until one succeeds, and proves that the stack is whole."""
        self.engine.project.call("DELETE", "faults")
        self.objects = self._objects() if self.inside else []
        waiting = self._in_order([each for each in chosen if each.kind.deadly])
        for point in chosen:
            if not point.kind.deadly:
                self._stage(point)
        flags: tuple[str, ...] = ()
        for _ in range(COMMANDS):
            if time.monotonic() > self.end:
                self.over = True
                self.engine.project.call("DELETE", "faults")
            self._stage_next(waiting)
            known = set(self.struck)
            run = self.engine.run(*self._command(), *flags)
            self._note(run, known)
            if run.ok:
                break
            flags = self._settle(run)
        else:
            self.unproved = f"no command succeeded in {COMMANDS}"
        self.unproved = self.unproved or self._what_is_wrong()
        if self.unproved:
            self.say(f"  NOT WHOLE: {self.unproved}")
        results = list(self._results([*chosen]))
        self.engine.project.call("DELETE", "faults")
        return results

    def _command(self) -> tuple[str, ...]:
        if self.phase != DELETE:
            return ("up", *FLAGS)
        if not self.inside:
            return ("destroy", *FLAGS)
        targets = [word for urn in self._inside() for word in ("--target", urn)]
        # Without a target it would be a destroy of everything.
        return ("destroy", *FLAGS, "--target-dependents", *targets) if targets else ("preview",)

    def _inside(self) -> list[str]:
        """URNs of what the state has in the cluster."""
        urns = (each["urn"] for each in self.engine.state().get("resources") or ())
        return [urn for urn in urns if resource_of(urn).startswith(CLUSTER)]

    def _objects(self) -> list[tuple[str, str, str, str]]:
        """API version, kind, namespace and name of what the state has in the cluster; of a release its record."""
        found = []
        for each in self.engine.state().get("resources") or ():
            outputs = each.get("outputs") or {}
            if each["type"] == RELEASE:
                found.append(("v1", "Secret", outputs["namespace"], f"owner=helm,name={outputs['name']}"))
            elif each["type"].startswith(CLUSTER):
                metadata = outputs["metadata"]
                found.append((outputs["apiVersion"], outputs["kind"], metadata.get("namespace", ""), metadata["name"]))
        return found

    def _left_in_cluster(self) -> list[str]:
        """What of that the cluster still has."""
        client = self.engine.project.cluster_client()
        assert client, "the cluster is still there"
        left = []
        with client:
            for version, kind, namespace, name in self.objects:
                try:
                    if "=" in name:
                        found: Any = client.list_all(version, kind, namespace, labelSelector=name)
                    else:
                        found = client.get(version, kind, name, namespace)
                except ApiError as error:
                    if error.status != 404:  # its kind is gone with the chart that brought it
                        raise
                    found = None
                if found:
                    left.append(f"{kind} {namespace}/{name}")
        return left

    def _in_order(self, points: list[Point]) -> list[Point]:
        """As the engine comes to the resources, roughly."""
        place = {name: number for number, name in enumerate(self.order)}
        return sorted(points, key=lambda each: place[each.resource], reverse=self.phase == DELETE)

    def _stage(self, point: Point) -> None:
        fault = {"step": f"{self.phase} {point.resource}", **point.kind.fault}
        self.staged[self.engine.project.call("POST", "faults", fault)["id"]] = point

    def _stage_next(self, waiting: list[Point]) -> None:
        """The next fault that ends a process, unless one still waits: two at once could not be told apart."""
        pending = {each["id"] for each in self.engine.project.pending_faults()}
        await_ = [self.staged[each] for each in pending & self.staged.keys()]
        if any(each.kind.deadly and each.resource not in self.passed for each in await_):
            return
        while waiting and not self.over:
            point = waiting.pop(0)
            if point.resource not in self.passed:
                self._stage(point)
                return

    def _note(self, run: Run, known: set[int]) -> None:
        """Who was struck in this command, and how it ended there."""
        self.finished |= run.changed
        self.passed |= run.done - run.failed.keys()
        for fault in self.engine.project.call("GET", "faults/struck"):
            if fault["id"] in self.staged:
                self.struck.setdefault(fault["id"], Struck(self.staged[fault["id"]]))
        new = [each for number, each in self.struck.items() if number not in known]
        self.killers = {each.point.resource for each in new if each.point.kind.deadly}
        for number, each in self.struck.items():
            name = each.point.resource
            if not each.open:
                continue
            if name in run.done and name not in run.failed:
                each.open = False
            elif number not in known:
                each.clouded = bool(self.killers) and not each.point.kind.deadly
                each.said = run.failed.get(name) or run.said
            # What killed a process ended the command, even if its own resource came through.
            ended = each in new and each.point.kind.deadly and not run.ok
            if (each.open or ended) and each.outcome == ITSELF:
                each.outcome = AGAIN
        command = "up" if self.phase != DELETE else "destroy"
        names = ", ".join(f"{each.point.fault} at {each.point.resource.rpartition('::')[2]}" for each in new)
        self.say(f"  {command}: {'ok' if run.ok else run.code}; {names or 'nothing struck'}")
        if not run.ok:
            self.say(f"    {run.said[:600]}")
            self.failed_twice = (self.failed & run.failed.keys()) - {each.point.resource for each in new}
            self.failed = set(run.failed)
        if any(each.point.kind.fault.get("victim") == "api-server" for each in new):
            self._wait_for_api_server()

    def _settle(self, run: Run) -> tuple[str, ...]:
        """What a person does before the next command, and its further flags."""
        broken = [
            each["urn"]
            for each in self.engine.state().get("resources") or ()
            if each.get("initErrors") and each["type"] in BROKEN and resource_of(each["urn"]) in run.failed
        ]
        if broken and self.phase != DELETE:
            self._worse(REPLACE, {resource_of(each) for each in broken})
            return tuple(word for urn in broken for word in ("--replace", urn))
        said = " ".join((run.said, *run.failed.values()))
        if run.killed or self.engine.pending() or self.failed_twice or any(each in said for each in FOR_RECOVER):
            self._worse(RECOVER, {each.point.resource for each in self.struck.values() if each.open} | self.killers)
            self._recover(*(("--lost-state",) if any(each in said for each in EXISTING) else ()))
        return ()

    def _worse(self, outcome: str, names: set[str]) -> None:
        for each in self.struck.values():
            if each.point.resource in names and (each.open or each.point.kind.deadly):
                each.outcome = outcome

    def _recover(self, *flags: str) -> None:
        report = self.engine.recover(*flags)
        if not flags and any("--lost-state" in each["do"] for each in report["left"]):
            report = self.engine.recover("--lost-state")
        steps = [each["step"] for each in report.get("done", ())]
        self.say(f"    recover: {'; '.join(steps) or 'nothing done'}")
        for each in report["left"]:
            self.say(f"    left: {each['name']}: {each['why']} -> {each['do']}")
        if "printed" in report:
            self.say(f"    recover printed: {report['printed'][-800:]}")

    def _wait_for_api_server(self) -> None:
        """Until it is back: a person would wait, or get the same answer again."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            try:
                client = self.engine.project.cluster_client()
                if client is None:
                    return
                with client:
                    client.request("GET", "/readyz")
                return
            except Exception:  # whatever it answers, it is not ready
                time.sleep(0.5)

    def _what_is_wrong(self) -> str:
        """Why the pass did not end whole; "" where it did."""
        if self.inside:
            return f"left after destroy: {left}" if (left := self._inside() or self._left_in_cluster()) else ""
        if self.phase == DELETE:
            left = self.engine.resources() or self._left_in_google()
            return f"left after destroy: {left}" if left else ""
        missing = sorted(set(self.order) - self.engine.resources())
        if missing:
            return f"not in the state: {', '.join(missing)}"
        if self.engine.pending():
            return "operations are noted as pending"
        if wrong := self._in_error():
            return f"in ERROR: {wrong}"
        preview = self.engine.run("preview", "--expect-no-changes", "--diff")
        return "" if preview.ok else f"a second preview finds changes: {preview.said}"

    def _left_in_google(self) -> list[str]:
        """What Google still has, without what `destroy` is to leave."""
        keeps = kept(self.engine.stack, self.engine.project.folder)
        inventory = self.engine.project.session.inventory()
        return [f"{kind} {name}" for kind, names in inventory.items() for name in names if name not in keeps]

    def _in_error(self) -> str:
        session = self.engine.project.session
        answer = httpx.get(
            f"{session.emulator_url}/container/v1/projects/my-project/locations/-/clusters",
            headers={"Authorization": f"Bearer {session.run.token_file.read_text()}"},
            timeout=30,
            trust_env=False,
        )
        clusters = answer.json().get("clusters") or []
        rows = [*clusters, *(pool for each in clusters for pool in each.get("nodePools") or ())]
        return ", ".join(each["name"] for each in rows if each.get("status") == "ERROR")

    def _results(self, chosen: Sequence[Point]) -> Iterator[Result]:
        """Of what struck, or could have: not of what was not staged yet when its resource was made."""
        day = datetime.datetime.now(datetime.UTC).date().isoformat()
        by_point = {each.point: each for each in self.struck.values()}
        for point in chosen:
            struck = by_point.get(point)
            if struck and struck.clouded and not self.unproved:
                continue
            if struck:
                outcome = LOST if self.unproved else struck.outcome
                said = f"{self.unproved} | {struck.said}" if self.unproved else struck.said
            elif point in self.staged.values() and not self.over:
                # The step was made without a request for it, or no provider made it.
                outcome, said = NO_REQUEST if point.resource in self.finished else NOT_FIRED, ""
            else:
                continue
            yield Result(point.stack, point.phase, point.resource, point.fault, outcome, day, self.commit, said[:1200])
