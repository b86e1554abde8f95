"""What the API server reaches inside the cluster: webhooks and aggregated APIs behind Services.

The API server sends all such traffic as HTTP CONNECT requests for `<ClusterIP>:<port>` to a unix socket (its egress
selector). The proxy here looks up the Service and connects to the local program that stands for its pods, so that
everything a chart renders stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sandbox.kubernetes.api import ApiClient, ApiError, Object

SOCKET_NAME = "egress.sock"
_LOG = logging.getLogger(__name__)

# A backend finder: Service and one of its spec.ports -> local port, or None when no program stands behind it.
FindPort = Callable[[Object, Object], int | None]


class EgressProxy:
    """Serves `<run_dir>/egress.sock` from a thread of its own.

    `find_port` may be replaced at any time; until then every connection is refused with 502.
    """

    def __init__(self, run_dir: Path) -> None:
        self.find_port: FindPort = lambda _service, _port: None
        self._run_dir = run_dir
        self._client: ApiClient | None = None
        self._outage_until = 0.0
        self._tunnels: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)

    def start(self, client: ApiClient) -> None:
        """Listens. `client` is used to look up Services, once connections come in."""
        self._client = client
        (self._run_dir / SOCKET_NAME).unlink(missing_ok=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def stop(self) -> None:
        """Closes the socket and every tunnel."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut_down(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        (self._run_dir / SOCKET_NAME).unlink(missing_ok=True)

    def outage(self, seconds: float) -> None:
        """A fault: cuts every connection and answers 500 for `seconds` (0 ends an outage at once).

        The API server then answers its callers with status 500, `failed calling webhook`, wherever a webhook's
        failurePolicy is Fail.
        """
        self._outage_until = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(self._cut)

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
        port = await asyncio.to_thread(self._resolve, target)
        if port is None:
            await _answer(writer, "502 Bad Gateway")
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await _answer(writer, "503 Service Unavailable")
            return
        self._tunnels.add(far_writer)
        try:
            await _answer(writer, "200 Connection established")
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._tunnels.discard(far_writer)
            far_writer.close()

    def _resolve(self, target: str) -> int | None:
        assert self._client
        address, _, port = target.rpartition(":")
        try:
            services = self._client.list_all("v1", "Service")
        except ApiError as error:
            _LOG.warning("egress to %s: %s", target, error)
            return None
        for service in services:
            if service["spec"].get("clusterIP") == address:
                for each in service["spec"].get("ports", []):
                    if each["port"] == int(port):
                        return self.find_port(service, each)
        return None


async def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode())
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
