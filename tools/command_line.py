"""What commands have in common: options, exit codes, and the platform in a stack file, read when a command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.generated import ROOT

if TYPE_CHECKING:
    from plan.platform import Platform

PROBLEMS, USAGE_ERROR = 1, 2
"""Exit codes: something is wrong with what the command looked at; the command itself was called wrongly."""

Stack = Annotated[str | None, typer.Option("-s", "--stack", help="Stack; its Pulumi.<stack>.yaml is read.")]
File = Annotated[Path | None, typer.Option("-f", "--file", help="Any stack file.")]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]


def stack_file(stack: str | None, file: Path | None) -> Path:
    """The stack file that was named in one of two ways; raises typer.BadParameter if it was not, or is not there."""
    if (stack is None) == (file is None):
        raise typer.BadParameter("give either -s STACK or -f FILE, for example -s dev")
    path = file or ROOT / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        there = f"; stacks here: {', '.join(_stacks())}" if stack else ""
        raise typer.BadParameter(f"there is no file {path.name if stack else path}{there}")
    return path


def _stacks() -> list[str]:
    """Names of the stacks that have a file here."""
    from platform_config.reading import stack_name

    return sorted(map(stack_name, ROOT.glob("Pulumi.*.yaml")))


def platform_of(path: Path, as_json: bool) -> "Platform":
    """The platform in a stack file; if it has errors, prints all of them and ends the command."""
    from platform_config.errors import ConfigErrors
    from rules.load import load_stack_file
    from tools.explain import errors_as_json

    try:
        return load_stack_file(path)
    except ConfigErrors as errors:
        typer.echo(errors_as_json(errors) if as_json else str(errors), err=not as_json)
        raise typer.Exit(PROBLEMS) from None
