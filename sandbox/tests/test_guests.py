"""Machines that come to life: a control plane that publishes, nodes that join it, and what keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.google.machines import machine_type
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.control_plane import FAKE_NODE
from sandbox.kubernetes.joining import UNINITIALIZED_TAINT, JoinError, JoinSecret, Kubelet, discover, join
from sandbox.kubernetes.nodes import POOL_LABEL, TPU_RESOURCE
from sandbox.tests.emulated_google import PROJECT
from sandbox.tests.guests_support import (
    ACCESSOR,
    GLOBAL,
    MANAGER,
    MASTERS,
    NAMES,
    NODES,
    VERSION,
    ZONAL,
    Lab,
    cloud_controller,
    daemon_set,
    eventually,
    laboratory,
    running_platform,
    secret,
)
from sandbox.tests.isolation import short_directory

pytestmark = pytest.mark.sandbox

TPU_MACHINE = "tpu7x-standard-4t"


@pytest.fixture
def empty_lab() -> Iterator[Lab]:
    """A platform of its own for one test, without machines."""
    with short_directory() as scratch, laboratory(scratch) as lab:
        lab.make_platform()
        yield lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A platform whose control plane runs, for all tests that leave it as it is."""
    with running_platform() as made:
        yield made


@pytest.fixture
def client(lab: Lab) -> Iterator[ApiClient]:
    with lab.client() as made:
        yield made


def node(client: ApiClient, name: str) -> Object | None:
    return client.get("v1", "Node", name)


def joined(client: ApiClient, name: str) -> Object:
    return eventually(f"node {name}", lambda: node(client, name))


def initialised(client: ApiClient, name: str) -> Object:
    """The node once the cloud controller has seen to it."""

    def found() -> Object | None:
        present = joined(client, name)
        return present if "providerID" in present["spec"] else None

    return eventually(f"{name} initialised", found)


def chips(client: ApiClient, name: str) -> dict[str, str]:
    """The node's chips once the device plugin has reported them."""

    def found() -> dict[str, str] | None:
        status = joined(client, name)["status"]
        there = {key: status[key].get(TPU_RESOURCE) for key in ("capacity", "allocatable")}
        return there if there["allocatable"] else None

    return eventually(f"chips of {name}", found)


def taint_keys(found: Object) -> set[str]:
    return {each["key"] for each in found["spec"].get("taints", [])}


def test_the_secrets_have_their_forms(lab: Lab) -> None:
    secret_of_nodes = JoinSecret.model_validate(lab.payload("join"))
    assert timedelta(minutes=80) < secret_of_nodes.expires - datetime.now(UTC) <= timedelta(hours=2)
    assert lab.payload("endpoint")["server"] == f"https://{secret_of_nodes.apiServer}"
    access = lab.payload("access")
    assert access["apiVersion"] == "client.authentication.k8s.io/v1"
    assert datetime.fromisoformat(access["status"]["expirationTimestamp"]) > datetime.now(UTC)


def test_a_group_becomes_nodes_that_live_and_die_with_their_machines(lab: Lab, client: ApiClient) -> None:
    lab.make_group("life", 2, TPU_MACHINE)
    names = ["life-w-001", "life-w-002"]
    for name in names:
        found = joined(client, name)
        labels = found["metadata"]["labels"]
        assert labels["cloud.google.com/gke-tpu-topology"] == "2x2x2"
        assert labels["team"] == "a"
        assert labels[POOL_LABEL] == "life"
        assert labels["topology.kubernetes.io/zone"] == "us-central1-c"
        assert {"google.com/tpu", UNINITIALIZED_TAINT["key"]} <= taint_keys(found)
        assert found["status"]["capacity"]["pods"] == "32"
        assert found["status"]["nodeInfo"]["kubeletVersion"] == f"v{VERSION}"
        assert TPU_RESOURCE not in found["status"]["capacity"]
        assert "providerID" not in found["spec"]

    for each in cloud_controller():
        client.apply(each)
    for name in names:
        found = initialised(client, name)
        assert found["spec"]["providerID"] == f"gce://proj/us-central1-c/{name}"
        assert UNINITIALIZED_TAINT["key"] not in taint_keys(found)
        instance = lab.cloud.ok("GET", f"{ZONAL}/instances/{name}")
        assert found["spec"]["podCIDR"] == instance["networkInterfaces"][0]["aliasIpRanges"][0]["ipCidrRange"]
    eventually("ready", lambda: all(is_true(joined(client, each), "Ready") for each in names))

    client.apply(daemon_set(NAMES.device_plugin, nodeSelector={"cloud.google.com/gke-tpu-topology": "2x2x2"}))
    for name in names:
        assert chips(client, name) == {"capacity": "4", "allocatable": "4"}
    assert TPU_RESOURCE not in joined(client, "lab-cp-0")["status"]["capacity"]

    lab.delete("instances/life-w-002")
    eventually("the node of the deleted machine gone", lambda: node(client, "life-w-002") is None)
    assert is_true(joined(client, "life-w-001"), "Ready")


def test_a_machine_remade_under_its_name_has_a_node_of_its_own(lab: Lab, client: ApiClient) -> None:
    """A finding: it took over the Node of the machine before it, with the labels and taints of that one."""
    lab.make_group("mended", 1, "e2-standard-4", on_failure="REPAIR")
    name = "mended-w-001"
    first = lab.number(name)
    old = joined(client, name)
    eventually("ready", lambda: is_true(joined(client, name), "Ready"))
    stale = {"key": "stale", "value": "", "effect": "NoSchedule"}
    taints = [*joined(client, name)["spec"]["taints"], stale]
    client.patch(old, {"metadata": {"labels": {"stale": "yes"}}, "spec": {"taints": taints}})
    lab.delete(f"instances/{name}")
    eventually("another machine", lambda: lab.number(name) != first)
    lab.says(name, "joined 127.0.0.1:")
    eventually("ready again", lambda: is_true(joined(client, name), "Ready"))
    new = joined(client, name)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert "stale" not in new["metadata"]["labels"]
    assert "stale" not in taint_keys(new)


def test_a_node_may_delete_itself_and_no_other(lab: Lab, client: ApiClient) -> None:
    """What lets a remade machine forget its predecessor's Node lets it do no harm to others."""
    lab.make_group("self", 2, "e2-standard-4")
    for name in ("self-w-001", "self-w-002"):
        joined(client, name)
    own = client.impersonate("system:node:self-w-001", ("system:nodes", "system:authenticated"), {})
    with own as kubelet_of_first:
        with pytest.raises(ApiError, match="not allowed to modify node") as refusal:
            kubelet_of_first.delete(joined(client, "self-w-002"))
        assert refusal.value.status == 403
        assert kubelet_of_first.delete(joined(client, "self-w-001"))
    eventually("itself gone", lambda: node(client, "self-w-001") is None)


def test_hosts_in_another_zone_need_a_cloud_controller_of_all_zones(
    empty_lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """A finding: without `multizone` the manager knows its own zone alone. Hosts elsewhere stay uninitialised, and one
    that goes silent before it was initialised is deleted though its machine is there."""
    lab = empty_lab
    lab.make_disk("lab-cp-0")
    lab.make_master()
    lab.make_group("far", 2, "e2-standard-4", zone="us-central1-a")
    lab.make_group("near", 1, "e2-standard-4")
    with lab.client() as client:
        for name in ("far-w-001", "far-w-002"):
            joined(client, name)
            eventually("ready", lambda name=name: is_true(joined(client, name), "Ready"))  # type: ignore[misc]
        for each in cloud_controller():
            client.apply(each)
        initialised(client, "near-w-001")
        eventually("a complaint", lambda: "node far-w-001: instance not found in us-central1-c" in caplog.text)
        assert UNINITIALIZED_TAINT["key"] in taint_keys(joined(client, "far-w-001"))
        silence(client, "far-w-002")
        eventually("the silent one deleted", lambda: node(client, "far-w-002") is None)

        for each in cloud_controller("[Global]\nmultizone = true\n"):
            client.apply(each)
        assert initialised(client, "far-w-001")["spec"]["providerID"] == "gce://proj/us-central1-a/far-w-001"


def test_a_cloud_controller_without_its_file_does_nothing(empty_lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab = empty_lab
    lab.make_disk("lab-cp-0")
    lab.make_master()
    with lab.client() as client:
        for each in cloud_controller("[Global]\n"):
            if each["kind"] != "ConfigMap":
                client.apply(each)
        eventually(
            "a complaint", lambda: "couldn't open cloud provider configuration /etc/cloud/gce.conf" in caplog.text
        )
        assert UNINITIALIZED_TAINT["key"] in taint_keys(joined(client, "lab-cp-0"))


def silence(client: ApiClient, name: str) -> None:
    """Nobody answers for the node any more."""
    found = joined(client, name)
    client.patch(found, {"metadata": {"annotations": dict.fromkeys(FAKE_NODE)}})
    silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    client.patch(found, {"status": {"conditions": [silent]}}, "strategic", subresource="status")


def test_without_kube_labels_the_device_plugin_panics(lab: Lab, client: ApiClient) -> None:
    client.apply(daemon_set(NAMES.device_plugin, nodeSelector={"cloud.google.com/gke-tpu-topology": "2x2x2"}))
    lab.make_group("bare", 1, TPU_MACHINE, kube_labels="cloud.google.com/gke-accelerator-count=4")
    joined(client, "bare-w-001")
    lab.says("bare-w-001", "panic: attribute kube-labels lacks cloud.google.com/gke-tpu-accelerator")
    assert TPU_RESOURCE not in joined(client, "bare-w-001")["status"]["capacity"]


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("elsewhere", {"lab_join_secret": "projects/proj/secrets/other"}, "denied on resource"),
        ("no-number", {"lab_max_pods": "many"}, "attribute lab-max-pods: Input should be a valid integer"),
        ("no-pair", {"lab_node_labels": "a"}, "attribute lab-node-labels: Value error, 'a' is not key=value"),
        ("too-new", {"lab_kubernetes_version": "1.35.0"}, "version 1.35.0 is newer than the control plane's, 1.34.2"),
        ("forbidden", {"lab_node_labels": "node-role.kubernetes.io/x=y"}, "is not allowed to set"),
        ("no-effect", {"lab_node_taints": "a=b:Never"}, 'Unsupported value: "Never"'),
    ],
)
def test_a_wrong_attribute_keeps_a_machine_out_and_is_named(
    lab: Lab, client: ApiClient, name: str, changes: dict[str, str], reason: str
) -> None:
    lab.make_group(name, 1, "e2-standard-4", **changes)
    lab.says(f"{name}-w-001", reason)
    assert node(client, f"{name}-w-001") is None


def test_a_machine_without_a_startup_script_does_nothing(lab: Lab, client: ApiClient) -> None:
    lab.make_group("idle", 1, "e2-standard-4", startup_script="")
    lab.says("idle-w-001", "No startup scripts to run.")
    assert node(client, "idle-w-001") is None


def test_machines_go_on_once_they_have_their_rights_and_a_way(empty_lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing has to be started anew: neither the control plane, nor a node, nor the cloud controller, which asks as
    the machine that it is on."""
    lab = empty_lab
    lab.cloud.ok("POST", f"/crm/v1/projects/{PROJECT}:setIamPolicy", {"policy": {"bindings": []}})
    lab.bind("access", {})
    lab.bind("join", {MANAGER: [MASTERS]})
    for rule in ("api", "replicas"):
        lab.cloud.ok("DELETE", f"{GLOBAL}/firewalls/{rule}")
    lab.make_disk("lab-cp-0")
    lab.make_master()
    lab.make_group("slow", 1, "e2-standard-4")
    lab.says("slow-w-001", "Permission 'secretmanager.versions.access' denied")
    lab.says("lab-cp-0", "Permission 'secretmanager.versions.add' denied")
    assert lab.payload("endpoint") == {}
    lab.bind("access", {MANAGER: [MASTERS]})
    lab.says("lab-cp-0", f"wrote {secret('endpoint')}/versions/1")

    with lab.client() as client:
        lab.bind("join", {MANAGER: [MASTERS], ACCESSOR: [NODES]})
        lab.says("slow-w-001", "10.0.0.5:6443 does not answer: no firewall rule lets 10.0.0.")
        assert node(client, "slow-w-001") is None
        lab.make_firewall()
        joined(client, "slow-w-001")
        lab.says("slow-w-001", "joined 127.0.0.1:")

        for each in cloud_controller():
            client.apply(each)
        eventually("a refusal", lambda: "node lab-cp-0: Required 'compute.instances.get' permission" in caplog.text)
        assert UNINITIALIZED_TAINT["key"] in taint_keys(joined(client, "lab-cp-0"))
        lab.let_masters_look()
        initialised(client, "lab-cp-0")


def test_a_replaced_machine_brings_its_disks_cluster_back(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.make_disk("lab-cp-0")
    lab.make_master()
    with lab.client() as client:
        before = client.get("v1", "Namespace", "kube-system")
        assert before
    lab.delete("instances/lab-cp-0")
    eventually("the API server gone", lambda: not answers(lab))

    lab.make_master()
    lab.says("lab-cp-0", f"wrote {secret('join')}/versions/2")
    with lab.client() as client:
        after = client.get("v1", "Namespace", "kube-system")
        assert after
        assert after["metadata"]["uid"] == before["metadata"]["uid"]

    def states() -> list[str]:
        return [each["state"] for each in lab.cloud.ok("GET", f"/sm/v1/{secret('join')}/versions")["versions"]]

    eventually("one version is left", lambda: states() == ["ENABLED", "DESTROYED"])
    assert not (lab.run_dir / "kubeconfig").read_text().count("lab-cp-0")

    lab.delete("instances/lab-cp-0")
    lab.delete("disks/lab-cp-0-data")
    eventually("the disk's cluster gone", lambda: not list(lab.run_dir.glob("disk-*")))
    eventually("no way to it is left", lambda: not (lab.run_dir / "kubeconfig").exists())


def answers(lab: Lab) -> bool:
    try:
        return httpx.get(
            f"{lab.payload('endpoint')['server']}/livez", verify=False, trust_env=False, timeout=60
        ).is_success
    except httpx.HTTPError:
        return False


def test_three_replicas_are_one_cluster_by_the_peers_secret(empty_lab: Lab) -> None:
    lab = empty_lab
    several = {"lab_replicas": "3", "lab_peer_secret": secret("peers")}
    for replica in range(3):
        lab.make_disk(f"lab-cp-{replica}")
    lab.make_master(0, **several)
    lab.says("lab-cp-0", f"wrote {secret('endpoint')}/versions/1")
    first = lab.cloud.ok("GET", f"{ZONAL}/instances/lab-cp-0")["networkInterfaces"][0]["networkIP"]
    lab.make_master(1, **several, lab_first_address=first)
    lab.says("lab-cp-1", "Permission 'secretmanager.versions.access' denied")
    lab.cloud.ok("DELETE", f"{GLOBAL}/firewalls/replicas")
    lab.bind("peers", {MANAGER: [MASTERS], ACCESSOR: [MASTERS]})
    lab.says("lab-cp-1", f"{first}:2379 does not answer: no firewall rule lets 10.0.0.")
    lab.cloud.ok("DELETE", f"{GLOBAL}/firewalls/api")
    lab.make_firewall()
    lab.make_master(2, **several, lab_first_address="10.0.0.99")
    lab.says("lab-cp-2", "10.0.0.99:6443 does not answer: no control plane is there")
    with lab.client() as client:
        found = joined(client, "lab-cp-1")
        assert "node-role.kubernetes.io/control-plane" in taint_keys(found)
        assert node(client, "lab-cp-2") is None
        lab.delete("instances/lab-cp-0")
        eventually("the first silent", lambda: not is_true(joined(client, "lab-cp-0"), "Ready"))
        eventually("an answer: the second machine keeps the cluster up", lambda: answers(lab))


def test_a_restarted_emulator_goes_on_with_its_machines(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with short_directory() as scratch:
        with laboratory(scratch, state) as lab:
            lab.make_platform()
            lab.make_disk("lab-cp-0")
            lab.make_master()
            lab.make_group("stays", 1, "e2-standard-4")
            with lab.client() as client:
                uid = joined(client, "stays-w-001")["metadata"]["uid"]
        with laboratory(scratch, state) as lab:
            eventually("the API server back", lambda: answers(lab))
            with lab.client() as client:
                eventually("ready again", lambda: is_true(joined(client, "stays-w-001"), "Ready"))
                assert joined(client, "stays-w-001")["metadata"]["uid"] == uid
            assert lab.serial("stays-w-001").count("joined") == 1, "it has joined before"


def kubelet(name: str) -> Kubelet:
    machine = machine_type("e2-standard-4")
    assert machine
    return Kubelet(name, "uuid-77", "10.0.0.77", machine, VERSION, labels={}, taints=(), max_pods=32)


def signed(good: JoinSecret) -> bool:
    """Whether the cluster has signed its cluster-info with a token, which it does a moment after it was minted."""
    try:
        return bool(discover(good))
    except JoinError:
        return False


def test_only_the_pinned_ca_and_a_living_token_are_trusted(lab: Lab, client: ApiClient) -> None:
    good = JoinSecret.model_validate(lab.payload("join"))
    eventually("the token's signature", lambda: signed(good))
    bad: list[tuple[dict[str, Any], str]] = [
        ({"caCertHash": f"sha256:{'0' * 64}"}, "not the pinned sha256:000"),
        ({"token": f"{good.token[:7]}{'x' * 16}"}, "cluster-info is not signed with the token"),
        ({"token": "aaaaaa.bbbbbbbbbbbbbbbb"}, "cluster-info is not signed with the token aaaaaa"),
        ({"expires": datetime.now(UTC) - timedelta(seconds=1)}, "the join token has expired"),
    ]
    for change, reason in bad:
        with pytest.raises(JoinError, match=reason):
            join(good.model_copy(update=change), kubelet("stranger"))
    assert node(client, "stranger") is None
    lab.make_group("friend", 1, "e2-standard-4", startup_script="")
    join(good, kubelet("friend-w-001"))
    eventually("friend ready", lambda: is_true(joined(client, "friend-w-001"), "Ready"))
    with pytest.raises(JoinError, match="a Node friend-w-001 that is Ready exists already"):
        join(good, kubelet("friend-w-001"))


def test_a_bootstrap_token_is_good_for_joining_only(lab: Lab) -> None:
    good = JoinSecret.model_validate(lab.payload("join"))
    authority = next(lab.run_dir.glob("disk-*/pki/ca.crt"))
    with ApiClient(good.apiServer, good.token, authority) as newcomer:
        for kind in ("Secret", "Node", "Pod"):
            with pytest.raises(ApiError) as refusal:
                newcomer.list_all("v1", kind)
            assert refusal.value.status == 403
