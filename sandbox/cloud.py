"""What a sandbox runs: the emulated Google Cloud with real control planes behind its clusters, and a chart registry."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sandbox import adapter
from sandbox.google.auto_pools import AutoPools
from sandbox.google.backend import ClusterRef
from sandbox.google.container import autoscale
from sandbox.google.guests import Guests, NoGuests
from sandbox.google.others import lay
from sandbox.google.server import listen, run, url_of
from sandbox.google.workload_identity import WorkloadIdentity
from sandbox.google.world import SEEDED, World
from sandbox.guests.machines import VirtualMachines
from sandbox.hosts.hosts import Real
from sandbox.kubernetes.backend import AUTHORITY, KubernetesBackend
from sandbox.kubernetes.control_plane import STATUS_SECONDS
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.registry import ChartRegistry

# How long the real autoscaler leaves a pool idle before it takes its nodes away.
IDLE_SECONDS = 600.0
# Even where time is scaled away, nodes that have just come stay until their pods are there.
SHORTEST_IDLE_SECONDS = 5.0
# Likewise: every write of a node's status costs the API server something.
SHORTEST_STATUS_SECONDS = 10.0


def scaled(seconds: float, time_scale: float, shortest: float) -> float:
    """A realistic duration on this sandbox's clock, but never less than `shortest`."""
    return max(seconds / time_scale if time_scale else 0.0, shortest)


def main(
    program_dir: Annotated[Path, typer.Option(help="Folder of the program, whose adapter is asked.")],
    kubernetes: Annotated[Path, typer.Option(help="Folder for the control planes of clusters.")],
    state: Annotated[Path, typer.Option(help="File that keeps the emulator's state.")],
    registry_file: Annotated[Path, typer.Option(help="Gets the address of the proxy that leads to the charts.")],
    ready_file: Annotated[Path, typer.Option(help='Gets {"url", "pid"} once the emulator listens.')],
    time_scale: Annotated[float, typer.Option(min=0, help="Divides realistic durations of operations.")] = 0,
    real_hosts: Annotated[int, typer.Option(help="How many hosts of each cluster run containers.")] = 0,
    parent_pid: Annotated[int | None, typer.Option(help="End when this process ends.")] = None,
) -> None:
    """Serves the emulated cloud on a free port until interrupted; its control planes end with it."""
    program = adapter.load(program_dir)
    idle = scaled(IDLE_SECONDS, time_scale, SHORTEST_IDLE_SECONDS)
    status = scaled(STATUS_SECONDS, time_scale, SHORTEST_STATUS_SECONDS)
    real = Real(real_hosts, program.images)
    backend = KubernetesBackend(kubernetes, idle, status, real)
    guests: Guests = NoGuests()
    if program.machines:
        token, contexts = backend.admin_token, backend.contexts
        guests = VirtualMachines(program.machines, kubernetes, token, contexts, status, real)
    world = World(state, time_scale, backend, guests=guests)

    def resize_pool(ref: ClusterRef, pool: str, nodes: int) -> None:
        autoscale(world, f"{ref.path}/nodePools/{pool}", nodes)

    if program.others:
        world.lay_others = partial(lay, world, program.others)
        if not world.store.all(SEEDED):
            world.lay_others()
    backend.resize_pool = resize_pool
    backend.node_pools = lambda ref: AutoPools(world, ref)
    listener = listen()
    identity = WorkloadIdentity(world, url_of(listener))
    backend.cloud = lambda: identity
    registry = ChartRegistry(CertificateAuthority(kubernetes / AUTHORITY), program.charts)
    registry_file.write_text(registry.url)
    try:
        run(world, listener, ready_file, parent_pid)
    finally:
        registry.stop()
        backend.close()


if __name__ == "__main__":
    typer.run(main)
