"""Asks, checks and writes."""

import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

from platform_config import engine_yaml, stack_file
from platform_config.errors import ConfigErrors
from platform_config.platform import PLATFORM_KEY, PlatformConfig
from platform_config.reading import PROJECT_KEY
from platform_config.wording import similar
from tools.command_line import PROBLEMS, USAGE_ERROR
from tools.generated import ROOT
from tools.init.checks import Problem, ProblemsError, collected, platform_of
from tools.init.questions import BY_KEY, Answers, Question, as_answer
from tools.init.stack_text import existing, text

STACK_NAME = "[A-Za-z0-9_.-]{1,100}"
YES_OR_NO = "allow_unlisted_zone"
DEFAULT_NAME = PlatformConfig.model_fields["name"].default


def init(stack: str, given: Answers, file: Path | None, overwrite: bool, as_json: bool) -> None:
    """Write `Pulumi.STACK.yaml` from the options `given`, an answers file, an existing file, and what people type."""
    if not re.fullmatch(STACK_NAME, stack):
        raise typer.BadParameter(f"{stack!r} is not a stack: letters, digits, -, _ and ., without its organization")
    path = ROOT / f"Pulumi.{stack}.yaml"
    try:
        replaced, kept, before = existing(path)
    except ConfigErrors as errors:
        typer.echo(f"{path.name} is there, and cannot be read:\n{errors}", err=True)
        raise typer.Exit(USAGE_ERROR) from None
    if replaced and not overwrite:
        what = "a platform" if replaced == [PLATFORM_KEY] else ", ".join(replaced)
        raise typer.BadParameter(f"{path.name} has {what} already; --overwrite replaces it")
    answers = {"stack": stack} | before | (_of_file(file) if file else {}) | given
    interactive = file is None and not as_json and is_terminal()
    try:
        answers = collected(answers, _ask if interactive else None, partial(_taken, path))
    except ProblemsError as problems:
        typer.echo(_as_json(problems) if as_json else str(problems), err=not as_json)
        raise typer.Exit(PROBLEMS) from None
    try:
        path.write_text(text(platform_of(answers), stack, kept))
    except OSError as error:
        raise typer.BadParameter(f"{path.name} cannot be written: {error}") from None
    if as_json:
        typer.echo(
            json.dumps({"written": path.name, "next": [command for command, _ in next_commands(stack)]}, indent=2)
        )
        return
    typer.echo(f"{path.name} is written. Next:")
    width = max(len(command) for command, _ in next_commands(stack))
    for command, why in next_commands(stack):
        typer.echo(f"  {command:<{width}}  # {why}")


def is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def _taken(path: Path, answers: Answers) -> Iterator[Problem]:
    """A name that a platform of another stack file here has, in the same project: Google would refuse its network."""
    name = answers.get("name") or BY_KEY["name"].default(answers)
    for other in sorted(ROOT.glob("Pulumi.*.yaml")):
        try:
            config = stack_file.read(other) if other != path else {}
        except ConfigErrors:
            continue
        platform = config.get(PLATFORM_KEY)
        same = isinstance(platform, dict) and platform.get("name", DEFAULT_NAME) == name
        if same and config.get(PROJECT_KEY) == answers.get("project"):
            yield Problem("name", f"{name} is the platform of {other.name}, in the same project", "write another name")


def next_commands(stack: str) -> list[tuple[str, str]]:
    """What to do with a new stack file, and why."""
    python = Path(sys.executable)
    python = python.relative_to(ROOT) if python.is_relative_to(ROOT) else python
    tools = f"{python} -m tools"
    return [
        (f"{tools} explain -s {stack}", "hosts, chips, waits, quota, cost"),
        (f"pulumi stack init {stack}", "unless the stack exists"),
        (f"{tools} preflight -s {stack}", "whether the project can have it; only reads"),
        (f"pulumi preview -s {stack}", "what would be made"),
        (f"pulumi up -s {stack}", "make it"),
    ]


def _ask(question: Question, answers: Answers, wrong: Problem | None) -> str:
    """Ask on the terminal: what was wrong with the answer, which answers there are, and the question."""
    if wrong:
        typer.echo(f"\n  {wrong.message}\n  -> {wrong.hint}")
    typer.echo("")
    for line in question.offers(answers):
        typer.echo(f"  {line}")
    return str(typer.prompt(question.text, default=question.default(answers))).strip()


def _as_json(problems: ProblemsError) -> str:
    fields = ("answer", "message", "hint")
    return json.dumps({"errors": [dict(zip(fields, each, strict=True)) for each in problems.problems]}, indent=2)


def _of_file(file: Path) -> Answers:
    """The answers in a file. Raises typer.BadParameter if it has others, or none."""
    try:
        content = engine_yaml.document(file.read_text(encoding="utf-8-sig"))
    except (engine_yaml.Refused, OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise typer.BadParameter(f"{file} has no answers; write for example zone: us-east5-b")
    known = [*BY_KEY, YES_OR_NO]
    if strange := [f"{key}: {similar(str(key), known)}" for key in content if key not in known]:
        raise typer.BadParameter(f"{file} has unknown answers; {'; '.join(strange)}")
    if shaped := [str(key) for key, value in content.items() if _is_shaped(value)]:
        raise typer.BadParameter(f"{file} has no plain answer for {', '.join(shaped)}; write one, or a list of names")
    flags = {YES_OR_NO: "yes"} if content.pop(YES_OR_NO, False) is True else {}
    return {key: as_answer(value) for key, value in content.items() if value is not None} | flags


def _is_shaped(value: Any) -> bool:
    """Whether a value is more than a word, or a list of words."""
    inside = value if isinstance(value, list) else []
    return isinstance(value, dict) or any(isinstance(each, dict | list) for each in inside)
