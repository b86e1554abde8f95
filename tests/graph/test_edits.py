"""What an edit of the configuration does to what stands: nothing, an update in place, or a replacement, delete first.

For every argument of a slice, and for every argument of the cluster and the network, one edit: the graph before it is
made in the emulated cloud, the graph after it is planned against that. Where the same edit was recorded with the real
engine and the real provider (sandbox/tests/data/provider_edits.json), the expectation is that recording, else it is
written here, from the provider's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from plan.platform import Platform
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from platform_config.slice import Slice
from rules.hosts import GKE_SETTINGS
from tests.edits.arguments import arguments, edited
from tests.graph.edits import ABSENT, Clouds, Edit, Expected, Json, Recorded, check, put
from tests.graph.emulated import (
    CREATE,
    CREATE_FIRST,
    DELETE,
    DELETE_FIRST,
    PROJECT,
    REFUSED,
    UPDATE,
    recorded,
)
from tests.graph.recording import GraphMonitor
from tests.graph.test_compute_edits import COMPUTE_EDITS, of_compute
from tests.platforms import ZONES

POOL, SECOND, OTHER = "NodePool slices-train-0", "NodePool slices-train-1", "NodePool slices-serve-0"
SYSTEM, CPU = "NodePool cpu-pools-system", "NodePool cpu-pools-head"
CLUSTER, SUBNET, VPC = "Cluster cluster-gke", "Subnetwork network-subnet", "Network network-vpc"
FIREWALL, ROUTER, NAT = "Firewall network-internal", "Router network-router", "RouterNat network-nat"
ACCOUNT, ROLE = "Account node-identity-account", "IAMMember node-identity-role"
IMAGES = "IAMMember node-identity-images"
STREAMING = ("Service services-artifactregistry", "Service services-containerfilesystem")
POOLS = (POOL, OTHER, SYSTEM)

TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
SINGLE = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
RESERVED = {"model": "reservation", "name": "first"}
SUB_BLOCK = {"block": "block-0001", "sub_block": ["block-0001-subblock-0001"]}
CUBE = {"machine_type": "tpu7x-standard-4t", "topology": "4x4x4", "capacity": {**RESERVED, **SUB_BLOCK}}
# The slice beside the edited one, which no edit of that one may touch, and a platform around both.
SERVE = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
BASE: Json = {
    "zone": ZONES["v6e"],
    "allow_unlisted_zone": True,
    "protect": False,
    "cluster": {"release_channel": "RAPID"},
    "slices": {"train": TRAIN, "serve": SERVE},
}

# --- the edits --------------------------------------------------------------------------------------------------------


def only(expected: Expected) -> Mapping[str, Expected]:
    """Nothing but the edited slice's pool."""
    return {POOL: expected}


def at(family: str) -> Json:
    """The platform where a family is offered."""
    return {"zone": ZONES[family]}


SLICE_EDITS = (
    # What it consists of
    Edit({"topology": "4x8"}, only(Recorded("topology"))),
    Edit({"machine_type": "ct6e-standard-4t", "topology": "2x2"}, only(Recorded("machine")), slice_=SINGLE),
    Edit({"machine_type": "ct5p-hightpu-4t", "topology": "2x2x4"}, only(Recorded("topology"))),
    Edit({"machine_type": ABSENT, "generation": "v6e"}, {}),
    Edit({"machine_type": ABSENT, "topology": ABSENT, "generation": "v6e", "chips": 16}, {}),
    Edit({"chips": 32}, only(Recorded("topology")), slice_={"generation": "v6e", "chips": 16}),
    Edit({"count": 2}, {SECOND: CREATE}),
    Edit({"count": 1}, {SECOND: DELETE}, before={"count": 2}),
    Edit({"count": 3}, only(Recorded("node_count")), slice_=SINGLE),
    Edit({"count": 1}, only(Recorded("node_count")), slice_=SINGLE, before={"count": 3}),
    Edit({"count": 3}, only(UPDATE), slice_=SINGLE, before={"autoscale": True}),
    Edit({"autoscale": True}, only(Recorded("autoscaling"))),
    Edit({"autoscale": False}, only(UPDATE), before={"autoscale": True}),
    # Where hosts come from
    Edit({"capacity": "spot"}, only(Recorded("spot"))),
    Edit({"capacity": "on-demand"}, only(DELETE_FIRST), before={"capacity": "spot"}),
    Edit({"capacity": RESERVED}, only(Recorded("res"))),
    Edit({"capacity": "flex-start"}, only(Recorded("flex"))),
    Edit({"capacity": "queued"}, only(Recorded("queued"))),
    Edit({"capacity": "queued"}, only(Recorded("queued")), before={"capacity": "flex-start"}),
    Edit({"capacity": "flex-start"}, only(DELETE_FIRST), before={"capacity": RESERVED}),
    Edit(
        {"capacity": [RESERVED, "spot"]},
        {POOL: DELETE, "NodePool slices-train-reservation-0": CREATE, "NodePool slices-train-spot-0": CREATE},
    ),
    Edit(
        {"capacity": ["spot", RESERVED]},
        {},
        before={"capacity": [RESERVED, "spot"]},
    ),
    Edit({"capacity.name": "second"}, only(DELETE_FIRST), before={"capacity": RESERVED}),
    Edit({"capacity.project": "owner-project"}, only(DELETE_FIRST), before={"capacity": RESERVED}),
    Edit({"capacity.block": "block-0001"}, only(DELETE_FIRST), before={"capacity": RESERVED}),
    Edit({"capacity": {**RESERVED, **SUB_BLOCK}}, only(DELETE_FIRST), before={"capacity": RESERVED}),
    Edit({"capacity.active": True}, only(Recorded("node_count")), before={"capacity": {**RESERVED, "active": False}}),
    Edit({"capacity.ends": "2027-01-31"}, {}, before={"capacity": RESERVED}),
    Edit({"capacity.maintenance": "PERIODIC"}, {}, before={"capacity": RESERVED}),
    *(
        Edit({"capacity.max_run_duration": "2d"}, only(Recorded("mrd")), before={"capacity": {"model": model}})
        for model in ("on-demand", "spot", "flex-start", "queued")
    ),
    Edit(
        {"dynamic_slicing": True},
        {
            POOL: Recorded("policy"),
            "ResourcePolicy workload-policies-tpu-4x4x4": DELETE,
            "ResourcePolicy workload-policies-tpu-4x4x4-provision-only": CREATE,
            CLUSTER: UPDATE,
        },
        slice_=CUBE,
        platform=at("tpu7x"),
    ),
    Edit(
        {"topology": "2x2x4"},
        {
            POOL: Recorded("policy"),
            "ResourcePolicy workload-policies-tpu-2x2x2": DELETE,
            "ResourcePolicy workload-policies-tpu-2x2x4": CREATE,
        },
        slice_={"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"},
        platform=at("tpu7x"),
    ),
    # What hosts are like
    Edit({"devices": "dra"}, only(Recorded("labels"))),
    Edit({"boot_disk.type": "pd-ssd"}, only(UPDATE), slice_={"machine_type": "ct5p-hightpu-4t", "topology": "2x2x2"}),
    Edit({"boot_disk.size_gb": 200}, only(UPDATE)),
    Edit({"secondary_boot_disks": [{"image": "projects/p/global/images/i"}]}, only(Recorded("sbd"))),
    Edit(
        {"secondary_boot_disks": [{"image": "global/images/j"}]},
        only(DELETE_FIRST),
        before={"secondary_boot_disks": [{"image": "global/images/i"}]},
    ),
    Edit({"image_streaming": True}, only(Recorded("gcfs")), before={"image_streaming": False}),
    Edit({"dranet": True}, only(Recorded("network_config", "accelerator_network_profile=auto"))),
    Edit(
        {"additional_networks": [{"network": "second", "subnetwork": "second"}]},
        {POOL: DELETE_FIRST, CLUSTER: UPDATE},
    ),
    Edit({"max_pods_per_node": 64}, only(Recorded("max_pods"))),
    Edit({"host_maintenance": "AS_NEEDED"}, only(DELETE_FIRST)),
    *(
        Edit({f"node_drain.{key}": value}, only(UPDATE), before={"node_drain": {}})
        for key, value in {"respect_pdb": False, "grace": "10m", "pdb_timeout": "1h"}.items()
    ),
    Edit({"node_drain": {"grace": "10m"}}, only(UPDATE)),
    Edit({"labels": {"a": "b"}}, only(Recorded("labels"))),
    Edit({"labels": {"a": "c"}}, only(Recorded("labels")), before={"labels": {"a": "b"}}),
    Edit({"taints": [{"key": "k", "value": "v"}]}, only(Recorded("taints"))),
    Edit({"taints": [{"key": "k", "effect": "NoExecute"}]}, only(UPDATE), before={"taints": [{"key": "k"}]}),
    Edit({"tags": ["x"]}, only(Recorded("tags"))),
    Edit({"resource_labels": {"team": "a"}}, only(Recorded("rlabels"))),
    Edit({"service_account": f"b@{PROJECT}.iam.gserviceaccount.com"}, only(Recorded("sa"))),
    Edit(
        {"kms_key": f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"},
        {POOL: Recorded("kms"), "Service services-cloudkms": CREATE},
    ),
    Edit({"protect": True}, {}),
)

KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"
GROUP = "gke-security-groups@example.com"
HEAD = {"machine_type": "n2-standard-8"}
EXISTING = {"kind": "existing", "network": "n", "subnetwork": "s", "pods_range": "p", "services_range": "q"}
NETWORK = (VPC, SUBNET, ROUTER, NAT, FIREWALL)
WINDOW = "cluster.maintenance"


def each(resources: tuple[str, ...], expected: Expected) -> dict[str, Expected]:
    return dict.fromkeys(resources, expected)


def cluster(key: str) -> Recorded:
    return Recorded(key, resource="cluster")


def all_replaced(key: str) -> dict[str, Expected]:
    """A cluster that is replaced takes its pools with it."""
    return {CLUSTER: cluster(key), **each(POOLS, Recorded(key))}


PLATFORM_EDITS = (
    Edit({"protect": True}, {CLUSTER: UPDATE}),
    Edit({"labels": {"env": "prod"}}, {CLUSTER: cluster("cl.label"), **each(POOLS, Recorded("rlabels"))}),
    Edit({"allow_unlisted_zone": False}, {}),
    # The provider would move the hosts of a slice in place; for a slice that is another one.
    Edit({"zone": "us-east5-a"}, {CLUSTER: UPDATE, SYSTEM: Recorded("zone"), **each((POOL, OTHER), DELETE_FIRST)}),
    Edit({"cluster.release_channel": "REGULAR"}, {CLUSTER: cluster("cl.channel")}),
    # The channel owns the control plane's version; pools of generations with a floor follow the configuration.
    Edit({"cluster.version": "1.36"}, {}),
    Edit(
        {"cluster.version": "1.36.2-gke.1000000"},
        each((POOL, OTHER), Recorded("np.version")),
        before={"cluster.version": "1.36.1-gke.1500000"},
    ),
    Edit({"cluster.regional": False}, all_replaced("cl.location")),
    Edit(
        {"cluster.authorized_networks": [{"cidr": "192.0.2.0/24", "name": "office"}]},
        {CLUSTER: UPDATE},
    ),
    Edit({f"{WINDOW}.start": "2026-01-03T02:00:00Z"}, {CLUSTER: UPDATE}),
    Edit({f"{WINDOW}.end": "2026-01-03T06:00:00Z"}, {CLUSTER: UPDATE}),
    Edit({f"{WINDOW}.recurrence": "FREQ=DAILY"}, {CLUSTER: UPDATE}),
    Edit({f"{WINDOW}.exclusions": []}, {CLUSTER: UPDATE}),
    *(
        Edit(
            {f"{WINDOW}.exclusions": [{"name": "a", "start": "2026-02-01T00:00:00Z", **changed}]},
            {CLUSTER: UPDATE},
            before={f"{WINDOW}.exclusions": [{"name": "a", "start": "2026-01-01T00:00:00Z"}]},
        )
        for changed in ({}, {"name": "b"}, {"end": "2026-03-01T00:00:00Z"}, {"scope": "NO_MINOR_UPGRADES"})
    ),
    Edit({"cluster.system_pool.machine_type": "n2-standard-4"}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.min": 3}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.max": 12}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.disk_type": "pd-ssd"}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.disk_size_gb": 200}, {SYSTEM: UPDATE}),
    Edit({"cluster.system_pool.labels": {"a": "b"}}, {SYSTEM: Recorded("labels")}),
    Edit({"cluster.system_pool.taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}, {SYSTEM: UPDATE}),
    Edit({"cluster.cpu_pools": {"head": HEAD}}, {CPU: CREATE}),
    Edit({"cluster.cpu_pools": {}}, {CPU: DELETE}, before={"cluster.cpu_pools": {"head": HEAD}}),
    *(
        Edit({f"cluster.cpu_pools.head.{key}": value}, {CPU: expected}, before={"cluster.cpu_pools": {"head": HEAD}})
        for key, value, expected in (
            ("machine_type", "n2-standard-16", UPDATE),
            ("min", 1, UPDATE),
            ("max", 12, UPDATE),
            ("disk_type", "pd-ssd", UPDATE),
            ("disk_size_gb", 200, UPDATE),
            ("labels", {"a": "b"}, Recorded("labels")),
            ("taints", [{"key": "k", "value": "v", "effect": "NoExecute"}], Recorded("taints")),
        )
    ),
    Edit({"cluster.kms_key": KEY}, {CLUSTER: UPDATE, "Service services-cloudkms": CREATE}),
    Edit({"cluster.security_group": GROUP}, {CLUSTER: UPDATE}),
    Edit({"cluster.binary_authorization": True}, {CLUSTER: UPDATE, "Service services-binaryauthorization": CREATE}),
    Edit({"cluster.gcs_fuse": False}, {CLUSTER: cluster("cl.gcsfuse")}),
    # An API that is no longer used stays enabled: only the state forgets it.
    Edit({"cluster.image_streaming": False}, {CLUSTER: UPDATE, SYSTEM: UPDATE, **each(STREAMING, DELETE)}),
    Edit({"network.mtu": 1500}, {VPC: UPDATE}),
    Edit({"network.nodes_cidr": "10.0.0.0/19"}, {SUBNET: UPDATE, FIREWALL: UPDATE}),
    Edit(
        {"network.nodes_cidr": "10.1.0.0/20"},
        {SUBNET: DELETE_FIRST, FIREWALL: UPDATE, **each((CLUSTER, *POOLS), DELETE_FIRST)},
    ),
    Edit({"network.pods_cidr": "10.8.0.0/14"}, {SUBNET: UPDATE, FIREWALL: UPDATE}),
    Edit({"network.services_cidr": "10.0.48.0/20"}, {SUBNET: UPDATE}),
    Edit({"network": EXISTING}, {**each(NETWORK, DELETE), **each((CLUSTER, *POOLS), DELETE_FIRST)}),
    Edit({"network.pods_range": "r"}, all_replaced("cl.pods"), before={"network": EXISTING}),
    *(
        Edit({f"network.{key}": value}, each((CLUSTER, *POOLS), DELETE_FIRST), before={"network": EXISTING})
        for key, value in {
            "network": "m",
            "subnetwork": "t",
            "services_range": "r",
            "project": "host-project",
        }.items()
    ),
    # Names are identity: another name is another platform.
    Edit(
        {"name": "other"},
        {
            ACCOUNT: CREATE_FIRST,
            **each((ROLE, IMAGES, *NETWORK, CLUSTER, *POOLS), DELETE_FIRST),
        },
    ),
)


def of_slice(edit: Edit) -> tuple[Json, Json]:
    """The platforms before and after an edit of a slice."""
    before = put(edit.slice_ or TRAIN, edit.before)
    around = {**BASE, **edit.platform}
    train, edited = ({**around, "slices": {**BASE["slices"], "train": t}} for t in (before, put(before, edit.after)))
    return train, edited


def of_platform(edit: Edit) -> tuple[Json, Json]:
    """The platforms before and after an edit of the platform."""
    before = put(BASE, edit.before)
    return before, put(before, edit.after)


@pytest.mark.parametrize("edit", SLICE_EDITS, ids=lambda edit: edit.id)
def test_an_edit_of_a_slice(clouds: Clouds, edit: Edit) -> None:
    before, after = of_slice(edit)
    check(clouds(before), after, edit.expected)


@pytest.mark.parametrize("edit", PLATFORM_EDITS, ids=lambda edit: edit.id)
def test_an_edit_of_the_platform(clouds: Clouds, edit: Edit) -> None:
    before, after = of_platform(edit)
    check(clouds(before), after, edit.expected)


def test_no_edit_is_no_change(clouds: Clouds) -> None:
    check(clouds(BASE), BASE, {})


def test_a_protected_slice_is_not_replaced(clouds: Clouds) -> None:
    """The edit that would replace it is refused; another slice may be edited all the same."""
    protected = put(BASE, {"slices.train.protect": True})
    check(clouds(protected), put(protected, {"slices.train.topology": "4x8"}), {POOL: REFUSED})
    check(clouds(protected), put(protected, {"slices.serve.capacity": "spot"}), {OTHER: DELETE_FIRST})


def test_a_protected_slice_is_not_deleted(clouds: Clouds) -> None:
    protected = put(BASE, {"slices.train.protect": True})
    check(clouds(protected), put(protected, {"slices.train": ABSENT}), {POOL: REFUSED})


# --- no argument is left out ------------------------------------------------------------------------------------------

# The parts of a platform that Google's resources follow from, besides slices; the others live inside the cluster.
GOOGLES = {"name", "zone", "allow_unlisted_zone", "protect", "labels", "cluster", "network"}
# Another kind of cluster is another platform, and better made in another stack.
NOT_EDITED = {"cluster.kind"}


def test_every_argument_of_a_slice_is_edited() -> None:
    pairs = [*map(of_slice, SLICE_EDITS), *map(of_compute, COMPUTE_EDITS)]
    trains = ((before["slices"]["train"], after["slices"]["train"]) for before, after in pairs)
    assert arguments(Slice) - edited(trains, arguments(Slice)) == set()


def test_every_argument_of_cluster_and_network_is_edited() -> None:
    known = arguments(Platform)
    googles = {path for path in known if path.split(".")[0] in GOOGLES} - NOT_EDITED
    pairs = [*map(of_platform, PLATFORM_EDITS), *map(of_compute, COMPUTE_EDITS)]
    assert googles - edited(pairs, known) == set()


def test_every_argument_that_counts_without_gke_is_edited_there() -> None:
    pairs = [*map(of_compute, COMPUTE_EDITS)]
    groups = [
        (before["slices"][name], after["slices"][name])
        for before, after in pairs
        for name in BASE["slices"]
        if name in before["slices"] and name in after["slices"]
    ]
    # Boot disks of v6e are of one type.
    unused = {*GKE_SETTINGS, "boot_disk.type"}
    needed = {path for path in arguments(Slice) if path not in unused and path.split(".")[0] not in unused}
    assert needed - edited(groups, arguments(Slice)) == set()
    clusters = [(before["cluster"], after["cluster"]) for before, after in pairs]
    known = arguments(SelfManagedCluster) | arguments(ExistingCluster)
    # Nothing adds hosts there: a maximum is refused.
    assert known - {"kind", "system_pool.max", "cpu_pools.max"} - edited(clusters, known) == set()


# --- the options that make it so --------------------------------------------------------------------------------------


def replacing(graph: GraphMonitor) -> dict[str, Any]:
    """The resources for which the program itself asks for replacements."""
    return {urn: request for urn, request in graph.requests.items() if request.replaceOnChanges}


@pytest.mark.parametrize("platform", [BASE, {**BASE, **at("tpu7x"), "slices": {"train": CUBE}}], ids=["v6e", "tpu7x"])
def test_replace_on_changes_always_comes_with_delete_before_replace(platform: Json) -> None:
    """Alone it makes the engine create the second resource of a name before it deletes the first."""
    found = replacing(recorded(platform))
    assert found
    assert all(request.deleteBeforeReplace for request in found.values())


def test_replace_on_changes_comes_with_delete_before_replace_in_every_stack(update: GraphMonitor) -> None:
    found = replacing(update)
    assert found
    assert all(request.deleteBeforeReplace for request in found.values())


def test_another_shape_is_another_workload_policy(clouds: Clouds) -> None:
    """The provider plans a rename in place, which the API cannot do: so names and shapes go together."""
    assert Recorded("wp.name", resource="workload policy").outcome == UPDATE
    shapes = ("2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8")
    slices = {f"s{shape}": {"machine_type": "tpu7x-standard-4t", "topology": shape} for shape in shapes}
    graph = recorded({**BASE, **at("tpu7x"), "slices": slices})
    policies = graph.of_type("gcp:compute/resourcePolicy:ResourcePolicy").values()
    for shape, request in zip(shapes, policies, strict=True):
        assert request.object["workloadPolicy"]["acceleratorTopology"] == shape
        assert request.object["name"] == f"tpu-{shape}"
        assert request.name.endswith(f"tpu-{shape}"), "a policy of another name is another resource"
        assert list(request.replaceOnChanges) == ["name"]
