"""What the commands of `python -m tools workload` share: options, arguments after two dashes, and how they print."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from tools.command_line import PROBLEMS, platform_of

if TYPE_CHECKING:
    from plan.platform import Platform
    from plan.workloads.job import Manifest

AFTER_DASHES = "what is after the two dashes"

Slices = Annotated[str, typer.Argument(metavar="SLICES", help="Slices of the platform, by their name.")]
Queue = Annotated[str | None, typer.Option("--queue", help="Queue; without one, the namespace's only.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace or team; the queue's first.")]
Name = Annotated[str | None, typer.Option("--name", help="Name of the workload; the slices' name if unset.")]
Priority = Annotated[str | None, typer.Option("--priority", help="Priority, one of the platform's.")]
Image = Annotated[str | None, typer.Option("--image", help="Container image; pin a digest.")]
AsJson = Annotated[bool, typer.Option("--json", help="As a JSON list instead of YAML.")]


class WithCommand(TyperCommand):
    """A command whose arguments after two dashes belong to the container; they are in the context's `meta`."""

    AFTER = "COMMAND"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is before the two dashes."""
        given, ctx.meta[AFTER_DASHES] = split(args)
        flags = {name for option in self.params if getattr(option, "is_flag", False) for name in option.opts}
        if misplaced := _second_word(given, flags):
            written = " ".join([*given[:misplaced], "--", *given[misplaced:], *ctx.meta[AFTER_DASHES]])
            ctx.fail(f"what the container gets is written after two dashes: {ctx.command_path} {written}")
        return super().parse_args(ctx, given)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), f"[-- {self.AFTER}]"]


def _second_word(given: list[str], flags: Collection[str]) -> int:
    """Where a second argument stands that is neither an option nor the value of one; 0 if there is none.

    `flags`: options without a value.
    """

    def takes_next(each: str) -> bool:
        return each.startswith("-") and "=" not in each and each not in flags

    before = ["", *given]
    words = [at for at, each in enumerate(given) if not each.startswith("-") and not takes_next(before[at])]
    return words[1] if len(words) > 1 else 0


def split(args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """What is before the two dashes, and what is after them."""
    if "--" not in args:
        return args, ()
    at = args.index("--")
    return args[:at], tuple(args[at + 1 :])


def print_manifests(path: Path, as_json: bool, manifests: "Callable[[Platform], list[Manifest]]") -> None:
    """Print the manifests for the stack file's platform. Ends the command with 1 where they do not fit it."""
    from plan.workloads.job import WorkloadError
    from tools import workload_manifests

    platform = platform_of(path, as_json)
    try:
        made = manifests(platform)
    except WorkloadError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(PROBLEMS) from None
    typer.echo(workload_manifests.as_json(made) if as_json else workload_manifests.as_yaml(made), nl=as_json)
