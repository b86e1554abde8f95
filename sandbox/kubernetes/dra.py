"""Stand-in for the TPU DRA driver's kubelet plugin: one ResourceSlice per TPU node that a driver pod runs on.

The pods are those of the driver's DaemonSet, placed by the real DaemonSet controller and scheduler, so affinity and
tolerations of the release decide where devices appear. Slices are written in the driver's own name from its own node:
its RBAC and any admission policy on ResourceSlices apply. Unlike the real plugin nothing is prepared on a node, so a
claim for a part of a node's chips is not refused there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from sandbox.google.machines import GENERATIONS
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.nodes import ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL
from sandbox.kubernetes.pods import as_pod, running

DRIVER = "tpu.google.com"
POD_SELECTOR = "app.kubernetes.io/name=dra-driver-google-tpu"
_API = "resource.k8s.io/v1"
RESOURCE_SLICE = (_API, "ResourceSlice")
_VERSION_LABEL = "app.kubernetes.io/version"
# Where the plugin finds what it needs on a Node: its own labels outside GKE, GKE's on GKE.
_NODE_LABELS = {
    "accelerator": ("tpu.google.com/accelerator", ACCELERATOR_LABEL),
    "chips": ("tpu.google.com/chip-count", CHIPS_LABEL),
    "topology": ("tpu.google.com/topology", TOPOLOGY_LABEL),
}
_GENERATION_OF = {each.label: each.name for each in GENERATIONS.values()}


def tpu_generation(accelerator: str) -> str:
    """The `tpuGen` attribute for an accelerator label value; v5e is called v5litepod there. "" for an unknown one."""
    name = _GENERATION_OF.get(accelerator, "")
    return "v5litepod" if name == "v5e" else name


def _fact(labels: Mapping[str, str], name: str) -> str:
    return next((labels[key] for key in _NODE_LABELS[name] if key in labels), "")


def resource_slice(node: Object, driver_version: str) -> Object | None:
    """The slice that a driver of that version publishes for a node; None for a node without TPUs."""
    labels = node["metadata"]["labels"]
    accelerator, chips = _fact(labels, "accelerator"), int(_fact(labels, "chips") or 0)
    generation = tpu_generation(accelerator)
    if not generation or not chips:
        return None
    name = node["metadata"]["name"]
    common: Object = {
        # As upstream, derived from the node's name alone: the same for all its chips.
        "uuid": {"string": f"tpu-{uuid.uuid5(uuid.NAMESPACE_DNS, name)}"},
        "tpuGen": {"string": generation},
    }
    if driver_version != "0.1.0":
        common |= {
            "brand": {"string": "Google"},
            "accelerator": {"string": accelerator},
            "chipCount": {"int": chips},
            "topology": {"string": _fact(labels, "topology")},
        }
    prefix = "accel" if generation == "v4" else ""
    devices = [{"name": f"{prefix}{each}", "attributes": {"index": {"int": each}, **common}} for each in range(chips)]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"0-{DRIVER}-{name}-", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


class SlicePublisher:
    """Keeps the driver's ResourceSlices equal to its running pods."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def step(self) -> bool:
        slices = {
            each["spec"]["nodeName"]: each
            for each in self._client.list_all(*RESOURCE_SLICE, fieldSelector=f"spec.driver={DRIVER}")
        }
        found = running(self._client.list_all("v1", "Pod", labelSelector=POD_SELECTOR))
        pods = {each["spec"]["nodeName"]: each for each in found}
        for node in slices.keys() - pods.keys():
            self._client.delete(slices[node])
        for name in pods.keys() - slices.keys():
            self._publish(name, pods[name])
        return False

    def _publish(self, node_name: str, pod: Object) -> None:
        node = self._client.get("v1", "Node", node_name)
        version = pod["metadata"]["labels"].get(_VERSION_LABEL, "")
        published = resource_slice(node, version) if node else None
        if published:
            with as_pod(self._client, pod) as driver:
                driver.create(published)
