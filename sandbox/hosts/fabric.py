"""The network of a cluster's real hosts: a network namespace that routes between them, with the API server in it.

Nothing of it is seen outside. Each host is on a wire of its own; its address and those of its pods are routed through
the gateway, where the API server answers too. Addresses of several clusters may be the same. The namespace lives as
long as one sleeping process, which ends with the sandbox; there are no bridges and no rules to remove.

Stands for a VPC network: routes for the ranges of pods, an address for the control plane. There are no firewalls and
no way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import AF_INET, SO_REUSEADDR, SOCK_STREAM, SOL_SOCKET
from socket import socket as Socket

from sandbox.kubernetes.egress import pump
from sandbox.kubernetes.supervisor import Process, Supervisor
from sandbox.loop_thread import LoopThread

GATEWAY = "192.0.2.1"  # from a range for documentation, so that no network of a program has it
API_PORT = 443
_CLONE_NEWNET = 0x40000000
_TOOL_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class FabricError(Exception):
    """The network of the real hosts cannot be made; the message says why."""


class Fabric:
    """Started once for a cluster. `api_port` is where its API server listens on 127.0.0.1; without one none answers."""

    def __init__(self, supervisor: Supervisor, api_port: int | None) -> None:
        self._supervisor = supervisor
        self._api_port = api_port
        self._ranges: dict[str, list[ipaddress.IPv4Network]] = {}  # by host
        self._holder: Process | None = None
        self._thread = LoopThread("fabric")
        self._tasks: set[asyncio.Task[None]] = set()
        self._inside: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    @property
    def started(self) -> bool:
        return self._holder is not None

    def start(self) -> None:
        """Makes the namespace and answers in it for the API server. Raises FabricError."""
        self._holder = self._supervisor.start("fabric", Path("/usr/bin/unshare"), ["--net", "sleep", "infinity"])
        self._holder.wait_ready(self._is_separate, 10)
        self._ip("link set lo up")
        self._inside_run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._inside = ThreadPoolExecutor(1, "fabric-sockets", initializer=_enter, initargs=(self.namespace,))
        if self._api_port is None:
            self.own(GATEWAY)
            return
        listening = self.listen(GATEWAY, API_PORT)
        self._thread.start()
        self._thread.run(self._serve(listening))

    def own(self, address: str) -> None:
        """Gives the namespace an address, which all hosts reach. Raises FabricError."""
        self._ip(f"addr replace {address}/32 dev lo")

    def listen(self, address: str, port: int) -> Socket:
        """A socket that listens inside, on an address of the namespace's own. Raises FabricError, OSError."""
        self.own(address)
        assert self._inside
        return self._inside.submit(_listen, address, port).result()

    def stop(self) -> None:
        """Ends the connections through it. The namespace goes with the supervisor's processes."""
        self._thread.stop(self._shut_down)
        if self._inside:
            self._inside.shutdown()

    @property
    def namespace(self) -> str:
        assert self._holder
        return f"/proc/{self._holder.popen.pid}/ns/net"

    def attach(self, name: str, pid: int, address: str, *ranges: str) -> None:
        """Puts a wire to the namespace of process `pid`, and routes the host's address and these ranges through it."""
        with self._lock:
            wire = _wire(address)
            with contextlib.suppress(FabricError):  # of an earlier host, whose end the kernel is still busy with
                self._ip(f"link delete {wire}")
            self._ip(f"link add {wire} type veth peer name eth0 netns {pid}")
            self._ip(f"link set {wire} up")
            self._ip(f"route add {address} dev {wire}")
            for each in ranges:
                self._ip(f"route add {each} via {address} dev {wire} onlink")
            self._ranges[name] = [ipaddress.IPv4Network(each) for each in (address, *ranges)]

    def detach(self, name: str) -> None:
        """Forgets a host that is gone; the kernel has taken its wire and its routes away."""
        with self._lock:
            self._ranges.pop(name, None)

    def reaches(self, address: str) -> bool:
        """Whether an address is one of a real host or of its pods."""
        with contextlib.suppress(ValueError):
            wanted = ipaddress.IPv4Address(address)
            return any(wanted in network for ranges in list(self._ranges.values()) for network in ranges)
        return False

    def socket(self) -> Socket:
        """A new TCP socket that connects from inside."""
        assert self._inside
        return self._inside.submit(_new_socket).result()

    def command(self, *command: str) -> list[str]:
        """A command that runs inside, for the supervisor."""
        return [f"--net={self.namespace}", "--", *command]

    def _is_separate(self) -> bool:
        with contextlib.suppress(OSError):
            return Path(self.namespace).readlink() != Path("/proc/self/ns/net").readlink()
        return False

    def _ip(self, arguments: str) -> None:
        self._inside_run("ip", *arguments.split())

    def _inside_run(self, *command: str) -> None:
        run = subprocess.run(
            ["/usr/bin/nsenter", f"--net={self.namespace}", "--", *command],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": _TOOL_PATH},
        )
        if run.returncode:
            raise FabricError(f"`{' '.join(command)}` failed: {run.stderr.strip()}")

    async def _serve(self, listening: Socket) -> None:
        self._server = await asyncio.start_server(self._to_api_server, sock=listening)

    async def _to_api_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._api_port)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the API server is being started again, or the sandbox stops
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _shut_down(self) -> None:
        self._server.close()
        for each in (tasks := list(self._tasks)):
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _wire(address: str) -> str:
    """A name for the gateway's end of a host's wire; the kernel allows 15 characters."""
    return f"w{int(ipaddress.IPv4Address(address)):08x}"


def _enter(namespace: str) -> None:
    """Moves the calling thread, and only this thread, into a network namespace."""
    with Path(namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise FabricError(f"setns: {os.strerror(ctypes.get_errno())}")


def _new_socket() -> Socket:
    made = Socket(AF_INET, SOCK_STREAM)
    made.setblocking(False)
    return made


def _listen(address: str, port: int) -> Socket:
    listening = _new_socket()
    listening.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
    listening.bind((address, port))
    listening.listen(128)
    return listening
