"""Machines of a self-managed platform: disks, addresses, load balancers, groups of machines and their capacity."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest

from sandbox.tests.emulated_google import (
    COMPUTE,
    FLEX_SCHEDULING,
    GROUPS,
    IN_USE,
    INSTANCES,
    NO_RESERVATION,
    PROJECT,
    REGION,
    SUBNETWORK,
    TEMPLATES,
    ZONE,
    Body,
    Cloud,
    connected,
    eventually,
    group,
    instance,
    template,
)

DISKS = f"{COMPUTE}/zones/{ZONE}/disks"
UNMANAGED = f"{COMPUTE}/zones/{ZONE}/instanceGroups"
REGIONAL = f"{COMPUTE}/regions/{REGION}"
MACHINE = "tpu7x-standard-4t"
PODS = {"ipCidrRange": "/24", "subnetworkRangeName": "pods"}
DO_NOTHING: Body = {"instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"}}


@pytest.fixture
def cloud(server: Cloud) -> Cloud:
    """A network with one subnetwork."""
    server.control("reset")
    server.make_network()
    return server


@pytest.fixture
def slices(cloud: Cloud) -> Cloud:
    cloud.make_slice_parts()
    return cloud


def nic(**extra: Any) -> Body:
    return {"networkInterfaces": [{"subnetwork": SUBNETWORK, **extra}]}


def with_data(name: str, mode: str = "READ_WRITE") -> Body:
    """An instance with the disk "data" attached."""
    [boot] = instance()["disks"]
    data = {"source": f"projects/{PROJECT}/zones/{ZONE}/disks/data", "deviceName": "data", "mode": mode}
    return instance(name=name, disks=[boot, data])


# Disks and addresses


def test_a_data_disk_outlives_its_instance_and_serves_one_writer(cloud: Cloud) -> None:
    cloud.ok("POST", DISKS, {"name": "data", "sizeGb": "20", "type": f"zones/{ZONE}/diskTypes/pd-ssd"})
    number = cloud.ok("GET", f"{DISKS}/data")["id"]
    cloud.ok("POST", INSTANCES, with_data("one"))
    assert cloud.ok("GET", f"{DISKS}/data")["users"] == [cloud.ok("GET", f"{INSTANCES}/one")["selfLink"]]
    for method, path, body in (("POST", INSTANCES, with_data("two")), ("DELETE", f"{DISKS}/data", None)):
        error = cloud.refused(400, method, path, body)
        assert (error["errors"][0]["reason"], "already being used by" in error["message"]) == (IN_USE, True)
    cloud.ok("DELETE", f"{INSTANCES}/one")
    found = cloud.ok("GET", f"{DISKS}/data")
    assert (found["id"], "users" in found) == (number, False)
    cloud.ok("POST", INSTANCES, with_data("two"))
    cloud.ok("POST", f"{INSTANCES}/two/detachDisk?deviceName=data")
    cloud.ok("POST", f"{DISKS}/data/resize", {"sizeGb": "30"})
    assert "smaller" in cloud.refused(400, "POST", f"{DISKS}/data/resize", {"sizeGb": "30"})["message"]
    cloud.ok("DELETE", f"{DISKS}/data")


def test_a_disk_of_weights_is_filled_once_and_then_read_by_many(cloud: Cloud) -> None:
    cloud.ok("POST", DISKS, {"name": "data", "sizeGb": "20", "type": f"zones/{ZONE}/diskTypes/hyperdisk-ml"})
    assert cloud.ok("GET", f"{DISKS}/data")["accessMode"] == "READ_WRITE_SINGLE"
    cloud.ok("POST", INSTANCES, with_data("filler"))
    assert "already being used" in cloud.refused(400, "POST", INSTANCES, with_data("one", "READ_ONLY"))["message"]
    cloud.ok("DELETE", f"{INSTANCES}/filler")
    cloud.ok("PATCH", f"{DISKS}/data?paths=accessMode", {"name": "data", "accessMode": "READ_ONLY_MANY"})
    for name in ("one", "two"):
        cloud.ok("POST", INSTANCES, with_data(name, "READ_ONLY"))
    assert len(cloud.ok("GET", f"{DISKS}/data")["users"]) == 2
    assert "READ_ONLY_MANY" in cloud.refused(400, "POST", INSTANCES, with_data("three"))["message"]
    back = {"name": "data", "accessMode": "READ_WRITE_SINGLE"}
    assert "cannot be changed" in cloud.refused(400, "PATCH", f"{DISKS}/data", back)["message"]


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, {"name": "d", "type": "pd-ssd", "accessMode": "READ_ONLY_MANY"}, "not supported for disk type pd-ssd"),
        (400, {"name": "d", "sizeGb": "3", "type": "hyperdisk-balanced"}, "must be between 4 and 65536 GB"),
        (404, {"name": "d", "type": "floppy"}, "The disk type 'floppy' does not exist"),
        (404, {"name": "d", "sourceImage": "projects/debian-cloud/global/images/family/debian-3"}, "was not found"),
    ],
)
def test_a_disk_that_cannot_be_is_refused(cloud: Cloud, status: int, body: Body, message: str) -> None:
    assert message in cloud.refused(status, "POST", DISKS, body)["message"]


def test_a_new_boot_disk_does_not_take_the_place_of_another_disk(cloud: Cloud) -> None:
    cloud.ok("POST", DISKS, {"name": "vm", "sizeGb": "20"})
    assert "disks/vm' already exists" in cloud.refused(409, "POST", INSTANCES, instance())["message"]


def test_addresses_are_given_once_and_kept_while_in_use(cloud: Cloud) -> None:
    reserved = {"name": "api", "addressType": "INTERNAL", "subnetwork": SUBNETWORK, "address": "10.0.0.9"}
    cloud.ok("POST", f"{REGIONAL}/addresses", reserved)
    again = {**reserved, "name": "other"}
    assert "already being used" in cloud.refused(400, "POST", f"{REGIONAL}/addresses", again)["message"]
    outside = {**again, "address": "192.168.0.1"}
    assert "outside the range 10.0.0.0/18" in cloud.refused(400, "POST", f"{REGIONAL}/addresses", outside)["message"]
    cloud.ok("POST", INSTANCES, instance(**nic(networkIP="10.0.0.9")))
    assert cloud.ok("GET", f"{REGIONAL}/addresses/api")["status"] == "IN_USE"
    taken = instance(name="two", **nic(networkIP="10.0.0.9"))
    assert "already used by another instance" in cloud.refused(400, "POST", INSTANCES, taken)["message"]
    assert cloud.refused(400, "DELETE", f"{REGIONAL}/addresses/api")["errors"][0]["reason"] == IN_USE


def test_alias_ranges_are_cut_from_their_secondary_range(cloud: Cloud) -> None:
    for name, wanted in (("one", "/24"), ("two", "10.16.1.0/24"), ("three", "/24"), ("four", "/20")):
        cloud.ok("POST", INSTANCES, instance(name=name, **nic(aliasIpRanges=[{**PODS, "ipCidrRange": wanted}])))
    given = [
        cloud.ok("GET", f"{INSTANCES}/{name}")["networkInterfaces"][0]["aliasIpRanges"][0]["ipCidrRange"]
        for name in ("one", "two", "three", "four")
    ]
    assert given == ["10.16.0.0/24", "10.16.1.0/24", "10.16.2.0/24", "10.16.16.0/20"]
    for refused, message in (
        ({**PODS, "ipCidrRange": "10.16.1.0/25"}, "already in use"),
        ({**PODS, "subnetworkRangeName": "services", "ipCidrRange": "/16"}, "does not fit into the range"),
        ({**PODS, "subnetworkRangeName": "other"}, "Secondary range 'other' does not exist"),
    ):
        body = instance(name="five", **nic(aliasIpRanges=[refused]))
        assert message in cloud.refused(400, "POST", INSTANCES, body)["message"]


# Load balancers


@pytest.fixture
def balanced(cloud: Cloud) -> Cloud:
    """An instance in an unmanaged group behind an internal address."""
    cloud.ok("POST", INSTANCES, instance())
    cloud.ok("POST", UNMANAGED, {"name": "api"})
    cloud.ok("POST", f"{UNMANAGED}/api/addInstances", {"instances": [{"instance": f"{INSTANCES[14:]}/vm"}]})
    cloud.ok("POST", f"{REGIONAL}/healthChecks", {"name": "api", "type": "TCP", "tcpHealthCheck": {"port": 6443}})
    cloud.ok("POST", f"{REGIONAL}/backendServices", backend_service())
    cloud.ok("POST", f"{REGIONAL}/forwardingRules", forwarding_rule())
    return cloud


def backend_service(**extra: Any) -> Body:
    backends = [{"group": f"projects/{PROJECT}/zones/{ZONE}/instanceGroups/api", "balancingMode": "CONNECTION"}]
    own = {"name": "api", "loadBalancingScheme": "INTERNAL", "backends": backends}
    return {**own, "healthChecks": [f"projects/{PROJECT}/regions/{REGION}/healthChecks/api"], **extra}


def forwarding_rule(**extra: Any) -> Body:
    own = {"name": "api", "loadBalancingScheme": "INTERNAL", "ports": ["6443"], "subnetwork": SUBNETWORK}
    return {**own, "backendService": f"projects/{PROJECT}/regions/{REGION}/backendServices/api", **extra}


def test_each_part_of_a_load_balancer_stays_while_the_next_one_uses_it(balanced: Cloud) -> None:
    parts = [f"{REGIONAL}/healthChecks/api", f"{UNMANAGED}/api", f"{REGIONAL}/backendServices/api"]
    for path in parts:
        assert balanced.refused(400, "DELETE", path)["errors"][0]["reason"] == IN_USE
    assert balanced.ok("GET", f"{REGIONAL}/forwardingRules/api")["IPAddress"] == "10.0.0.3"
    for path in [*parts, f"{REGIONAL}/forwardingRules/api"][::-1]:
        balanced.ok("DELETE", path)
    balanced.ok("DELETE", f"{INSTANCES}/vm")
    assert set(balanced.inventory()) == {"compute.networks", "compute.subnetworks"}


def test_an_unmanaged_group_counts_its_members(balanced: Cloud) -> None:
    found = balanced.ok("GET", f"{UNMANAGED}/api")
    assert (found["size"], found["network"].rsplit("/", 1)[1]) == (1, "net")
    members = {"instances": [{"instance": f"{INSTANCES[14:]}/vm"}]}
    assert "already a member" in balanced.refused(400, "POST", f"{UNMANAGED}/api/addInstances", members)["message"]
    balanced.ok("DELETE", f"{INSTANCES}/vm")
    assert balanced.ok("GET", f"{UNMANAGED}/api")["size"] == 0
    assert balanced.ok("POST", f"{UNMANAGED}/api/listInstances", {})["items"] == []


BALANCER_REFUSALS: dict[str, tuple[str, Body, str]] = {
    "check without its block": ("healthChecks", {"name": "c"}, "'resource.type': ''"),
    "check of two kinds": ("healthChecks", {"name": "c", "type": "TCP", "sslHealthCheck": {}}, "health check is TCP"),
    "slow check": (
        "healthChecks",
        {"name": "c", "type": "TCP", "timeoutSec": 9},
        "less than or equal to checkInterval",
    ),
    "utilization": (
        "backendServices",
        backend_service(name="b", backends=[{**backend_service()["backends"][0], "balancingMode": "UTILIZATION"}]),
        "Balancing mode must be CONNECTION",
    ),
    "no check": ("backendServices", backend_service(name="b", healthChecks=[]), "exactly one health check"),
    "no ports": ("forwardingRules", forwarding_rule(name="r", ports=[]), "ports or allPorts must be given"),
    "six ports": ("forwardingRules", forwarding_rule(name="r", ports=list("123456")), "at most 5 ports"),
    "other scheme": ("forwardingRules", forwarding_rule(name="r", loadBalancingScheme="EXTERNAL"), "is INTERNAL, the"),
    "address taken": ("forwardingRules", forwarding_rule(name="r", IPAddress="10.0.0.3"), "in-use by"),
    "address outside": ("forwardingRules", forwarding_rule(name="r", IPAddress="192.168.0.1"), "not in the subnetwork"),
}


@pytest.mark.parametrize("case", BALANCER_REFUSALS)
def test_a_load_balancer_that_cannot_be_is_refused(balanced: Cloud, case: str) -> None:
    collection, body, message = BALANCER_REFUSALS[case]
    assert message in balanced.refused(400, "POST", f"{REGIONAL}/{collection}", body)["message"]


# Groups of machines


def names(cloud: Cloud) -> list[str]:
    return cloud.inventory().get("compute.instances", [])


def stock(cloud: Cloud, machines: int | None, machine: str = MACHINE) -> None:
    cloud.control("stock", {"zone": ZONE, "machine_type": machine, "machines": machines})


def status(cloud: Cloud, name: str = "mig") -> tuple[int, bool]:
    """Target size, and whether the group is stable."""
    found = cloud.ok("GET", f"{GROUPS}/{name}")
    return found["targetSize"], found["status"]["isStable"]


def test_a_bulk_group_comes_whole_or_not_at_all(slices: Cloud) -> None:
    stock(slices, 1)
    slices.ok("POST", GROUPS, group(**DO_NOTHING))
    assert (names(slices), status(slices)) == ([], (2, False))
    managed = slices.ok("POST", f"{GROUPS}/mig/listManagedInstances")["managedInstances"]
    assert [row["name"] for row in managed] == ["w-001", "w-002"]
    assert managed[0]["lastAttempt"]["errors"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert len(slices.ok("GET", f"{GROUPS}/mig/listErrors")["items"]) == 2
    stock(slices, 2)
    assert (names(slices), status(slices)) == (["w-001", "w-002"], (2, True))
    slices.ok("DELETE", f"{GROUPS}/mig")
    assert names(slices) == []


def test_an_individual_group_takes_what_there_is(slices: Cloud) -> None:
    slices.ok("POST", TEMPLATES, template("single", "ct6e-standard-1t"))
    stock(slices, 2, "ct6e-standard-1t")
    single = {"versions": [{"instanceTemplate": "global/instanceTemplates/single"}], "targetSize": 3}
    slices.ok("POST", GROUPS, {"name": "one", "baseInstanceName": "one", **single})
    assert (len(names(slices)), status(slices, "one")) == (2, (3, False))
    stock(slices, None, "ct6e-standard-1t")
    assert (len(set(names(slices))), status(slices, "one")) == (3, (3, True))


def test_a_group_whose_creation_fails_leaves_nothing(slices: Cloud) -> None:
    fault = {"kind": "operation", "path": "/instanceGroupManagers$", "code": "ZONE_RESOURCE_POOL_EXHAUSTED"}
    slices.control("faults", fault)
    operation = slices.ok("POST", GROUPS, group())
    assert operation["error"]["errors"][0]["code"] == "ZONE_RESOURCE_POOL_EXHAUSTED"
    assert not {"compute.instances", "compute.instanceGroupManagers"} & slices.inventory().keys()


@pytest.mark.parametrize(("action", "left"), [("DO_NOTHING", ["w-002"]), ("REPAIR", ["w-002", "w-001"])])
def test_a_lost_machine_comes_back_only_where_the_group_repairs(slices: Cloud, action: str, left: list[str]) -> None:
    slices.ok("POST", GROUPS, group(instanceLifecyclePolicy={"defaultActionOnFailure": action}))
    before = slices.ok("GET", f"{INSTANCES}/w-001")["id"]
    slices.ok("DELETE", f"{INSTANCES}/w-001")
    assert (names(slices), status(slices)) == (left, (2, action == "REPAIR"))
    if action == "REPAIR":
        assert slices.ok("GET", f"{INSTANCES}/w-001")["id"] != before
    slices.ok("PATCH", f"{GROUPS}/mig", {"description": "other"})
    assert names(slices) == left
    slices.ok("POST", f"{GROUPS}/mig/resize?size=0")
    slices.ok("POST", f"{GROUPS}/mig/resize?size=2")
    assert (names(slices), status(slices)) == (["w-001", "w-002"], (2, True))


def test_members_know_their_group_and_share_no_address(slices: Cloud) -> None:
    slices.ok("POST", TEMPLATES, template("pods", MACHINE, **nic(aliasIpRanges=[PODS])))
    versions: Body = {"versions": [{"instanceTemplate": "global/instanceTemplates/pods"}]}
    for name in ("a", "b"):
        slices.ok("POST", GROUPS, {**group(**versions), "name": name, "baseInstanceName": f"{name}-##[1]"})
    machines = [slices.ok("GET", f"{INSTANCES}/{name}") for name in names(slices)]
    nics = [machine["networkInterfaces"][0] for machine in machines]
    assert len({nic["networkIP"] for nic in nics}) == 4
    aliases = [IPv4Network(nic["aliasIpRanges"][0]["ipCidrRange"]) for nic in nics]
    assert sorted(map(str, aliases)) == [f"10.16.{i}.0/24" for i in range(4)]
    items = {item["key"]: item["value"] for item in machines[0]["metadata"]["items"]}
    owner, number, *rest = items["created-by"].split("/")
    assert (owner, number.isdigit(), rest) == ("projects", True, ["zones", ZONE, "instanceGroupManagers", "a"])


def test_flex_start_machines_come_when_their_turn_comes() -> None:
    with connected() as cloud:
        cloud.make_network()
        cloud.make_slice_parts()
        flex: Body = {"scheduling": FLEX_SCHEDULING, "reservationAffinity": NO_RESERVATION}
        cloud.ok("POST", TEMPLATES, template("flex", **flex))
        stock(cloud, 1)
        cloud.emulator.world.operations.time_scale = 400  # a second in the queue
        versions: Body = {"versions": [{"instanceTemplate": "global/instanceTemplates/flex"}]}
        cloud.ok("POST", GROUPS, group(**versions, **DO_NOTHING))
        errors = f"{GROUPS}/mig/listErrors"
        assert cloud.ok("GET", errors)["items"] == []
        eventually(lambda: cloud.ok("GET", errors)["items"] != [])
        assert (names(cloud), status(cloud)) == ([], (2, False))
        stock(cloud, 2)
        eventually(lambda: status(cloud) == (2, True))


def test_reservations_count_their_machines(slices: Cloud) -> None:
    seed = {"project": PROJECT, "zone": ZONE, "name": "res", "machine_type": MACHINE, "count": 3}
    slices.control("reservations", seed)
    bound: Body = {
        "scheduling": {"provisioningModel": "RESERVATION_BOUND"},
        "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "values": ["res"]},
    }
    slices.ok("POST", TEMPLATES, template("bound", **bound))
    versions: Body = {"versions": [{"instanceTemplate": "global/instanceTemplates/bound"}]}
    slices.ok("POST", GROUPS, group(**versions))
    found = slices.ok("GET", f"{COMPUTE}/zones/{ZONE}/reservations/res")
    assert found["specificReservation"]["inUseCount"] == "2"
    second = {**group(**versions), "name": "two", "baseInstanceName": "two"}
    assert "2 VMs requested, 1 of 3 free" in slices.refused(400, "POST", GROUPS, second)["message"]
    slices.ok("POST", TEMPLATES, template("wrong", "ct6e-standard-4t", **bound))
    other = {"name": "o", "targetSize": 1, "versions": [{"instanceTemplate": "global/instanceTemplates/wrong"}]}
    assert f"it is for machine type {MACHINE}" in slices.refused(400, "POST", GROUPS, other)["message"]
    slices.ok("DELETE", f"{GROUPS}/mig")
    found = slices.ok("GET", f"{COMPUTE}/zones/{ZONE}/reservations/res")
    assert found["specificReservation"]["inUseCount"] == "0"


# The catalogue, as a check before the first update reads it


def test_the_catalogue_is_read_without_leaving_a_trace(cloud: Cloud) -> None:
    zone = f"{COMPUTE}/zones/{ZONE}"
    assert cloud.ok("GET", f"{zone}/diskTypes/hyperdisk-balanced")["validDiskSize"] == "4GB-65536GB"
    cloud.refused(404, "GET", f"{zone}/diskTypes/floppy")
    assert "pd-ssd" in [kind["name"] for kind in cloud.ok("GET", f"{zone}/diskTypes")["items"]]
    cloud.refused(404, "GET", f"{zone}/machineTypes/ct4p-hightpu-4t")
    services = f"/su/v1/projects/{PROJECT}/services:batchGet"
    query = "&".join(f"names=projects/{PROJECT}/services/{name}.googleapis.com" for name in ("compute", "dns"))
    states = [service["state"] for service in cloud.ok("GET", f"{services}?{query}")["services"]]
    assert states == ["ENABLED", "DISABLED"]
