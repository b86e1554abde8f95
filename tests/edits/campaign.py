"""Makes the edits of the table one by one on a running stack, with the real engine, in the sandbox.

For each row: a preview, which must have the effect that the row states, and no other; an update; a second preview,
which must find nothing. A refused edit must fail with a reason. Edits stay, and the next is made on top of them; so a
run costs three commands a row, and edits meet in one stack as they do in a person's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.edits.arguments import put
from tests.edits.plans import TYPES, Step, effect_of, strays
from tests.edits.table import CHANNEL, Effect, Json, Row
from tests.graph.emulated import PROJECT, EmulatedCloud, lay_foreign
from tests.platforms import errors
from tools.gate_preview import EFFECTS, Preview
from tools.gate_preview import Effect as Sign

STACK = "edits"
GENERATIONS = ["v5e", "v5p", "v6e", "tpu7x"]
RESERVATIONS = {"first": "ct6e-standard-4t", "second": "ct6e-standard-4t", "cubes": "tpu7x-standard-4t"}
OWNER = "owner-project"
SIGNS = {Sign.CREATE: "create", Sign.UPDATE: "update", Sign.DELETE: "delete", Sign.REPLACE: "replace"}


class Stack(Protocol):
    """A project in the sandbox, as tests/sandbox/conftest.py has it."""

    def write_stack(self, stack: str, **platform: Any) -> None: ...
    def succeed(self, *arguments: str) -> str: ...
    def fail(self, *arguments: str) -> str: ...
    def call(self, method: str, path: str, body: Json | None = None) -> Any: ...


@dataclass
class Outcome:
    """What became of edits made in one update: the operations planned, by type of resource, and what did not hold."""

    rows: Sequence[Row]
    planned: str = ""
    wrong: list[str] = field(default_factory=list)


def prepare(stack: Stack, url: str, zone: str) -> None:
    """What others made in the project before the platform came: reservations, networks, images, accounts, keys."""
    stack.call("POST", "zones", {"zone": zone, "generations": GENERATIONS})
    for name, machine in RESERVATIONS.items():
        seed = {"zone": zone, "name": name, "machine_type": machine, "count": 400}
        stack.call("POST", "reservations", {**seed, "project": PROJECT})
        stack.call("POST", "reservations", {**seed, "project": OWNER, "share_with": [PROJECT]})
    stack.call("POST", "channels", {"project": PROJECT, "number": CHANNEL, "address": "pager@example.com"})
    with closing(EmulatedCloud(url)) as others:
        lay_foreign(others, zone.rpartition("-")[0])


@dataclass
class Campaign:
    """A running stack of one back end, and the edits made on it, which begin with `base`."""

    stack: Stack
    backend: str
    base: Json
    current: Json = field(default_factory=dict)

    def begin(self) -> None:
        self.stack.succeed("stack", "init", STACK)
        self.settle(self.base)
        self.assert_clean()

    def run(self, rows: Sequence[Row], together: int = 1) -> Iterator[Outcome]:
        """Make all the edits, up to so many in one update: those of different keys with the same effect, so that
        none hides another's."""
        left = list(rows)
        while left:
            chosen, before = self._chosen(left, together)
            left = [row for row in left if row not in chosen]
            try:
                yield self._made(chosen, before)
            except AssertionError as error:
                self.current = {}
                yield Outcome(chosen, wrong=[_diagnostics(str(error))])

    def _chosen(self, rows: Sequence[Row], together: int) -> tuple[list[Row], Json]:
        """The next edits, and what stands before them: what stands now, or the base where they need that."""
        first, *rest = rows
        start = self.current if self.current and self._fit([first], self.current) else self.base
        chosen = [first]
        if not self._alone(first):
            for row in rest:
                if len(chosen) < together and self._effect(row) is self._effect(first) and not row.unsafe_to_keep:
                    chosen += [row] if self._fit([*chosen, row], start) else []
        return chosen, put(start, _merged(row.before for row in chosen))

    def _alone(self, row: Row) -> bool:
        return row.unsafe_to_keep or self.is_refused(row)

    def is_refused(self, row: Row) -> bool:
        return self._effect(row) in (Effect.REFUSED, Effect.ANOTHER_CLUSTER)

    def _effect(self, row: Row) -> Effect:
        return dict(row.backends)[self.backend]

    def _fit(self, rows: Sequence[Row], start: Json) -> bool:
        """Whether these edits can be made of that, and none is in the way of another."""
        if any(_in_the_way(one, other) for one in rows for other in rows if one is not other):
            return False
        try:
            before = put(start, _merged(row.before for row in rows))
            after = edited(before, rows)
            changed = all(put(before, row.after) != before for row in rows)
        except (KeyError, AttributeError, TypeError):  # what it is an edit of is not there
            return False
        refused = any(self._effect(row) is Effect.REFUSED for row in rows)
        return changed and not errors(before) and (refused or not errors(after))

    def _made(self, rows: Sequence[Row], before: Json) -> Outcome:
        self.settle(before)
        outcome = self.look(rows)
        if outcome.planned and not self.is_refused(rows[0]):
            self.settle(edited(before, rows))
            self.assert_clean()
        if rows[0].unsafe_to_keep:
            self.settle(before)
        return outcome

    def look(self, rows: Sequence[Row]) -> Outcome:
        """Preview edits of the same effect on what stands now, and note what does not hold."""
        outcome, effect = Outcome(rows), self._effect(rows[0])
        self._write(edited(self.current, rows))
        if self.is_refused(rows[0]):
            said = self.stack.fail("preview", "-s", STACK)
            outcome.planned = next((line.strip() for line in said.splitlines() if "->" in line), "")
            if not outcome.planned:
                outcome.wrong.append(f"refused without a reason: {said[-600:]}")
            return outcome
        planned = list(self._planned())
        outcome.planned = ", ".join(sorted({f"{step.type.rpartition(':')[2]} {step.operation}" for step in planned}))
        if effect_of(planned) is not effect:
            outcome.wrong.append(f"is {effect_of(planned).value}, not {effect.value}")
        outcome.wrong += [f"touches {name} too" for name in strays(rows, planned)]
        return outcome

    def _planned(self) -> Iterator[Step]:
        """What a preview is going to do with the program's resources."""
        preview = Preview.model_validate_json(self.stack.succeed("preview", "-s", STACK, "--json"))
        for step in preview.steps:
            sign = EFFECTS[step.op]
            if sign in SIGNS and step.type.startswith(TYPES):
                yield Step(step.type, step.name, SIGNS[sign], list(step.detailed_diff or ()))

    def settle(self, platform: Json) -> None:
        """Bring the stack to a configuration, by an update unless it is there."""
        self._write(platform)
        if platform != self.current:
            if self.current and platform.get("network") != self.current.get("network"):
                # Another network is another cluster, which the program refuses to put in place of the one that stands.
                self.stack.succeed("destroy", "-s", STACK, "--yes", "--skip-preview")
            self.stack.succeed("up", "-s", STACK, "--yes", "--skip-preview")
            self.current = platform

    def _write(self, platform: Json) -> None:
        empty = {"cluster": {}, "slices": {}, "queues": {}}
        self.stack.write_stack(STACK, **{**empty, "name": "tpu", **platform})

    def assert_clean(self) -> None:
        self.stack.succeed("preview", "-s", STACK, "--expect-no-changes", "--diff")


def _in_the_way(one: Row, other: Row) -> bool:
    """Whether an edit of one concerns what the other edits, or begins with otherwise."""
    common = one.before.keys() & other.before.keys()
    needed = {key for key in other.before if key not in common or one.before[key] != other.before[key]}
    return any(_below(key, old) or _below(old, key) for key in one.after for old in {*other.after, *needed}) or any(
        one.before[key] != other.before[key] for key in common
    )


def _below(key: str, other: str) -> bool:
    return f"{key}.".startswith(f"{other}.")


def edited(platform: Json, rows: Iterable[Row]) -> Json:
    """A platform after edits."""
    return put(platform, _merged(row.after for row in rows))


def _merged(changes: Iterable[Json]) -> Json:
    return {key: value for each in changes for key, value in each.items()}


def _diagnostics(output: str) -> str:
    """What the engine says went wrong, of all that it prints."""
    _, found, diagnostics = output.partition("Diagnostics:")
    return diagnostics.partition("\nOutputs:")[0][:3000] if found else output[-3000:]


def report(outcomes: Sequence[Outcome]) -> str:
    """The figures of a run."""
    made = [row for outcome in outcomes for row in outcome.rows]
    held = [row for outcome in outcomes if not outcome.wrong for row in outcome.rows]
    return f"{len(made)} edits in {len(outcomes)} updates; as planned, and clean afterwards, or refused: {len(held)}"
