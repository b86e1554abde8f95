"""What a boot script reaches over the network: Secret Manager, the metadata server, Cloud Storage, package servers.

Secret Manager is the sandbox's emulator, which checks every request against Google's API description and the caller's
IAM bindings. The rest is an application here that knows just what the scripts ask for: for packages it gives out
nothing but signing keys, and Cloud Storage keeps what is uploaded without looking at permissions.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sandbox.google.server import listen
from sandbox.tests.emulated_google import PROJECT, Cloud

ACCESSOR = "roles/secretmanager.secretAccessor"
VERSION_ADDER = "roles/secretmanager.secretVersionAdder"
VERSION_MANAGER = "roles/secretmanager.secretVersionManager"
# Service accounts of the project.
NODES = "tpu-nodes"
CONTROL_PLANE = "tpu-control-plane"
STRANGER = "stranger"


# Bodies of the packets of public keys, which nobody has the other half of.
DOCKER_KEY, KUBERNETES_KEY, STRANGE_KEY = (b"\x04" + name * 60 for name in (b"docker", b"kubernetes", b"stranger"))


def armored(*keys: bytes) -> str:
    """Public keys as signed repositories publish them: with a user's name behind each (RFC 9580)."""
    packets = b""
    for body in keys:
        size = len(body)
        packets += b"\x99" + size.to_bytes(2, "big") + body  # the old form of a header, as GnuPG writes it
        packets += b"\xcd\x04user"  # and the newer form
    text = base64.encodebytes(packets).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\nVersion: test\n\n{text}=abcd\n-----END PGP PUBLIC KEY BLOCK-----\n"


def fingerprint(key: bytes) -> str:
    """Of a key's packet, of version 4."""
    return hashlib.sha1(b"\x99" + len(key).to_bytes(2, "big") + key).hexdigest().upper()


@dataclass
class Vm:
    """One VM as the network sees it. `on_pause` hears of every pause a script makes, with its length in seconds.
    `keys`: what it gets for the keys of package repositories; `failing_downloads`: how many of these fail."""

    record: dict[str, Any]
    token: str
    pauses: list[int] = field(default_factory=list)
    on_pause: Callable[[int], None] = lambda _number: None
    uploads: dict[str, bytes] = field(default_factory=dict)
    keys: tuple[bytes, ...] = ()
    failing_downloads: int = 0


class Internet:
    """Everything but Secret Manager, for any number of VMs: the first part of a path names the VM."""

    def __init__(self) -> None:
        self.vms: dict[str, Vm] = {}
        self.url = ""

    def app(self) -> Starlette:
        metadata = "/{vm}/169.254.169.254/computeMetadata/v1/instance/"
        return Starlette(
            routes=[
                Route("/{vm}/pause/{seconds:int}", self._pause),
                Route(metadata, self._instance),
                Route(f"{metadata}service-accounts/default/token", self._token),
                Route("/{vm}/storage.googleapis.com/upload/storage/v1/b/{bucket}/o", self._upload, methods=["POST"]),
                Route("/{vm}/download.docker.com/{rest:path}", self._key),
                Route("/{vm}/pkgs.k8s.io/{rest:path}", self._key),
            ]
        )

    def _vm(self, request: Request) -> Vm:
        return self.vms[request.path_params["vm"]]

    def _pause(self, request: Request) -> Response:
        vm = self._vm(request)
        vm.pauses.append(request.path_params["seconds"])
        vm.on_pause(len(vm.pauses))
        return Response()

    def _instance(self, request: Request) -> Response:
        if request.headers.get("Metadata-Flavor") != "Google" or request.query_params.get("recursive") != "true":
            return Response(status_code=403)
        return JSONResponse(self._vm(request).record)

    def _token(self, request: Request) -> Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return Response(status_code=403)
        return JSONResponse({"access_token": self._vm(request).token, "expires_in": 3599, "token_type": "Bearer"})

    async def _upload(self, request: Request) -> Response:
        vm = self._vm(request)
        if request.headers.get("Authorization") != f"Bearer {vm.token}":
            return Response(status_code=401)
        name = f"{request.path_params['bucket']}/{request.query_params['name']}"
        vm.uploads[name] = await request.body()
        return JSONResponse({"name": name})

    def _key(self, request: Request) -> Response:
        path = request.path_params["rest"]
        vm = self._vm(request)
        if vm.failing_downloads:
            vm.failing_downloads -= 1
            return Response(status_code=404)  # curl itself would try others again
        known = re.fullmatch(r"(?P<docker>linux/ubuntu/gpg)|core:/stable:/v1\.\d\d/deb/Release\.key", path)
        if not known:
            return Response(status_code=404)
        keys = vm.keys or (DOCKER_KEY if known["docker"] else KUBERNETES_KEY,)
        return PlainTextResponse(armored(*keys))


@contextmanager
def internet() -> Iterator[Internet]:
    """The application on 127.0.0.1, in a thread."""
    served = Internet()
    listener = listen()
    config = uvicorn.Config(served.app(), log_level="critical", log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="internet", daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield served
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@dataclass(frozen=True)
class Secrets:
    """The secrets of one platform, as the program makes them: without versions, each with its IAM bindings."""

    cloud: Cloud
    platform: str

    def name(self, kind: str) -> str:
        return f"projects/{PROJECT}/secrets/{self.platform}-{kind}"

    def create(self, kind: str, account: str, *roles: str) -> None:
        """A secret on which an account has these roles."""
        self.cloud.ok(
            "POST",
            f"/sm/v1/projects/{PROJECT}/secrets?secretId={self.platform}-{kind}",
            {"replication": {"automatic": {}}},
        )
        bindings = [{"role": role, "members": [f"serviceAccount:{email(account)}"]} for role in roles]
        self.cloud.ok("POST", f"/sm/v1/{self.name(kind)}:setIamPolicy", {"policy": {"bindings": bindings}})

    def add(self, kind: str, payload: dict[str, str]) -> None:
        data = base64.b64encode(json.dumps(payload).encode()).decode()
        self.cloud.ok("POST", f"/sm/v1/{self.name(kind)}:addVersion", {"payload": {"data": data}})

    def newest(self, kind: str) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.newest_bytes(kind))
        return payload

    def newest_bytes(self, kind: str) -> bytes:
        answer = self.cloud.ok("GET", f"/sm/v1/{self.name(kind)}/versions/latest:access")
        return base64.b64decode(answer["payload"]["data"])

    def states(self, kind: str) -> list[str]:
        """The states of all versions, the oldest first."""
        answer = self.cloud.ok("GET", f"/sm/v1/{self.name(kind)}/versions")
        versions = sorted(answer.get("versions", []), key=lambda v: int(v["name"].rpartition("/")[2]))
        return [version["state"] for version in versions]


def email(account: str) -> str:
    return f"{account}@{PROJECT}.iam.gserviceaccount.com"
