"""What ended a run of the real gcp provider plugin against the emulator, one test for each cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.google import discovery, service
from sandbox.google.compute_types import relative
from sandbox.tests.emulated_google import (
    CLUSTERS,
    COMPUTE,
    GROUPS,
    INSTANCES,
    POOLS,
    PROJECT,
    REGION,
    TEMPLATES,
    TPU_IMAGE,
    ZONE,
    Cloud,
    cluster,
    connected,
    group,
    instance,
    pool,
    template,
)

CLUSTER = f"{CLUSTERS}/tpu"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with connected() as found:
        yield found


@pytest.fixture
def standing(cloud: Cloud) -> Cloud:
    cloud.make_cluster()
    return cloud


# --- ids --------------------------------------------------------------------------------------------------------------


def test_ids_fit_a_signed_integer_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin: `health_check_id: expected type 'int', got ... '9599105319224792253'`, for every tenth id."""

    class Number:
        int = 0

    monkeypatch.setattr("sandbox.google.service.uuid.uuid4", Number)
    for drawn in (0, 1, 2**63, 9 * 10**18 - 1, 2**127, 2**128 - 1):
        Number.int = drawn
        found = service.new_id()
        assert 10**18 <= int(found) < 2**63
        assert len(found) == 19


# --- defaults ---------------------------------------------------------------------------------------------------------

UPGRADES: dict[str, tuple[Any, Any]] = {
    "none": (None, {"strategy": "SURGE", "maxSurge": 1}),
    "no maxSurge": ({"maxUnavailable": 1}, {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 1}),
    "maxSurge": ({"strategy": "SURGE", "maxSurge": 2}, {"strategy": "SURGE", "maxSurge": 2}),
    "blue-green": ({"strategy": "BLUE_GREEN"}, {"strategy": "BLUE_GREEN"}),
}


@pytest.mark.parametrize("case", UPGRADES)
def test_max_surge_has_a_default_only_without_upgrade_settings(standing: Cloud, case: str) -> None:
    """The plugin sends no zero, so `maxSurge` 1 came back for 0: the second preview wanted to change every slice."""
    sent, expected = UPGRADES[case]
    standing.ok("POST", POOLS, pool(**({} if sent is None else {"upgradeSettings": sent})))
    assert standing.ok("GET", f"{POOLS}/pool")["upgradeSettings"] == expected
    standing.ok("PUT", f"{POOLS}/pool", {"upgradeSettings": {"maxUnavailable": 2}})
    changed = {"strategy": "SURGE", "maxSurge": 0, "maxUnavailable": 2}
    assert standing.ok("GET", f"{POOLS}/pool")["upgradeSettings"] == changed


def test_a_flag_that_is_not_sent_in_a_message_is_false(cloud: Cloud) -> None:
    """The same mistake elsewhere: false cannot be told from absent, so a flag's default is for a missing message."""
    cloud.make_network()
    sent: dict[str, Any] = {
        "shieldedNodes": {},
        "monitoringConfig": {"managedPrometheusConfig": {}},
        "addonsConfig": {"gcePersistentDiskCsiDriverConfig": {}},
    }
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(**sent)})
    cloud.ok(
        "POST", POOLS, pool(config={"serviceAccount": "default", "shieldedInstanceConfig": {"enableSecureBoot": True}})
    )
    found = cloud.ok("GET", CLUSTER)
    assert found["shieldedNodes"] == {}
    assert "enabled" not in found["monitoringConfig"]["managedPrometheusConfig"]
    assert "enabled" not in found["addonsConfig"]["gcePersistentDiskCsiDriverConfig"]
    shielded = cloud.ok("GET", f"{POOLS}/pool")["config"]["shieldedInstanceConfig"]
    assert shielded == {"enableSecureBoot": True}


def test_a_flag_has_its_default_where_the_message_is_missing(standing: Cloud) -> None:
    standing.ok("POST", POOLS, pool())
    found = standing.ok("GET", CLUSTER)
    assert found["shieldedNodes"] == {"enabled": True}
    assert found["monitoringConfig"]["managedPrometheusConfig"]["enabled"] is True
    shielded = standing.ok("GET", f"{POOLS}/pool")["config"]["shieldedInstanceConfig"]
    assert shielded == {"enableIntegrityMonitoring": True}


def test_flags_with_presence_keep_their_defaults(cloud: Cloud) -> None:
    """Google marks these `optional`: what is not sent is not false."""
    cloud.make_network()
    binding = {"enableInsecureBindingSystemAuthenticated": False}
    endpoints = {"ipEndpointsConfig": {"globalAccess": True}}
    sent = {"rbacBindingConfig": binding, "controlPlaneEndpointsConfig": endpoints}
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(**sent)})
    found = cloud.ok("GET", CLUSTER)
    assert found["rbacBindingConfig"] == {**binding, "enableInsecureBindingSystemUnauthenticated": True}
    ip = found["controlPlaneEndpointsConfig"]["ipEndpointsConfig"]
    assert (ip["enabled"], ip["enablePublicEndpoint"], ip["globalAccess"]) == (True, True, True)


# --- what means unset -------------------------------------------------------------------------------------------------


def _checked(path: str, body: Any, method: str = "POST") -> Any:
    route = discovery.find_route(method, path)
    assert route is not None
    return discovery.checked_body(route.document, route.method, body, route.params)


def test_the_empty_string_passes_an_enumeration_and_is_unset(cloud: Cloud) -> None:
    """The plugin: `Invalid value at 'resource.properties.scheduling.instance_termination_action' ... ""`."""
    scheduling = {"automaticRestart": True, "instanceTerminationAction": "", "provisioningModel": "STANDARD"}
    cloud.make_network()
    cloud.make_slice_parts()
    cloud.ok("POST", TEMPLATES, template("empty", scheduling=scheduling))
    found = cloud.ok("GET", f"{TEMPLATES}/empty")["properties"]["scheduling"]
    assert found["provisioningModel"] == "STANDARD"
    assert "instanceTerminationAction" not in found
    for api, body in (
        (CLUSTERS, {"cluster": {"releaseChannel": {"channel": ""}}}),
        (POOLS, {"nodePool": {"config": {"workloadMetadataConfig": {"mode": ""}}}}),
    ):
        assert _checked(api, body) == {}
    cloud.refused(400, "POST", TEMPLATES, template("bad", scheduling={"instanceTerminationAction": "NONSENSE"}))


def test_nulls_and_the_messages_they_empty_are_not_stored(cloud: Cloud) -> None:
    """The plugin's second preview: `-resourcePolicies: {workloadPolicy: ""}` on every group without a policy."""
    cloud.make_network()
    cloud.make_slice_parts()
    cloud.ok("POST", GROUPS, group(0, resourcePolicies={"workloadPolicy": None}))
    assert "resourcePolicies" not in cloud.ok("GET", f"{GROUPS}/mig")


def test_only_nulls_empty_a_message() -> None:
    """A message that is sent empty is a message: whether it is there has a meaning in many places."""
    sent = {"networkPolicy": {}, "notificationConfig": {"pubsub": {}}, "fleet": {"project": None}}
    assert _checked(CLUSTERS, {"cluster": sent}) == {
        "cluster": {"networkPolicy": {}, "notificationConfig": {"pubsub": {}}}
    }
    deep = {"nodeConfig": {"linuxNodeConfig": {"hugepages": {"hugepageSize1g": None}}}}
    assert _checked(CLUSTERS, {"cluster": deep}) == {}


# --- links ------------------------------------------------------------------------------------------------------------

HOSTS = ("", "https://www.googleapis.com", "https://compute.googleapis.com", "http://127.0.0.1:8080", "http://[::1]:1")


@pytest.mark.parametrize("host", HOSTS)
def test_a_link_may_have_any_scheme_and_host(cloud: Cloud, host: str) -> None:
    """The plugin makes links of its own base URL: `404 The resource 'projects/p/http://127.0.0.1:PORT/...'`."""

    def url(name: str, version: str = "beta") -> str:
        return f"{host}/compute/{version}/{name}" if host else name

    project = f"projects/{PROJECT}"
    network, subnetwork = f"{project}/global/networks/net", f"{project}/regions/{REGION}/subnetworks/sub"
    for version in ("v1", "beta"):
        assert relative(url(network, version)) == network
    cloud.make_network()
    cloud.make_slice_parts()
    nics = [{"network": url(network), "subnetwork": url(subnetwork)}]
    firewall = {"name": "fw", "network": url(network), "allowed": [{"IPProtocol": "tcp"}]}
    cloud.ok("POST", f"{COMPUTE}/global/firewalls", firewall)
    cloud.ok(
        "POST",
        INSTANCES,
        instance(networkInterfaces=nics, machineType=url(f"{project}/zones/{ZONE}/machineTypes/n2-standard-4")),
    )
    boot = {"boot": True, "initializeParams": {"sourceImage": url(TPU_IMAGE), "diskType": "hyperdisk-balanced"}}
    cloud.ok("POST", TEMPLATES, template("linked", disks=[boot], networkInterfaces=nics))
    wanted: dict[str, Any] = {
        "versions": [{"instanceTemplate": url(f"{project}/global/instanceTemplates/linked")}],
        "resourcePolicies": {"workloadPolicy": url(f"{project}/regions/{REGION}/resourcePolicies/wp")},
    }
    cloud.ok("POST", GROUPS, group(**wanted))
    made = cluster(network=url(network), subnetwork=url(subnetwork))
    cloud.ok("POST", CLUSTERS, {"cluster": made})
    in_use = cloud.refused(400, "DELETE", f"{COMPUTE}/global/networks/net")
    assert "is already being used by" in in_use["message"]


# --- what no public source tells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, False])
def test_the_public_endpoint_of_an_ip_endpoint_that_is_off_is_a_setting(cloud: Cloud, answer: bool) -> None:
    """What GKE answers is in no public source; the emulator answered true, and every second preview was dirty."""
    cloud.make_network()
    off = {"controlPlaneEndpointsConfig": {"ipEndpointsConfig": {"enabled": False}}}
    cloud.ok("POST", CLUSTERS, {"cluster": cluster(**off)})

    def endpoints() -> Any:
        [listed] = cloud.ok("GET", CLUSTERS)["clusters"]
        found = cloud.ok("GET", CLUSTER)["controlPlaneEndpointsConfig"]
        assert found == listed["controlPlaneEndpointsConfig"]
        return found["ipEndpointsConfig"]

    assert endpoints()["enablePublicEndpoint"] is False
    cloud.control("unpublished", {"public_endpoint_when_off": answer})
    assert endpoints()["enablePublicEndpoint"] is answer
    on = {"ipEndpointsConfig": {"enabled": True, "enablePublicEndpoint": not answer}}
    cloud.ok("PUT", CLUSTER, {"update": {"desiredControlPlaneEndpointsConfig": on}})
    assert endpoints()["enablePublicEndpoint"] is not answer
    cloud.control("reset")
