"""Serving the emulator on 127.0.0.1: in a thread for tests, or as what a process does."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvicorn

from sandbox.google.app import build_app
from sandbox.google.backend import ClusterBackend
from sandbox.google.guests import Guests
from sandbox.google.store import Store
from sandbox.google.world import World

HOST = "127.0.0.1"
PARENT_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Emulator:
    """A running emulator: its base URL and, for tests in the same process, its insides."""

    url: str
    world: World

    @property
    def state(self) -> Store:
        return self.world.store

    @property
    def backend(self) -> ClusterBackend:
        return self.world.backend


def listen(port: int = 0) -> socket.socket:
    """A listening socket on 127.0.0.1; port 0 takes a free one."""
    # naming the protocol lets asyncio switch Nagle's algorithm off; otherwise answers wait 40 ms
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen(128)
    return listener


def make_server(world: World) -> uvicorn.Server:
    config = uvicorn.Config(
        build_app(world),
        access_log=False,
        log_level="critical",
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


@contextmanager
def serving(
    *,
    time_scale: float = 0,
    state: Path | None = None,
    backend: ClusterBackend | None = None,
    fresh_project: bool = False,
    guests: Guests | None = None,
) -> Iterator[Emulator]:
    """Runs an emulator in a thread of this process; arguments as for `World`."""
    world = World(state, time_scale, backend, fresh_project, guests)
    listener = listen()
    server = make_server(world)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="emulator", daemon=True)
    thread.start()
    try:
        yield Emulator(url_of(listener), world)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        world.close()


def url_of(listener: socket.socket) -> str:
    return f"http://{HOST}:{listener.getsockname()[1]}"


def run(world: World, listener: socket.socket, ready_file: Path | None = None, parent_pid: int | None = None) -> None:
    """Serves a world until the process is told to end, then closes the world. Call it from the main thread.

    Once it listens, `ready_file` gets {"url", "pid"} in one step; without a file the URL is printed. The process ends
    when `parent_pid` does.
    """
    if parent_pid is not None:
        _follow_parent(parent_pid)
    url = url_of(listener)
    if ready_file:
        _write_atomically(ready_file, json.dumps({"url": url, "pid": os.getpid()}))
    else:
        print(url, flush=True)
    try:
        make_server(world).run(sockets=[listener])
    finally:
        world.close()


def _follow_parent(pid: int) -> None:
    """Ends this process soon after `pid` has ended.

    A poll, because the kernel's own signal (PR_SET_PDEATHSIG) would already come when the parent's *thread* ends.
    """
    watched = psutil.Process(pid) if psutil.pid_exists(pid) else None

    def watch() -> None:
        while watched and watched.is_running() and watched.status() != psutil.STATUS_ZOMBIE:
            time.sleep(PARENT_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _write_atomically(path: Path, content: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as draft:
        draft.write(content)
    Path(draft.name).replace(path)
