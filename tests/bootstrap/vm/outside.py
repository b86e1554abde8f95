"""What VMs reach besides each other: Google's APIs, their metadata server, and package servers, over a test's own TLS.

Secret Manager is the sandbox's emulator. VMs are known by their addresses, as on Google Cloud.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from sandbox.hosts.fabric import GATEWAY, Fabric
from sandbox.kubernetes.pki import CertificateAuthority
from tests.bootstrap.google import Internet, Vm
from tests.bootstrap.vm.image import HOSTS

METADATA_ADDRESS = "169.254.169.254"
_STARTUP_SCRIPT = "/computeMetadata/v1/instance/attributes/startup-script"


class Outside:
    """Serves on the fabric. `files`: what package servers have, by host and path. What a test puts into `faults` is
    answered instead, once each: a status, or "spoiled" for a file with a wrong byte; `asked` are all requests."""

    def __init__(
        self, fabric: Fabric, emulator: str, files: Mapping[str, Path], authority: CertificateAuthority
    ) -> None:
        self._fabric, self._files = fabric, files
        self._emulator = httpx.AsyncClient(base_url=emulator, trust_env=False, timeout=60)
        self._internet = Internet()
        self._app: Starlette = self._internet.app()
        self._pair = authority.issue("outside", list(HOSTS))
        self._by_address: dict[str, Vm] = {}
        self._servers: list[tuple[uvicorn.Server, threading.Thread]] = []
        self.faults: dict[str, list[int | str]] = defaultdict(list)
        self.asked: list[tuple[str, str]] = []

    def know(self, address: str, vm: Vm) -> None:
        """Tells who the VM at an address is."""
        self._by_address[address] = self._internet.vms[vm.record["name"]] = vm

    def start(self) -> None:
        self._serve(GATEWAY, 443, ssl_certfile=str(self._pair.certificate), ssl_keyfile=str(self._pair.key))
        self._serve(METADATA_ADDRESS, 80)

    def stop(self) -> None:
        for server, thread in self._servers:
            server.should_exit = True
            thread.join()

    def _serve(self, address: str, port: int, **tls: str) -> None:
        sockets = [self._fabric.listen(address, port)]
        config = uvicorn.Config(self, log_level="critical", log_config=None, lifespan="off", **tls)  # type: ignore[arg-type]
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": sockets}, name="outside", daemon=True)
        thread.start()
        self._servers.append((server, thread))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        vm = self._by_address.get(scope["client"][0])
        if vm is None:
            return await PlainTextResponse("no such VM", 403)(scope, receive, send)
        host = request.headers["host"]
        self.asked.append((vm.record["name"], f"{host}{scope['path']}"))
        if host == "secretmanager.googleapis.com":
            answer = await self._ask_emulator(request)
        elif scope["path"] == _STARTUP_SCRIPT:
            answer = PlainTextResponse(vm.record["attributes"]["startup-script"])
        elif f"{host}{scope['path']}" in self._files:
            answer = self._file(f"{host}{scope['path']}")
        else:
            inner = {**scope, "path": f"/{vm.record['name']}/{host}{scope['path']}"}
            return await self._app(inner, receive, send)
        return await answer(scope, receive, send)

    async def _ask_emulator(self, request: Request) -> Response:
        kept = {name: value for name, value in request.headers.items() if name in ("authorization", "content-type")}
        target = httpx.URL(f"/sm{request.url.path}", query=request.url.query.encode())
        answer = await self._emulator.request(request.method, target, headers=kept, content=await request.body())
        return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))

    def _file(self, name: str) -> Response:
        file, faults = self._files[name], self.faults[name]
        if not faults:
            return FileResponse(file)
        fault = faults.pop(0)
        if isinstance(fault, int):
            return Response(status_code=fault)
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        return Response(bytes(content))
