"""Networks, clusters, machines, identities and secrets of the emulator: rules, defaults and references."""

from __future__ import annotations

import pytest

from sandbox.tests.emulated_google import (
    ACCOUNT,
    ACCOUNTS,
    CLUSTERS,
    COMPUTE,
    FLEX_SCHEDULING,
    GROUPS,
    IN_USE,
    INSTANCES,
    POOLS,
    PROJECT,
    REGION,
    SUBNETWORK,
    TEMPLATES,
    ZONE,
    Body,
    Cloud,
    cluster,
    group,
    instance,
    pool,
    subnetwork,
    template,
)

NETWORKS = f"{COMPUTE}/global/networks"
SUBNETWORKS = f"{COMPUTE}/regions/{REGION}/subnetworks"
FIREWALLS = f"{COMPUTE}/global/firewalls"


@pytest.fixture
def cloud(server: Cloud) -> Cloud:
    """A network with one subnetwork."""
    server.control("reset")
    server.make_network()
    return server


# Networks


def test_a_network_in_use_cannot_be_deleted(cloud: Cloud) -> None:
    error = cloud.refused(400, "DELETE", f"{NETWORKS}/net")
    assert error["errors"][0]["reason"] == IN_USE
    assert error["message"] == (
        f"The network resource 'projects/{PROJECT}/global/networks/net' is already being used by '{SUBNETWORK}'"
    )
    cloud.ok("DELETE", f"{SUBNETWORKS}/sub")
    cloud.ok("POST", FIREWALLS, {"name": "fw", "network": "global/networks/net", "allowed": [{"IPProtocol": "tcp"}]})
    assert "firewalls/fw" in cloud.refused(400, "DELETE", f"{NETWORKS}/net")["message"]
    cloud.ok("DELETE", f"{FIREWALLS}/fw")
    cloud.ok("DELETE", f"{NETWORKS}/net")
    assert cloud.inventory() == {}


def test_a_subnetwork_a_cluster_is_in_cannot_be_deleted(cloud: Cloud) -> None:
    cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
    assert "clusters/tpu" in cloud.refused(400, "DELETE", f"{SUBNETWORKS}/sub")["message"]


def test_names_are_given_once_and_required(cloud: Cloud) -> None:
    error = cloud.refused(409, "POST", NETWORKS, {"name": "net"})
    assert error["message"] == f"The resource 'projects/{PROJECT}/global/networks/net' already exists"
    assert error["status"] == "ALREADY_EXISTS"
    assert cloud.refused(400, "POST", NETWORKS, {})["errors"][0]["reason"] == "required"


def test_what_a_resource_refers_to_must_exist(cloud: Cloud) -> None:
    error = cloud.refused(404, "POST", FIREWALLS, {"name": "fw", "network": "global/networks/other"})
    assert error["message"] == f"The resource 'projects/{PROJECT}/global/networks/other' was not found"
    assert cloud.refused(404, "DELETE", f"{NETWORKS}/other")["errors"][0]["reason"] == "notFound"
    assert "Unknown region" in cloud.refused(400, "POST", f"{COMPUTE}/regions/mars1/routers", {"name": "r"})["message"]


def test_subnetwork_ranges_do_not_overlap(cloud: Cloud) -> None:
    error = cloud.refused(400, "POST", SUBNETWORKS, subnetwork("other", "10.0.32.0/20"))
    assert "Invalid IPCidrRange: 10.0.32.0/20 conflicts with existing subnetwork 'sub'" in error["message"]
    assert "has host bits set" in cloud.refused(400, "POST", SUBNETWORKS, subnetwork("other", "10.1.0.1/20"))["message"]
    cloud.ok("POST", SUBNETWORKS, subnetwork("other", "10.1.0.0/20"))
    found = cloud.ok("GET", f"{NETWORKS}/net")
    assert [url.rsplit("/", 1)[1] for url in found["subnetworks"]] == ["sub", "other"]


def test_patches_merge_and_stale_fingerprints_are_refused(cloud: Cloud) -> None:
    found = cloud.ok("GET", f"{SUBNETWORKS}/sub")
    change = {"privateIpGoogleAccess": True, "fingerprint": found["fingerprint"]}
    cloud.ok("PATCH", f"{SUBNETWORKS}/sub", change)
    changed = cloud.ok("GET", f"{SUBNETWORKS}/sub")
    assert changed["privateIpGoogleAccess"] is True
    assert changed["secondaryIpRanges"] == found["secondaryIpRanges"]
    error = cloud.refused(412, "PATCH", f"{SUBNETWORKS}/sub", change)
    assert error["errors"][0]["reason"] == "conditionNotMet"
    cloud.ok("POST", f"{SUBNETWORKS}/sub/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/17"})
    narrower = {"ipCidrRange": "10.0.0.0/20"}
    assert "does not contain" in cloud.refused(400, "POST", f"{SUBNETWORKS}/sub/expandIpCidrRange", narrower)["message"]


def test_routers_carry_their_nat(cloud: Cloud) -> None:
    routers = f"{COMPUTE}/regions/{REGION}/routers"
    cloud.ok("POST", routers, {"name": "rt", "network": "global/networks/net"})
    cloud.ok("PATCH", f"{routers}/rt", {"nats": [{"name": "nat", "natIpAllocateOption": "AUTO_ONLY"}]})
    [nat] = cloud.ok("GET", f"{routers}/rt")["nats"]
    assert nat["tcpTimeWaitTimeoutSec"] == 120
    cloud.ok("PATCH", f"{routers}/rt", {"nats": []})
    assert cloud.ok("GET", f"{routers}/rt")["nats"] == []
    dynamic = {"name": "nat", "enableDynamicPortAllocation": True}
    for ports, message in (
        ({"minPortsPerVm": 100}, "power of two"),
        ({"minPortsPerVm": 64, "maxPortsPerVm": 64}, "not more than the least"),
        ({"enableEndpointIndependentMapping": True}, "cannot be enabled at the same time"),
    ):
        assert message in cloud.refused(400, "PATCH", f"{routers}/rt", {"nats": [{**dynamic, **ports}]})["message"]
    cloud.ok("PATCH", f"{routers}/rt", {"nats": [{**dynamic, "minPortsPerVm": 64, "maxPortsPerVm": 4096}]})
    twice = {"nats": [{"name": "a"}, {"name": "a"}]}
    assert "duplicate NAT" in cloud.refused(400, "PATCH", f"{routers}/rt", twice)["message"]


def test_addresses_come_from_their_subnetwork(cloud: Cloud) -> None:
    addresses = f"{COMPUTE}/regions/{REGION}/addresses"
    for name in ("a", "b"):
        cloud.ok("POST", addresses, {"name": name, "addressType": "INTERNAL", "subnetwork": SUBNETWORK})
    assert [cloud.ok("GET", f"{addresses}/{n}")["address"] for n in "ab"] == ["10.0.0.2", "10.0.0.3"]
    token = cloud.ok("GET", f"{addresses}/a")["labelFingerprint"]
    cloud.ok("POST", f"{addresses}/a/setLabels", {"labels": {"x": "y"}, "labelFingerprint": token})
    cloud.refused(412, "POST", f"{addresses}/a/setLabels", {"labels": {}, "labelFingerprint": token})


def test_lists_are_filtered_by_one_comparison_or_refuse_the_filter(cloud: Cloud) -> None:
    cloud.ok("POST", NETWORKS, {"name": "other"})
    found = cloud.ok("GET", f"{NETWORKS}?filter=name%20%3D%20other")["items"]
    assert [network["name"] for network in found] == ["other"]
    assert "Invalid list filter" in cloud.refused(400, "GET", f"{NETWORKS}?filter=name:o*")["message"]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"acceleratorTopology": "2x2x2"}, "workloadPolicy.type' not specified"),
        ({"type": "HIGH_AVAILABILITY", "acceleratorTopology": "2x2x2"}, "only be specified with workload policy type"),
        ({"type": "HIGH_THROUGHPUT", "acceleratorTopology": "3x3x3"}, "acceleratorTopology': '3x3x3'"),
        (
            {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4", "maxTopologyDistance": "BLOCK"},
            "cannot be specified together",
        ),
    ],
)
def test_workload_policies_have_to_make_sense(cloud: Cloud, policy: Body, message: str) -> None:
    path = f"{COMPUTE}/regions/{REGION}/resourcePolicies"
    assert message in cloud.refused(400, "POST", path, {"name": "wp", "workloadPolicy": policy})["message"]


# Clusters

CLUSTER_REFUSALS: dict[str, tuple[Body, str]] = {
    "name": ({"name": "Tpu"}, "Invalid value for field 'cluster.name'"),
    "network": ({"network": "other"}, 'Network "other" does not exist.'),
    "subnetwork": ({"subnetwork": "other"}, 'Subnetwork "other" does not exist in region "us-east5".'),
    "pod range": (
        {"ipAllocationPolicy": {"clusterSecondaryRangeName": "pots"}},
        'Pod secondary range "pots" does not exist in network "net", subnetwork "sub".',
    ),
    "services range": (
        {"ipAllocationPolicy": {"servicesSecondaryRangeName": "x"}},
        'Services secondary range "x" does not exist',
    ),
    "version": ({"initialClusterVersion": "1.20"}, 'No valid versions with the prefix "1.20" found.'),
    "version of another channel": (
        {"initialClusterVersion": "1.36", "releaseChannel": {"channel": "STABLE"}},
        'No valid versions with the prefix "1.36" found.',
    ),
    "nodes": ({"initialNodeCount": 0}, "Cluster.initial_node_count must be greater than zero."),
    "workload pool": (
        {"workloadIdentityConfig": {"workloadPool": "x.svc.id.goog"}},
        "only proj.svc.id.goog is supported",
    ),
    "network policy": ({"networkPolicy": {"enabled": True}}, "DatapathProvider=ADVANCED_DATAPATH is not allowed"),
    "service account": (
        {"nodeConfig": {"serviceAccount": f"x@{PROJECT}.iam.gserviceaccount.com"}},
        "does not exist.",
    ),
    "location": ({"locations": ["us-west1-a"]}, "is not in the region us-east5"),
}


@pytest.mark.parametrize("case", CLUSTER_REFUSALS)
def test_a_cluster_that_cannot_be_is_refused(cloud: Cloud, case: str) -> None:
    change, message = CLUSTER_REFUSALS[case]
    assert message in cloud.refused(400, "POST", CLUSTERS, {"cluster": cluster(**change)})["message"]
    assert "container.clusters" not in cloud.inventory()


def test_the_scan_for_vulnerabilities_is_off_whatever_is_asked_for(cloud: Cloud) -> None:
    """H4: Google shut its tiers down; clusters that ask for one read back without it."""
    asked = {"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_BASIC"}
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(securityPostureConfig=asked)})
    found = cloud.ok("GET", f"{CLUSTERS}/tpu")["securityPostureConfig"]
    assert found == {"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_DISABLED"}
    cloud.ok("PUT", f"{CLUSTERS}/tpu", {"update": {"desiredSecurityPostureConfig": asked}})
    assert cloud.ok("GET", f"{CLUSTERS}/tpu")["securityPostureConfig"] == found


def test_clusters_read_with_what_google_fills_in(cloud: Cloud) -> None:
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(initialClusterVersion="1.36")})
    found = cloud.ok("GET", f"{CLUSTERS}/tpu")
    assert found["status"] == "RUNNING"
    assert found["endpoint"].startswith("192.0.2.")
    assert found["masterAuth"]["clusterCaCertificate"]
    assert found["currentMasterVersion"] == "1.36.2-gke.1000000"
    assert (found["clusterIpv4Cidr"], found["servicesIpv4Cidr"]) == ("10.16.0.0/14", "10.20.0.0/20")
    assert found["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"].endswith(".us-east5.gke.goog")
    assert [p["name"] for p in found["nodePools"]] == ["default-pool"]
    assert found["currentNodeCount"] == 1
    assert cloud.ok("GET", f"/container/v1/projects/{PROJECT}/locations/-/clusters")["clusters"] == [found]
    assert cloud.refused(409, "POST", CLUSTERS, {"cluster": cluster()})["message"].startswith("Already exists:")


def test_cluster_updates_reach_the_field_they_mean(cloud: Cloud) -> None:
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(initialClusterVersion="1.36.1-gke.1500000")})
    for update in (
        {"desiredMasterVersion": "1.36.2-gke.1000000"},
        {"desiredIntraNodeVisibilityConfig": {"enabled": True}},
        {"desiredAddonsConfig": {"gcsFuseCsiDriverConfig": {"enabled": True}}},
        {"desiredReleaseChannel": {"channel": "REGULAR"}},
    ):
        cloud.ok("PUT", f"{CLUSTERS}/tpu", {"update": update})
    found = cloud.ok("GET", f"{CLUSTERS}/tpu")
    assert found["currentMasterVersion"] == "1.36.2-gke.1000000"
    assert found["networkConfig"]["enableIntraNodeVisibility"] is True
    assert found["addonsConfig"]["gcsFuseCsiDriverConfig"] == {"enabled": True}
    assert found["addonsConfig"]["gcePersistentDiskCsiDriverConfig"] == {"enabled": True}
    assert found["releaseChannel"] == {"channel": "REGULAR"}
    older = {"update": {"desiredMasterVersion": "1.34"}}
    assert "cannot be downgraded" in cloud.refused(400, "PUT", f"{CLUSTERS}/tpu", older)["message"]


def test_labels_and_maintenance_have_calls_of_their_own(cloud: Cloud) -> None:
    cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
    token = cloud.ok("GET", f"{CLUSTERS}/tpu")["labelFingerprint"]
    labels = {"resourceLabels": {"env": "dev"}, "labelFingerprint": token}
    cloud.ok("POST", f"{CLUSTERS}/tpu:setResourceLabels", labels)
    window = {"window": {"dailyMaintenanceWindow": {"startTime": "03:00"}}}
    cloud.ok("POST", f"{CLUSTERS}/tpu:setMaintenancePolicy", {"maintenancePolicy": window})
    found = cloud.ok("GET", f"{CLUSTERS}/tpu")
    assert found["resourceLabels"] == {"env": "dev"}
    assert found["maintenancePolicy"]["window"] == window["window"]
    assert "fingerprint" in cloud.refused(400, "POST", f"{CLUSTERS}/tpu:setResourceLabels", labels)["message"]


def test_a_cluster_takes_its_pools_with_it(cloud: Cloud) -> None:
    cloud.ok("POST", CLUSTERS, {"cluster": cluster()})
    cloud.ok("POST", POOLS, pool(machine="n2-standard-8", nodes=1, config={"serviceAccount": "default"}))
    cloud.ok("DELETE", f"{CLUSTERS}/tpu")
    assert set(cloud.inventory()) == {"compute.networks", "compute.subnetworks"}
    cloud.refused(404, "GET", f"{CLUSTERS}/tpu")


def test_server_config_lists_the_versions_of_each_channel(cloud: Cloud) -> None:
    found = cloud.ok("GET", f"/container/v1beta1/projects/{PROJECT}/locations/{REGION}/serverConfig")
    rapid = next(channel for channel in found["channels"] if channel["channel"] == "RAPID")
    assert rapid["defaultVersion"] in rapid["validVersions"]
    assert set(rapid["validVersions"]) <= set(found["validMasterVersions"])


# Places


def test_zones_list_what_they_offer(cloud: Cloud) -> None:
    assert cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}")["status"] == "UP"
    cloud.refused(404, "GET", f"{COMPUTE}/zones/us-east5-x")
    names = {m["name"] for m in cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/machineTypes")["items"]}
    assert {"ct6e-standard-4t", "n2-standard-8"} <= names
    assert "tpu7x-standard-4t" not in names
    found = cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/machineTypes/ct6e-standard-4t")
    assert found["accelerators"] == [{"guestAcceleratorType": "ct6e", "guestAcceleratorCount": 4}]
    cloud.refused(404, "GET", f"{COMPUTE}/zones/us-central2-b/machineTypes/e2-standard-4")


def test_regions_show_quota_and_its_use(cloud: Cloud) -> None:
    cloud.control("quotas", {REGION: {"CPUS": 24}})
    cloud.ok("POST", INSTANCES, instance())
    quotas = {row["metric"]: row for row in cloud.ok("GET", f"{COMPUTE}/regions/{REGION}")["quotas"]}
    assert (quotas["CPUS"]["limit"], quotas["CPUS"]["usage"]) == (24, 4)
    path = f"/su/v1beta1/projects/{PROJECT}/services/compute.googleapis.com/consumerQuotaMetrics"
    metrics = {m["displayName"]: m for m in cloud.ok("GET", path)["metrics"]}
    buckets = metrics["CPUS"]["consumerQuotaLimits"][0]["quotaBuckets"]
    assert {"effectiveLimit": "24", "dimensions": {"region": REGION}} in buckets


def test_images_are_found_by_name_and_family(cloud: Cloud) -> None:
    base = "/compute/beta/projects/ubuntu-os-accelerator-images/global/images"
    image = cloud.ok("GET", f"{base}/family/ubuntu-accel-2404-amd64-tpu-tpu7x")
    assert cloud.ok("GET", f"{base}/{image['name']}")["family"] == "ubuntu-accel-2404-amd64-tpu-tpu7x"
    cloud.refused(404, "GET", f"{base}/ubuntu-accel-1804")
    cloud.refused(404, "GET", f"{base}/family/nothing")


# Machines


def test_an_instance_has_disk_address_and_fingerprints(cloud: Cloud) -> None:
    cloud.ok("POST", INSTANCES, instance(metadata={"items": [{"key": "a", "value": "b"}]}))
    found = cloud.ok("GET", f"{INSTANCES}/vm")
    assert found["status"] == "RUNNING"
    [nic] = found["networkInterfaces"]
    assert nic["networkIP"] == "10.0.0.2"
    assert nic["network"].endswith("/global/networks/net")
    [disk] = found["disks"]
    assert {"source", "deviceName", "mode", "type"} <= disk.keys()
    assert cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/disks/vm")["sizeGb"] == "50"
    assert cloud.refused(400, "DELETE", f"{COMPUTE}/zones/{ZONE}/disks/vm")["errors"][0]["reason"] == IN_USE
    metadata = {"fingerprint": found["metadata"]["fingerprint"], "items": []}
    cloud.ok("POST", f"{INSTANCES}/vm/setMetadata", metadata)
    cloud.refused(412, "POST", f"{INSTANCES}/vm/setMetadata", metadata)
    cloud.ok("DELETE", f"{INSTANCES}/vm")
    assert set(cloud.inventory()) == {"compute.networks", "compute.subnetworks"}


def test_a_protected_instance_stays(cloud: Cloud) -> None:
    cloud.ok("POST", INSTANCES, instance(deletionProtection=True))
    assert "protected against deletion" in cloud.refused(400, "DELETE", f"{INSTANCES}/vm")["message"]
    cloud.ok("POST", f"{INSTANCES}/vm/setDeletionProtection?deletionProtection=false")
    cloud.ok("DELETE", f"{INSTANCES}/vm")


def test_machine_types_change_only_while_stopped(cloud: Cloud) -> None:
    cloud.ok("POST", INSTANCES, instance())
    bigger = {"machineType": f"zones/{ZONE}/machineTypes/n2-standard-8"}
    assert "must be stopped" in cloud.refused(400, "POST", f"{INSTANCES}/vm/setMachineType", bigger)["message"]
    cloud.ok("POST", f"{INSTANCES}/vm/stop")
    cloud.ok("POST", f"{INSTANCES}/vm/setMachineType", bigger)
    cloud.ok("POST", f"{INSTANCES}/vm/start")
    assert cloud.ok("GET", f"{INSTANCES}/vm")["machineType"].endswith("/n2-standard-8")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": "tpu9-standard-4t"}, "The machine type does not exist"),
        ({"disk": "pd-ssd"}, "[pd-ssd] features and [instance_type: tpu7x-standard-4t] are not compatible"),
        (
            {"scheduling": {"provisioningModel": "RESERVATION_BOUND"}},
            "incompatible with provisioning model RESERVATION_BOUND",
        ),
        (
            {"scheduling": {**FLEX_SCHEDULING, "maxRunDuration": {"seconds": "999999"}}},
            "FLEX_START requires max run duration",
        ),
        ({"scheduling": {"onHostMaintenance": "MIGRATE"}}, "must have onHostMaintenance set to TERMINATE"),
        ({"scheduling": {"provisioningModel": "SPOT", "automaticRestart": True}}, "automatic restart set to false"),
    ],
)
def test_a_template_that_cannot_be_is_refused(cloud: Cloud, change: Body, message: str) -> None:
    assert message in cloud.refused(400, "POST", TEMPLATES, template(**change))["message"]


@pytest.fixture
def slices(cloud: Cloud) -> Cloud:
    cloud.make_slice_parts()
    return cloud


def test_a_bulk_group_is_a_whole_slice(slices: Cloud) -> None:
    slices.ok("POST", GROUPS, group())
    found = slices.ok("GET", f"{GROUPS}/mig")
    assert found["status"]["isStable"] is True
    managed = slices.ok("POST", f"{GROUPS}/mig/listManagedInstances")["managedInstances"]
    assert [row["name"] for row in managed] == ["w-001", "w-002"]
    addresses = [slices.ok("GET", f"{INSTANCES}/{n}")["networkInterfaces"][0]["networkIP"] for n in ("w-001", "w-002")]
    assert addresses == ["10.0.0.2", "10.0.0.3"]
    assert slices.ok("GET", f"{COMPUTE}/zones/{ZONE}/instanceGroups/mig")["size"] == 2
    for path in (f"{TEMPLATES}/tm", f"{COMPUTE}/regions/{REGION}/resourcePolicies/wp"):
        assert slices.refused(400, "DELETE", path)["errors"][0]["reason"] == IN_USE
    slices.ok("DELETE", f"{GROUPS}/mig")
    assert "compute.instances" not in slices.inventory()
    slices.ok("DELETE", f"{TEMPLATES}/tm")


def test_a_group_is_resized_as_a_whole(slices: Cloud) -> None:
    slices.ok("POST", GROUPS, group(0))
    assert "gang mode of size '2'" in slices.refused(400, "POST", f"{GROUPS}/mig/resize?size=1")["message"]
    slices.ok("POST", f"{GROUPS}/mig/resize?size=2")
    assert len(slices.inventory()["compute.instances"]) == 2
    slices.ok("POST", f"{GROUPS}/mig/resize?size=0")
    assert slices.ok("GET", f"{GROUPS}/mig")["targetSize"] == 0
    assert "non-negative" in slices.refused(400, "POST", f"{GROUPS}/mig/resize?size=many")["message"]


GROUP_REFUSALS: dict[str, tuple[Body, str]] = {
    "part of a slice": (
        group(1),
        "Requested invalid target size '1' for a Managed Instance Group in the gang mode of size '2'",
    ),
    "no template": (group(versions=[]), "instanceTemplate' not specified"),
    "two versions": (
        group(versions=[{"instanceTemplate": "global/instanceTemplates/tm"}] * 2),
        "does not support multiple versions",
    ),
    "standby pool": (group(standbyPolicy={"mode": "SCALE_OUT_POOL"}), "does not support standby pools"),
}


@pytest.mark.parametrize("case", GROUP_REFUSALS)
def test_a_group_that_cannot_be_is_refused(slices: Cloud, case: str) -> None:
    body, message = GROUP_REFUSALS[case]
    assert message in slices.refused(400, "POST", GROUPS, body)["message"]
    assert "compute.instanceGroupManagers" not in slices.inventory()


@pytest.mark.parametrize(
    ("machine", "disk", "topology", "message"),
    [
        ("ct5lp-hightpu-4t", "pd-balanced", "4x4", "cannot be used to create instances in Compute Engine directly"),
        (
            "ct6e-standard-4t",
            "hyperdisk-balanced",
            "2x4",
            "topology 2x4 is not supported for machine type ct6e-standard-4t",
        ),
        ("ct6e-standard-4t", "hyperdisk-balanced", "2x2x2", "topology 2x2x2 is not supported"),
        ("n2-standard-4", "pd-balanced", "4x4", "BULK is supported only for TPU machine types"),
    ],
)
def test_a_slice_compute_engine_cannot_form_is_refused(
    slices: Cloud, machine: str, disk: str, topology: str, message: str
) -> None:
    slices.make_policy("other", topology)
    slices.ok("POST", TEMPLATES, template("odd", machine, disk))
    policy = {"workloadPolicy": f"projects/{PROJECT}/regions/{REGION}/resourcePolicies/other"}
    body = group(versions=[{"instanceTemplate": "global/instanceTemplates/odd"}], resourcePolicies=policy)
    assert message in slices.refused(400, "POST", GROUPS, body)["message"]


def test_flex_start_groups_do_nothing_on_failure(slices: Cloud) -> None:
    flex: Body = {"scheduling": FLEX_SCHEDULING, "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"}}
    slices.ok("POST", TEMPLATES, template("flex", **flex))
    body = group(versions=[{"instanceTemplate": "global/instanceTemplates/flex"}])
    assert "must be DO_NOTHING" in slices.refused(400, "POST", GROUPS, body)["message"]
    slices.ok("POST", GROUPS, {**body, "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"}})


def test_regional_groups_choose_one_zone(slices: Cloud) -> None:
    regional = f"{COMPUTE}/regions/{REGION}/instanceGroupManagers"
    zones = {"zones": [{"zone": f"projects/{PROJECT}/zones/{ZONE}"}]}
    error = slices.refused(400, "POST", regional, group(distributionPolicy=zones))
    assert "ANY_SINGLE_ZONE" in error["message"]
    slices.ok("POST", regional, group(distributionPolicy={**zones, "targetShape": "ANY_SINGLE_ZONE"}))
    assert slices.ok("GET", f"{regional}/mig")["status"]["isStable"] is True


# Identities


def test_service_accounts_must_exist_to_be_used(cloud: Cloud) -> None:
    policy = f"/crm/v1/projects/{PROJECT}"
    binding = {"role": "roles/viewer", "members": [f"serviceAccount:{ACCOUNT}"]}
    current = cloud.ok("POST", f"{policy}:getIamPolicy", {})
    wanted = {"policy": {"bindings": [binding], "etag": current["etag"]}}
    error = cloud.refused(400, "POST", f"{policy}:setIamPolicy", wanted)
    assert error["message"] == f"Service account {ACCOUNT} does not exist."
    cloud.ok("POST", ACCOUNTS, {"accountId": "tpu-nodes"})
    cloud.ok("POST", f"{policy}:setIamPolicy", wanted)
    assert cloud.inventory()["projects.iamMembers"] == [f"roles/viewer serviceAccount:{ACCOUNT}"]
    assert cloud.refused(409, "POST", f"{policy}:setIamPolicy", wanted)["status"] == "ABORTED"
    cloud.ok("DELETE", f"{ACCOUNTS}/{ACCOUNT}")
    [left] = cloud.ok("POST", f"{policy}:getIamPolicy", {})["bindings"]
    assert left["members"][0].startswith(f"deleted:serviceAccount:{ACCOUNT}?uid=")
    cloud.refused(404, "GET", f"{ACCOUNTS}/{ACCOUNT}")


@pytest.mark.parametrize(
    ("role", "member", "message"),
    [
        ("viewer", "user:a@example.com", "Invalid role name 'viewer'"),
        ("roles/viewer", "a@example.com", "must be prefixed with its type"),
        (f"projects/{PROJECT}/roles/none", "user:a@example.com", "does not exist in the resource's hierarchy"),
    ],
)
def test_bindings_have_to_make_sense(cloud: Cloud, role: str, member: str, message: str) -> None:
    body = {"policy": {"bindings": [{"role": role, "members": [member]}]}}
    assert message in cloud.refused(400, "POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy", body)["message"]


def test_accounts_and_roles_are_named_once_and_well(cloud: Cloud) -> None:
    cloud.ok("POST", ACCOUNTS, {"accountId": "tpu-nodes"})
    assert cloud.refused(409, "POST", ACCOUNTS, {"accountId": "tpu-nodes"})["status"] == "ALREADY_EXISTS"
    assert "Invalid account id" in cloud.refused(400, "POST", ACCOUNTS, {"accountId": "x"})["message"]
    roles = f"/iam/v1/projects/{PROJECT}/roles"
    role = {"roleId": "tpuJoin", "role": {"title": "join", "includedPermissions": ["secretmanager.versions.access"]}}
    cloud.ok("POST", roles, role)
    cloud.refused(409, "POST", roles, role)
    cloud.ok("DELETE", f"{roles}/tpuJoin")
    assert cloud.ok("GET", f"{roles}/tpuJoin")["deleted"] is True
    assert "iam.roles" not in cloud.inventory()
    assert "in a deleted state" in cloud.refused(400, "POST", roles, role)["message"]
    cloud.ok("POST", f"{roles}/tpuJoin:undelete", {})
    assert cloud.inventory()["iam.roles"] == ["tpuJoin"]


def test_secrets_have_versions_and_policies(cloud: Cloud) -> None:
    secrets = f"/sm/v1/projects/{PROJECT}/secrets"
    cloud.ok("POST", f"{secrets}?secretId=join", {"replication": {"automatic": {}}})
    cloud.refused(409, "POST", f"{secrets}?secretId=join", {"replication": {"automatic": {}}})
    for data in ("b25l", "dHdv"):
        cloud.ok("POST", f"{secrets}/join:addVersion", {"payload": {"data": data}})
    assert cloud.ok("GET", f"{secrets}/join/versions/latest:access")["payload"] == {"data": "dHdv"}
    cloud.ok("POST", f"{secrets}/join/versions/2:destroy", {})
    assert cloud.ok("GET", f"{secrets}/join/versions/latest:access")["payload"] == {"data": "b25l"}
    cloud.refused(400, "GET", f"{secrets}/join/versions/2:access")
    cloud.ok("DELETE", f"{secrets}/join")
    assert set(cloud.inventory()) == {"compute.networks", "compute.subnetworks"}


def test_keys_outlive_their_use_but_not_their_versions(cloud: Cloud) -> None:
    rings = f"/kms/v1/projects/{PROJECT}/locations/{REGION}/keyRings"
    cloud.ok("POST", f"{rings}?keyRingId=ring", {})
    cloud.ok("POST", f"{rings}/ring/cryptoKeys?cryptoKeyId=key", {"purpose": "ENCRYPT_DECRYPT"})
    assert cloud.inventory()["cloudkms.cryptoKeys"] == ["key"]
    cloud.ok("POST", f"{rings}/ring/cryptoKeys/key/cryptoKeyVersions/1:destroy", {})
    assert "cloudkms.cryptoKeys" not in cloud.inventory()


# Reservations and resize requests


def test_reservations_are_made_of_blocks_and_sub_blocks(cloud: Cloud) -> None:
    reservations = f"{COMPUTE}/zones/{ZONE}/reservations"
    specific = {"count": "20", "instanceProperties": {"machineType": "ct6e-standard-4t"}}
    cloud.ok(
        "POST", reservations, {"name": "res", "specificReservation": specific, "specificReservationRequired": True}
    )
    assert cloud.inventory()["compute.reservations"] == ["res"]
    [block] = cloud.ok("GET", f"{reservations}/res/reservationBlocks")["items"]
    assert (block["count"], block["inUseCount"], block["reservationSubBlockCount"]) == (20, 0, 2)
    base = f"{reservations}/res/reservationBlocks/{block['name']}"
    assert cloud.ok("GET", base)["resource"] == block
    parts = cloud.ok("GET", f"{base}/reservationSubBlocks")["items"]
    assert [part["count"] for part in parts] == [16, 4]
    assert cloud.ok("GET", f"{base}/reservationSubBlocks/{parts[1]['name']}")["resource"] == parts[1]
    cloud.refused(404, "GET", f"{reservations}/res/reservationBlocks/other")
    cloud.refused(404, "GET", f"{base}/reservationSubBlocks/other")
    cloud.ok("POST", f"{reservations}/res/resize", {"specificSkuCount": "4"})
    assert cloud.ok("GET", f"{reservations}/res")["specificReservation"]["count"] == "4"


def test_resize_requests_grow_groups_that_are_not_bulk(slices: Cloud) -> None:
    slices.ok("POST", TEMPLATES, template("single", "ct6e-standard-1t"))
    single = {"name": "one", "versions": [{"instanceTemplate": "global/instanceTemplates/single"}]}
    slices.ok("POST", GROUPS, single)
    slices.ok("POST", GROUPS, group(0))
    wanted = {"name": "more", "resizeBy": 3, "requestedRunDuration": {"seconds": "3600"}}
    assert "mode BULK" in slices.refused(400, "POST", f"{GROUPS}/mig/resizeRequests", wanted)["message"]
    requests = f"{GROUPS}/one/resizeRequests"
    slices.ok("POST", requests, wanted)
    assert slices.ok("GET", f"{requests}/more")["state"] == "SUCCEEDED"
    assert slices.ok("GET", f"{GROUPS}/one")["targetSize"] == 3
    slices.refused(409, "POST", requests, wanted)
    short_run = {**wanted, "name": "short", "requestedRunDuration": {"seconds": "60"}}
    assert "run duration" in slices.refused(400, "POST", requests, short_run)["message"]
    assert "cannot be cancelled" in slices.refused(400, "POST", f"{requests}/more/cancel")["message"]
    slices.ok("DELETE", f"{requests}/more")
    assert slices.ok("GET", requests)["items"] == []
