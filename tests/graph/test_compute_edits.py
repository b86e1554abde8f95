"""What an edit does to a platform without GKE: which hosts stay, which are remade one by one, which slice is another.

As for GKE (test_edits.py, which also sees to it that no argument is left out), the graph before is made in the emulated
cloud and the graph after planned against it. For templates and groups that is what was recorded with the real provider
under the program's options: a template is replaced, create first, and what its group then does is up to the group.
"""

from __future__ import annotations

import pytest

from catalogue.generations import V6E
from tests.graph.edits import ABSENT, FOREIGN_NETWORK, Clouds, Edit, Json, check, put
from tests.graph.emulated import CREATE, CREATE_FIRST, DELETE, DELETE_FIRST, PROJECT, REFUSED, UPDATE, recorded
from tests.graph.recording import Update
from tests.graph.test_own_template import sound
from tests.platforms import EXISTING, EXISTING_NETWORK, ZONES

GROUP, TEMPLATE = "InstanceGroupManager", "InstanceTemplate"
TRAIN, SECOND, SERVE = (f"{GROUP} slices-{name}" for name in ("train-0", "train-1", "serve-0"))
SYSTEM, HEAD = (f"{GROUP} cpu-pools-{name}" for name in ("system", "head"))
TRAIN_TEMPLATE, SERVE_TEMPLATE = (f"{TEMPLATE} slices-{name}-template-{name}" for name in ("train", "serve"))
SYSTEM_TEMPLATE, HEAD_TEMPLATE = (f"{TEMPLATE} cpu-pools-template-{name}" for name in ("system", "head"))
POLICIES = "ResourcePolicy workload-policies"
MACHINE, DISK = "Instance control-plane-machine-0", "Disk control-plane-disk-0"
BALANCER = "control-plane-balancer"
MACHINE_GROUP = f"InstanceGroup {BALANCER}-0"
BACKEND, RULE = f"RegionBackendService {BALANCER}-internal-backend", f"ForwardingRule {BALANCER}-internal-rule"
ADDRESSES = ("Address control-plane-addresses-internal", "Address control-plane-address-0")
FIREWALL, PROBES = "Firewall network-internal", "Firewall network-health-checks"
TO_CONTROL_PLANE, REPLICAS = "Firewall network-control-plane", "Firewall network-replicas"
SECRETS = tuple(f"Secret bootstrap-secrets-{part}" for part in ("join", "endpoint", "access"))
SECRET_GRANTS = (
    "SecretIamMember join-grants-nodes",
    *(f"SecretIamMember bootstrap-secrets-{part}-writer" for part in ("join", "endpoint", "access")),
)
NETWORK = ("Subnetwork network-subnet", "Network network-vpc", "RouterNat network-nat", "Router network-router")

RESERVED = {"model": "reservation", "name": "first"}
# A slice of several hosts, one of single hosts, and the machines that both need.
BASE: Json = {
    "zone": ZONES["v6e"],
    "protect": False,
    "cluster": {"kind": "self-managed"},
    "slices": {
        "train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": RESERVED},
        "serve": {"machine_type": "ct6e-standard-8t", "topology": "2x4", "count": 2},
    },
}
# Slices in a cluster that somebody else runs.
GUEST: Json = {"cluster": EXISTING, "network": EXISTING_NETWORK}

KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"
IMAGE = f"projects/{PROJECT}/global/images/own"
GOOGLES_IMAGES = {
    "cluster.image": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
    **{f"slices.{name}.image": V6E.host_image for name in ("train", "serve")},
}
OFFICE = [{"cidr": "192.0.2.0/24", "name": "office"}]
HEAD_POOL = {"machine_type": "n2-standard-8", "min": 1}

# Another template is another slice where hosts make one slice, and one new host after the other where they do not.
ANOTHER_SLICE = {TRAIN_TEMPLATE: CREATE_FIRST, TRAIN: DELETE_FIRST}
HOST_BY_HOST = {SERVE_TEMPLATE: CREATE_FIRST, SERVE: UPDATE}
SYSTEM_BY_HOST = {SYSTEM_TEMPLATE: CREATE_FIRST, SYSTEM: UPDATE}
ANOTHER_MACHINE = {MACHINE: DELETE_FIRST, MACHINE_GROUP: CREATE_FIRST, BACKEND: UPDATE}
# What another cluster takes with it: its machines, all hosts, and whatever was written about it.
ANOTHER_CLUSTER = {
    **ANOTHER_MACHINE,
    **dict.fromkeys((DISK, TRAIN, SERVE, SYSTEM, *SECRETS, *SECRET_GRANTS), DELETE_FIRST),
}
# Where there is a machine in a subnet, it goes with all that is in it, and so does the cluster.
IN_THE_SUBNET = (TRAIN_TEMPLATE, SERVE_TEMPLATE, SYSTEM_TEMPLATE, *ADDRESSES, RULE)
ANOTHER_SUBNET = {
    **ANOTHER_CLUSTER,
    **dict.fromkeys((NETWORK[0], *IN_THE_SUBNET), DELETE_FIRST),
    **dict.fromkeys((FIREWALL, TO_CONTROL_PLANE), UPDATE),
}

SLICE_EDITS = (
    Edit(
        {"slices.train.topology": "4x8"},
        {**ANOTHER_SLICE, f"{POLICIES}-tpu-4x4": DELETE, f"{POLICIES}-tpu-4x8": CREATE},
    ),
    Edit({"slices.train.machine_type": ABSENT, "slices.train.generation": "v6e"}, {}),
    Edit(
        {f"slices.train.{key}": ABSENT for key in ("machine_type", "topology")}
        | {"slices.train.generation": "v6e", "slices.train.chips": 16},
        {},
    ),
    Edit({"slices.serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 2}}, HOST_BY_HOST),
    Edit({"slices.train.count": 2}, {SECOND: CREATE}),
    Edit({"slices.train.count": 1}, {SECOND: DELETE}, before={"slices.train.count": 2}),
    Edit({"slices.serve.count": 3}, {SERVE: UPDATE}),
    Edit({"slices.serve.count": 1}, {SERVE: UPDATE}),
    # Where hosts come from
    Edit({"slices.train.capacity": "spot"}, ANOTHER_SLICE),
    Edit({"slices.train.capacity": "flex-start"}, ANOTHER_SLICE),
    Edit({"slices.train.capacity": {"model": "flex-start", "max_run_duration": "1d"}}, ANOTHER_SLICE),
    Edit({"slices.serve.capacity": "spot"}, HOST_BY_HOST),
    Edit({"slices.serve.capacity": {"model": "on-demand", "max_run_duration": "1d"}}, HOST_BY_HOST),
    *(
        Edit({f"slices.train.capacity.{key}": value}, ANOTHER_SLICE)
        for key, value in {"name": "second", "project": "owner-project", "block": "block-0001"}.items()
    ),
    Edit({"slices.train.capacity": {**RESERVED, "block": "b", "sub_block": ["c"]}}, ANOTHER_SLICE),
    # A bulk group does not shrink or grow, but from nothing: made anew it is all there or not at all.
    Edit({"slices.train.capacity.active": False}, {TRAIN: DELETE_FIRST}),
    Edit({"slices.train.capacity.ends": "2027-01-31"}, {}),
    Edit({"slices.train.capacity.maintenance": "PERIODIC"}, {}),
    # What hosts are like
    Edit({"slices.train.devices": "dra"}, ANOTHER_SLICE),
    Edit({"slices.train.boot_disk.size_gb": 200}, ANOTHER_SLICE),
    Edit({"slices.serve.boot_disk.size_gb": 200}, HOST_BY_HOST),
    Edit({"slices.train.max_pods_per_node": 64}, ANOTHER_SLICE),
    Edit({"slices.train.labels": {"a": "b"}}, ANOTHER_SLICE),
    Edit({"slices.serve.labels": {"a": "b"}}, HOST_BY_HOST),
    Edit({"slices.train.taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}, ANOTHER_SLICE),
    Edit({"slices.serve.tags": ["x"]}, HOST_BY_HOST),
    Edit({"slices.serve.resource_labels": {"team": "a"}}, HOST_BY_HOST),
    Edit(
        {"slices.serve.service_account": f"b@{PROJECT}.iam.gserviceaccount.com"},
        {**HOST_BY_HOST, FIREWALL: UPDATE, f"SecretIamMember join-grants-b@{PROJECT}.iam.gserviceaccount.com": CREATE},
    ),
    Edit({"slices.serve.kms_key": KEY}, {**HOST_BY_HOST, "Service services-cloudkms": CREATE}),
    Edit({"slices.train.image": IMAGE}, ANOTHER_SLICE),
    Edit(
        {"slices.train.instance_template": f"projects/{PROJECT}/global/instanceTemplates/own"},
        {
            TRAIN: DELETE_FIRST,
            TRAIN_TEMPLATE: DELETE,
            FIREWALL: UPDATE,
            "SecretIamMember join-grants-template-own": CREATE,
        },
    ),
    *(
        Edit({f"slices.train.node_drain.{key}": value}, {}, before={"slices.train.node_drain": {}})
        for key, value in {"respect_pdb": False, "grace": "10m", "pdb_timeout": "15m"}.items()
    ),
    Edit({"slices.train.node_drain": {"grace": "10m"}}, {}),
    Edit({"slices.train.protect": True}, {}),
)

PLATFORM_EDITS = (
    Edit({"protect": True}, {MACHINE: UPDATE}),
    Edit(
        {"labels": {"env": "prod"}},
        {
            **ANOTHER_SLICE,
            **HOST_BY_HOST,
            **SYSTEM_BY_HOST,
            **dict.fromkeys((*SECRETS, *ADDRESSES, DISK, MACHINE, RULE), UPDATE),
        },
    ),
    # The control plane takes its versions as it is, hosts do not: each of them is made anew.
    Edit({"cluster.version": "1.35.0"}, {MACHINE: UPDATE, **ANOTHER_SLICE, **HOST_BY_HOST, **SYSTEM_BY_HOST}),
    Edit({"cluster.image": IMAGE}, {**ANOTHER_MACHINE, **SYSTEM_BY_HOST}),
    Edit(
        {"cluster.bootstrap": False},
        {**ANOTHER_SLICE, **HOST_BY_HOST, **SYSTEM_BY_HOST},
        before=GOOGLES_IMAGES,
    ),
    Edit({"cluster.cpu_pools": {"head": HEAD_POOL}}, {HEAD_TEMPLATE: CREATE, HEAD: CREATE}),
    Edit(
        {"cluster.cpu_pools": {}},
        {HEAD_TEMPLATE: DELETE, HEAD: DELETE},
        before={"cluster.cpu_pools": {"head": HEAD_POOL}},
    ),
    *(
        Edit(
            {f"cluster.cpu_pools.head.{key}": value},
            {HEAD_TEMPLATE: CREATE_FIRST, HEAD: UPDATE} if key != "min" else {HEAD: UPDATE},
            before={"cluster.cpu_pools": {"head": HEAD_POOL}},
        )
        for key, value in {
            "machine_type": "n2-standard-16",
            "min": 2,
            "disk_type": "pd-ssd",
            "disk_size_gb": 200,
            "labels": {"a": "b"},
            "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
        }.items()
    ),
    Edit({"cluster.system_pool.machine_type": "n2-standard-4"}, SYSTEM_BY_HOST),
    Edit({"cluster.system_pool.min": 3}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.disk_type": "pd-ssd"}, SYSTEM_BY_HOST),
    Edit({"cluster.system_pool.disk_size_gb": 200}, SYSTEM_BY_HOST),
    Edit({"cluster.system_pool.labels": {"a": "b"}}, SYSTEM_BY_HOST),
    Edit({"cluster.system_pool.taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}, SYSTEM_BY_HOST),
    Edit(
        {"cluster.control_plane.replicas": 3},
        {
            MACHINE: UPDATE,
            BACKEND: UPDATE,
            "Secret bootstrap-secrets-peers": CREATE,
            "SecretIamMember bootstrap-secrets-peers-writer": CREATE,
            "SecretIamMember bootstrap-secrets-peers-reader": CREATE,
            **{
                f"{kind}-{replica}": CREATE
                for replica in (1, 2)
                for kind in (
                    "Address control-plane-address",
                    "Disk control-plane-disk",
                    "Instance control-plane-machine",
                    f"InstanceGroup {BALANCER}",
                )
            },
        },
    ),
    Edit({"cluster.control_plane.machine_type": "n2-standard-8"}, {MACHINE: UPDATE}),
    Edit({"cluster.control_plane.disk_size_gb": 100}, {DISK: UPDATE}),
    Edit({"cluster.control_plane.zones": ["us-east5-a"]}, ANOTHER_CLUSTER),
    Edit({"cluster.control_plane.authorized_networks": OFFICE}, {"Firewall network-api": CREATE}),
    *(
        Edit(
            {"cluster.control_plane.authorized_networks": [{**OFFICE[0], key: value}]},
            expected,
            before={"cluster.control_plane.authorized_networks": OFFICE},
        )
        for key, value, expected in (
            ("cidr", "198.51.100.0/24", {"Firewall network-api": UPDATE}),
            ("name", "home", {}),
        )
    ),
    Edit(
        {"cluster.control_plane.access": "external"},
        {
            MACHINE: UPDATE,
            PROBES: UPDATE,
            "Address control-plane-addresses-external": CREATE,
            f"RegionBackendService {BALANCER}-external-backend": CREATE,
            f"ForwardingRule {BALANCER}-external-rule": CREATE,
        },
        before={"cluster.control_plane.authorized_networks": OFFICE},
    ),
    Edit(
        {"cluster.control_plane.backups": True},
        {
            MACHINE: UPDATE,
            "Service services-storage": CREATE,
            "Bucket backups-bucket": CREATE,
            "BucketIAMMember backups-writer": CREATE,
            "Secret backups-keys": CREATE,
            "SecretIamMember backups-keeper": CREATE,
        },
    ),
    Edit(
        {"cluster.control_plane.backup_days": 7},
        {"Bucket backups-bucket": UPDATE},
        before={"cluster.control_plane.backups": True},
    ),
    # A disk is encrypted when it is made: the key is a decision for the cluster's whole life.
    Edit(
        {"cluster.kms_key": KEY},
        {**ANOTHER_CLUSTER, "Service services-cloudkms": CREATE},
    ),
    # Neither hosts nor disks can move.
    Edit({"zone": "us-east5-a"}, ANOTHER_CLUSTER),
    # kubeadm looks at these once, when it makes a cluster.
    Edit({"network.services_cidr": "10.0.48.0/20"}, ANOTHER_CLUSTER),
    Edit({"network.pods_cidr": "10.8.0.0/14"}, ANOTHER_SUBNET),
    Edit({"network.mtu": 1500}, {NETWORK[1]: UPDATE}),
    # etcd's members know each other by their addresses.
    Edit({"network.nodes_cidr": "10.1.0.0/20"}, ANOTHER_SUBNET),
    Edit(
        {"network": FOREIGN_NETWORK},
        {
            **ANOTHER_CLUSTER,
            **dict.fromkeys((TRAIN_TEMPLATE, SERVE_TEMPLATE, SYSTEM_TEMPLATE), CREATE_FIRST),
            **dict.fromkeys((*ADDRESSES, RULE), DELETE_FIRST),
            **dict.fromkeys((FIREWALL, TO_CONTROL_PLANE, REPLICAS, PROBES), UPDATE),
            **dict.fromkeys(NETWORK, DELETE),
        },
    ),
    # A cluster that somebody else runs
    Edit({"cluster.server": "https://10.0.0.11:6443"}, {}, platform=GUEST),
    Edit({"cluster.ca": EXISTING["ca"].replace("MIIB", "MIIC")}, {}, platform=GUEST),
    Edit({"cluster.access_secret": f"projects/{PROJECT}/secrets/other"}, {}, platform=GUEST),
    Edit(
        {"cluster.join_secret": f"projects/{PROJECT}/secrets/join-2"},
        {"SecretIamMember join-grants-nodes": CREATE_FIRST, **ANOTHER_SLICE, **HOST_BY_HOST},
        platform=GUEST,
    ),
    # Only what is inside changes: test_provided.py.
    Edit({"cluster.provides": ["jobset"]}, {}, platform=GUEST),
)

COMPUTE_EDITS = (*SLICE_EDITS, *PLATFORM_EDITS)


def of_compute(edit: Edit) -> tuple[Json, Json]:
    """The platforms before and after an edit."""
    before = put({**BASE, **edit.platform}, edit.before)
    return before, put(before, edit.after)


@pytest.fixture(autouse=True)
def own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """The template that an edit names exists."""
    template = sound() | {"selfLinkUnique": f"projects/{PROJECT}/global/instanceTemplates/own"}
    monkeypatch.setitem(Update.TEMPLATES, "own", template)


@pytest.mark.parametrize("edit", COMPUTE_EDITS, ids=lambda edit: edit.id)
def test_an_edit_without_gke(clouds: Clouds, edit: Edit) -> None:
    before, after = of_compute(edit)
    check(clouds(before), after, edit.expected)


def test_no_edit_is_no_change(clouds: Clouds) -> None:
    check(clouds(BASE), BASE, {})


def test_a_protected_slice_is_neither_replaced_nor_deleted(clouds: Clouds) -> None:
    """Templates hold nothing and are not protected; hosts of another slice may be remade all the same."""
    protected = put(BASE, {"slices.train.protect": True})
    refused = {TRAIN_TEMPLATE: CREATE_FIRST, TRAIN: REFUSED}
    check(clouds(protected), put(protected, {"slices.train.labels": {"a": "b"}}), refused)
    check(clouds(protected), put(protected, {"slices.serve.labels": {"a": "b"}}), HOST_BY_HOST)
    gone = {TRAIN_TEMPLATE: DELETE, TRAIN: REFUSED, f"{POLICIES}-tpu-4x4": DELETE}
    check(clouds(protected), put(protected, {"slices.train": ABSENT}), gone)


def test_another_cluster_is_one_for_all_its_replicas(clouds: Clouds) -> None:
    """Two members of the old cluster would outvote the new one, and serve beside it."""
    three = put(BASE, {"cluster.control_plane": {"replicas": 3, "zones": ["us-east5-b", "us-east5-a"]}})
    moved = put(three, {"cluster.control_plane.zones": ["us-east5-a", "us-east5-b"]})
    peers = "SecretIamMember bootstrap-secrets-peers"
    further = {
        name: outcome
        for replica in (1, 2)
        for name, outcome in {
            f"Disk control-plane-disk-{replica}": DELETE_FIRST,
            f"Instance control-plane-machine-{replica}": DELETE_FIRST,
            f"InstanceGroup {BALANCER}-{replica}": CREATE_FIRST,
        }.items()
    }
    with_peers = dict.fromkeys(("Secret bootstrap-secrets-peers", f"{peers}-writer", f"{peers}-reader"), DELETE_FIRST)
    check(clouds(three), moved, {**ANOTHER_CLUSTER, **further, **with_peers})


@pytest.mark.parametrize("edit", [{"network.services_cidr": "10.0.48.0/20"}, {"cluster.kms_key": KEY}], ids=str)
def test_a_protected_platform_keeps_its_cluster(clouds: Clouds, edit: Json) -> None:
    protected = put(BASE, {"protect": True})
    planned = clouds(protected).plan(recorded(put(protected, edit)))
    assert planned[DISK].outcome == REFUSED


def test_slices_that_are_protected_keep_their_cluster(clouds: Clouds) -> None:
    protected = put(BASE, {"slices.train.protect": True})
    edited = put(protected, {"network.services_cidr": "10.0.48.0/20"})
    check(clouds(protected), edited, {**ANOTHER_CLUSTER, TRAIN: REFUSED})
