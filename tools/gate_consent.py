"""Which findings a name, a URN or a pattern consents to. A wrong consent is worse than none.

A pattern ends in `*`, which stands for a number and nothing else: `slices-train-*` is the slices of the group `train`
and of no other. `slices-train-*(4)` means four of them at most: if there are more by the time that it counts, it counts
for none.
"""

import re
from collections.abc import Sequence
from typing import Protocol

PATTERN = re.compile(r"(?P<stem>[^*()\s]*[^*()\s-]-)\*(?:\((?P<most>[1-9][0-9]{0,5})\))?")
NUMBERED = re.compile(r"(?P<stem>.*[^-]-)(?P<number>0|[1-9][0-9]*)", re.DOTALL)
SHOWN = 5


class AllowError(Exception):
    """A consent that does not say exactly what it is for; the message says what to write instead."""


class Named(Protocol):
    """What can be consented to."""

    @property
    def urn(self) -> str: ...

    @property
    def name(self) -> str: ...


def consented(findings: Sequence[Named], wanted: str, what: str, *, older: bool) -> tuple[str, ...]:
    """URNs of the findings that a consent is for: one, or all that its pattern matches. Raises AllowError, whose
    message begins with `what`.

    `older`: it was written before this preview, so its pattern must say for how many.
    """
    matching = [finding.urn for finding in findings if wanted in (finding.name, finding.urn)]
    if len(matching) == 1:
        return (matching[0],)
    if matching:
        raise AllowError(f"{what} {wanted} means several resources; write one's URN: {', '.join(matching)}")
    if "*" in wanted:
        return _matched(findings, wanted, what, older)
    raise AllowError(f"{what} {wanted} {_nothing(findings)}")


def _matched(findings: Sequence[Named], wanted: str, what: str, older: bool) -> tuple[str, ...]:
    written = PATTERN.fullmatch(wanted)
    if not written:
        raise AllowError(
            f"{what} {wanted} is no pattern: `*` stands for a number at the end of a name, as in slices-train-*(4)"
        )
    matching = [finding for finding in findings if stem_of(finding.name) == written["stem"]]
    if not matching:
        raise AllowError(f"{what} {wanted} {_nothing(findings)}")
    if len({kind_of(finding) for finding in matching}) > 1:
        raise AllowError(f"{what} {wanted} means resources of several types; write their names: {_some(matching)}")
    most = written["most"]
    if most is None and older:
        raise AllowError(
            f"{what} {wanted} does not say for how many; it means {_some(matching)}: "
            f"if that is meant, write {written['stem']}*({len(matching)})"
        )
    if most is not None and len(matching) > int(most):
        raise AllowError(f"{what} {wanted} means {len(matching)} resources, and not {most} at most: {_some(matching)}")
    return tuple(finding.urn for finding in matching)


def stem_of(name: str) -> str | None:
    """`slices-train-` of `slices-train-0`; None for a name without a number at its end."""
    written = NUMBERED.fullmatch(name)
    return written["stem"] if written else None


def kind_of(finding: Named) -> str:
    """Stack, project, and type with those of its parents: the URN without the name."""
    return finding.urn.removesuffix(finding.name)


def numbered(names: Sequence[str]) -> str:
    """Names of one stem, as a person reads them: `slices-train-0 to slices-train-31, slices-train-40`."""
    stem = stem_of(names[0]) or ""
    numbers = sorted(int(name.removeprefix(stem)) for name in names)
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ", ".join(
        f"{stem}{first}" if first == last else f"{stem}{first}{' to ' if last > first + 1 else ', '}{stem}{last}"
        for first, last in runs
    )


def _nothing(findings: Sequence[Named]) -> str:
    there = _some(findings) if findings else "nothing"
    return f"names nothing that this preview gives up, which is: {there}"


def _some(findings: Sequence[Named]) -> str:
    names = [finding.name for finding in findings]
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
