"""What the API server reaches inside the cluster: webhooks and aggregated APIs behind Services, kubelets, pods.

The API server sends all such traffic as HTTP CONNECT requests for `<address>:<port>` to a unix socket (its egress
selector). For a ClusterIP the proxy here looks up the Service and connects to the local program that stands for its
pods, so that everything a chart renders stays as it is; where there is none, to a pod on a real host. Addresses of real
hosts and of their pods it connects to as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.loop_thread import LoopThread

SOCKET_NAME = "egress.sock"
CONNECT_SECONDS = 10.0
# The API server repeats this to whoever asked, for example `kubectl logs` for a pod that kwok plays.
NOBODY = "502 Bad Gateway: nothing of the sandbox answers there (a host that kwok plays has no logs, runs no commands)"
_LOG = logging.getLogger(__name__)

# A backend finder: Service and one of its spec.ports -> local port, or None when no program stands behind it.
FindPort = Callable[[Object, Object], int | None]
Address = tuple[str, int]


class Network(Protocol):
    """A network that is not this process's own."""

    def reaches(self, address: str) -> bool:
        """Whether the IP address is one of this network's."""

    def socket(self) -> socket.socket:
        """A new TCP socket, not blocking, that connects from inside."""


class EgressProxy:
    """Serves `<run_dir>/egress.sock` from a thread of its own.

    `find_port` and `network`, that of the real hosts, may be replaced at any time; until then every connection is
    refused with 502.
    """

    def __init__(self, run_dir: Path) -> None:
        self.find_port: FindPort = lambda _service, _port: None
        self.network: Network | None = None
        self._run_dir = run_dir
        self._client: ApiClient | None = None
        self._outage_until = 0.0
        self._tunnels: set[asyncio.StreamWriter] = set()
        self._thread = LoopThread("egress")

    def start(self, client: ApiClient) -> None:
        """Listens. `client` is used to look up Services, once connections come in."""
        self._client = client
        (self._run_dir / SOCKET_NAME).unlink(missing_ok=True)
        self._thread.start()
        self._thread.run(self._listen())

    def stop(self) -> None:
        """Closes the socket and every tunnel."""
        self._thread.stop(self._shut_down)
        (self._run_dir / SOCKET_NAME).unlink(missing_ok=True)

    def outage(self, seconds: float) -> None:
        """A fault: cuts every connection and answers 500 for `seconds` (0 ends an outage at once).

        The API server then answers its callers with status 500, `failed calling webhook`, wherever a webhook's
        failurePolicy is Fail.
        """
        self._outage_until = time.monotonic() + seconds
        self._thread.call(self._cut)

    async def _listen(self) -> None:
        # The path of a unix socket may have about 100 characters; through the folder's descriptor it is always short.
        folder = os.open(self._run_dir, os.O_PATH)
        try:
            self._server = await asyncio.start_unix_server(self._serve, f"/proc/self/fd/{folder}/{SOCKET_NAME}")
        finally:
            os.close(folder)

    async def _shut_down(self) -> None:
        self._server.close()
        self._cut()
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut(self) -> None:
        for each in self._tunnels:
            each.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tunnels.add(writer)
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            target = request.split()[1]
            await self._connect(target, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _LOG.debug("egress connection ended: %s", error)
        finally:
            self._tunnels.discard(writer)
            writer.close()

    async def _connect(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if time.monotonic() < self._outage_until:
            await _answer(writer, "500 Internal Server Error")
            return
        address = await asyncio.to_thread(self._resolve, target)
        if address is None:
            await _answer(writer, NOBODY)
            return
        try:
            far_reader, far_writer = await self._open(address)
        except (OSError, TimeoutError):
            await _answer(writer, "503 Service Unavailable")
            return
        self._tunnels.add(far_writer)
        try:
            await _answer(writer, "200 Connection established")
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        finally:
            self._tunnels.discard(far_writer)
            far_writer.close()

    async def _open(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not (self.network and self.network.reaches(address[0])):
            return await asyncio.open_connection(*address)
        connection = self.network.socket()
        try:
            await asyncio.wait_for(asyncio.get_running_loop().sock_connect(connection, address), CONNECT_SECONDS)
            return await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise

    def _resolve(self, target: str) -> Address | None:
        assert self._client
        address, _, port = target.rpartition(":")
        if self.network and self.network.reaches(address):
            return address, int(port)
        try:
            services = self._client.list_all("v1", "Service")
        except ApiError as error:
            _LOG.warning("egress to %s: %s", target, error)
            return None
        for service in services:
            if service["spec"].get("clusterIP") == address:
                for each in service["spec"].get("ports", []):
                    if each["port"] == int(port):
                        local = self.find_port(service, each)
                        return ("127.0.0.1", local) if local else self._endpoint(self._client, service, each)
        return None

    def _endpoint(self, client: ApiClient, service: Object, port: Object) -> Address | None:
        """A ready pod on a real host behind a Service port."""
        if not self.network:
            return None
        metadata = service["metadata"]
        selector = f"kubernetes.io/service-name={metadata['name']}"
        slices = client.list_all("discovery.k8s.io/v1", "EndpointSlice", metadata["namespace"], labelSelector=selector)
        for each in slices:
            ports = [found["port"] for found in each.get("ports") or [] if found.get("name") == port.get("name", "")]
            for endpoint in each.get("endpoints") or []:
                ready = endpoint.get("conditions", {}).get("ready")
                if ports and ready and self.network.reaches(endpoint["addresses"][0]):
                    return endpoint["addresses"][0], int(ports[0])
        return None


async def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
    await writer.drain()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on what comes until no more comes, then closes the other side."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
