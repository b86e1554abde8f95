"""Stands for the TPU device plugin of GKE and of tpu-operator on one host: `google.com/tpu` over the kubelet's own API.

Real: registration, the stream of devices, allocation, a second registration after the kubelet has been started again.
Different: the chips are a number, they are always healthy, and there are no metrics. Runs inside the host.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import grpc
import typer

from sandbox.hosts import chips as host_chips
from sandbox.hosts.messages import DEVICE_PLUGIN, MESSAGES, Message, call, service
from sandbox.hosts.plugin_server import serve

FOLDER = Path("/var/lib/kubelet/device-plugins")
SOCKET, KUBELET = FOLDER / "google-tpu.sock", FOLDER / "kubelet.sock"
RESOURCE = "google.com/tpu"
_TYPES = MESSAGES[DEVICE_PLUGIN]


class DevicePlugin:
    """The service that the kubelet calls."""

    def __init__(self, labels: dict[str, str], chips: int) -> None:
        self._chips = chips
        self._environment = host_chips.environment(labels)
        self._files = host_chips.device_files(labels, chips)
        self.ended = threading.Event()

    def service(self) -> grpc.GenericRpcHandler:
        methods = {
            "GetDevicePluginOptions": ("Empty", lambda _request: _TYPES["DevicePluginOptions"]()),
            "Allocate": ("AllocateRequest", self._allocate),
        }
        return service(DEVICE_PLUGIN, "DevicePlugin", methods, {"ListAndWatch": ("Empty", self._list_and_watch)})

    def _list_and_watch(self, _request: Message) -> Iterator[Message]:
        devices = [_TYPES["Device"](ID=str(number), health="Healthy") for number in range(self._chips)]
        yield _TYPES["ListAndWatchResponse"](devices=devices)
        self.ended.wait()

    def _allocate(self, request: Message) -> Message:
        devices = [
            _TYPES["DeviceSpec"](container_path=file, host_path=host_chips.NO_CHIP, permissions="rw")
            for file in self._files
        ]
        answer = _TYPES["ContainerAllocateResponse"](envs=self._environment, devices=devices)
        return _TYPES["AllocateResponse"](container_responses=[answer] * len(request.container_requests))


def register() -> None:
    """Tells the kubelet where the plugin listens. Raises grpc.RpcError."""
    request = _TYPES["RegisterRequest"](
        version="v1beta1", endpoint=SOCKET.name, resource_name=RESOURCE, options=_TYPES["DevicePluginOptions"]()
    )
    call(str(KUBELET), DEVICE_PLUGIN, "Registration/Register", request, "Empty")


def main(
    labels: Annotated[Path, typer.Option(help="JSON file with the Node's labels.")],
    chips: Annotated[int, typer.Option(help="Chips of the host.")],
) -> None:
    """Serves until killed. A starting kubelet empties the folder of sockets: then begins anew."""
    while True:
        plugin = DevicePlugin(json.loads(labels.read_text()), chips)
        server = serve(SOCKET, [plugin.service()])
        while True:
            try:
                register()
                break
            except grpc.RpcError:
                time.sleep(0.2)
        while SOCKET.exists():
            time.sleep(0.5)
        plugin.ended.set()
        server.stop(None)


if __name__ == "__main__":
    typer.run(main)
