"""From a ComputeClass to the node pools that GKE may create for it: pure functions.

Follows GKE's own autoscaler (GoogleCloudPlatform/cluster-autoscaler, Apache-2.0, pkg/autoprovisioning and
pkg/cloudprovider/gke) and the GKE documentation of ComputeClasses.
Where it differs: pools come from priorities with `tpu` alone, machine types and families are passed over. Of a class
nodeSystemConfig, nodePoolGroup, confidentialNodeType, localSSDCount and zoneTypes have no effect, nor has
`whenUnsatisfiable: ScaleUpAnyway`. A priority is tried in its zones one after the other, as they are written. A pool
with flex-start never has auto-repair, whatever the class says: the container API refuses it, and no public source says
what GKE does then.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sandbox.google import machines
from sandbox.google.machines import MachineType
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.nodes import DRA_LABEL, Pool, parse_pool

COMPUTE_CLASS = "cloud.google.com/compute-class"
CREATION_VERSION = "1.33.3-gke.1136000"  # from here on a class needs no cluster auto-provisioning
CLASS_VERSIONS = {"tpu7x": "1.34.1-gke.2541000"}  # TPU type -> first version with it in classes
MAX_NODES = 1000  # of a single-host pool, in each zone
# Pods that select a class must not say themselves what the class decides.
DECIDED_BY_CLASS = (
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-preemptible",
    "cloud.google.com/machine-family",
    "cloud.google.com/reservation-affinity",
    "cloud.google.com/reservation-name",
    "cloud.google.com/reservation-project",
    "node.kubernetes.io/instance-type",
)
_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_RECYCLE_LABEL = "cloud.google.com/gke-node-recycle-lead-time-seconds"
# Settings that make another pool of one that does not ask for them.
_DECISIVE = ("spot", "flexStart", "reservationAffinity", "maxRunDuration")
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_NAME_LENGTH = 14  # of the machine type in a pool's name


@dataclass(frozen=True)
class Option:
    """A node pool that a class allows, in one zone: `body` is a container v1beta1 NodePool without a name."""

    body: Object

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.body, sort_keys=True).encode()).hexdigest()

    def pool(self, name: str = "nap") -> Pool:
        """The pool to be, without nodes."""
        return parse_pool({**self.body, "name": name, "currentNodeCount": 0})

    def new_name(self) -> str:
        """A name as GKE's autoscaler makes them: "nap-ct6e-standa-4t-spot-" and eight characters."""
        config = self.body["config"]
        spot = "spot-" if config.get("spot") else ""
        unique = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(8))
        return f"nap-{_cropped(config['machineType'])}-{spot}{unique}"

    def is_made(self, pool: Object) -> bool:
        """Whether a pool that exists is what the class asks for now."""
        ours, its = self.body["config"], pool["config"]
        return _contains(pool, self.body) and all(not its.get(key) or key in ours for key in _DECISIVE)


def creates_pools(compute_class: Object) -> bool:
    return bool(compute_class["spec"].get("nodePoolAutoCreation", {}).get("enabled"))


def provisions_cluster(cluster: Object) -> bool:
    """Whether cluster auto-provisioning is on."""
    return bool(cluster.get("autoscaling", {}).get("enableNodeAutoprovisioning"))


def has_tpus(compute_class: Object) -> bool:
    return any("tpu" in each for each in compute_class["spec"].get("priorities", []))


def refusal(compute_class: Object, cluster: Object) -> str:
    """Why no pools are created for a class at all, in GKE's words; "" when they are."""
    name = compute_class["metadata"]["name"]
    if not creates_pools(compute_class):
        return f"NAP disabled for ComputeClass {name} of type CCC"
    if not provisions_cluster(cluster) and _is_older(cluster, CREATION_VERSION):
        return "NAP is not enabled for the cluster but Crd is configured with NAP enabled."
    return ""


def choices(compute_class: Object, cluster: Object) -> Iterator[str | Option]:
    """What a class wants, best first: names of existing pools, and pools to be created."""
    creates = not refusal(compute_class, cluster)
    for priority in _ordered(compute_class):
        yield from priority.get("nodepools", [])
        if "tpu" in priority and creates and not problem(priority, cluster):
            yield from _options(compute_class, priority, cluster)


def problems(compute_class: Object, cluster: Object) -> list[str]:
    """Why priorities of a class give no pool, in GKE's words."""
    found = [problem(each, cluster) for each in _ordered(compute_class) if "tpu" in each]
    return [each for each in found if each]


def problem(priority: Object, cluster: Object) -> str:
    """What is wrong with the TPUs of a priority; "" when nothing is."""
    tpu = priority["tpu"]
    if all(each.label != tpu["type"] for each in machines.GENERATIONS.values()) or _is_older(
        cluster, CLASS_VERSIONS.get(tpu["type"], "")
    ):
        return f'TPU type "{tpu["type"]}" not supported'
    machine = _machine(tpu)
    if machine is None:
        return f"Accelerator count {tpu['count']} is not supported for TPU type {tpu['type']}"
    return "" if machine.hosts(tpu["topology"]) else "Invalid TPU topology"


def _is_older(cluster: Object, version: str) -> bool:
    return machines.version_key(cluster["currentMasterVersion"]) < machines.version_key(version)


def _ordered(compute_class: Object) -> list[Object]:
    priorities: list[Object] = compute_class["spec"].get("priorities", [])
    return sorted(priorities, key=lambda each: -each.get("priorityScore", 0))


def _machine(tpu: Object) -> MachineType | None:
    for each in machines.TPU_MACHINES.values():
        if each.generation and each.generation.label == tpu["type"] and each.chips == tpu["count"]:
            return each
    return None


def _options(compute_class: Object, priority: Object, cluster: Object) -> Iterator[Option]:
    defaults = compute_class["spec"].get("priorityDefaults", {})
    location = priority.get("location") or defaults.get("location") or {}
    usual = cluster.get("autoscaling", {}).get("autoprovisioningLocations") or cluster["locations"]
    for reservation in priority.get("reservations", {}).get("specific") or [{}]:
        for zone in reservation.get("zones") or location.get("zones") or usual:
            yield Option(_body(compute_class, priority, cluster, reservation, zone))


def _body(compute_class: Object, priority: Object, cluster: Object, reservation: Object, zone: str) -> Object:
    machine = _machine(priority["tpu"])
    assert machine
    wanted = compute_class["spec"].get("nodePoolConfig", {})
    flex = bool(priority.get("flexStart", {}).get("enabled"))
    topology = priority["tpu"]["topology"]
    hosts = machine.hosts(topology) or 1
    scaling = {"enabled": True, "autoprovisioned": True, "maxNodeCount": hosts if hosts > 1 else MAX_NODES}
    body: Object = {
        "initialNodeCount": 0,
        "locations": [zone],
        "config": _config(compute_class, priority, cluster, machine, reservation),
        "autoscaling": {**scaling, **({"locationPolicy": "ANY"} if flex or priority.get("spot") else {})},
        "management": {
            "autoUpgrade": wanted.get("autoUpgrade", True),
            "autoRepair": wanted.get("autoRepair", True) and not flex,
        },
    }
    if flex:
        body["upgradeSettings"] = {"strategy": "SHORT_LIVED"}
    if hosts > 1:
        body["placementPolicy"] = {**_placement(priority), "tpuTopology": topology}
    if "maxPodsPerNode" in priority:
        body["maxPodsConstraint"] = {"maxPodsPerNode": str(priority["maxPodsPerNode"])}
    network = _network(wanted, priority)
    return {**body, **({"networkConfig": network} if network else {})}


def _placement(priority: Object) -> Object:
    name = priority.get("placement", {}).get("policyName")
    return {"policyName": name} if name else {"type": "COMPACT"}


def _network(wanted: Object, priority: Object) -> Object:
    network: Object = {}
    if wanted.get("ipType"):
        network["enablePrivateNodes"] = wanted["ipType"] == "private"
    if "acceleratorNetworkProfile" in priority:
        network["acceleratorNetworkProfile"] = priority["acceleratorNetworkProfile"]
    return network


def _config(
    compute_class: Object, priority: Object, cluster: Object, machine: MachineType, reservation: Object
) -> Object:
    """The NodeConfig: what the class says, else what the cluster's auto-provisioning does by default."""
    wanted = compute_class["spec"].get("nodePoolConfig", {})
    defaults = cluster.get("autoscaling", {}).get("autoprovisioningNodePoolDefaults", {})
    storage = priority.get("storage", {})
    flex = bool(priority.get("flexStart", {}).get("enabled"))
    seconds = priority.get("maxRunDurationSeconds")
    config = {
        "machineType": machine.name,
        "labels": _labels(compute_class, priority),
        "taints": _taints(compute_class, priority),
        "serviceAccount": wanted.get("serviceAccount") or defaults.get("serviceAccount"),
        "oauthScopes": defaults.get("oauthScopes"),
        "shieldedInstanceConfig": defaults.get("shieldedInstanceConfig"),
        "imageType": wanted.get("imageType", "").upper(),
        "gcfsConfig": _switch(wanted, "imageStreaming"),
        "gvnic": _switch(wanted, "gvnic"),
        "loggingConfig": _logging(wanted),
        "resourceManagerTags": _tags(wanted),
        "diskType": storage.get("bootDiskType"),
        "diskSizeGb": storage.get("bootDiskSize"),
        "bootDiskKmsKey": storage.get("bootDiskKMSKey"),
        "secondaryBootDisks": [_secondary_disk(each) for each in storage.get("secondaryBootDisks", [])],
        "reservationAffinity": _affinity(priority, reservation),
        "spot": priority.get("spot"),
        "flexStart": flex,
        "maxRunDuration": f"{seconds}s" if seconds else "",
    }
    return {key: value for key, value in config.items() if value}


def _labels(compute_class: Object, priority: Object) -> dict[str, str]:
    wanted = compute_class["spec"].get("nodePoolConfig", {})
    dra = wanted.get("tpu", {}).get("driverMode") == "DynamicResourceAllocation"
    lead_time = priority.get("flexStart", {}).get("nodeRecycling", {}).get("leadTimeSeconds")
    return {
        **wanted.get("nodeLabels", {}),
        **priority.get("nodeLabels", {}),
        **({DRA_LABEL: "true"} if dra else {}),
        **({_RECYCLE_LABEL: str(lead_time)} if lead_time else {}),
        COMPUTE_CLASS: compute_class["metadata"]["name"],
    }


def _taints(compute_class: Object, priority: Object) -> list[Object]:
    """The class's own taint, and those that it wants; a priority's replaces the class's of that key and effect."""
    own = {"key": COMPUTE_CLASS, "value": compute_class["metadata"]["name"], "effect": "NoSchedule"}
    wanted = compute_class["spec"].get("nodePoolConfig", {}).get("taints", [])
    taints = {(each["key"], each["effect"]): each for each in (*wanted, *priority.get("taints", []), own)}
    return [{**each, "effect": _EFFECTS[each["effect"]]} for each in taints.values()]


def _switch(wanted: Object, field: str) -> Object:
    return {"enabled": wanted[field]["enabled"]} if field in wanted else {}


def _logging(wanted: Object) -> Object:
    variant = wanted.get("loggingConfig", {}).get("loggingVariantConfig", {}).get("variant")
    return {"variantConfig": {"variant": variant}} if variant else {}


def _tags(wanted: Object) -> Object:
    tags = {each["key"]: each["value"] for each in wanted.get("resourceManagerTags", [])}
    return {"tags": tags} if tags else {}


def _secondary_disk(disk: Object) -> Object:
    owner = f"projects/{disk['project']}/" if "project" in disk else ""
    image = f"{owner}global/images/{disk['diskImageName']}"
    return {"diskImage": image, **({"mode": disk["mode"]} if "mode" in disk else {})}


def _affinity(priority: Object, reservation: Object) -> Object:
    if not reservation:
        none = priority.get("reservations") or priority.get("flexStart", {}).get("enabled")
        return {"consumeReservationType": "NO_RESERVATION"} if none else {}
    value = reservation["name"]
    if "project" in reservation:
        value = f"projects/{reservation['project']}/reservations/{value}"
    block = reservation.get("reservationBlock")
    if block:
        value += f"/reservationBlocks/{block['name']}"
        sub_block = block.get("reservationSubBlock")
        value += f"/reservationSubBlocks/{sub_block['name']}" if sub_block else ""
    return {"consumeReservationType": "SPECIFIC_RESERVATION", "key": _RESERVATION_KEY, "values": [value]}


def _cropped(machine: str) -> str:
    """A machine type of at most 14 characters: "ct6e-standa-4t"."""
    excess = len(machine) - _NAME_LENGTH
    if excess <= 0:
        return machine
    series, shape, size = machine.split("-")
    return f"{series}-{shape[:-excess]}-{size}"


def _contains(whole: object, part: object) -> bool:
    """Whether `part` is in `whole`: objects by their fields, lists by their entries, in any order."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(_contains(whole.get(key), value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(any(_contains(each, item) for each in whole) for item in part)
    return whole == part or not (whole or part)
