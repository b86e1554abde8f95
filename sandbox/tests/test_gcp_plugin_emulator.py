"""The stand-in plugin against the sandbox's emulator, which checks every body and fills in what Google fills in."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sandbox import google
from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.provider import InitializationFailed, ProviderError
from sandbox.tests.gcp_plugin_support import (
    config_at,
    configured,
    plain_outputs,
    recorded_names,
    recorded_state,
    subject,
)

Json = dict[str, Any]
# The recording server let any machine stand in any zone; the emulator knows better.
ELSEWHERE: dict[str, Json] = {
    "v5p-res": {"nodeLocations": ["us-east5-a"]},
    "tpu7x-2x2x2": {"location": "us-central1", "nodeLocations": ["us-central1-c"]},
}
NOT_HERE = {"tpu7x-2x2x2"}  # its cluster is in another region; `test_a_workload_policy_pool` has it


@pytest.fixture(scope="module")
def emulator() -> Iterator[Any]:
    with google.serving(time_scale=0) as running:
        yield running


@pytest.fixture
def provider(emulator: Any) -> Iterator[GcpProvider]:
    httpx.post(f"{emulator.url}/sandbox/reset").raise_for_status()
    made = configured(**config_at(emulator.url))
    yield made
    made.cancel()


class Deployment:
    """Resources created one after the other and deleted in reverse, as the engine would."""

    def __init__(self, provider: GcpProvider) -> None:
        self.provider = provider
        self.ids: dict[str, str] = {}
        self.outputs: dict[str, Json] = {}
        self.inputs: dict[str, Json] = {}

    def create(self, name: str, **changed: Any) -> None:
        row = recorded_state(name)
        inputs = {**row["inputs"], **changed}
        state = self.provider.create(subject(row["type"], name), copy.deepcopy(inputs), 0, False)
        self.ids[name], self.outputs[name], self.inputs[name] = state.id, plain_outputs(state.outputs), inputs

    def changes(self, name: str, news: Json | None = None) -> list[str]:
        about = subject(recorded_state(name)["type"], name)
        planned = self.provider.diff(about, self.outputs[name], news or self.inputs[name], ())
        return [c.path for c in planned.changes]

    def refresh(self, name: str) -> Json:
        about = subject(recorded_state(name)["type"], name)
        state = self.provider.read(about, self.ids[name], self.inputs[name], self.outputs[name])
        self.outputs[name] = plain_outputs(state.outputs)
        return plain_outputs(state.inputs)

    def update(self, name: str, news: Json) -> None:
        about = subject(recorded_state(name)["type"], name)
        outputs = self.provider.update(about, self.ids[name], self.outputs[name], news, (), 0, False)
        self.outputs[name], self.inputs[name] = plain_outputs(outputs), news

    def destroy(self) -> None:
        for name in reversed(list(self.ids)):
            about = subject(recorded_state(name)["type"], name)
            self.provider.delete(about, self.ids.pop(name), self.outputs[name], 0)

    def create_all(self) -> None:
        """Every recorded resource, where the emulator has its machines."""
        for name in recorded_names():
            if name in NOT_HERE:
                continue
            changed = dict(ELSEWHERE.get(name, {}))
            if name == "tm":
                changed["machineType"] = "ct6e-standard-4t"
            if name == "wp":
                changed["workloadPolicy"] = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4"}
            if name == "mig":
                changed["targetSize"] = 4
                changed["versions"] = [{"instanceTemplate": self.outputs["tm"]["selfLinkUnique"]}]
            self.create(name, **changed)


@pytest.fixture
def deployment(provider: GcpProvider) -> Deployment:
    return Deployment(provider)


def _inventory(emulator: Any) -> Json:
    found: Json = httpx.get(f"{emulator.url}/sandbox/inventory").json()
    return found


def _fault(emulator: Any, **fault: Any) -> None:
    httpx.post(f"{emulator.url}/sandbox/faults", json=fault).raise_for_status()


def test_everything_lives_and_dies(emulator: Any, deployment: Deployment) -> None:
    deployment.create_all()
    assert {n: c for n in deployment.ids if (c := deployment.changes(n))} == {}
    refreshed = {n: deployment.refresh(n) for n in deployment.ids}
    assert refreshed == deployment.inputs
    assert {n: c for n in deployment.ids if (c := deployment.changes(n))} == {}
    assert _inventory(emulator) != {}
    deployment.destroy()
    assert _inventory(emulator) == {}


EDITS: dict[str, tuple[str, str, Any]] = {
    "pool labels": ("v6e-1", "nodeConfig.labels", {"a": "c", "b": "d"}),
    "pool taints": ("v6e-1", "nodeConfig.taints", [{"key": "k", "value": "v", "effect": "NO_SCHEDULE"}]),
    "pool tags": ("v6e-1", "nodeConfig.tags", ["x"]),
    "pool disk": ("v6e-1", "nodeConfig.diskSizeGb", 200),
    "pool size": ("v6e-4x4", "nodeCount", 0),
    "pool upgrades": ("v6e-1", "upgradeSettings", {"maxSurge": 0, "maxUnavailable": 1, "strategy": "SURGE"}),
    "pool image streaming": ("v6e-1", "nodeConfig.gcfsConfig", {"enabled": True}),
    "cluster channel": ("cl", "releaseChannel.channel", "REGULAR"),
    "cluster labels": ("cl", "resourceLabels", {"env": "prod"}),
    "cluster add-on": ("cl", "addonsConfig.gcsFuseCsiDriverConfig.enabled", False),
    "cluster monitoring": ("cl", "monitoringConfig.enableComponents", ["SYSTEM_COMPONENTS"]),
    "cluster window": ("cl", "maintenancePolicy.recurringWindow.recurrence", "FREQ=DAILY"),
    "cluster public nodes": ("cl", "privateClusterConfig.enablePrivateNodes", False),
    "authorized networks": ("cl", "masterAuthorizedNetworksConfig", {"cidrBlocks": [{"cidrBlock": "10.0.0.0/8"}]}),
    "network mtu": ("net", "mtu", 1500),
    "subnet grows": ("sub", "ipCidrRange", "10.0.0.0/17"),
    "subnet logs": ("sub", "logConfig", {"flowSampling": 0.25}),
    "firewall": ("fw", "allows", [{"protocol": "tcp", "ports": ["22"]}]),
    "nat logs": ("nat", "logConfig.filter", "ALL"),
    "account": ("sa", "displayName", "nodes"),
    "secret labels": ("sec", "labels", {"a": "b"}),
    "address labels": ("ad", "labels", {"a": "b"}),
    "instance metadata": ("cp", "metadata", {"startup-script": "#!/bin/bash"}),
    "group size": ("mig", "targetSize", 0),
}


def _edited(inputs: Json, path: str, value: Any) -> Json:
    news = copy.deepcopy(inputs)
    *parents, last = path.split(".")
    target = news
    for step in parents:
        target = target.setdefault(step, {})
    target[last] = value
    return news


@pytest.fixture(scope="module")
def standing(emulator: Any) -> Iterator[Deployment]:
    """A deployment that the edits share: each changes one thing and leaves it consistent."""
    httpx.post(f"{emulator.url}/sandbox/reset").raise_for_status()
    provider = configured(**config_at(emulator.url))
    deployment = Deployment(provider)
    deployment.create_all()
    yield deployment
    provider.cancel()


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_planned_made_and_settles(standing: Deployment, edit: str) -> None:
    name, path, value = EDITS[edit]
    news = _edited(standing.inputs[name], path, value)
    assert standing.changes(name, news) != []
    standing.update(name, news)
    assert standing.changes(name) == []
    assert standing.refresh(name) == news
    assert standing.changes(name) == []


def test_a_workload_policy_pool(emulator: Any, deployment: Deployment) -> None:
    """tpu7x multi-host: the placement type is sent empty and read back empty, so nothing changes."""
    for name in ("svc-container", "net"):
        deployment.create(name)
    deployment.create("sub", region="us-central1")
    deployment.create("sa")
    deployment.create("cl", location="us-central1", subnetwork=deployment.outputs["sub"]["id"])
    deployment.create("wp", region="us-central1")
    deployment.create("tpu7x-2x2x2", **ELSEWHERE["tpu7x-2x2x2"])
    assert deployment.changes("tpu7x-2x2x2") == []
    deployment.refresh("tpu7x-2x2x2")
    assert deployment.changes("tpu7x-2x2x2") == []
    deployment.destroy()
    assert _inventory(emulator) == {}


def test_a_pool_after_a_stockout_can_be_deleted(emulator: Any, deployment: Deployment) -> None:
    for name in ("svc-container", "net", "sub", "sa", "cl"):
        deployment.create(name)
    _fault(emulator, kind="operation", method="POST", path="/nodePools$", code="ZONE_RESOURCE_POOL_EXHAUSTED")
    with pytest.raises(
        InitializationFailed, match=r"Error creating NodePool: .*ZONE_RESOURCE_POOL_EXHAUSTED"
    ) as failed:
        deployment.create("v6e-4x4")
    deployment.ids["v6e-4x4"] = failed.value.identity
    deployment.outputs["v6e-4x4"] = plain_outputs(failed.value.outputs)
    deployment.destroy()
    assert _inventory(emulator) == {}


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "status", "status": 503, "retry_after": 0, "times": 2},
        {"kind": "status", "status": 429, "retry_after": 0, "times": 2},
        {"kind": "cut", "times": 1},
        {"kind": "etag", "path": ":setIamPolicy$", "times": 2},
    ],
    ids=lambda fault: str(fault.get("status", fault["kind"])),
)
def test_faults_pass(emulator: Any, deployment: Deployment, fault: Json) -> None:
    for name in ("svc-container", "sa"):
        deployment.create(name)
    _fault(emulator, **fault)
    deployment.create("im")
    deployment.create("net")
    assert deployment.changes("net") == []
    deployment.destroy()
    assert _inventory(emulator) == {}


def test_the_emulators_refusal_is_the_message(deployment: Deployment) -> None:
    with pytest.raises(ProviderError, match=r"^Error creating Subnetwork: googleapi: Error \d+: .*net"):
        deployment.create("sub")


def test_the_plan_of_an_update_keeps_what_google_decided(deployment: Deployment, provider: GcpProvider) -> None:
    """A label edit once planned a cluster without its endpoint, and the program failed on the missing address."""
    deployment.create_all()
    name = next(n for n in deployment.ids if recorded_state(n)["type"] == "gcp:container/cluster:Cluster")
    news = {**deployment.inputs[name], "resourceLabels": {"team": "a"}}
    news["controlPlaneEndpointsConfig"] = {"dnsEndpointConfig": {"allowExternalTraffic": True}}
    about = subject("gcp:container/cluster:Cluster", name)
    planned = provider.update(about, deployment.ids[name], deployment.outputs[name], news, (), 0, True)
    endpoint = plain_outputs(planned)["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
    assert endpoint == deployment.outputs[name]["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"]
    assert endpoint


def _create_up_to_the_cluster(deployment: Deployment, **cluster: Any) -> None:
    for name in recorded_names():
        deployment.create(name, **(cluster if name == "cl" else {}))
        if name == "cl":
            return


def test_a_zonal_cluster_does_not_name_its_own_zone_again(emulator: Any, deployment: Deployment) -> None:
    """The real plugin refuses it while the cluster is made; the program named it, so zonal clusters could not be."""
    with pytest.raises(ProviderError, match="node_locations should not contain the original 'zone'"):
        _create_up_to_the_cluster(deployment, location="us-east5-b", nodeLocations=["us-east5-b"])
    assert "container.clusters" not in _inventory(emulator)
    deployment.create("cl", location="us-east5-b", nodeLocations=None)
    assert deployment.outputs["cl"]["nodeLocations"] == []
    assert deployment.changes("cl") == []


def test_a_zonal_cluster_names_the_zones_beside_its_own(emulator: Any, deployment: Deployment) -> None:
    _create_up_to_the_cluster(deployment, location="us-east5-b", nodeLocations=["us-east5-a"])
    path = "/container/v1beta1/projects/proj/locations/us-east5-b/clusters/tpu"

    def zones() -> list[str]:
        headers = {"Authorization": "Bearer token"}
        found: list[str] = httpx.get(f"{emulator.url}{path}", headers=headers).json()["locations"]
        return found

    assert zones() == ["us-east5-a", "us-east5-b"]
    assert deployment.changes("cl") == []
    moved = {**deployment.inputs["cl"], "nodeLocations": ["us-east5-c"]}
    assert deployment.changes("cl", moved) == ["nodeLocations[0]"]
    with pytest.raises(ProviderError, match="node_locations should not contain the original 'zone'"):
        deployment.update("cl", {**moved, "nodeLocations": ["us-east5-b"]})
    since = max(row["seq"] for row in httpx.get(f"{emulator.url}/sandbox/traffic").json())
    deployment.update("cl", moved)
    traffic = httpx.get(f"{emulator.url}/sandbox/traffic", params={"since": since}).json()
    sent = [row["body"]["update"]["desiredLocations"] for row in traffic if row["method"] == "PUT"]
    assert sent == [["us-east5-a", "us-east5-b", "us-east5-c"], ["us-east5-b", "us-east5-c"]]
    assert deployment.changes("cl", moved) == []


def test_an_imported_nat_knows_its_router(deployment: Deployment, provider: GcpProvider) -> None:
    """Only the id says it; without it the next preview replaced the NAT."""
    deployment.create_all()
    name = next(n for n in deployment.ids if recorded_state(n)["type"] == "gcp:compute/routerNat:RouterNat")
    state = provider.read(subject("gcp:compute/routerNat:RouterNat", name), deployment.ids[name], {}, {})
    assert plain_outputs(state.outputs)["router"] == deployment.outputs[name]["router"].rpartition("/")[2]
    assert plain_outputs(state.inputs)["router"]
