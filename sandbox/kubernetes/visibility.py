"""Stand-in for Kueue's aggregated visibility API: its discovery, with no resources.

The real one needs a writable `/visibility` on the machine, so Kueue runs here with VisibilityOnDemand off. Without an
answer behind its APIServices, though, discovery fails and no namespace of the cluster could be deleted.
"""

from __future__ import annotations

import threading
import time

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sandbox.kubernetes.pki import KeyPair

GROUP = "visibility.kueue.x-k8s.io"


async def _resources(request: Request) -> JSONResponse:
    version = f"{GROUP}/{request.path_params['version']}"
    return JSONResponse({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []})


class VisibilityStub:
    """Serves HTTPS on 127.0.0.1:`port` from a thread."""

    def __init__(self, port: int, serving: KeyPair) -> None:
        self.port = port
        config = uvicorn.Config(
            Starlette(routes=[Route(f"/apis/{GROUP}/{{version}}", _resources)]),
            host="127.0.0.1",
            port=port,
            ssl_certfile=str(serving.certificate),
            ssl_keyfile=str(serving.key),
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="visibility", daemon=True)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.02)

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()
