"""Hosts that are not GKE's: groups, templates and metadata that follow from slices."""

from typing import Any

import pytest
import yaml

from plan.capacity import ReservationAffinity
from plan.hosts import (
    HostGroup,
    access_secret,
    boot_metadata,
    control_plane_metadata,
    cpu_group,
    drain_seconds,
    join_secret,
    replica_zones,
    slice_groups,
)
from plan.platform import Platform
from platform_config.slice import NodeDrain
from tests.platforms import EXISTING, EXISTING_NETWORK, SELF_MANAGED, ZONES, load
from tests.rules.cases import V6E

IRON = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
SINGLE = {"machine_type": "ct6e-standard-8t", "topology": "2x4"}
RESERVED = {"model": "reservation", "name": "res-a"}

# Multi-host example of gke-labs/tpu-operator's end-to-end tests, with a reservation.
TPU_NODE_GROUP = """
apiVersion: tpu.google.com/v1alpha1
kind: TPUNodeGroup
metadata: {name: train, namespace: default}
spec:
  project: my-project
  nodeLocation: us-central1-c
  nodeCount: 2
  topology: 2x2x2
  acceleratorConnectionMode: STATIC
  targetSizePolicyMode: BULK
  instanceConfig:
    machineType: tpu7x-standard-4t
    provisioningModel: RESERVATION_BOUND
    reservation: res-a
    image: projects/ubuntu-os-accelerator-images/global/images/ubuntu-accel-2404-amd64-tpu-tpu7x-v20260320
    bootDiskSizeGB: 250
    diskType: hyperdisk-balanced
    subnetwork: default
"""


def self_managed(spec: dict[str, Any], **platform: Any) -> Platform:
    return load({"s": spec}, cluster=platform.pop("cluster", SELF_MANAGED), **platform)


def groups(spec: dict[str, Any], **platform: Any) -> tuple[HostGroup, ...]:
    loaded = self_managed(spec, **platform)
    (plan,) = loaded.slice_plans
    return slice_groups(loaded, plan)


def translated(spec: dict[str, Any]) -> dict[str, Any]:
    """A slice from a TPUNodeGroup's spec, as the table of docs/migrate-from-tpu-operator.md has it."""
    config = spec["instanceConfig"]
    return {
        "machine_type": config["machineType"],
        "topology": spec["topology"],
        "capacity": {"model": "reservation", "name": config["reservation"]},
        "image": config["image"],
        "boot_disk": {"type": config["diskType"], "size_gb": config["bootDiskSizeGB"]},
    }


def test_a_tpu_node_group_becomes_the_same_requests() -> None:
    """The bodies that tpu-operator's converters send (converter package, Compute v1), but for what it leaves open."""
    spec = yaml.safe_load(TPU_NODE_GROUP)["spec"]
    platform = self_managed(translated(spec), zone=spec["nodeLocation"])
    (plan,) = platform.slice_plans
    (group,) = slice_groups(platform, plan)
    (policy,) = platform.workload_policies
    template, config = group.template, spec["instanceConfig"]

    assert (policy.topology, policy.mode, platform.region) == (spec["topology"], None, "us-central1")
    assert group.policy == policy.name
    assert group.size == spec["nodeCount"]
    assert ("BULK" if group.bulk else "INDIVIDUAL") == spec["targetSizePolicyMode"]
    assert template.machine_type == config["machineType"]
    assert template.image == config["image"]
    assert (template.disk.type, template.disk.size_gb) == (config["diskType"], config["bootDiskSizeGB"])
    assert template.scheduling.provisioning_model == config["provisioningModel"]
    assert template.scheduling.termination == "DELETE"
    assert template.reservation == ReservationAffinity(
        "SPECIFIC_RESERVATION", "compute.googleapis.com/reservation-name", (config["reservation"],)
    )
    assert template.metadata()["kube-labels"] == (
        "cloud.google.com/gke-accelerator-count=4,"
        "cloud.google.com/gke-tpu-accelerator=tpu7x,"
        "cloud.google.com/gke-tpu-topology=2x2x2"
    )


def test_a_group_for_each_slice_of_several_hosts_and_one_for_all_of_single_hosts() -> None:
    several, single = groups(V6E | {"count": 2}), groups(SINGLE | {"count": 3})
    assert [(group.name, group.size, group.policy) for group in several] == [
        ("tpu-s-0", 4, "tpu-4x4"),
        ("tpu-s-1", 4, "tpu-4x4"),
    ]
    assert [(group.name, group.size, group.policy) for group in single] == [("tpu-s", 3, None)]


def test_hosts_are_numbered_from_one() -> None:
    (group,) = groups(V6E)
    assert group.base_name == "tpu-s-0-w-####[1]"
    assert group.host_names == tuple(f"tpu-s-0-w-000{number}" for number in (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("capacity", "model", "restart", "termination", "seconds", "wait"),
    [
        ("on-demand", "STANDARD", True, None, None, True),
        ({"model": "on-demand", "max_run_duration": "2h"}, "STANDARD", True, "DELETE", 7200, True),
        ("spot", "SPOT", False, "STOP", None, True),
        ({"model": "spot", "max_run_duration": "2h"}, "SPOT", False, "STOP", 7200, True),
        (RESERVED, "RESERVATION_BOUND", True, "DELETE", None, True),
        ("flex-start", "FLEX_START", False, "DELETE", 604800, False),
    ],
)
def test_scheduling(
    capacity: Any, model: str, restart: bool, termination: str | None, seconds: int | None, wait: bool
) -> None:
    (group,) = groups(V6E | {"capacity": capacity})
    scheduling = group.template.scheduling
    assert (scheduling.provisioning_model, scheduling.restart, scheduling.termination) == (model, restart, termination)
    assert group.template.max_run_seconds == seconds
    assert group.wait is wait


def test_a_reservation_that_has_not_begun_has_a_group_without_hosts() -> None:
    (group,) = groups(V6E | {"capacity": RESERVED | {"active": False}})
    assert (group.size, group.bulk, group.host_names) == (0, True, ())


def test_slices_in_sub_blocks_of_their_own_have_templates_of_their_own() -> None:
    shared = groups(V6E | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": "x"}})
    apart = groups(V6E | {"count": 2, "capacity": RESERVED | {"block": "b", "sub_block": ["x", "y"]}})
    assert [group.template.name for group in shared] == ["s", "s"]
    assert [group.template.name for group in apart] == ["s-0", "s-1"]
    values = [group.template.reservation and group.template.reservation.values for group in apart]
    prefix = "res-a/reservationBlocks/b/reservationSubBlocks"
    assert values == [(f"{prefix}/x",), (f"{prefix}/y",)]


def test_each_generation_has_googles_image_unless_another_is_given() -> None:
    family = "projects/ubuntu-os-accelerator-images/global/images/family"
    assert groups(V6E)[0].template.image == f"{family}/ubuntu-accel-2204-amd64-tpu-v5e-v5p-v6e"
    assert groups(IRON, zone=ZONES["tpu7x"])[0].template.image == f"{family}/ubuntu-accel-2404-amd64-tpu-tpu7x"
    assert groups(V6E | {"image": "projects/p/global/images/i"})[0].template.image == "projects/p/global/images/i"


def test_an_own_template_takes_the_place_of_ours() -> None:
    template = "projects/my-project/global/instanceTemplates/t"
    assert groups(V6E | {"instance_template": template})[0].own_template == template
    assert groups(V6E)[0].own_template is None


def test_metadata_says_what_node_a_host_becomes() -> None:
    spec = SINGLE | {"labels": {"team": "a"}, "taints": [{"key": "team", "value": "a", "effect": "NoExecute"}]}
    (group,) = groups(spec | {"capacity": "spot", "max_pods_per_node": 40})
    assert group.template.metadata() == {
        "kube-labels": (
            "cloud.google.com/gke-accelerator-count=8,"
            "cloud.google.com/gke-tpu-accelerator=tpu-v6e-slice,"
            "cloud.google.com/gke-tpu-topology=2x4"
        ),
        "tpu-role": "node",
        "tpu-node-labels": (
            "cloud.google.com/gke-accelerator-count=8,"
            "cloud.google.com/gke-tpu-accelerator=tpu-v6e-slice,"
            "cloud.google.com/gke-tpu-topology=2x4,"
            "cloud.google.com/tpu-node-group=tpu-s,"
            "team=a,"
            "tpu-platform/flavor=v6e-2x4-8t-spot,"
            "tpu-platform/slice=s"
        ),
        "tpu-node-taints": "google.com/tpu=present:NoSchedule,team=a:NoExecute",
        "tpu-max-pods": "40",
        "block-project-ssh-keys": "TRUE",
    }
    assert group.template.pod_prefix == 25, "128 addresses, twice the pods and a power of two"


def test_hosts_without_tpus_have_no_tpu_labels_and_as_many_hosts_as_the_least() -> None:
    pools = {"head": {"machine_type": "n2-standard-4", "min": 3, "labels": {"role": "head"}}}
    platform = self_managed(V6E, cluster=SELF_MANAGED | {"cpu_pools": pools})
    assert [pool.name for pool in platform.all_cpu_pools] == ["system", "head"]
    group = cpu_group(platform, platform.cpu_pools[0])
    assert (group.name, group.size, group.bulk) == ("tpu-head", 3, False)
    assert "kube-labels" not in group.template.metadata()
    assert group.template.metadata()["tpu-node-labels"] == "cloud.google.com/tpu-node-group=tpu-head,role=head"
    assert "tpu-node-taints" not in group.template.metadata()


def test_a_cluster_that_exists_has_no_system_pool_and_secrets_of_its_own() -> None:
    platform = self_managed(V6E, cluster=EXISTING, network=EXISTING_NETWORK)
    assert platform.all_cpu_pools == ()
    assert (join_secret(platform), access_secret(platform)) == (EXISTING["join_secret"], EXISTING["access_secret"])
    assert boot_metadata(platform)["tpu-join-secret"] == EXISTING["join_secret"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_metadata_of_a_control_plane(replicas: int) -> None:
    platform = self_managed(V6E, cluster=SELF_MANAGED | {"control_plane": {"replicas": replicas}}, name="own")
    metadata = control_plane_metadata(platform, replicas - 1)
    secrets = "projects/my-project/secrets/own"
    assert metadata == {
        "tpu-kubernetes-version": "1.34.2",
        "tpu-containerd-version": "2.1.5-1~*",
        "tpu-join-secret": f"{secrets}-join",
        "tpu-metadata-group": "47100",
        "tpu-role": "control-plane",
        "block-project-ssh-keys": "TRUE",
        "tpu-cluster-name": "own",
        "tpu-pods-cidr": "10.4.0.0/14",
        "tpu-services-cidr": "10.0.32.0/20",
        "tpu-max-pods": "110",
        "tpu-endpoint-secret": f"{secrets}-endpoint",
        "tpu-access-secret": f"{secrets}-access",
        "tpu-replicas": str(replicas),
        "tpu-replica": str(replicas - 1),
        **({"tpu-peer-secret": f"{secrets}-peers"} if replicas == 3 else {}),
    }


@pytest.mark.parametrize(
    ("replicas", "zones", "expected"),
    [
        (1, [], ("us-east5-b",)),
        (3, [], ("us-east5-b",) * 3),
        (3, ["us-east5-a", "us-east5-c"], ("us-east5-a", "us-east5-c", "us-east5-a")),
    ],
)
def test_machines_of_a_control_plane_take_zones_in_turn(
    replicas: int, zones: list[str], expected: tuple[str, ...]
) -> None:
    cluster = SELF_MANAGED | {"control_plane": {"replicas": replicas, "zones": zones}}
    assert replica_zones(self_managed(V6E, cluster=cluster)) == expected


def test_nodes_of_a_cluster_are_hosts_pools_and_its_own_machines() -> None:
    cluster = SELF_MANAGED | {"control_plane": {"replicas": 3}, "system_pool": {"min": 4}}
    assert self_managed(V6E | {"count": 2}, cluster=cluster).most_nodes == 2 * 4 + 4 + 3


@pytest.mark.parametrize(
    ("drain", "seconds"), [({}, 1800), ({"grace": "5m"}, 300), ({"grace": "5m", "pdb_timeout": "10m"}, 900)]
)
def test_time_to_empty_a_host(drain: dict[str, str], seconds: int) -> None:
    assert drain_seconds(NodeDrain(**drain)) == seconds
