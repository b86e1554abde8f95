"""A verdict of the gate as Markdown for a pull request, and as JSON for machines."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plan.slices import HOURS_PER_MONTH
from plan.words import counted
from tools.gate import Finding, Verdict
from tools.gate_consent import kind_of, numbered, stem_of
from tools.gate_preview import Effect, Preview
from tools.gate_totals import Totals, UnknownTotalsError, after, before

SHOWN = (Effect.CREATE, Effect.UPDATE, Effect.DELETE, Effect.REPLACE)
# A comment on GitHub holds 65,536 characters; a platform may have a thousand slices.
MOST_ROWS, MOST_MESSAGES, MOST_CHARACTERS = 60, 10, 1000


def resources(preview: Preview) -> dict[str, Counter[Effect]]:
    """How many resources of each Pulumi type are touched, by effect; components are left out."""
    effects: dict[str, tuple[str, Effect]] = {}
    for step in preview.steps:
        if step.effect in SHOWN and not step.is_component:
            # A replacement is several steps where --show-replacement-steps asks for them; it counts once.
            replaced = effects.get(step.urn, (step.type, step.effect))[1] is Effect.REPLACE
            effects[step.urn] = (step.type, Effect.REPLACE if replaced else step.effect)
    counts: dict[str, Counter[Effect]] = {}
    for type_, effect in sorted(effects.values(), key=lambda each: each[0]):
        counts.setdefault(type_, Counter())[effect] += 1
    return counts


def as_json(verdict: Verdict) -> str:
    """`{stack, passes, problems, findings, patterns, resources, before, after, notes}`.

    `patterns`: by pattern the URNs that it agreed to. `before` and `after` are `{slices, hosts, chips,
    price_per_hour_usd, unpriced, quotas}`, or `{unknown}` with the reason.
    """
    return json.dumps(
        {
            "stack": _stack(verdict.preview),
            "passes": verdict.passes,
            "problems": verdict.problems,
            "findings": [_finding(finding, verdict) for finding in verdict.findings],
            "patterns": {pattern: list(urns) for pattern, urns in verdict.patterns.items()},
            "resources": {
                type_: {effect.name.lower(): counts[effect] for effect in SHOWN}
                for type_, counts in resources(verdict.preview).items()
            },
            "before": _side(before, verdict.preview),
            "after": _side(after, verdict.preview),
            "notes": verdict.notes,
        },
        indent=2,
    )


def _finding(finding: Finding, verdict: Verdict) -> dict[str, Any]:
    return {
        "kind": finding.guarded.name,
        "operation": finding.effect.name.lower(),
        "name": finding.name,
        "urn": finding.urn,
        "causes": finding.causes,
        "loss": finding.loss,
        "allowed": finding.urn in verdict.allowed,
    }


def _side(totals: Callable[[Preview], Totals], preview: Preview) -> dict[str, Any]:
    try:
        side = totals(preview)
    except UnknownTotalsError as error:
        return {"unknown": str(error)}
    return {
        "slices": side.slices,
        "hosts": side.hosts,
        "chips": side.chips,
        "price_per_hour_usd": side.hourly,
        "unpriced": side.unpriced,
        "quotas": [
            {"metric": metric, "region": region, "chips": chips} for (metric, region), chips in side.quotas.items()
        ],
    }


def _stack(preview: Preview) -> str:
    """The stack's name, from any URN of it; every preview lists at least the stack, unless it failed."""
    return preview.steps[0].urn.removeprefix("urn:pulumi:").partition("::")[0] if preview.steps else "unknown"


def as_markdown(verdict: Verdict, commit: str | None = None) -> str:
    """Headline, what stops, what was agreed to, totals before and after, resources by kind, notes. `commit`: for which
    consent in a pull request counts."""
    parts = [
        _headline(verdict),
        *map(_quoted, verdict.problems[:MOST_MESSAGES]),
        _findings("Stopped", verdict.stopped),
        _how_to_allow(verdict, commit),
        _findings("Agreed to", [each for each in verdict.findings if each.urn in verdict.allowed]),
        _patterns(verdict),
        *_comparison(verdict.preview),
        _resources(verdict.preview),
        _notes(verdict),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text.encode("utf-8", "replace").decode("utf-8")  # a message may hold half of a character


def _headline(verdict: Verdict) -> str:
    if verdict.problems:
        conclusion = "stopped, the preview has errors"
    elif verdict.stopped:
        number = len(verdict.stopped)
        conclusion = f"stopped, {number} {'resource needs' if number == 1 else 'resources need'} consent"
    else:
        changes = verdict.preview.change_summary or {}
        conclusion = "passes" if changes.keys() - {"same"} else "no changes"
    return f"### Stack {_code(_stack(verdict.preview))}: {conclusion}"


def _findings(title: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    rows = [
        (
            f"{first.effect.value} {first.guarded.name}",
            f"{_code(_names(alike))} {'is' if len(alike) == 1 else f'({len(alike)}) are'} {first.outcome}",
            "; ".join(map(_code, first.causes)) or _no_cause(first),
            first.loss,
        )
        for alike in _alike(findings)
        for first in alike[:1]
    ]
    return f"**{title}**\n\n" + _table(("kind", "what", "because of", "with it goes"), rows)


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that differ only by the number at the end of their names, as the slices of one group, are one row."""
    rows: dict[Any, list[Finding]] = {}
    for each in findings:
        stem = stem_of(each.name)
        alike = each.urn if stem is None else (kind_of(each), stem, each.outcome, each.causes, each.loss)
        rows.setdefault(alike, []).append(each)
    return list(rows.values())


def _names(alike: Sequence[Finding]) -> str:
    return _clipped(alike[0].name if len(alike) == 1 else numbered([each.name for each in alike]))


def _no_cause(finding: Finding) -> str:
    if finding.effect is Effect.DELETE:
        return "no longer in the program"
    return "the engine names no property: a trigger, `--replace`, or a taint"


def _how_to_allow(verdict: Verdict, commit: str | None) -> str:
    """Lines that tools/consent.py accepts, ready to copy; without a pull request the command's options."""
    if not verdict.stopped or verdict.problems:
        return ""
    names = list(_handles(verdict))[:MOST_ROWS]
    if commit is None:
        how, lines = "Where that is meant, the gate once more with", [f"--allow {shlex.quote(name)}" for name in names]
    else:
        how = (
            "Where that is meant: a comment with these lines, by somebody who may write here and wrote no part of the "
            "pull request; then the job again. They count for this commit only."
        )
        lines = [f"/allow {_stack(verdict.preview)}/{name} @{commit}" for name in names]
    return "\n".join([how, "", "```text", *map(_in_fence, lines), "```"])


def _handles(verdict: Verdict) -> Iterator[str]:
    """What to write to allow what is stopped: a pattern where it means just these, else a name or URN for each."""
    for alike in _alike(verdict.stopped):
        stem, urns = stem_of(alike[0].name), {each.urn for each in alike}
        same = [each for each in verdict.findings if stem is not None and stem_of(each.name) == stem]
        others = {each.urn for each in same} - urns
        if len(alike) > 1 and others <= verdict.allowed and len({kind_of(each) for each in same}) == 1:
            yield f"{stem}*({len(same)})"
        else:
            yield from map(verdict.handle, alike)


def _patterns(verdict: Verdict) -> str:
    """What each pattern agreed to, one by one: nobody should have to guess."""
    names = {finding.urn: finding.name for finding in verdict.findings}
    return "\n".join(
        f"- {_code(pattern)} agrees to {counted(len(urns), 'resource')}: "
        + _code(_clipped(numbered([names[urn] for urn in urns])))
        for pattern, urns in verdict.patterns.items()
    )


def _comparison(preview: Preview) -> Iterator[str]:
    sides: list[Totals] = []
    for name, totals in (("Before", before), ("After", after)):
        try:
            sides.append(totals(preview))
        except UnknownTotalsError as error:
            yield f"{name}: unknown, {error}."
    if len(sides) < 2:
        return
    old, new = sides
    rows = [
        _numbers("slices", old.slices, new.slices),
        _numbers("hosts", old.hosts, new.hosts),
        _numbers("chips", old.chips, new.chips),
        _numbers("USD per hour", old.hourly, new.hourly, ",.2f"),
        _numbers("USD per month", _monthly(old), _monthly(new), ",.0f"),
    ]
    for metric, region in sorted(old.quotas | new.quotas):
        rows.append(_numbers(f"quota {metric} in {region}", old.quotas[metric, region], new.quotas[metric, region]))
    if changed := [row for row in rows if row[1] != row[2] or "unknown" in row]:
        yield _table(("while all run", "before", "after", "change"), changed)
    if kept := [f"{row[0]} {row[1]}" for row in rows if row not in changed]:
        yield f"Unchanged while all run: {', '.join(kept)}."
    unpriced = sorted({*old.unpriced, *new.unpriced})
    if unpriced:
        yield f"No price is known for {', '.join(map(_code, unpriced))}; `prices` of the platform can name one."
    yield (
        "Before: the stack's outputs of its last update. After: this preview's configuration. "
        "Costs are estimates, of chips only."
    )


def _monthly(totals: Totals) -> float | None:
    return None if totals.hourly is None else totals.hourly * HOURS_PER_MONTH


def _numbers(name: str, old: float | None, new: float | None, form: str = ",") -> tuple[str, ...]:
    if old is None or new is None:
        return (name, *("unknown" if value is None else format(value, form) for value in (old, new)), "unknown")
    change = new - old
    return name, format(old, form), format(new, form), format(change, f"+{form}") if change else "none"


def _resources(preview: Preview) -> str:
    touched = resources(preview)
    same = (preview.change_summary or {}).get("same", 0)
    if not touched:
        return _kept(same)
    shown = [effect for effect in SHOWN if any(counts[effect] for counts in touched.values())]
    rows = [(_code(type_), *(str(counts[effect] or "") for effect in shown)) for type_, counts in touched.items()]
    titles = ("resources", *(f"{effect.value} {effect.name.lower()}" for effect in shown))
    return _table(titles, rows) + (f"\n\n{_kept(same)}" if same else "")


def _kept(same: int) -> str:
    return f"{counted(same, 'resource')} {'stays as it is' if same == 1 else 'stay as they are'}." if same else ""


def _notes(verdict: Verdict) -> str:
    lines = [f"- {_code(_clipped(' '.join(note.split())))}" for note in verdict.notes[:MOST_MESSAGES]]
    return "\n".join(["**Also note**", "", *lines]) if lines else ""


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows[:MOST_ROWS]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table if len(rows) <= MOST_ROWS else f"{table}\n\n... and {len(rows) - MOST_ROWS} more; --json has all."


def _quoted(text: str) -> str:
    return "```text\n" + _clipped(text).replace("```", "'''") + "\n```"


def _in_fence(line: str) -> str:
    """One line of a block of code, which nothing in it can end."""
    return " ".join(line.split()).replace("```", "'''")


def _clipped(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " ..."


def _code(text: str) -> str:
    """Text as code, so that a provider's message cannot become a link, a mention, HTML, or another cell or row."""
    return f"`{' '.join(text.split()).replace('`', chr(39)).replace('|', '/')}`"
