"""Recovers a stack: looks, plans, does what is planned, and looks again, until nothing is left that it may do.

Each round begins with what is saved now, so a recovery that was stopped goes on when it is run again.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from plan.platform import Platform
from tools.cluster_api import ClusterAwayError
from tools.preflight.cloud import NoConnectionError, RefusedError
from tools.recover import plan as steps
from tools.recover.attributes import half_written
from tools.recover.checkpoint import CREATING, DELETING, Checkpoint, Preview, Resource, preview, read
from tools.recover.completion import completed
from tools.recover.engine import ROOM, Engine, EngineError, Helm, HelmError, is_locked
from tools.recover.findings import Findings
from tools.recover.lock import Holder, holders
from tools.recover.look import Looker
from tools.recover.plan import (
    HOLDER,
    Left,
    Plan,
    Told,
    check_names,
    import_file,
    is_engine_only,
    locked,
    others_of,
    plan,
    wanted_of,
)
from tools.recover.report import Done, Report, words

MAX_ROUNDS = 10
WAIT_SECONDS = 3
FIX = "remove the cause, then run this command again"
UNREACHABLE = "cluster is unreachable"
"""Words of the kubernetes provider (upstream: provider/pkg/provider/provider.go)."""
REPAIR = (
    "if the cluster is gone or broken: `pulumi up`, which repairs it, then this command again; else only the latter"
)
WEBHOOK = "failed calling webhook"
"""Words of the API server where a webhook stands and what answers it does not run."""
INSTALL = "if the controller of that webhook does not run yet: `pulumi up --skip-preview`, which installs it"
OUTSIDE = (
    "if the cluster is gone or broken: `pulumi up`, which repairs it; else this command again. What is outside the"
    " cluster is settled"
)
PATIENCE = timedelta(minutes=45)
"""How long Google may take for what it is at: longer than a cluster takes."""
SETTLING = timedelta(seconds=20)
"""How long a request that was under way may take to show, and plugins of a killed engine to notice: what does not
exist, or is half made, is looked up again after that."""


@dataclass
class Recovery:
    """One run of the command. `agree`: asks the person whether to go on with a plan; `say`: shows what is done."""

    engine: Engine
    looker: Looker
    project: str
    stack: str
    told: Told
    agree: Callable[[Plan], bool]
    say: Callable[[str], None]
    interrupted: bool = False
    """An update did not end, or failed, and the state was not brought up to date since."""
    unlocked: bool = False
    noted: dict[str, Resource] = field(default_factory=dict)
    """What was imported, as the engine had noted it, by URN."""
    away: str = ""
    """Why the cluster could not be read when the state was brought up to date."""
    ahead: Preview | None = None
    """What `up` will do, as long as nothing was done since it was asked."""

    def run(self, *, dry: bool) -> Report:
        """What was found, done and left.

        Raises EngineError and CheckpointError where the stack cannot be read, NamesError where what a person has told
        does not fit it.
        """
        report = Report(self.stack, self._held())
        if not self._make_readable(report, dry=dry):
            return report
        self._begin(report.lock)
        until = time.monotonic() + PATIENCE.total_seconds()
        for _ in self._rounds(until):
            try:
                planned, checkpoint, others = self._plan(recent=not report.done)
            except EngineError as error:
                if not report.done:
                    raise
                report.fail(str(error), FIX)
                break
            report.take(planned)
            if dry or not planned.steps:
                break
            if not report.done and not self.agree(planned):
                dry = True
                break
            if not self._do_all(planned, checkpoint, others, report):
                break
        else:
            report.fail("there is still something to do", "run this command again")
        report.dry = dry
        if self.away:
            report.fail(self.away, OUTSIDE)
        if not dry and not report.failed and not report.locked:
            self._look_ahead(report)
        return report

    def _rounds(self, until: float) -> Iterator[int]:
        """Numbers of rounds; while Google is at work there may be any number."""
        self._tries = 0
        while self._tries < MAX_ROUNDS and time.monotonic() < until:
            self._tries += 1
            yield self._tries

    def _make_readable(self, report: Report, *, dry: bool) -> bool:
        """Removes what keeps the engine from reading the state; returns whether it can be read now."""
        files = half_written(self.engine.backend(), self.engine.folder, self.project, self.stack)
        if not files:
            return True
        left = locked(report.lock, self.told)
        step = steps.Remove(files)
        planned = Plan(() if left else (step,), (), left)
        report.take(planned)
        if left or dry or not self.agree(planned):
            report.dry = True
            return False
        self.say(words(step))
        for file in files:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise EngineError(f"{file} cannot be removed: {error.strerror}") from None
        report.readable.append(Done(words(step)))
        return True

    def _begin(self, held: tuple[Holder, ...] | None) -> None:
        """Notes the time from which on things may be this platform's."""
        checkpoint = read(self.engine.export())
        since = min((each.since for each in held or () if each.since), default=None) or checkpoint.first_made
        self.told = replace(self.told, since=since)

    def _held(self) -> tuple[Holder, ...] | None:
        if self.unlocked:
            return ()
        return holders(self.engine.backend(), self.engine.folder, self.project, self.stack, self.looker.cloud)

    def _plan(self, *, recent: bool) -> tuple[Plan, Checkpoint, Mapping[str, Resource]]:
        """The plan of a round. `recent`: what does not exist may still come of requests that were under way."""
        checkpoint, held = read(self.engine.export()), self._held()
        self.ahead = preview(self.engine.preview()) if self.told.lost_state else None
        creates = self.ahead.creates if self.ahead else ()
        wanted = wanted_of(checkpoint, creates)
        if recent:
            check_names(self.told, wanted, checkpoint)
            # An earlier recovery wrote what took another one's place, and was stopped before its refresh.
            self.interrupted |= any(each.unread and not is_engine_only(each) for each in checkpoint.resources.values())
            # A request whose answer got lost is no longer pending after an error. Google may have done what it asked,
            # and refuses the next one that names the fingerprint of before.
            self.interrupted |= self.engine.last_failed()
        rows = {each.urn: each for each in (*creates, *(op.resource for op in checkpoint.pending))}
        others = {**rows, **checkpoint.resources}
        asked = (*wanted, *others_of(checkpoint))
        taken = checkpoint.identities
        findings = self.looker.look(asked, others, taken)
        while recent and (rest := _settling(checkpoint)) and _may_come(checkpoint, findings):
            time.sleep(min(rest, WAIT_SECONDS))
            findings = self.looker.look(asked, others, taken)
        interrupted = self.interrupted or bool(held)
        return plan(checkpoint, wanted, findings, self.told, held, interrupted), checkpoint, others

    def _do_all(self, planned: Plan, checkpoint: Checkpoint, others: Mapping[str, Resource], report: Report) -> bool:
        """Does the steps of a plan, until one fails; returns whether none did."""
        for step in planned.steps:
            if isinstance(step, steps.Wait):
                self._tries -= 1
                if not report.done or report.done[-1].step != words(step):
                    self.say(words(step))
                    report.done.append(Done(words(step)))
                time.sleep(WAIT_SECONDS)
                continue
            self.say(words(step))
            self.ahead = None
            error = self._do(step, checkpoint, others)
            report.done.append(Done(words(step), error))
            if error:
                self.say(error)
                report.fail(error, _remedy(error))
                return False
        return True

    def _do(self, step: steps.Step, checkpoint: Checkpoint, others: Mapping[str, Resource]) -> str:
        """Does one step; returns what went wrong, or nothing."""
        try:
            match step:
                case steps.Unlock():
                    self.engine.cancel()
                    self.unlocked = self.interrupted = True
                case steps.Settle(release):
                    assert release.back_to is not None
                    self._helm().rollback(release.name, release.namespace, release.back_to, release.seconds)
                case steps.Uninstall(release):
                    self._helm().uninstall(release.name, release.namespace, release.seconds)
                case steps.Adopt(adoptions, protect):
                    self.engine.adopt(import_file(step, checkpoint, others), protect=protect)
                    self.noted.update({each.resource.urn: each.resource for each in adoptions})
                case steps.Complete(replacing):
                    self.noted.update({each.resource.urn: each.resource for each in replacing})
                    ids = {each.resource.urn: each.id for each in replacing}
                    self.engine.save(completed(self.engine.export(), self.noted.values(), ids))
                case steps.Connect():
                    self.engine.connect()
                case steps.Refresh(forget):
                    self._refresh(checkpoint, forget=bool(forget))
                    self.interrupted = False
                case _:
                    raise AssertionError(step)
        except (EngineError, HelmError, ClusterAwayError, RefusedError, NoConnectionError) as error:
            return str(error)
        return ""

    def _refresh(self, checkpoint: Checkpoint, *, forget: bool) -> None:
        """What is outside the cluster is brought up to date also where the cluster is away: `up` then repairs it."""
        try:
            self.engine.refresh(forget=forget)
        except EngineError as error:
            inside = inside_of(checkpoint)
            if UNREACHABLE not in str(error) or not inside:
                raise
            self.engine.refresh(forget=forget, leave=inside)
            self.away = str(error)

    def _helm(self) -> Helm:
        kubeconfig = self.looker.kubeconfig()
        if kubeconfig is None:
            raise ClusterAwayError("there is no cluster")
        return Helm(kubeconfig)

    def _look_ahead(self, report: Report) -> None:
        """What `up` will do, and what of it would fail because it exists already."""
        try:
            report.up = self.ahead or preview(self.engine.preview())
        except EngineError as error:
            report.fail(str(error), _remedy(str(error)))
            return
        checkpoint = read(self.engine.export())
        wanted = wanted_of(checkpoint, report.up.creates)
        others = {**{each.urn: each for each in report.up.creates}, **checkpoint.resources}
        named = {each.name for each in report.left}
        found = self.looker.look(wanted, others, checkpoint.identities)
        names = [each.name for each in wanted if found[each.urn].exists and each.name not in named]
        if names:
            why = "the state does not know what exists, so `up` will fail"
            do = f"if it is this platform's: python -m tools recover -s {self.stack} --lost-state"
            report.left += (Left(", ".join(names), why, do),)


def _remedy(error: str) -> str:
    """What a person is to do about a step that failed."""
    if is_locked(error):
        return HOLDER
    if WEBHOOK in error:
        return INSTALL
    return REPAIR if UNREACHABLE in error else FIX


def inside_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Patterns of URNs of what the state has in the cluster: one for each type and its parents."""
    urns = (each.urn for each in checkpoint.resources.values() if each.in_cluster)
    return tuple(dict.fromkeys(f"{urn.rpartition('::')[0]}::**" for urn in urns))


def _settling(checkpoint: Checkpoint) -> float:
    """Seconds for which a request may still be under way that the engine made before it saved for the last time."""
    if checkpoint.saved is None:
        return 0.0
    rest = SETTLING - (datetime.now(UTC) - checkpoint.saved)
    return max(0.0, min(rest, SETTLING).total_seconds())


def _may_come(checkpoint: Checkpoint, findings: Findings) -> bool:
    """Whether a request may still be under way: something is not there, or half made, that was being made; or still
    there that was being deleted."""
    awaited = {CREATING: ("absent", "half-made"), DELETING: ("present",)}
    found = ((each.kind, findings[each.resource.urn]) for each in checkpoint.pending if each.resource.urn in findings)
    return any(finding.state in awaited.get(kind, ()) for kind, finding in found)


def recover(
    platform: Platform,
    path: Path,
    stack: str,
    settings: Mapping[str, Any],
    kubeconfig: Path | None,
    told: Told,
    *,
    dry: bool,
    agree: Callable[[Plan], bool],
    say: Callable[[str], None],
) -> Report:
    """Recovers the stack whose file is `path`. Raises EngineError and CheckpointError where it cannot be read."""
    project = str(yaml.safe_load((path.parent / "Pulumi.yaml").read_text())["name"])
    try:
        with tempfile.TemporaryDirectory(prefix="tpu-") as folder:
            looker = Looker(platform, settings, kubeconfig, Path(folder))
            return Recovery(Engine(path.parent, stack), looker, project, stack, told, agree, say).run(dry=dry)
    except OSError as error:
        raise EngineError(f"a temporary file cannot be written: {error.strerror} -> {ROOM}") from None
