"""What another version of this program means for a stack that stands, as far as the stack's state tells.

It compares three things: the version that the stack exported with this program's, Helm charts with those that this
program installs, and boot scripts of machines with this program's. `pulumi preview` remains the whole answer.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any, get_args

from components.compute.boot_script import boot_script
from plan.charts import CHARTS
from plan.program_version import program_version
from platform_config.software import Software
from tools.generated import ROOT

State = Mapping[str, Any]
Rows = list[Mapping[str, Any]]

UNRECORDED = "0.1.0"
"""The version of stacks that export none."""
STACK, RELEASE = "pulumi:pulumi:Stack", "kubernetes:helm.sh/v3:Release"
TEMPLATE_PAGE = "docs/self-managed-operations.md#a-new-version-of-this-program"
MIGRATION = re.compile(r"^### Migration: (\S+)\n+(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
RELEASES = re.compile(r"^## (\d+\.\d+\.\d+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


class StateError(Exception):
    """What was given is no stack export; the message says what to do."""


@dataclass(frozen=True)
class Note:
    """A migration note of CHANGELOG.md."""

    version: str
    id: str
    text: str


@dataclass(frozen=True)
class Check:
    """`was`: the version of the last update, `now`: of this program; `notes`: for people; `changes`: what `up` does."""

    was: str
    now: str
    notes: list[Note]
    changes: list[str]

    @property
    def goes_back(self) -> bool:
        """Whether a newer program has updated the stack."""
        return number(self.was) > number(self.now)

    @property
    def concerns(self) -> bool:
        """Whether anything does."""
        return bool(self.goes_back or self.notes or self.changes)


def _has_former_outputs(rows: Rows) -> bool:
    slices = _mapping(_outputs(rows).get("slices"))
    return any("price_per_hour_usd" in _mapping(plan) for plan in slices.values())


def _outputs(rows: Rows) -> Mapping[str, Any]:
    """What the stack exports."""
    return next((_mapping(row.get("outputs")) for row in rows if row["type"] == STACK), {})


def _mapping(value: Any) -> Mapping[str, Any]:
    """A mapping of the state; where another program has something else there, an empty one."""
    return value if isinstance(value, dict) else {}


CONCERNS: dict[str, Callable[[Rows], bool]] = {"outputs-renamed": _has_former_outputs}
"""Whether a migration note concerns a stack, by its resources. Every note of CHANGELOG.md is here."""


def notes(changelog: str) -> Iterator[Note]:
    """All migration notes, newest release first."""
    for version, release in RELEASES.findall(changelog):
        for id_, text in MIGRATION.findall(release):
            yield Note(version, id_, " ".join(text.split()))


def number(version: str) -> tuple[int, ...]:
    """For comparing; of `0.3.0-rc1` the numbers, and of what is no version those of the oldest."""
    numbers = re.match(r"[0-9]{1,9}(\.[0-9]{1,9}){0,2}", version, re.ASCII)
    return tuple(int(part) for part in (numbers[0] if numbers else UNRECORDED).split("."))


def read(file: IO[str]) -> State:
    """What `pulumi stack export` has printed. Raises StateError."""
    try:
        state = json.loads(file.read().removeprefix("\ufeff"))
        rows = (state["deployment"] or {}).get("resources") or []
        if not all(isinstance(row["type"], str) and isinstance(row["urn"], str) for row in rows):
            raise TypeError("a resource without a type")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"this is no output of `pulumi stack export` ({error}) -> give it that") from None
    found: State = state
    return found


def check(state: State, changelog: str | None = None) -> Check:
    """Compare a state with this program."""
    rows: Rows = (state["deployment"] or {}).get("resources") or []
    recorded = _mapping(_outputs(rows).get("program")).get("version")
    was = recorded if isinstance(recorded, str) else UNRECORDED
    text = changelog if changelog is not None else (ROOT / "CHANGELOG.md").read_text()
    newer = [note for note in notes(text) if number(was) < number(note.version) <= number(program_version())]
    concerning = [note for note in newer if CONCERNS[note.id](rows)]
    return Check(was, program_version(), concerning, [*_charts(rows), *_scripts(rows)])


def _charts(rows: Rows) -> Iterator[str]:
    """Releases of a chart in a version that this program does not install any more."""
    known = {chart.reference: chart for chart in CHARTS}
    for row in rows:
        inputs = _mapping(row.get("inputs"))
        chart = known.get(str(inputs.get("chart"))) if row["type"] == RELEASE else None
        if chart is None:
            continue
        model = Software.model_fields[chart.part.replace("-", "_")].annotation
        assert model
        versions = get_args(model.model_fields["version"].annotation)
        if inputs.get("version") not in versions:
            change = f"{inputs.get('version')} -> {chart.version(Software())}"
            yield f"chart {chart.part}: {change} (docs/operations.md#upgrade-a-controller)"


def _scripts(rows: Rows) -> Iterator[str]:
    """Machines without GKE whose boot script is another one now."""
    for row in rows:
        metadata = _mapping(_mapping(row.get("inputs")).get("metadata"))
        script = metadata.get("startup-script")
        if not isinstance(script, str):
            continue
        name = row["urn"].rpartition("::")[2]
        if metadata.get("tpu-role") == "node" and script != boot_script("node"):
            replaced = "made anew, and the hosts of its slice are replaced; a protected slice refuses that"
            yield f"template {name} has another boot script: {replaced} ({TEMPLATE_PAGE})"
        elif metadata.get("tpu-role") == "control-plane" and script != boot_script("control_plane"):
            yield f"machine {name} has another boot script: changed in place, run at the next boot ({TEMPLATE_PAGE})"


def as_json(found: Check) -> str:
    return json.dumps(asdict(found) | {"goes_back": found.goes_back}, indent=2)


def as_text(found: Check) -> str:
    """For people, at most 120 columns but for long names."""
    was = f"{found.was} or older" if found.was == UNRECORDED else found.was
    lines = [f"The stack was last updated by {was}. This program is {found.now}."]
    if found.goes_back:
        lines += [
            "",
            "This copy is older than the program that updated the stack last: an update would take changes back.",
        ]
    for note in found.notes:
        lines += ["", f"{note.version} {note.id}: {note.text}"]
    if found.changes:
        lines += ["", "What an update changes, as far as the state tells:"]
        lines += [f"  {change}" for change in found.changes]
    if not found.concerns:
        lines.append("No migration note concerns it; charts and boot scripts are this program's.")
    return "\n".join([*lines, "", "`pulumi preview --diff` shows everything that an update does."])
