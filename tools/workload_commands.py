"""`python -m tools workload train` and `serve`: print a manifest that fits the platform, for `kubectl apply -f -`."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from plan.workloads.defaults import KEEP_SECONDS, RESTARTS
from tools.command_line import File, Stack, stack_file
from tools.serve_command import WithFlags, serve
from tools.workload_options import (
    AFTER_DASHES,
    AsJson,
    Image,
    Name,
    Namespace,
    Priority,
    Queue,
    Slices,
    WithCommand,
    print_manifests,
    split,
)

INT32 = 2**31 - 1
NEW_FORM = (
    "write `workload train SLICES [OPTIONS] -- COMMAND` for a job, `workload serve SLICES --model MODEL` for a server"
)


class Workloads(TyperGroup):
    """The group of commands. It says the new form to whoever writes the one that was before `train` and `serve`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The command's name and its arguments; ends the command with one line if they have the old form."""
        given, _ = split(args)
        if given and given[0] not in (*self.commands, *ctx.help_option_names):
            ctx.fail(f"{given[0]} is neither train nor serve: {NEW_FORM}")
        if any(each.partition("=")[0] == "--serve" for each in given):
            ctx.fail(f"--serve is no more: {NEW_FORM}")
        return super().parse_args(ctx, args)


app = typer.Typer(cls=Workloads, no_args_is_help=True, help="Print manifests of jobs and servers that fit a platform.")


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
    from tools import workload_manifests
    from tools.workload_manifests import Request, Running

    request = Request(slices, count, queue, namespace, name, priority, image, context.meta[AFTER_DASHES])
    running = Running(arguments or (), variables or (), restarts, ttl)
    print_manifests(
        stack_file(stack, file), as_json, lambda platform: workload_manifests.train(platform, request, running)
    )


app.command(cls=WithFlags)(serve)
