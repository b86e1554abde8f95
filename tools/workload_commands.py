"""`python -m tools workload train` and `serve`: print a manifest that fits the platform, for `kubectl apply -f -`."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from plan.platform import Platform
from plan.workloads.job import KEEP_SECONDS, RESTARTS, Manifest, WorkloadError
from tools import workload_manifests
from tools.command_line import CONFIGURATION_ERROR, File, Stack, platform_of, stack_file
from tools.workload_manifests import Request, Running

COMMAND = "command after the two dashes"
INT32 = 2**31 - 1
NEW_FORM = (
    "write `workload train SLICES [OPTIONS] -- COMMAND` for a job, `workload serve SLICES --model MODEL` for a server"
)


class Workloads(TyperGroup):
    """The group of commands. It says the new form to whoever writes the one that was before `train` and `serve`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The command's name and its arguments; ends the command with one line if they have the old form."""
        given, _ = _split(args)
        if given and given[0] not in (*self.commands, "--help"):
            ctx.fail(f"{given[0]} is neither train nor serve: {NEW_FORM}")
        if any(each.partition("=")[0] == "--serve" for each in given):
            ctx.fail(f"--serve is no more: {NEW_FORM}")
        return super().parse_args(ctx, args)


class WithCommand(TyperCommand):
    """A command whose arguments after two dashes belong to the container; they are in the context's `meta`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is before the two dashes."""
        given, ctx.meta[COMMAND] = _split(args)
        flags = {name for option in self.params if getattr(option, "is_flag", False) for name in option.opts}
        if misplaced := _second_word(given, flags):
            written = " ".join([*given[:misplaced], "--", *given[misplaced:], *ctx.meta[COMMAND]])
            ctx.fail(f"a command is written after two dashes: {ctx.command_path} {written}")
        return super().parse_args(ctx, given)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND]"]


def _second_word(given: list[str], flags: Collection[str]) -> int:
    """Where a second argument stands that is neither an option nor the value of one; 0 if there is none.

    `flags`: options without a value.
    """

    def takes_next(each: str) -> bool:
        return each.startswith("-") and "=" not in each and each not in flags

    before = ["", *given]
    words = [at for at, each in enumerate(given) if not each.startswith("-") and not takes_next(before[at])]
    return words[1] if len(words) > 1 else 0


def _split(args: list[str]) -> tuple[list[str], tuple[str, ...]]:
    if "--" not in args:
        return args, ()
    at = args.index("--")
    return args[:at], tuple(args[at + 1 :])


app = typer.Typer(cls=Workloads, no_args_is_help=True, help="Print manifests of jobs and servers that fit a platform.")

Slices = Annotated[str, typer.Argument(metavar="SLICES", help="Slices of the platform, by their name.")]
Queue = Annotated[str | None, typer.Option("--queue", help="Queue; without one, the namespace's only.")]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Namespace or team; the queue's first.")]
Name = Annotated[str | None, typer.Option("--name", help="Name of the workload; the slices' name if unset.")]
Priority = Annotated[str | None, typer.Option("--priority", help="Priority, one of the platform's.")]
Image = Annotated[str | None, typer.Option("--image", help="Container image; pin a digest.")]
AsJson = Annotated[bool, typer.Option("--json", help="As a JSON list instead of YAML.")]


@app.command(cls=WithCommand)
def train(
    context: typer.Context,
    slices: Slices,
    stack: Stack = None,
    file: File = None,
    queue: Queue = None,
    namespace: Namespace = None,
    name: Name = None,
    count: Annotated[int, typer.Option("--slices", min=1, help="How many slices the job spans.")] = 1,
    priority: Priority = None,
    image: Image = None,
    arguments: Annotated[list[str] | None, typer.Option("--arg", help="Argument of the command; repeatable.")] = None,
    variables: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable; repeatable.")
    ] = None,
    restarts: Annotated[
        int, typer.Option("--restarts", min=0, max=INT32, help="Restarts after failures, as a whole.")
    ] = RESTARTS,
    ttl: Annotated[
        int, typer.Option("--ttl", min=0, max=INT32, metavar="SECONDS", help="How long it is kept after its end.")
    ] = KEEP_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Print a job (JobSet) with one pod on each host of its slices. After --: the container's command.

    Without a command an image of your own runs its own, and without --image the job checks that JAX shows every device
    of its slices.

    Exit code 1: the job does not fit the platform, or the configuration has errors. 2: wrong usage.
    """
    request = Request(slices, count, queue, namespace, name, priority, image, context.meta[COMMAND])
    running = Running(arguments or (), variables or (), restarts, ttl)
    _print(stack_file(stack, file), as_json, lambda platform: workload_manifests.train(platform, request, running))


@app.command(cls=WithCommand)
def serve(
    context: typer.Context,
    slices: Slices,
    model: Annotated[str, typer.Option("--model", help="The model that vLLM serves, by its name on the hub.")],
    stack: Stack = None,
    file: File = None,
    queue: Queue = None,
    namespace: Namespace = None,
    name: Name = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="How many servers, each on a slice.")] = 1,
    priority: Priority = None,
    image: Image = None,
    as_json: AsJson = False,
) -> None:
    """Print a vLLM server of a model, and a Service in front of it.

    Exit code 1: the server does not fit the platform, or the configuration has errors. 2: wrong usage.
    """
    request = Request(slices, replicas, queue, namespace, name, priority, image, context.meta[COMMAND])
    _print(stack_file(stack, file), as_json, lambda platform: workload_manifests.serve(platform, request, model))


def _print(path: Path, as_json: bool, manifests: Callable[[Platform], list[Manifest]]) -> None:
    platform = platform_of(path, as_json)
    try:
        made = manifests(platform)
    except WorkloadError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(CONFIGURATION_ERROR) from None
    typer.echo(workload_manifests.as_json(made) if as_json else workload_manifests.as_yaml(made), nl=as_json)
