"""The node pool that a pod asks for, as a request of the container API (upstream's `internal/cloud/gke.go`).

JSON values as the API has them: Pod and NodePool objects are dictionaries, empty fields are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sandbox.tpu_provisioner.settings import Settings

Json = dict[str, Any]

TOPOLOGY = "cloud.google.com/gke-tpu-topology"
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
SPOT = "cloud.google.com/gke-spot"
POOL_LABEL = "cloud.google.com/gke-nodepool"
TPU = "google.com/tpu"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_KEY = "jobset.sigs.k8s.io/job-key"
MANAGER, MANAGED_BY_THIS = "google.com/nodepool-manager", "tpu-provisioner"
_OWN = "google.com/tpu-provisioner"
LABEL_JOBSET, LABEL_JOBSET_NAMESPACE = f"{_OWN}-jobset-name", f"{_OWN}-jobset-namespace"
LABEL_POOL_ID = "provisioner-nodepool-id"  # what older versions called the JobSet
HASH = f"{_OWN}-nodepool-hash"
_ANNOTATION = "tpu-provisioner.cloud.google.com"
_KEPT_SELECTORS = ("cloud.google.com/gke-tpu-ici-resiliency", "cloud.google.com/gke-location-hint")
_GOOGLES = ("cloud.google.com/", "google.com/")
# Accelerator -> dimensions of its topologies, machine family.
_ACCELERATORS = {
    "tpu-v4-podslice": (3, "ct4p-hightpu"),
    "tpu-v5-lite-podslice": (2, "ct5lp-hightpu"),
    "tpu-v5p-slice": (3, "ct5p-hightpu"),
    "tpu-v6e-slice": (2, "ct6e-standard"),
    "tpu7x": (3, "tpu7x-standard"),
}
_V7X = "tpu7x"
_CHIPS_PER_NODE = 4  # of every machine type, as upstream counts
_PODS_PER_NODE = 15
_PREFIX_LENGTH, _KEY_LENGTH = 34, 5
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class PodError(ValueError):
    """No node pool follows from the pod; the message says why, in upstream's words."""


def creation_request(pod: Mapping[str, Any], settings: Settings) -> Json:
    """The CreateNodePoolRequest for a pod. Raises PodError."""
    return {"nodePool": _node_pool(pod, settings), "parent": settings.parent}


def pool_hash(pool: Mapping[str, Any]) -> str:
    """A short text for what the workload asks for; pools with the same one are the same to the controller."""
    config = pool["config"]
    fields = ("labels", "machineType", "reservationAffinity", "spot")  # as Go writes them, in this order
    hashed = {"config": {key: config[key] for key in fields if config.get(key)}}
    hashed["config"]["labels"] = dict(sorted(config["labels"].items()))
    text = json.dumps(hashed, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return "".join(_HASH_LETTERS[ord(digit) % len(_HASH_LETTERS)] for digit in str(_fnv32a(text.encode())))


def _fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 % 2**32
    return value


def _node_pool(pod: Mapping[str, Any], settings: Settings) -> Json:
    selector = pod["spec"].get("nodeSelector") or {}
    labels = _labels(pod, settings)
    topology, accelerator = _selected(selector, TOPOLOGY), _selected(selector, ACCELERATOR)
    chips = _requested_chips(pod)
    nodes = _node_count(accelerator, topology)
    machine = _machine_type(accelerator, chips)
    capacity = {} if settings.force_on_demand else _capacity(selector)
    disk = settings.node_secondary_disk
    config = {
        "serviceAccount": _annotations(pod).get(f"{_ANNOTATION}/node-service-account", settings.node_service_account),
        "shieldedInstanceConfig": _filled(enableIntegrityMonitoring=True, enableSecureBoot=settings.node_secure_boot),
        "tags": list(settings.node_tags),
        "secondaryBootDisks": [{"diskImage": disk, "mode": "CONTAINER_IMAGE_CACHE"}] if disk else [],
        "machineType": machine,
        "labels": labels,
        "bootDiskKmsKey": settings.node_boot_disk_kms_key,
        "diskType": settings.node_disk_type,
        "enableConfidentialStorage": settings.node_confidential_storage,
        **capacity,
    }
    networks = _networks(pod, settings)
    name = pool_name(pod)
    pool = _filled(
        name=name,
        config=_filled(**config),
        initialNodeCount=nodes,
        locations=[settings.zone],
        management={"autoRepair": True},
        upgradeSettings={"maxSurge": 1},
        maxPodsConstraint={"maxPodsPerNode": str(_PODS_PER_NODE)},
        networkConfig={"additionalNodeNetworkConfigs": networks} if networks else {},
    )
    pool["placementPolicy"] = _placement(accelerator, topology, machine, nodes)
    labels[HASH] = pool_hash(pool)
    return pool


def _filled(**fields: Any) -> Json:
    return {key: value for key, value in fields.items() if value}


def _annotations(pod: Mapping[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _pod_labels(pod: Mapping[str, Any]) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def pool_name(pod: Mapping[str, Any]) -> str:
    """The name of a pod's pool, which stays the same when its JobSet restarts. Raises PodError."""
    labels = _pod_labels(pod)
    for key in (JOBSET_NAME, JOB_KEY):
        if key not in labels:
            raise PodError(f"{key} label not found on pod {pod['metadata']['name']}")
    return f"{labels[JOBSET_NAME][:_PREFIX_LENGTH]}-{labels[JOB_KEY][:_KEY_LENGTH]}"


def _labels(pod: Mapping[str, Any], settings: Settings) -> dict[str, str]:
    metadata, carried = pod["metadata"], _pod_labels(pod)
    owner = next((each for each in metadata.get("ownerReferences") or [] if each.get("controller")), None)
    if owner is None:
        raise PodError("no owner reference")
    if not carried.get(JOBSET_NAME):
        raise PodError(f"pod {metadata['name']} is not part of a jobset, not constructing node pool config for it")
    labels = {
        MANAGER: MANAGED_BY_THIS,
        f"{_OWN}-parent-kind": owner["kind"].lower(),
        f"{_OWN}-parent-name": owner["name"].lower(),
        f"{_OWN}-parent-namespace": metadata["namespace"].lower(),
        LABEL_JOBSET: carried[JOBSET_NAME],
        LABEL_JOBSET_NAMESPACE: metadata["namespace"],
    }
    asked = _annotations(pod).get(f"{_ANNOTATION}/copy-labels", "").split(",")
    copied = (*settings.pod_to_node_labels, *(each.strip() for each in asked))
    labels |= {key: carried[key] for key in copied if key in carried}
    selector: dict[str, str] = pod["spec"].get("nodeSelector") or {}
    own = {key: value for key, value in selector.items() if key in _KEPT_SELECTORS or not key.startswith(_GOOGLES)}
    return labels | own


def _selected(selector: Mapping[str, str], key: str) -> str:
    if key not in selector:
        raise PodError(f"missing node selector key: {key}")
    return selector[key]


def _requested_chips(pod: Mapping[str, Any]) -> int:
    total = 0
    for container in pod["spec"]["containers"]:
        asked = str((container.get("resources", {}).get("requests") or {}).get(TPU, "0"))
        if not asked.isdigit():
            raise PodError(f"summing TPU requests: invalid TPU request: {asked}")
        total += int(asked)
    return total


def _node_count(accelerator: str, topology: str) -> int:
    if accelerator not in _ACCELERATORS:
        raise PodError(f"determining node count: invalid accelerator: {accelerator}")
    wanted = _ACCELERATORS[accelerator][0]
    sizes = topology.split("x")
    if len(sizes) != wanted:
        raise PodError(f"determining node count: invalid topology: {topology}, expected {wanted} dimensions")
    for size in sizes:
        if not size.isdigit():
            raise PodError(
                f'determining node count: invalid topology: {topology}, could not convert "{size}" to int:'
                f' strconv.Atoi: parsing "{size}": invalid syntax'
            )
    return math.ceil(math.prod(map(int, sizes)) / _CHIPS_PER_NODE)


def _machine_type(accelerator: str, chips: int) -> str:
    if chips < 1:
        raise PodError(f"determining node count: invalid TPU request: {chips}")
    return f"{_ACCELERATORS[accelerator][1]}-{chips}t"


def _capacity(selector: Mapping[str, str]) -> Json:
    """Fields of the node configuration for a reservation or for spot capacity."""
    fields: Json = {}
    name, project = (selector.get(f"cloud.google.com/reservation-{what}", "") for what in ("name", "project"))
    if "cloud.google.com/reservation-name" in selector:
        value = f"projects/{project}/reservations/{name}" if project else name
        key = "compute.googleapis.com/reservation-name"
        fields["reservationAffinity"] = {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": key,
            "values": [value],
        }
    if selector.get(SPOT) == "true":
        fields["spot"] = True
        fields["taints"] = [{"effect": "NO_SCHEDULE", "key": SPOT, "value": "true"}]
    return fields


def _networks(pod: Mapping[str, Any], settings: Settings) -> list[dict[str, str]]:
    text = _annotations(pod).get(f"{_ANNOTATION}/additional-node-networks") or settings.node_additional_networks
    found = []
    for pair in filter(None, (each.strip() for each in text.split(","))):
        network, colon, subnetwork = pair.partition(":")
        if not colon:
            raise PodError(f"invalid additional network annotation: {pair}")
        found.append({"network": network.strip(), "subnetwork": subnetwork.strip()})
    return found


def _placement(accelerator: str, topology: str, machine: str, nodes: int) -> dict[str, str]:
    if accelerator == _V7X:
        return {"policyName": f"tpu-provisioner-{topology}"}
    single_host = machine.endswith("1t") or machine == "ct6e-standard-8t" or (machine, nodes) == ("ct6e-standard-4t", 1)
    return {} if single_host else {"tpuTopology": topology, "type": "COMPACT"}
