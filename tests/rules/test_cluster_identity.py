"""A change of what makes a cluster that cluster is refused, and nothing else is (finding: replaced clusters wedge)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from plan.first_disk import description
from plan.platform import Platform
from plan.stack_state import Standing
from rules.cluster_identity import another_cluster
from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED, load

ROOT = "urn:pulumi:dev::tpu-platform"
CLUSTER = f"{ROOT}::tpu:gke:Cluster$gcp:container/cluster:Cluster::cluster-gke"
DISK = f"{ROOT}::tpu:compute:DataDisks$gcp:compute/disk:Disk::control-plane-disk-0"
FURTHER_DISK = f"{ROOT}::tpu:compute:DataDisks$gcp:compute/disk:Disk::control-plane-disk-1"
SUBNET = f"{ROOT}::tpu:gcp:Network$gcp:compute/subnetwork:Subnetwork::network-subnet"
COMPONENT = f"{ROOT}::tpu:gke:Cluster::cluster"
PROVIDER = f"{ROOT}::tpu:kubernetes:Access$pulumi:providers:kubernetes::access-provider"
KEY = "projects/my-project/locations/us-east5/keyRings/r/cryptoKeys/k"
GKE: dict[str, Any] = {
    CLUSTER: {
        "project": "my-project",
        "name": "tpu",
        "location": "us-east5",
        "network": "projects/my-project/global/networks/tpu",
        "subnetwork": "projects/my-project/regions/us-east5/subnetworks/tpu-us-east5",
        "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
    },
    SUBNET: {
        "ipCidrRange": "10.0.0.0/20",
        "secondaryIpRanges": [
            {"rangeName": "pods", "ipCidrRange": "10.4.0.0/14"},
            {"rangeName": "services", "ipCidrRange": "10.0.32.0/20"},
        ],
    },
}
OWN: dict[str, Any] = {
    DISK: {
        "project": "my-project",
        "name": "tpu-control-plane-data-0",
        "zone": "https://www.googleapis.com/compute/v1/projects/my-project/zones/us-east5-b",
        "type": "pd-balanced",
        "size": 50,
        "diskEncryptionKey": None,
        "description": description(
            "projects/my-project/regions/us-east5/subnetworks/tpu-us-east5", "10.4.0.0/14", "10.0.32.0/20"
        ),
    },
    SUBNET: {"ipCidrRange": "10.0.0.0/20", "secondaryIpRanges": GKE[SUBNET]["secondaryIpRanges"][:1]},
}


def guest(server: str = EXISTING["server"], ca: str = EXISTING["ca"]) -> dict[str, Any]:
    data = base64.b64encode(ca.encode()).decode()
    clusters = [{"name": "tpu", "cluster": {"server": server, "certificate-authority-data": data}}]
    return {PROVIDER: {"kubeconfig": json.dumps({"clusters": clusters})}}


def paths(platform: Platform, standing: dict[str, Any]) -> set[str]:
    found = another_cluster(platform, Standing(standing))
    return {error.path.removeprefix("tpu-platform:platform.") for error in found}


def gke_in(**network: str) -> dict[str, Any]:
    """A GKE cluster in a network of somebody else."""
    theirs = {"network": "n", "subnetwork": "s", "pods_range": "p", "services_range": "v", **network}
    project = theirs.get("project", "my-project")
    return {
        CLUSTER: {
            **GKE[CLUSTER],
            "network": f"projects/{project}/global/networks/{theirs['network']}",
            "subnetwork": f"projects/{project}/regions/us-east5/subnetworks/{theirs['subnetwork']}",
            "ipAllocationPolicy": {
                "clusterSecondaryRangeName": theirs["pods_range"],
                "servicesSecondaryRangeName": theirs["services_range"],
            },
        }
    }


THEIRS = {**EXISTING_NETWORK, "services_range": "v"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "nothing stands": ({"name": "other"}, {}, set()),
    "the same": ({}, GKE, set()),
    "another name": ({"name": "other"}, GKE, {"name"}),
    "another region": ({"zone": "us-central2-b"}, GKE, {"zone"}),
    "another zone of the region": ({"zone": "us-east5-a"}, GKE, set()),
    "zonal": ({"cluster": {"regional": False}}, GKE, {"cluster.regional"}),
    "everything": (
        {"name": "other", "network": {"pods_cidr": "10.8.0.0/14", "services_cidr": "10.0.48.0/20"}},
        GKE,
        {"name", "network.pods_cidr", "network.services_cidr"},
    ),
    "a subnet that grows": ({"network": {"nodes_cidr": "10.0.0.0/19"}}, GKE, set()),
    "a subnet that moves": ({"network": {"nodes_cidr": "10.1.0.0/20"}}, GKE, {"network.nodes_cidr"}),
    "a subnet that shrinks": ({"network": {"nodes_cidr": "10.0.0.0/21"}}, GKE, {"network.nodes_cidr"}),
    "a network of others": ({"network": THEIRS}, GKE, {"network.kind"}),
    "a network of its own": ({}, gke_in(), {"network.kind"}),
    "a subnet that was lost": ({}, {CLUSTER: GKE[CLUSTER]}, set()),
    "the same network of others": ({"network": THEIRS}, gke_in(), set()),
    "other parts of it": (
        {"network": THEIRS},
        gke_in(network="m", subnetwork="t", pods_range="q", services_range="w"),
        {f"network.{key}" for key in ("network", "subnetwork", "pods_range", "services_range")},
    ),
    "a shared network": ({"network": {**THEIRS, "project": "host-project"}}, gke_in(), {"network.project"}),
    "a creation that was cut short": ({"name": "other"}, {CLUSTER: {"name": "tpu", "network": None}}, {"name"}),
    "from GKE": ({"cluster": SELF_MANAGED}, GKE, {"cluster.kind"}),
    "to GKE": ({}, OWN, {"cluster.kind"}),
    "to GKE from others": ({}, guest(), {"cluster.kind"}),
    "a cluster that was lost": ({"name": "other"}, {COMPONENT: {}, **guest()}, set()),
    "the same disk": ({"cluster": SELF_MANAGED}, OWN, set()),
    "another name of the disk": ({"name": "o", "cluster": SELF_MANAGED}, OWN, {"name"}),
    "another zone": ({"zone": "us-east5-a", "cluster": SELF_MANAGED}, OWN, {"zone"}),
    "another zone of the first machine": (
        {"cluster": {**SELF_MANAGED, "control_plane": {"zones": ["us-east5-a"]}}},
        OWN,
        {"cluster.control_plane.zones"},
    ),
    "a further replica is none": ({"cluster": SELF_MANAGED}, {FURTHER_DISK: {"zone": "us-east5-c"}, **OWN}, set()),
    "another machine": ({"cluster": {**SELF_MANAGED, "control_plane": {"machine_type": "n2-standard-8"}}}, OWN, set()),
    "a machine with other disks": (
        {"cluster": {**SELF_MANAGED, "control_plane": {"machine_type": "c4-standard-8"}}},
        OWN,
        {"cluster.control_plane.machine_type"},
    ),
    "a larger disk": ({"cluster": {**SELF_MANAGED, "control_plane": {"disk_size_gb": 60}}}, OWN, set()),
    "a smaller disk": (
        {"cluster": {**SELF_MANAGED, "control_plane": {"disk_size_gb": 20}}},
        OWN,
        {"cluster.control_plane.disk_size_gb"},
    ),
    "a key": ({"cluster": {**SELF_MANAGED, "kms_key": KEY}}, OWN, {"cluster.kms_key"}),
    "a new version of the key": (
        {"cluster": {**SELF_MANAGED, "kms_key": KEY}},
        {**OWN, DISK: {**OWN[DISK], "diskEncryptionKey": {"kmsKeySelfLink": f"{KEY}/cryptoKeyVersions/2"}}},
        set(),
    ),
    "other ranges": (
        {"cluster": SELF_MANAGED, "network": {"pods_cidr": "10.8.0.0/14", "services_cidr": "10.0.48.0/20"}},
        OWN,
        {"network.pods_cidr", "network.services_cidr"},
    ),
    "the same cluster of others": ({"cluster": EXISTING}, guest(), set()),
    "another address of it": ({"cluster": EXISTING}, guest(server="https://10.0.0.11:6443"), set()),
    "another certificate of it": ({"cluster": EXISTING}, guest(ca=EXISTING["ca"].replace("MIIB", "MIIC")), set()),
    "another cluster of others": (
        {"cluster": EXISTING},
        guest("https://10.0.0.11:6443", EXISTING["ca"].replace("MIIB", "MIIC")),
        {"cluster.server"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_only_another_cluster_is_refused(case: str) -> None:
    edit, standing, refused = CASES[case]
    slices: dict[str, Any] = {}
    if edit.get("cluster", {}).get("kind") == "existing":
        edit = {**edit, "network": EXISTING_NETWORK}
    assert paths(load(slices, **edit), standing) == refused


def test_another_project_is_refused() -> None:
    other = {urn: {**outputs, "project": "first-project"} for urn, outputs in GKE.items()}
    assert paths(load({}), other) == {"gcp:project"}


def test_a_refusal_says_what_was_what_would_be_and_the_ways_out() -> None:
    [error] = another_cluster(load({}, name="other"), Standing(GKE))
    assert str(error).splitlines() == [
        "  tpu-platform:platform.name",
        "    was tpu and would be other: that is another cluster, and the existing one would be deleted with "
        "everything in it",
        "    -> write tpu again. For another cluster, take another stack; to delete this one, `pulumi destroy` before "
        "the edit",
    ]
