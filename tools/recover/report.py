"""What a recovery has found, done and left to a person, as text and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.recover import plan as steps
from tools.recover.checkpoint import Preview
from tools.recover.lock import Holder
from tools.recover.plan import LEFT, Item, Left, Plan, Step


@dataclass(frozen=True)
class Done:
    """A step in words; `error`: what went wrong, "" where nothing did."""

    step: str
    error: str = ""


@dataclass
class Report:
    """`lock`: who held it, None where nobody can say; `planned`: steps of the first plan; `up`: what `pulumi up` will
    do, None where that was not asked."""

    stack: str
    lock: tuple[Holder, ...] | None
    dry: bool = False
    planned: list[str] = field(default_factory=list)
    items: dict[tuple[str, str], Item] = field(default_factory=dict)
    readable: list[Done] = field(default_factory=list)
    """What made it possible to read the state at all."""
    done: list[Done] = field(default_factory=list)
    left: tuple[Left, ...] = ()
    up: Preview | None = None

    def take(self, planned: Plan) -> None:
        """A round's plan: what is left is what the last one leaves; an item keeps the first words for it."""
        if not self.done:
            self.planned = [words(each) for each in planned.steps]
        for item in planned.items:
            key = (item.name, item.type)
            if key not in self.items or self.items[key].action in ("wait", LEFT):
                self.items[key] = item
        self.left = planned.left

    def fail(self, why: str, do: str) -> None:
        """Notes what keeps the command from going on."""
        self.left += (Left(self.stack, why, do),)

    @property
    def failed(self) -> bool:
        return any(each.error for each in self.done)

    @property
    def locked(self) -> bool:
        return any(each.name == "the lock" for each in self.left)

    @property
    def recovered(self) -> bool:
        """Whether nothing is left to do for a person."""
        return not self.left and not self.failed and not (self.dry and self.planned)


def words(step: Step) -> str:
    """A step as a line of text: the command it is, or what it waits for."""
    match step:
        case steps.Remove(files):
            return f"rm {_list(tuple(map(str, files)))}, which was not written to its end"
        case steps.Unlock():
            return "pulumi cancel"
        case steps.Wait(names):
            return f"wait for {_list(names)}"
        case steps.Settle(release):
            return f"helm rollback {release.name} {release.back_to} -n {release.namespace}"
        case steps.Uninstall(release):
            return f"helm uninstall {release.name} -n {release.namespace}"
        case steps.Adopt(adoptions, protect):
            adopted = _list(tuple(each.resource.name for each in adoptions))
            return f"pulumi import{' (protected)' if protect else ''}: {adopted}"
        case steps.Complete(replacing, imported):
            completed = _list(tuple(each.resource.name for each in (*replacing, *imported)))
            return f"pulumi stack import, with what an import leaves out: {completed}"
        case steps.Connect():
            return "pulumi up of the connection to the cluster only"
        case steps.Refresh(forget):
            return f"pulumi refresh{f', and forget that {_list(forget)} began' if forget else ''}"
    raise AssertionError(step)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def as_json(report: Report) -> str:
    return json.dumps(
        {
            "stack": report.stack,
            "dryRun": report.dry,
            "recovered": report.recovered,
            "lock": None if report.lock is None else [{"holder": str(each), "gone": each.gone} for each in report.lock],
            "found": [vars(each) for each in report.items.values()],
            "planned": report.planned,
            "done": [vars(each) for each in (*report.readable, *report.done)],
            "left": [vars(each) for each in report.left],
            "up": {"counts": dict(report.up.counts), "changes": dict(report.up.changes)} if report.up else None,
        },
        indent=2,
    )


def plan_text(planned: Plan) -> str:
    """A plan, for a person who is asked whether to go on."""
    return "\n".join((*_found(list(planned.items)), *_steps("to do", [words(each) for each in planned.steps])))


def as_text(report: Report) -> str:
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    if report.lock is None:
        yield "lock: not to be read here; if there is one, the engine says so"
    for holder in report.lock or ():
        yield f"lock: {holder}{', a process that is gone' if holder.gone else ''}"
    yield from _found(list(report.items.values()))
    if report.dry:
        yield from _steps("would be done", report.planned)
    else:
        done = (*report.readable, *report.done)
        yield from _steps("done", [f"{each.step}{' - failed' if each.error else ''}" for each in done])
    if report.up is not None:
        yield from _up(report.up)
    for each in report.left:
        yield f"left to you: {each.name}: {each.why}\n  -> {each.do}"
    if report.recovered:
        yield "nothing is left to do by hand" if report.readable or report.done else "nothing to recover"


def _found(items: list[Item]) -> Iterator[str]:
    if not items:
        return
    wide = max(len(each.name) for each in items)
    broad = max(len(each.found) for each in items)
    yield "found:"
    yield from (f"  {each.name:{wide}}  {each.found:{broad}}  {each.action}" for each in items)


def _steps(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _up(up: Preview) -> Iterator[str]:
    changes = {op: count for op, count in up.counts.items() if op != "same"}
    if not changes:
        yield "`pulumi up` will change nothing"
        return
    yield f"`pulumi up` will {', '.join(f'{op} {count}' for op, count in sorted(changes.items()))}:"
    yield from (f"  {op:8} {urn.rpartition('::')[2]}" for urn, op in up.changes.items())
