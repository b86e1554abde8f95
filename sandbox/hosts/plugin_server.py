"""A gRPC server on a unix socket, as plugins of a kubelet run it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc


def serve(socket: Path, services: Sequence[grpc.GenericRpcHandler]) -> grpc.Server:
    """Listens; what an earlier process left at the path is removed."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers(tuple(services))
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server
