"""Checks answers by the rules that check stack files, so that what is written has no errors."""

import re
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

from catalogue import topology
from catalogue.generations import KNOWN_ZONES
from plan.platform import Platform
from platform_config.errors import ConfigError, ConfigErrors
from platform_config.fields import near_zone
from platform_config.platform import PLATFORM_KEY, below
from platform_config.reading import PROJECT_KEY
from rules.load import load_platform
from tools.init.questions import BY_KEY, QUESTIONS, Answers, Question, generation_of, listed, shapes

SLICES = "train"
"""Name of the group of slices that is written."""
UNLISTED = "give --allow-unlisted-zone"
UNANSWERED = 0
"""In place of a value: malformed, so unknown to all rules."""
PLACES = (
    (PROJECT_KEY, "project"),
    (below("name"), "name"),
    (below("zone"), "zone"),
    (below("cluster.kind"), "kind"),
    (below(f"slices.{SLICES}.machine_type"), "machine"),
    (below(f"slices.{SLICES}.generation"), "machine"),
    (below(f"slices.{SLICES}.count"), "count"),
    (below(f"slices.{SLICES}.capacity.name"), "reservation"),
    (below(f"slices.{SLICES}.capacity"), "capacity"),
    (below(f"slices.{SLICES}"), "size"),
    (below("teams"), "teams"),
    (below("queues"), "teams"),
)
"""Which question an error in the stack file is about, by the beginning of its path."""


class Problem(NamedTuple):
    """An answer that is missing or wrong, and what to answer instead."""

    question: str
    message: str
    hint: str

    def __str__(self) -> str:
        return f"  {self.question}\n    {self.message}\n    -> {self.hint}"


Further = Callable[[Answers], Iterator[Problem]]
"""What else is wrong with answers, besides what the answers themselves tell."""


class ProblemsError(Exception):
    """Answers that are missing or wrong."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        count = "1 answer is" if len(problems) == 1 else f"{len(problems)} answers are"
        super().__init__("\n\n".join([f"{count} missing or wrong:", *map(str, problems)]))


def nothing_further(answers: Answers) -> Iterator[Problem]:
    return iter(())


def collected(
    answers: Answers,
    ask: Callable[[Question, Answers, Problem | None], str] | None,
    further: Further = nothing_further,
) -> Answers:
    """Answers to all questions. `ask` asks for one, and gets the problem if it has a wrong answer.

    Without `ask` defaults are taken. Raises ProblemsError with everything that is missing or wrong.
    """
    answers = dict(answers)
    while ask:
        wrong = next((problem for problem in problems(answers, further) if problem.question in answers), None)
        question = BY_KEY[wrong.question] if wrong else next(unanswered(answers), None)
        if question is None:
            return answers
        answers[question.key] = ask(question, answers, wrong)
    for question in QUESTIONS:
        if question.needed(answers) and (default := question.default(answers)) is not None:
            answers.setdefault(question.key, default)
    if found := problems(answers, further):
        raise ProblemsError(found)
    return answers


def unanswered(answers: Answers) -> Iterator[Question]:
    return (question for question in QUESTIONS if question.key not in answers and question.needed(answers))


def problems(answers: Answers, further: Further = nothing_further) -> list[Problem]:
    """Everything that is wrong with the answers, in the order of the questions; of one question the first."""
    found = [*_missing(answers), *_empty(answers), *_own(answers), *further(answers)]
    if not any(problem.question == "size" for problem in found) or "size" not in answers:
        found += _refused(answers)
    first = {problem.question: problem for problem in reversed(found)}
    order = [question.key for question in QUESTIONS]
    return sorted(first.values(), key=lambda problem: order.index(problem.question))


def platform_of(answers: Answers) -> Platform:
    """The platform that sound answers describe."""
    return load_platform(raw(answers), project=answers["project"])


def raw(answers: Answers) -> dict[str, Any]:
    """The platform as a stack file would have it. What is unanswered is malformed, so that no rule speaks about it."""
    given: dict[str, Any] = (
        dict.fromkeys(("name", "zone", "machine", "size", "count", "capacity"), UNANSWERED) | answers
    )
    teams = listed(answers.get("teams", ""))
    written: dict[str, Any] = {"name": given["name"], "zone": given["zone"]}
    if "yes" in answers.get("allow_unlisted_zone", ""):
        written["allow_unlisted_zone"] = True
    return written | {
        "cluster": {"kind": given.get("kind", "gke")},
        "slices": {SLICES: _slices(given)},
        "teams": {team: {} for team in teams},
        "queues": dict(_queues(teams, given["count"])),
    }


def _slices(given: dict[str, Any]) -> dict[str, Any]:
    machine, size, count, capacity = (given[key] for key in ("machine", "size", "count", "capacity"))
    written = {"generation" if _is_generation(machine) else "machine_type": machine}
    if (chips := _whole(size)) is not None:
        written |= {"topology": _of_chips(machine, chips) or UNANSWERED}
    else:
        written |= {"topology": size}
    if capacity == "reservation":
        capacity = {"model": capacity, "name": given.get("reservation", UNANSWERED)}
    return written | {"count": count if (number := _whole(count)) is None else number, "capacity": capacity}


def _whole(answer: object) -> int | None:
    """A whole number that somebody wrote; None for anything else, also for one of more digits than any count has."""
    return int(answer) if isinstance(answer, str) and re.fullmatch("[0-9]{1,9}", answer) else None


def _queues(teams: list[str], count: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """A queue for each team, which share the slices; what is left over goes to the first. Each may borrow what the
    others own, if they own any."""
    number = _whole(count) or 0
    whole, over = divmod(number, max(1, len(teams)))
    for index, team in enumerate(teams):
        owned = whole + (index < over)
        yield team, {"namespaces": [team], "slices": {SLICES: owned}} | ({"borrow": True} if owned < number else {})


def _is_generation(machine: object) -> bool:
    return isinstance(machine, str) and "-" not in machine


def _of_chips(machine: object, chips: int) -> str | None:
    """The topology of that many chips, if there is one only."""
    fitting = [dims for dims in shapes(str(machine)) if prod(dims) == chips]
    return topology.render(fitting[0]) if len(fitting) == 1 else None


def _missing(answers: Answers) -> Iterator[Problem]:
    for question in unanswered(answers):
        offers = [line.partition(":")[0] for line in question.offers(answers)]
        among = f", one of {', '.join(offers)}" if offers else ""
        yield Problem(question.key, "is not answered", f"give {question.option}{among}")


def _empty(answers: Answers) -> Iterator[Problem]:
    """Answers without a word in them, as options of a variable that is not set."""
    for question in QUESTIONS:
        if not answers.get(question.key, "-").strip():
            yield Problem(question.key, "is empty", f"give {question.option} a value, or leave it out")


def _own(answers: Answers) -> Iterator[Problem]:
    """What no rule of stack files says: these take unknown zones, and a number of chips for a generation only."""
    zone = answers.get("zone")
    if zone and zone not in KNOWN_ZONES and "yes" not in answers.get("allow_unlisted_zone", ""):
        near = near_zone(zone)
        hint = f"write {near}" if near else "one of " + ", ".join(_known_zones(answers))
        yield Problem(
            "zone", f"{zone!r} is not in the list of zones with TPUs", f"{hint}, or {UNLISTED} if you know better"
        )
    machine, size = answers.get("machine", ""), answers.get("size", "")
    chips = _whole(size)
    if chips is not None and generation_of(machine) and _of_chips(machine, chips) is None:
        yield Problem("size", *_ambiguous(machine, chips))
    if answers.get("reservation") and answers.get("capacity", "reservation") != "reservation":
        yield Problem("capacity", "a reservation is named, but not wanted", "write reservation, or leave its name out")
    if "teams" in answers and not listed(answers["teams"]):
        yield Problem("teams", "there is no team", "name at least one, for example research")


def _known_zones(answers: Answers) -> list[str]:
    generation = generation_of(answers.get("machine", ""))
    return sorted(generation.zones if generation else KNOWN_ZONES)


def _ambiguous(machine: str, chips: int) -> tuple[str, str]:
    """Why a number of chips is no size of a machine type, and the sizes that are nearest."""
    possible = shapes(machine)
    fitting = [topology.render(dims) for dims in possible if prod(dims) == chips]
    if fitting:
        return f"{len(fitting)} topologies of {machine} have {chips} chips", f"write {' or '.join(fitting[:8])}"
    nearest = sorted(possible, key=lambda dims: abs(prod(dims) - chips))[:2]
    named = [f"{topology.render(dims)} ({prod(dims)} chips)" for dims in sorted(nearest, key=prod)]
    return f"no topology of {machine} has {chips} chips", f"write {' or '.join(named)}"


def _refused(answers: Answers) -> Iterator[Problem]:
    try:
        load_platform(raw(answers), project=answers.get("project") or "unanswered0")
    except ConfigErrors as errors:
        for error in errors.errors:
            question = next((key for start, key in PLACES if error.path.startswith(start)), None)
            if question is None:  # what nobody is asked for follows from the size of the platform
                yield _too_large(answers, error)
            elif question in answers:
                yield Problem(question, error.message, error.hint.replace("set allow_unlisted_zone: true", UNLISTED))


def _too_large(answers: Answers, error: ConfigError) -> Problem:
    """A platform that needs more than what the rest of a stack file is by default, such as its network."""
    question = "count" if answers.get("count", "1") != "1" else "size"
    key = error.path.removeprefix(f"{PLATFORM_KEY}.")
    return Problem(
        question,
        f"{key}: {error.message}",
        f"begin with less; then set {key} in the file ({error.hint}), and raise it there",
    )
