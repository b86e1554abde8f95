"""Makes the edits of the table one by one on a running stack, with the real engine, in the sandbox.

For each row: a preview, which must plan what the graph predicts, resource by resource; an update; a second preview,
which must find nothing. A refused edit must fail with a reason. Edits stay, and the next is made on top of them; so a
run costs three commands a row, and edits meet in one stack as they do in a person's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.edits.plans import PREDICTED, REPLACE, Step, effect_of, predicted
from tests.edits.table import BASES, Effect, Json, Row
from tests.graph.edits import lay_foreign, put
from tests.graph.emulated import PROJECT, UPDATE, EmulatedCloud, recorded
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
    with closing(EmulatedCloud(url)) as others:
        lay_foreign(others, zone.rpartition("-")[0])


@dataclass
class Campaign:
    """A running stack of one back end, and the edits made on it. `url`: an emulator for predictions, another one."""

    stack: Stack
    url: str
    backend: str
    say: Callable[[str], None] = print
    current: Json = field(default_factory=dict)

    def begin(self) -> None:
        self.stack.succeed("stack", "init", STACK)
        self._settle(BASES[self.backend])
        self._clean()

    def run(self, rows: Sequence[Row], together: int = 1) -> Iterator[Outcome]:
        """Make all the edits, up to so many in one update: those of different keys with the same effect, so that
        none hides another's."""
        left = list(rows)
        while left:
            chosen, before = self._chosen(left, together)
            left = [row for row in left if row not in chosen]
            outcome = Outcome(chosen)
            try:
                self._make(outcome, before)
            except AssertionError as error:
                outcome.wrong.append(_diagnostics(str(error)))
                self.current = {}
            yield outcome

    def _chosen(self, rows: Sequence[Row], together: int) -> tuple[list[Row], Json]:
        """The next edits, and what stands before them: what stands now, or the base where they need that."""
        first, *rest = rows
        start = self.current if self.current and self._fit([first], self.current) else BASES[self.backend]
        chosen = [first]
        if not self._alone(first):
            for row in rest:
                if len(chosen) < together and self._effect(row) is self._effect(first) and not row.unsafe_to_keep:
                    chosen += [row] if self._fit([*chosen, row], start) else []
        return chosen, put(start, _merged(row.before for row in chosen))

    def _alone(self, row: Row) -> bool:
        return row.unsafe_to_keep or self._effect(row) in (Effect.REFUSED, Effect.ANOTHER_CLUSTER)

    def _effect(self, row: Row) -> Effect:
        return dict(row.backends)[self.backend]

    def _fit(self, rows: Sequence[Row], start: Json) -> bool:
        """Whether these edits can be made of that, and none is in the way of another."""
        if any(_in_the_way(one, other) for one in rows for other in rows if one is not other):
            return False
        try:
            before = put(start, _merged(row.before for row in rows))
            after = put(before, _merged(row.after for row in rows))
            changed = all(put(before, row.after) != before for row in rows)
        except (KeyError, AttributeError, TypeError):  # what it is an edit of is not there
            return False
        refused = any(self._effect(row) is Effect.REFUSED for row in rows)
        return changed and not errors(before) and (refused or not errors(after))

    def _make(self, outcome: Outcome, before: Json) -> None:
        rows = outcome.rows
        after = put(before, _merged(row.after for row in rows))
        self._settle(before)
        if self._effect(rows[0]) in (Effect.REFUSED, Effect.ANOTHER_CLUSTER):
            self._write(after)
            said = self.stack.fail("preview", "-s", STACK)
            outcome.planned = next((line.strip() for line in said.splitlines() if "->" in line), "")
            if not outcome.planned:
                outcome.wrong.append(f"refused without a reason: {said[-600:]}")
            self._write(before)
            return
        expected = self._predicted(before, after)
        self._write(after)
        planned = list(self._planned())
        outcome.planned = ", ".join(sorted({f"{step.type.rpartition(':')[2]} {step.operation}" for step in planned}))
        outcome.wrong += _differences(expected, planned)
        if len(rows) == 1 and effect_of(planned) is not self._effect(rows[0]):
            outcome.wrong.append(f"is {effect_of(planned).value}, not {self._effect(rows[0]).value}")
        if planned:
            self._up()
            self._clean()
        self.current = after
        if rows[0].unsafe_to_keep:
            self._settle(before)

    def _predicted(self, before: Json, after: Json) -> list[Step]:
        with closing(EmulatedCloud(self.url)) as cloud:
            cloud.control("reset")
            cloud.control("zones", zone=before["zone"], generations=GENERATIONS)
            lay_foreign(cloud, before["zone"].rpartition("-")[0])
            cloud.make(recorded(before))
            return predicted(cloud, before, after)

    def _planned(self) -> Iterator[Step]:
        """What a preview is going to do with the program's resources."""
        preview = Preview.model_validate_json(self.stack.succeed("preview", "-s", STACK, "--json"))
        for step in preview.steps:
            sign = EFFECTS[step.op]
            if sign in SIGNS and step.type.startswith(PREDICTED):
                yield Step(step.type, step.name, SIGNS[sign], list(step.detailed_diff or ()))

    def _settle(self, platform: Json) -> None:
        """Bring the stack to a configuration, unless it is there."""
        if platform != self.current:
            if self.current and platform.get("network") != self.current.get("network"):
                # Another network is another cluster, which the program refuses to put in place of the one that stands.
                self.stack.succeed("destroy", "-s", STACK, "--yes", "--skip-preview")
            self._write(platform)
            self._up()
            self.current = platform

    def _write(self, platform: Json) -> None:
        empty = {"cluster": {}, "slices": {}, "queues": {}}
        self.stack.write_stack(STACK, **{**empty, "name": "tpu", **platform})

    def _up(self) -> None:
        self.stack.succeed("up", "-s", STACK, "--yes", "--skip-preview")

    def _clean(self) -> None:
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


def _merged(changes: Iterable[Json]) -> Json:
    return {key: value for each in changes for key, value in each.items()}


def _operation(step: Step) -> str:
    """Inside the cluster it is the API server that knows what cannot be updated, as a LocalQueue's ClusterQueue."""
    return UPDATE if step.operation == REPLACE and step.type.startswith("kubernetes:") else step.operation


def _diagnostics(output: str) -> str:
    """What the engine says went wrong, of all that it prints."""
    _, found, diagnostics = output.partition("Diagnostics:")
    return diagnostics.partition("\nOutputs:")[0][:3000] if found else output[-3000:]


def _differences(expected: Sequence[Step], planned: Sequence[Step]) -> Iterator[str]:
    """Where the engine plans something else than the graph predicts."""
    wanted, found = ({(step.type, step.name): _operation(step) for step in steps} for steps in (expected, planned))
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            yield f"{key[1]}: predicted {wanted.get(key, 'nothing')}, planned {found.get(key, 'nothing')}"


def report(outcomes: Sequence[Outcome]) -> str:
    """The figures of a run."""
    made = [row for outcome in outcomes for row in outcome.rows]
    held = [row for outcome in outcomes if not outcome.wrong for row in outcome.rows]
    return f"{len(made)} edits in {len(outcomes)} updates; as planned, and clean afterwards, or refused: {len(held)}"
