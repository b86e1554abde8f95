"""`python -m tools workload serve`: print a model server that fits the platform."""

from typing import TYPE_CHECKING, Annotated

import typer

from tools.command_line import File, Stack, stack_file
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
)

if TYPE_CHECKING:
    from plan.platform import Platform
    from plan.workloads.job import Manifest


class WithFlags(WithCommand):
    """The command `serve`: after two dashes it takes flags of vLLM."""

    AFTER, WHAT = "VLLM-FLAGS", "flags of vLLM are"


def serve(
    context: typer.Context,
    slices: Slices,
    model: Annotated[
        str, typer.Option("--model", help="The model, by its name on the hub; clients ask for this name.")
    ],
    stack: Stack = None,
    file: File = None,
    queue: Queue = None,
    namespace: Namespace = None,
    name: Name = None,
    replicas: Annotated[int, typer.Option("--replicas", min=1, help="How many servers, each on a slice.")] = 1,
    weights: Annotated[
        str | None,
        typer.Option("--weights", help="gs://BUCKET/PATH, or a team's storage (NAME or NAME/PATH); the hub if unset."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", help="Secret with the hub's token, NAME or NAME:KEY; open models need none."),
    ] = None,
    several_hosts: Annotated[
        bool,
        typer.Option("--experimental-multi-host", help="Allow slices of several hosts, where vLLM is untested."),
    ] = False,
    gateway: Annotated[
        str | None, typer.Option("--gateway", help="internal or external: print a load balancer of GKE in front, too.")
    ] = None,
    certificate: Annotated[
        str | None, typer.Option("--certificate", help="Secret with the load balancer's TLS certificate.")
    ] = None,
    max_replicas: Annotated[
        int | None, typer.Option("--max-replicas", min=2, help="The most servers that GKE may run while requests wait.")
    ] = None,
    priority: Priority = None,
    image: Image = None,
    as_json: AsJson = False,
) -> None:
    """Print a vLLM server of a model (LeaderWorkerSet), and a Service in front of it. After --: more flags of vLLM.

    Exit code 1: the server does not fit the platform, or the configuration has errors. 2: wrong usage.
    """
    from tools import workload_manifests
    from tools.workload_manifests import Request, Serving

    request = Request(slices, replicas, queue, namespace, name, priority, image, ())
    serving = Serving(
        model, context.meta[AFTER_DASHES], weights, token, several_hosts, gateway, certificate, max_replicas
    )

    def server(platform: "Platform") -> "list[Manifest]":
        made = workload_manifests.serve(platform, request, serving)
        if queue and "kueue" in platform.provided:
            typer.echo(_of_another_kueue(queue), err=True)
        return made

    print_manifests(stack_file(stack, file), as_json, server)


def _of_another_kueue(queue: str) -> str:
    """What nobody but the owner of the cluster's Kueue can see to."""
    from plan.kueue_configuration import OF_SERVERS

    settings = " and ".join(OF_SERVERS)
    return (
        f"warning: the cluster has a Kueue of its own. It holds the server back for {queue} only if its"
        f" integrations.frameworks names {settings}; otherwise the server starts at once, past the queue"
        " (docs/existing-cluster.md, what the cluster has already)"
    )
