"""Plans: for every edit recorded with the real engine and the real plugin, the stand-in's Diff says the same.

The recording's own program is not kept; `_BASES` rebuilds what it deployed from the recorded states, plus the few
properties that its edits show to have been set.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.provider import Difference, Subject
from sandbox.plugins.values import UNKNOWN
from sandbox.tests.gcp_plugin_support import CONFIG, DATA, recorded_state

EDITS = json.loads((DATA / "provider_edits.json").read_text())
Json = dict[str, Any]

# The recording names an edited resource by what it is; the state recording by its logical name.
NAMES = {
    "cluster": "cl",
    "node pool": "v6e-4x4",
    "workload policy": "wp",
    "instance template": "tm",
    "MIG": "mig",
}
TAINT = {"key": "k", "value": "v", "effect": "NO_SCHEDULE"}
# Key of the edit -> (resource, path, value or None for "as written in the edit"). ABSENT removes the property.
ABSENT = object()
ARGUMENTS: Mapping[str, tuple[str, str, Any]] = {
    "topology": ("node pool", "placementPolicy.tpuTopology", None),
    "machine": ("node pool", "nodeConfig.machineType", None),
    "pp.type": ("node pool", "placementPolicy.type", None),
    "policy": ("node pool", "placementPolicy.policyName", None),
    "nopp": ("node pool", "placementPolicy", ABSENT),
    "spot": ("node pool", "nodeConfig.spot", None),
    "flex": ("node pool", "nodeConfig.flexStart", None),
    "mrd": ("node pool", "nodeConfig.maxRunDuration", None),
    "res": (
        "node pool",
        "nodeConfig.reservationAffinity",
        {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["r1"],
        },
    ),
    "node_count": ("node pool", "nodeCount", None),
    "max_pods": ("node pool", "maxPodsPerNode", None),
    "zone": ("node pool", "nodeLocations", ["us-east5-a"]),
    "labels": ("node pool", "nodeConfig.labels", None),
    "taints": ("node pool", "nodeConfig.taints", [TAINT]),
    "tags": ("node pool", "nodeConfig.tags", None),
    "rlabels": ("node pool", "nodeConfig.resourceLabels", None),
    "disk_type": ("node pool", "nodeConfig.diskType", None),
    "disk_size": ("node pool", "nodeConfig.diskSizeGb", None),
    "image": ("node pool", "nodeConfig.imageType", None),
    "sa": ("node pool", "nodeConfig.serviceAccount", None),
    "gvnic": ("node pool", "nodeConfig.gvnic.enabled", None),
    "gcfs": ("node pool", "nodeConfig.gcfsConfig", {"enabled": True}),
    "sbd": ("node pool", "nodeConfig.secondaryBootDisks", [{"diskImage": "i", "mode": "CONTAINER_IMAGE_CACHE"}]),
    "metadata": ("node pool", "nodeConfig.metadata", None),
    "amf": ("node pool", "nodeConfig.advancedMachineFeatures", {"threadsPerCore": 1}),
    "kms": ("node pool", "nodeConfig.bootDiskKmsKey", None),
    "wim": ("node pool", "nodeConfig.workloadMetadataConfig.mode", None),
    "secboot": ("node pool", "nodeConfig.shieldedInstanceConfig.enableSecureBoot", None),
    "autoscaling": ("node pool", "autoscaling", {"minNodeCount": 0, "maxNodeCount": 4}),
    "queued": ("node pool", "queuedProvisioning", {"enabled": True}),
    "repair": ("node pool", "management.autoRepair", None),
    "upgrade": ("node pool", "upgradeSettings", {"maxSurge": 0, "maxUnavailable": 1}),
    "name": ("node pool", "name", None),
    "np.version": ("node pool", "version", None),
    "cl.location": ("cluster", "location", None),
    "cl.initial_node_count": ("cluster", "initialNodeCount", None),
    "cl.datapath": ("cluster", "datapathProvider", None),
    "cl.pods": ("cluster", "ipAllocationPolicy.clusterSecondaryRangeName", None),
    "cl.private": ("cluster", "privateClusterConfig.enablePrivateNodes", None),
    "cl.channel": ("cluster", "releaseChannel.channel", None),
    "cl.version": ("cluster", "minMasterVersion", None),
    "cl.label": ("cluster", "resourceLabels.env", None),
    "cl.description": ("cluster", "description", None),
    "cl.shielded": ("cluster", "enableShieldedNodes", None),
    "cl.mon": ("cluster", "monitoringConfig.enableComponents", None),
    "cl.gcsfuse": ("cluster", "addonsConfig.gcsFuseCsiDriverConfig.enabled", None),
    "wp.topology": ("workload policy", "workloadPolicy.acceleratorTopology", None),
    "wp.mode": ("workload policy", "workloadPolicy.acceleratorTopologyMode", None),
    "wp.name": ("workload policy", "name", None),
    "tm.machine": ("instance template", "machineType", None),
    "tm.image": ("instance template", "disks.0.sourceImage", None),
    "tm.labels": ("instance template", "metadata.kube-labels", None),
    "tm.rlabels": ("instance template", "labels", None),
    "mig.size": ("MIG", "targetSize", None),
    "mig.mode": ("MIG", "targetSizePolicies.0.mode", None),
    "mig.base": ("MIG", "baseInstanceName", None),
    "mig.daf": ("MIG", "instanceLifecyclePolicy.defaultActionOnFailure", None),
}
NETWORK_CONFIGS = {
    "enable_private_nodes=True": {"enablePrivateNodes": True},
    "accelerator_network_profile=auto": {"acceleratorNetworkProfile": "auto"},
}
# What the recorded program set beyond the states in provider_state.json, as the edits of these properties show.
BASE_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "node pool": {"nodeConfig.resourceLabels": {"t": "1"}},
    "cluster": {"monitoringConfig.enableComponents": ["SYSTEM_COMPONENTS"]},
    "workload policy": {},
    "instance template": {},
    "MIG": {},
}
# A replaced resource's outputs are unknown to those that use them while the plan is made.
UNKNOWN_INPUTS = {
    "workload policy": {"MIG": "resourcePolicies.workloadPolicy"},
    "instance template": {"MIG": "versions.0.instanceTemplate"},
}
REPLACE_ON_CHANGES = ("placementPolicy.tpuTopology", "nodeConfig.machineType")
# Bookkeeping of the bridge about itself, which it lists as changed when an unknown value forces a replacement.
BRIDGE_INTERNAL = {"__meta"}


def _put(target: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for step in parents:
        target = target[int(step)] if step.isdigit() else target.setdefault(step, {})
    if value is ABSENT:
        target.pop(last)
    else:
        target[last] = value


def _base(resource: str) -> tuple[str, Json, Json]:
    """Type, state outputs and inputs before the edit."""
    row = recorded_state(NAMES[resource])
    outputs, inputs = copy.deepcopy(row["outputs"]), copy.deepcopy(row["inputs"])
    for path, value in BASE_SETTINGS[resource].items():
        _put(outputs, path, value)
        _put(inputs, path, value)
    return row["type"], outputs, inputs


def _edited(edit: Json) -> tuple[str, Json]:
    """The edited resource and its inputs after the edit."""
    [key] = set(edit) - {"roc"}
    if key == "network_config":
        resource, path, value = "node pool", "networkConfig", NETWORK_CONFIGS[edit[key]]
    else:
        resource, path, fixed = ARGUMENTS[key]
        value = edit[key] if fixed is None else fixed
    _, _, inputs = _base(resource)
    _put(inputs, path, value)
    return resource, inputs


def _provider() -> GcpProvider:
    provider = GcpProvider()
    provider.configure(CONFIG)
    return provider


def _plan(resource: str, news: Json) -> Difference:
    token, olds, _ = _base(resource)
    subject = Subject(token, NAMES[resource], f"urn:pulumi:dev::p::{token}::{NAMES[resource]}")
    provider = _provider()
    checked = provider.check(subject, {}, news, b"")
    assert list(checked.failures) == []
    return provider.diff(subject, olds, dict(checked.inputs), ())


def _outcome(plan: Difference, replace_on_changes: tuple[str, ...] = ()) -> str:
    """What the engine makes of a plan: `replace_on_changes` replaces as well, in the order the provider asks for."""
    if plan.replaces:
        return "replace, delete first" if plan.delete_before_replace else "replace, create first"
    if any(change.path.startswith(replace_on_changes) for change in plan.changes if replace_on_changes):
        # The provider sets deleteBeforeReplace only for replacements of its own.
        return "replace, create first"
    return "update" if plan.changes else "same"


@pytest.mark.parametrize("row", EDITS, ids=lambda row: json.dumps(row["edit"]))
def test_every_recorded_edit_is_planned_as_recorded(row: Json) -> None:
    resource, news = _edited(row["edit"])
    plans = {resource: _plan(resource, news)}
    for dependent, path in UNKNOWN_INPUTS.get(resource, {}).items():
        if dependent in row["result"]:
            _, _, inputs = _base(dependent)
            _put(inputs, path, UNKNOWN)
            plans[dependent] = _plan(dependent, inputs)
    for name, expected in row["result"].items():
        if name not in plans:
            # A node pool goes with its replaced cluster: the engine asks with the cluster unknown and reports no keys.
            _, _, inputs = _base(name)
            _put(inputs, "cluster", UNKNOWN)
            assert (name, expected["changed"]) == ("node pool", [])
            assert _outcome(_plan(name, inputs)) == expected["outcome"]
            continue
        replaced = REPLACE_ON_CHANGES if row["edit"].get("roc") else ()
        assert _outcome(plans[name], replaced) == expected["outcome"]
        assert sorted(c.path for c in plans[name].changes) == sorted(set(expected["changed"]) - BRIDGE_INTERNAL)


@pytest.mark.parametrize("resource", NAMES)
def test_no_edit_is_no_change(resource: str) -> None:
    _, _, inputs = _base(resource)
    assert list(_plan(resource, inputs).changes) == []
