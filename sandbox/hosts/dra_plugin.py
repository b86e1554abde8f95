"""Stands for the TPU DRA driver's kubelet plugin on one host (kubernetes-sigs/dra-driver-google-tpu).

Real: the registration with the kubelet, the claim as the API server has it, the answer, the CDI specification that
containerd reads; a claim for a part of the chips is refused in the driver's words. Different: the driver's pod only
sleeps, and this program runs beside the kubelet as long as the pod runs, with the rights of the node; the ResourceSlice
is written by `sandbox.kubernetes.dra`, in the driver's name. There is no health, and no log is collected.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import grpc
import typer

from sandbox.hosts import chips as host_chips
from sandbox.hosts.messages import DRA, MESSAGES, REGISTRATION, Message, service
from sandbox.hosts.plugin_server import serve
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.dra import DRIVER

REGISTRY = Path("/var/lib/kubelet/plugins_registry") / f"{DRIVER}-reg.sock"
SOCKET = Path("/var/lib/kubelet/plugins") / DRIVER / "dra.sock"
CDI_FOLDER, CDI_KIND = Path("/var/run/cdi"), "k8s.tpu.google.com/tpu"
CLAIM_API = "resource.k8s.io/v1"
_TYPES, _REGISTRATION = MESSAGES[DRA], MESSAGES[REGISTRATION]


class DraPlugin:
    """The services that the kubelet calls. `labels` are the Node's, `node` its name, `address` its IP address."""

    def __init__(self, client: ApiClient, node: str, address: str, labels: dict[str, str], chips: int) -> None:
        self._client = client
        self._node = node
        self._address = address
        self._labels = labels
        self._chips = chips

    def registration(self) -> grpc.GenericRpcHandler:
        info = _REGISTRATION["PluginInfo"](
            type="DRAPlugin", name=DRIVER, endpoint=str(SOCKET), supported_versions=["v1.DRAPlugin"]
        )
        methods = {
            "GetInfo": ("InfoRequest", lambda _request: info),
            "NotifyRegistrationStatus": ("RegistrationStatus", self._registered),
        }
        return service(REGISTRATION, "Registration", methods)

    def service(self) -> grpc.GenericRpcHandler:
        methods = {
            "NodePrepareResources": ("NodePrepareResourcesRequest", self.prepare),
            "NodeUnprepareResources": ("NodeUnprepareResourcesRequest", self._unprepare_all),
        }
        return service(DRA, "DRAPlugin", methods)

    def _registered(self, status: Message) -> Message:
        print(f"registered: {status.plugin_registered} {status.error}", flush=True)
        return _REGISTRATION["RegistrationStatusResponse"]()

    def prepare(self, request: Message) -> Message:
        """The devices of each claim, with the names by which containerd finds them, or why it cannot be prepared."""
        answer = _TYPES["NodePrepareResourcesResponse"]()
        for claim in request.claims:
            try:
                answer.claims[claim.uid].devices.extend(self._prepare(claim))
            except (ApiError, PrepareError) as error:
                answer.claims[claim.uid].error = str(error)
        return answer

    def _prepare(self, claim: Message) -> list[Message]:
        found = self._client.get(CLAIM_API, "ResourceClaim", claim.name, claim.namespace)
        if not found or found["metadata"]["uid"] != claim.uid:
            raise PrepareError(f"claim {claim.namespace}/{claim.name} with uid {claim.uid} is gone")
        allocation: Object = found.get("status", {}).get("allocation", {})
        results = [each for each in allocation.get("devices", {}).get("results", []) if each["driver"] == DRIVER]
        if len(results) != self._chips:
            raise PrepareError(
                f"invalid tpu resourceClaim, claim requests partial tpu devices ({len(results)}), "
                f"only requests for all tpu devices ({self._chips}) on the node are supported"
            )
        names = [each["device"] for each in results]
        _specification(claim.uid).write_text(json.dumps(self._cdi(claim.uid, names)))
        return [
            _TYPES["Device"](
                request_names=[each["request"].partition("/")[0]],
                pool_name=each["pool"],
                device_name=each["device"],
                cdi_device_ids=[f"{CDI_KIND}={claim.uid}-common", f"{CDI_KIND}={claim.uid}-{each['device']}"],
            )
            for each in results
        ]

    def _cdi(self, uid: str, names: list[str]) -> Object:
        files = host_chips.device_files(self._labels, self._chips)
        common, own = files[: len(files) - self._chips], files[len(files) - self._chips :]
        variables = {
            "KUBERNETES_NODE_NAME": self._node,
            "DRA_RESOURCE_DRIVER_NAME": DRIVER,
            "VBAR_CONTROL_SERVICE_URL": f"{self._address}:8353",
            **host_chips.environment(self._labels),
        }
        devices = [{"name": f"{uid}-common", "containerEdits": _edits(variables, common)}]
        for name in names:
            file = own[int(name.removeprefix("accel"))]
            edits = _edits({f"TPU_DEVICE_{name}_RESOURCE_CLAIM": uid}, [file])
            devices.append({"name": f"{uid}-{name}", "containerEdits": edits})
        return {"cdiVersion": "0.6.0", "kind": CDI_KIND, "devices": devices}

    def _unprepare_all(self, request: Message) -> Message:
        answer = _TYPES["NodeUnprepareResourcesResponse"]()
        for claim in request.claims:
            _specification(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].error = ""
        return answer


class PrepareError(Exception):
    """A claim cannot be prepared on this node; the message says why."""


def _specification(uid: str) -> Path:
    CDI_FOLDER.mkdir(parents=True, exist_ok=True)
    return CDI_FOLDER / f"{CDI_KIND.replace('/', '-')}_{uid}.json"


def _edits(variables: dict[str, str], files: list[str]) -> Object:
    nodes = [{"path": file, "hostPath": host_chips.NO_CHIP, "permissions": "rw"} for file in files]
    return {"env": [f"{name}={value}" for name, value in variables.items()], "deviceNodes": nodes}


def main(
    labels: Annotated[Path, typer.Option(help="JSON file with the Node's labels.")],
    chips: Annotated[int, typer.Option(help="Chips of the host.")],
    node: Annotated[str, typer.Option(help="Name of the Node.")],
    address: Annotated[str, typer.Option(help="IP address of the Node.")],
    api: Annotated[str, typer.Option(help="The API server's address.")],
    credentials: Annotated[Path, typer.Option(help="Folder with ca.crt, node.crt, node.key.")],
) -> None:
    """Serves until killed."""
    certificate = (credentials / "node.crt", credentials / "node.key")
    client = ApiClient(api, "", credentials / "ca.crt", certificate=certificate)
    plugin = DraPlugin(client, node, address, json.loads(labels.read_text()), chips)
    servers = [serve(SOCKET, [plugin.service()]), serve(REGISTRY, [plugin.registration()])]
    while all(servers):
        time.sleep(3600)


if __name__ == "__main__":
    typer.run(main)
