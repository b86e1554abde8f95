"""Kubernetes Engine's node pools: what is refused and in which words, and what Google fills in."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.tests.emulated_google import (
    CLUSTERS,
    COMPUTE,
    NO_RESERVATION,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Body,
    Cloud,
    compact,
    pool,
)

RESERVED = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "compute.googleapis.com/reservation-name"}
SCALED = {"enabled": True, "minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"}
FLEX: Body = {
    "config": {"flexStart": True, "maxRunDuration": "86400s"},
    "management": {"autoUpgrade": True},
    "autoscaling": SCALED,
    "placementPolicy": compact("4x4"),
}
QUEUED: Body = {**FLEX, "queuedProvisioning": {"enabled": True}}
SINGLE = "ct6e-standard-1t"


@pytest.fixture
def cloud(server: Cloud) -> Cloud:
    """A cluster without pools, in a zone that offers every TPU generation."""
    server.control("reset")
    server.make_cluster()
    server.offer("v4", "v5e", "v5p", "v6e", "tpu7x")
    return server


def reserved(name: str = "res") -> Body:
    return {"reservationAffinity": {**RESERVED, "values": [name]}}


def with_config(base: Body, **config: Any) -> Body:
    return {**base, "config": {**base["config"], **config}}


REFUSALS: dict[str, tuple[Body, str]] = {
    "name": (pool("Pool"), "Invalid value for field 'node_pool.name'"),
    "long name": (pool("p" * 41), "at most 40 characters"),
    "machine type": (
        pool(machine="ct9e-standard-4t"),
        "Machine type with name 'ct9e-standard-4t' does not exist in zone",
    ),
    "topology": (
        pool(placementPolicy=compact("3x3")),
        'Invalid TPU topology "3x3" for machine type "ct6e-standard-4t"',
    ),
    "dimensions": (pool(placementPolicy=compact("2x2x2")), 'Invalid TPU topology "2x2x2"'),
    "unsorted": (
        pool(machine="ct5p-hightpu-4t", placementPolicy=compact("8x4x4")),
        'Invalid TPU topology "8x4x4" for machine type "ct5p-hightpu-4t"',
    ),
    "single-host machine": (
        pool(machine="ct6e-standard-8t", placementPolicy=compact("4x4")),
        'Invalid TPU topology "4x4" for machine type "ct6e-standard-8t"',
    ),
    "topology of a CPU machine": (
        pool(machine="n2-standard-8", placementPolicy=compact("4x4")),
        "tpu_topology is not supported for machine type n2-standard-8",
    ),
    "node count": (
        pool(nodes=16, placementPolicy=compact("4x8")),
        "Requested invalid target size '16' for a Managed Instance Group in the gang mode of size '8'",
    ),
    "autoscaling limit": (
        pool(placementPolicy=compact("4x4"), autoscaling={"enabled": True, "maxNodeCount": 3}),
        "max node count 3 must equal the 4 nodes of the slice",
    ),
    "autoscaling minimum": (
        pool(placementPolicy=compact("4x4"), autoscaling={**SCALED, "minNodeCount": 2}),
        "min node count 2",
    ),
    "both kinds of limits": (
        pool(machine=SINGLE, autoscaling={**SCALED, "totalMaxNodeCount": 4}),
        "Per-zone and total autoscaling limits cannot be set together",
    ),
    "COMPACT without topology": (pool(placementPolicy={"type": "COMPACT"}), "requires tpu_topology"),
    "topology without COMPACT": (pool(placementPolicy={"tpuTopology": "4x4"}), "requires placement type COMPACT"),
    "COMPACT for tpu7x": (
        pool(machine="tpu7x-standard-4t", nodes=2, placementPolicy=compact("2x2x2")),
        "Multi-host tpu7x-standard-4t node pools must use a workload policy",
    ),
    "unknown policy": (
        pool(machine="tpu7x-standard-4t", placementPolicy={"policyName": "nope", "tpuTopology": "2x2x2"}),
        f"Resource policy nope does not exist in project {PROJECT}, region {REGION}",
    ),
    "two zones": (pool(locations=[ZONE, "us-east5-a"]), "must have exactly one location"),
    "zone of another region": (
        pool(machine="n2-standard-8", locations=["us-west1-c"]),
        "is not in the region us-east5",
    ),
    "disk type": (
        pool(config={"diskType": "pd-balanced"}),
        "Disk type pd-balanced cannot be used by machine type ct6e-standard-4t. Allowed disk types: hyperdisk-balanced",
    ),
    "boot disk type": (pool(config={"bootDisk": {"diskType": "pd-ssd"}}), "Disk type pd-ssd cannot be used"),
    "two disk types": (
        pool(config={"diskType": "pd-ssd", "bootDisk": {"diskType": "hyperdisk-balanced"}}),
        "Only one of disk_type and boot_disk.disk_type",
    ),
    "auto upgrade": (
        pool(management={"autoRepair": True}),
        "Auto_upgrade must be true when release_channel RAPID is set.",
    ),
    "service account": (
        pool(config={"serviceAccount": f"nobody@{PROJECT}.iam.gserviceaccount.com"}),
        f'Service account "nobody@{PROJECT}.iam.gserviceaccount.com" does not exist.',
    ),
    "version": (pool(version="1.20.1-gke.1"), 'Master version "1.20.1-gke.1" is unsupported.'),
    "version prefix": (pool(version="1.20"), 'No valid versions with the prefix "1.20" found.'),
    "spot and reservation": (
        pool(config={"spot": True, **reserved()}),
        "Spot VMs cannot be used together with reservation affinity SPECIFIC_RESERVATION",
    ),
    "two reservations": (
        pool(config={"reservationAffinity": {**RESERVED, "values": ["a", "b"]}}),
        "requires the key compute.googleapis.com/reservation-name and exactly one value",
    ),
    "reservation form": (pool(config=reserved("a/b")), "Invalid reservation name 'a/b'"),
    "values without reservation": (
        pool(config={"reservationAffinity": {**NO_RESERVATION, "values": ["a"]}}),
        "Reservation values cannot be set with consume reservation type NO_RESERVATION",
    ),
    "periodic maintenance": (
        pool(config={"hostMaintenancePolicy": {"maintenanceInterval": "PERIODIC"}}),
        "is incorrect for the requested resources",
    ),
    "blue-green": (
        pool(placementPolicy=compact("4x4"), upgradeSettings={"strategy": "BLUE_GREEN"}),
        "Blue-green upgrades are not supported for node pools with COMPACT placement",
    ),
    "network profile and networks": (
        pool(networkConfig={"acceleratorNetworkProfile": "auto", "additionalNodeNetworkConfigs": [{"network": "n"}]}),
        "cannot be set together",
    ),
    "network profile of v5p": (
        pool(machine="ct5p-hightpu-4t", networkConfig={"acceleratorNetworkProfile": "auto"}),
        "accelerator_network_profile is not supported for machine type ct5p-hightpu-4t",
    ),
    "secondary disk": (pool(config={"secondaryBootDisks": [{"diskImage": "i"}]}), "require image streaming"),
    "pods": (pool(maxPodsConstraint={"maxPodsPerNode": "300"}), "between 8 and 256, got 300"),
    "flex-start of v4": (
        pool(machine="ct4p-hightpu-4t", **{**FLEX, "placementPolicy": compact("2x2x4")}),
        "Flex-start is not supported for ct4p-hightpu-4t",
    ),
    "flex-start and spot": (pool(**with_config(FLEX, spot=True)), "Flex-start cannot be used together with Spot VMs"),
    "flex-start and reservation": (
        pool(**with_config(FLEX, **reserved())),
        "Flex-start cannot be used together with reservation affinity SPECIFIC_RESERVATION",
    ),
    "flex-start affinity": (
        pool(**with_config(FLEX, reservationAffinity={"consumeReservationType": "ANY_RESERVATION"})),
        "Flex-start requires reservation affinity NO_RESERVATION",
    ),
    "flex-start repair": (
        pool(**{**FLEX, "management": {"autoRepair": True, "autoUpgrade": True}}),
        "Flex-start requires auto repair to be disabled",
    ),
    "flex-start size": (pool(nodes=4, **FLEX), "Flex-start requires an initial node count of 0"),
    "flex-start scaling": (
        pool(**{**FLEX, "autoscaling": {"enabled": False}}),
        "Flex-start requires autoscaling to be enabled",
    ),
    "flex-start policy": (
        pool(**{**FLEX, "autoscaling": {**SCALED, "locationPolicy": "BALANCED"}}),
        "Flex-start requires location policy ANY",
    ),
    "flex-start duration": (
        pool(**with_config(FLEX, maxRunDuration="604801s")),
        "Flex-start allows a max run duration of at most 604800s",
    ),
    "queued scaling": (
        pool(**{**QUEUED, "config": {}, "autoscaling": {"enabled": False}}),
        "Queued provisioning requires autoscaling with a min node count of 0",
    ),
    "queued and spot": (
        pool(**{**QUEUED, "config": {"spot": True}}),
        "Queued provisioning cannot be used together with Spot VMs",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_pool_that_cannot_be_is_refused(cloud: Cloud, case: str) -> None:
    body, message = REFUSALS[case]
    error = cloud.refused(400, "POST", POOLS, body)
    assert message in error["message"]
    assert error["status"] == "INVALID_ARGUMENT"
    assert "container.nodePools" not in cloud.inventory()


ACCEPTED: dict[str, Body] = {
    "single host": pool(machine=SINGLE, nodes=1, config={"spot": True}),
    "v6e slice": pool(nodes=4, placementPolicy=compact("4x4")),
    "v5e slice": pool(machine="ct5lp-hightpu-4t", nodes=64, placementPolicy=compact("16x16")),
    "v4 slice": pool(machine="ct4p-hightpu-4t", nodes=16, placementPolicy=compact("4x4x4")),
    "largest v5p slice": pool(machine="ct5p-hightpu-4t", nodes=1536, placementPolicy=compact("16x16x24")),
    "empty slice": pool(nodes=0, placementPolicy=compact("16x16")),
    "flex-start": pool(**FLEX),
    "queued": pool(**QUEUED),
    "sub-block": pool(config=reserved("projects/o/reservations/r/reservationBlocks/b/reservationSubBlocks/s")),
    "network profile": pool(networkConfig={"acceleratorNetworkProfile": "auto"}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_a_pool_that_fits_is_made(cloud: Cloud, case: str) -> None:
    operation = cloud.ok("POST", POOLS, ACCEPTED[case])
    assert operation["status"] == "DONE"
    assert "error" not in operation
    assert cloud.ok("GET", f"{POOLS}/pool")["status"] == "RUNNING"


def test_a_zone_offers_only_its_generations(cloud: Cloud) -> None:
    cloud.offer("v6e")
    error = cloud.refused(400, "POST", POOLS, pool(machine="ct5p-hightpu-4t"))
    assert error["message"] == f"Machine type with name 'ct5p-hightpu-4t' does not exist in zone '{ZONE}'."


def test_a_name_is_given_once(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool(machine=SINGLE))
    error = cloud.refused(409, "POST", POOLS, pool(machine=SINGLE))
    assert error["status"] == "ALREADY_EXISTS"
    assert error["message"] == f"Already exists: projects/proj/locations/{REGION}/clusters/tpu/nodePools/pool."


def test_what_does_not_exist_is_not_found(cloud: Cloud) -> None:
    for method in ("GET", "DELETE"):
        error = cloud.refused(404, method, f"{POOLS}/pool")
        assert error["message"] == f"Not found: projects/proj/locations/{REGION}/clusters/tpu/nodePools/pool."
    assert cloud.refused(404, "POST", f"{CLUSTERS}/other/nodePools", pool())["status"] == "NOT_FOUND"


# Workload policies


def with_policy(name: str = "wp", topology: str = "2x2x2", **extra: Any) -> Body:
    placement = {"policyName": name, "tpuTopology": topology}
    return pool(machine="tpu7x-standard-4t", placementPolicy=placement, **extra)


def test_tpu7x_slices_take_a_workload_policy_and_lose_the_placement_type(cloud: Cloud) -> None:
    cloud.make_policy("wp", "2x2x2")
    body = with_policy(nodes=2)
    body["nodePool"]["placementPolicy"]["type"] = "COMPACT"
    cloud.ok("POST", POOLS, body)
    assert cloud.ok("GET", f"{POOLS}/pool")["placementPolicy"] == {"policyName": "wp", "tpuTopology": "2x2x2"}


def test_a_policy_alone_decides_the_number_of_nodes(cloud: Cloud) -> None:
    cloud.make_policy("wp", "2x2x2")
    body = with_policy(nodes=3)
    del body["nodePool"]["placementPolicy"]["tpuTopology"]
    assert "gang mode of size '2'" in cloud.refused(400, "POST", POOLS, body)["message"]


def test_a_workload_policy_has_to_fit_the_pool(cloud: Cloud) -> None:
    cloud.make_policy("wp", "2x2x4")
    cloud.make_policy("far", "2x2x2", region="us-central1")
    cloud.make_policy("cubes", "4x4x4", acceleratorTopologyMode="PROVISION_ONLY")
    error = cloud.refused(400, "POST", POOLS, with_policy())
    assert "tpu_topology 2x2x2 does not match accelerator topology 2x2x4 of workload policy wp" in error["message"]
    assert "region us-east5" in cloud.refused(400, "POST", POOLS, with_policy("far"))["message"]
    error = cloud.refused(400, "POST", POOLS, with_policy("cubes", "4x4x4"))
    assert "PROVISION_ONLY requires reservation affinity SPECIFIC_RESERVATION" in error["message"]
    cloud.ok("POST", POOLS, with_policy("cubes", "4x4x4", config=reserved()))


def test_a_policy_in_use_stays(cloud: Cloud) -> None:
    cloud.make_policy("wp", "2x2x2")
    cloud.ok("POST", POOLS, with_policy())
    policy = f"{COMPUTE}/regions/{REGION}/resourcePolicies/wp"
    error = cloud.refused(400, "DELETE", policy)
    assert error["errors"][0]["reason"] == "resourceInUseByAnotherResource"
    assert "is already being used by" in error["message"]
    cloud.ok("DELETE", f"{POOLS}/pool")
    cloud.ok("DELETE", policy)


# Reservations and quota


def reserve(cloud: Cloud, count: int, **extra: Any) -> None:
    seed = {"project": PROJECT, "zone": ZONE, "name": "res", "machine_type": "ct6e-standard-4t", "count": count}
    cloud.control("reservations", {**seed, **extra})


def test_a_reservation_must_exist_and_match_and_have_room(cloud: Cloud) -> None:
    reserve(cloud, 5)
    slice_: Body = {"nodes": 4, "placementPolicy": compact("4x4")}
    assert "was not found" in cloud.refused(400, "POST", POOLS, pool(config=reserved("other")))["message"]
    error = cloud.refused(400, "POST", POOLS, pool(machine=SINGLE, config=reserved()))
    assert "it is for machine type ct6e-standard-4t, not ct6e-standard-1t" in error["message"]
    cloud.ok("POST", POOLS, pool("first", config=reserved(), **slice_))
    error = cloud.refused(400, "POST", POOLS, pool("second", config=reserved(), **slice_))
    assert "4 VMs requested, 1 of 5 free" in error["message"]
    found = cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/reservations/res")["specificReservation"]
    assert (found["count"], found["inUseCount"]) == ("5", "4")
    assert "compute.reservations" not in cloud.inventory()


def test_a_shared_reservation_is_for_the_projects_it_is_shared_with(cloud: Cloud) -> None:
    reserve(cloud, 4, project="owner")
    body = pool(config=reserved("projects/owner/reservations/res"))
    assert "is not shared with project proj" in cloud.refused(400, "POST", POOLS, body)["message"]
    reserve(cloud, 4, project="owner", share_with=[PROJECT])
    cloud.ok("POST", POOLS, body)


def test_a_periodic_pool_needs_a_periodic_reservation(cloud: Cloud) -> None:
    reserve(cloud, 4)
    periodic = {"hostMaintenancePolicy": {"maintenanceInterval": "PERIODIC"}, **reserved()}
    assert "PERIODIC is incorrect" in cloud.refused(400, "POST", POOLS, pool(config=periodic))["message"]
    reserve(cloud, 4, maintenance_interval="PERIODIC")
    cloud.ok("POST", POOLS, pool(config=periodic))


def test_quota_counts_chips_by_generation_and_model(cloud: Cloud) -> None:
    cloud.control("quotas", {REGION: {"TPUS_PER_TPU_FAMILY:CT6E": 16, "PREEMPTIBLE_TPU_V6E": 0}})
    cloud.ok("POST", POOLS, pool("first", nodes=2, placementPolicy=compact("2x4")))
    error = cloud.refused(403, "POST", POOLS, pool("second", nodes=4, placementPolicy=compact("4x4")))
    assert "Insufficient regional quota to satisfy request" in error["message"]
    assert "request requires '16.0' and is short '8.0'" in error["message"]
    assert error["errors"][0]["reason"] == "quotaExceeded"
    assert cloud.refused(403, "POST", POOLS, pool("spot", SINGLE, nodes=1, config={"spot": True}))
    cloud.ok("POST", POOLS, pool("third", nodes=2, placementPolicy=compact("2x4")))


# What Google fills in


def test_defaults_appear_when_a_pool_is_read(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, {"nodePool": {"name": "pool", "config": {"machineType": "ct6e-standard-8t"}}})
    found = cloud.ok("GET", f"{POOLS}/pool")
    config = found["config"]
    assert config["advancedMachineFeatures"] == {"threadsPerCore": "1"}
    assert (config["diskType"], config["diskSizeGb"]) == ("hyperdisk-balanced", 100)
    assert config["bootDisk"] == {"diskType": "hyperdisk-balanced", "sizeGb": "100"}
    assert config["metadata"] == {"disable-legacy-endpoints": "true"}
    assert config["shieldedInstanceConfig"] == {"enableIntegrityMonitoring": True}
    assert config["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    assert config["kubeletConfig"]["insecureKubeletReadonlyPortEnabled"] is False
    assert config["taints"] == [{"key": "google.com/tpu", "value": "present", "effect": "NO_SCHEDULE"}]
    assert found["management"] == {"autoRepair": True, "autoUpgrade": True}
    assert found["upgradeSettings"] == {"strategy": "SURGE", "maxSurge": 1}
    assert found["maxPodsConstraint"] == {"maxPodsPerNode": "110"}
    assert found["podIpv4CidrSize"] == 24
    assert found["version"] == "1.36.2-gke.1000000"
    assert found["locations"] == [ZONE]
    assert found["etag"]


def test_queued_pools_get_their_taint(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool(**QUEUED))
    keys = [taint["key"] for taint in cloud.ok("GET", f"{POOLS}/pool")["config"]["taints"]]
    assert keys == ["google.com/tpu", "cloud.google.com/gke-queued"]


# Changes


def test_updates_reach_the_pool(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool())
    taint = {"key": "team", "value": "a", "effect": "NO_SCHEDULE"}
    update = {"labels": {"labels": {"a": "c"}}, "taints": {"taints": [taint]}, "tags": {"tags": ["x"]}}
    cloud.ok("PUT", f"{POOLS}/pool", {**update, "diskSizeGb": "200", "gvnic": {"enabled": True}})
    config = cloud.ok("GET", f"{POOLS}/pool")["config"]
    assert config["labels"] == {"a": "c"}
    assert [t["key"] for t in config["taints"]] == ["team", "google.com/tpu"]
    assert config["tags"] == ["x"]
    assert config["bootDisk"]["sizeGb"] == "200"
    assert config["gvnic"] == {"enabled": True}
    cloud.ok("PUT", f"{POOLS}/pool", {"bootDisk": {"sizeGb": "300"}})
    assert cloud.ok("GET", f"{POOLS}/pool")["config"]["diskSizeGb"] == 300


def test_an_update_has_to_leave_a_pool_that_can_be(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool())
    assert "cannot be used" in cloud.refused(400, "PUT", f"{POOLS}/pool", {"diskType": "pd-ssd"})["message"]
    error = cloud.refused(400, "POST", f"{POOLS}/pool:setManagement", {"management": {"autoRepair": True}})
    assert "Auto_upgrade must be true" in error["message"]
    assert cloud.refused(409, "PUT", f"{POOLS}/pool", {"etag": "old", "diskSizeGb": "200"})["status"] == "ABORTED"


def test_a_slice_is_resized_as_a_whole(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool(nodes=4, placementPolicy=compact("4x4")))
    error = cloud.refused(400, "POST", f"{POOLS}/pool:setSize", {"nodeCount": 2})
    assert "Requested invalid target size '2'" in error["message"]
    cloud.ok("POST", f"{POOLS}/pool:setSize", {"nodeCount": 0})
    [group] = cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/instanceGroupManagers")["items"]
    assert group["targetSize"] == 0


def test_autoscaling_is_changed_through_the_cluster_as_the_provider_does(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool(machine=SINGLE))
    update = {"desiredNodePoolId": "pool", "desiredNodePoolAutoscaling": {"enabled": True, "maxNodeCount": 7}}
    cloud.ok("PUT", f"{CLUSTERS}/tpu", {"update": update})
    assert cloud.ok("GET", f"{POOLS}/pool")["autoscaling"]["maxNodeCount"] == 7
    cloud.ok("POST", f"{POOLS}/pool:setAutoscaling", {"autoscaling": {"enabled": False}})
    assert cloud.ok("GET", f"{POOLS}/pool")["autoscaling"] == {"enabled": False}


def test_the_simulated_autoscaler_moves_whole_slices_within_the_limits(cloud: Cloud) -> None:
    cloud.ok("POST", POOLS, pool(**FLEX))
    steer = f"pools/projects/{PROJECT}/locations/{REGION}/clusters/tpu/nodePools/pool:resize"
    cloud.control(steer, {"nodes": 4})
    assert cloud.ok("GET", f"{CLUSTERS}/tpu")["currentNodeCount"] == 4
    assert "gang mode" in cloud.refused(400, "POST", f"/sandbox/{steer}", {"nodes": 2})["message"]
    assert "between 0 and 4" in cloud.refused(400, "POST", f"/sandbox/{steer}", {"nodes": 8})["message"]
    cloud.control(steer, {"nodes": 0})
    assert cloud.ok("GET", f"{CLUSTERS}/tpu")["currentNodeCount"] == 0
