"""What a sandbox runs: the emulated Google Cloud with real control planes behind its clusters, and a chart registry."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sandbox import adapter
from sandbox.google.backend import ClusterRef
from sandbox.google.container import autoscale
from sandbox.google.guests import Guests, NoGuests
from sandbox.google.server import run
from sandbox.google.world import World
from sandbox.guests.machines import VirtualMachines
from sandbox.kubernetes.backend import AUTHORITY, KubernetesBackend
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.registry import ChartRegistry

# How long the real autoscaler leaves a pool idle before it takes its nodes away.
IDLE_SECONDS = 600.0
# Even where time is scaled away, nodes that have just come stay until their pods are there.
SHORTEST_IDLE_SECONDS = 5.0


def main(
    program_dir: Annotated[Path, typer.Option(help="Folder of the program, whose adapter is asked.")],
    kubernetes: Annotated[Path, typer.Option(help="Folder for the control planes of clusters.")],
    state: Annotated[Path, typer.Option(help="File that keeps the emulator's state.")],
    registry_file: Annotated[Path, typer.Option(help="Gets the address of the proxy that leads to the charts.")],
    ready_file: Annotated[Path, typer.Option(help='Gets {"url", "pid"} once the emulator listens.')],
    time_scale: Annotated[float, typer.Option(min=0, help="Divides realistic durations of operations.")] = 0,
    parent_pid: Annotated[int | None, typer.Option(help="End when this process ends.")] = None,
) -> None:
    """Serves the emulated cloud on a free port until interrupted; its control planes end with it."""
    program = adapter.load(program_dir)
    idle = IDLE_SECONDS / time_scale if time_scale else 0
    backend = KubernetesBackend(kubernetes, max(idle, SHORTEST_IDLE_SECONDS))
    guests: Guests = NoGuests()
    if program.machines:
        guests = VirtualMachines(program.machines, kubernetes, backend.admin_token, backend.contexts)
    world = World(state, time_scale, backend, guests=guests)

    def resize_pool(ref: ClusterRef, pool: str, nodes: int) -> None:
        autoscale(world, f"{ref.path}/nodePools/{pool}", nodes)

    backend.resize_pool = resize_pool
    registry = ChartRegistry(CertificateAuthority(kubernetes / AUTHORITY), program.charts)
    registry_file.write_text(registry.url)
    try:
        run(world, ready_file=ready_file, parent_pid=parent_pid)
    finally:
        registry.stop()
        backend.close()


if __name__ == "__main__":
    typer.run(main)
