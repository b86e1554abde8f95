"""The resources of a self-managed platform, through the stand-in plugin against the emulator: created, unchanged on a
second look, edited in place or replaced as the real provider would, and deleted without a rest."""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox import google
from sandbox.plugins.gcp.plugin import GcpProvider
from sandbox.plugins.provider import InitializationFailed, ProviderError
from sandbox.plugins.values import UNKNOWN, Secret
from sandbox.tests.emulated_google import TPU_IMAGE, UBUNTU
from sandbox.tests.gcp_plugin_support import config_at, configured, plain_outputs, subject

Json = dict[str, Any]
ZONE = "us-central1-c"
REGION = "us-central1"
KEY = f"projects/proj/locations/{REGION}/keyRings/ring/cryptoKeys/key"
MEMBER = "serviceAccount:tpu-nodes@proj.iam.gserviceaccount.com"
Outputs = dict[str, Json]

# Name -> (type, inputs from the outputs of what stands before), in order of creation.
PLATFORM: dict[str, tuple[str, Callable[[Outputs], Json]]] = {
    "net": ("gcp:compute/network:Network", lambda o: {"name": "net", "autoCreateSubnetworks": False}),
    "sub": (
        "gcp:compute/subnetwork:Subnetwork",
        lambda o: {
            "name": "sub",
            "region": REGION,
            "network": o["net"]["id"],
            "ipCidrRange": "10.0.0.0/20",
            "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": "10.16.0.0/14"}],
        },
    ),
    "nodes": ("gcp:serviceaccount/account:Account", lambda o: {"accountId": "tpu-nodes"}),
    "join": (
        "gcp:secretmanager/secret:Secret",
        lambda o: {
            "secretId": "tpu-join",
            "replication": {"auto": {"customerManagedEncryption": {"kmsKeyName": KEY}}},
            "labels": {"platform": "tpu"},
        },
    ),
    "reads": (
        "gcp:secretmanager/secretIamMember:SecretIamMember",
        lambda o: {"secretId": o["join"]["id"], "role": "roles/secretmanager.secretAccessor", "member": MEMBER},
    ),
    "backups": (
        "gcp:storage/bucket:Bucket",
        lambda o: {
            "name": "tpu-backups",
            "location": REGION,
            "uniformBucketLevelAccess": True,
            "publicAccessPrevention": "enforced",
            "versioning": {"enabled": True},
            "encryption": {"defaultKmsKeyName": KEY},
            "lifecycleRules": [{"action": {"type": "Delete"}, "condition": {"age": 30, "withState": "ANY"}}],
            "labels": {"platform": "tpu"},
        },
    ),
    "writes": (
        "gcp:storage/bucketIAMMember:BucketIAMMember",
        lambda o: {"bucket": o["backups"]["name"], "role": "roles/storage.objectCreator", "member": MEMBER},
    ),
    "address": (
        "gcp:compute/address:Address",
        lambda o: {"name": "api", "region": REGION, "addressType": "INTERNAL", "subnetwork": o["sub"]["id"]},
    ),
    "data": (
        "gcp:compute/disk:Disk",
        lambda o: {
            "name": "data",
            "zone": ZONE,
            "type": "pd-ssd",
            "size": 20,
            "labels": {"platform": "tpu"},
            "diskEncryptionKey": {"kmsKeySelfLink": KEY},
        },
    ),
    "master": (
        "gcp:compute/instance:Instance",
        lambda o: {
            "name": "control-plane",
            "zone": ZONE,
            "machineType": "n2-standard-4",
            "allowStoppingForUpdate": True,
            "bootDisk": {"initializeParams": {"image": UBUNTU, "size": 50, "type": "pd-balanced"}},
            "attachedDisks": [{"source": o["data"]["selfLink"], "deviceName": "data"}],
            "networkInterfaces": [
                {
                    "subnetwork": o["sub"]["id"],
                    "aliasIpRanges": [{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}],
                }
            ],
            "metadata": {"tpu-role": "control-plane", "startup-script": "#!/bin/sh"},
            "serviceAccount": {"email": o["nodes"]["email"], "scopes": ["cloud-platform"]},
            "shieldedInstanceConfig": {"enableSecureBoot": True},
        },
    ),
    "check": (
        "gcp:compute/regionHealthCheck:RegionHealthCheck",
        lambda o: {"name": "api", "region": REGION, "tcpHealthCheck": {"port": 6443}},
    ),
    "group": (
        "gcp:compute/instanceGroup:InstanceGroup",
        lambda o: {"name": "api", "zone": ZONE, "instances": [o["master"]["selfLink"]]},
    ),
    "backend": (
        "gcp:compute/regionBackendService:RegionBackendService",
        lambda o: {
            "name": "api",
            "region": REGION,
            "protocol": "TCP",
            "loadBalancingScheme": "INTERNAL",
            "healthChecks": o["check"]["id"],
            "backends": [{"group": o["group"]["selfLink"], "balancingMode": "CONNECTION"}],
        },
    ),
    "rule": (
        "gcp:compute/forwardingRule:ForwardingRule",
        lambda o: {
            "name": "api",
            "region": REGION,
            "loadBalancingScheme": "INTERNAL",
            "backendService": o["backend"]["id"],
            "ipAddress": o["address"]["address"],
            "ports": ["6443"],
            "subnetwork": o["sub"]["id"],
            "labels": {"platform": "tpu"},
        },
    ),
    "policy": (
        "gcp:compute/resourcePolicy:ResourcePolicy",
        lambda o: {
            "name": "slice",
            "region": REGION,
            "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"},
        },
    ),
    "template": (
        "gcp:compute/instanceTemplate:InstanceTemplate",
        lambda o: {
            "namePrefix": "slice-",
            "machineType": "tpu7x-standard-4t",
            "disks": [
                {
                    "boot": True,
                    "autoDelete": True,
                    "diskSizeGb": 250,
                    "diskType": "hyperdisk-balanced",
                    "sourceImage": TPU_IMAGE,
                    "diskEncryptionKey": {"kmsKeySelfLink": KEY},
                }
            ],
            "networkInterfaces": [
                {
                    "subnetwork": o["sub"]["id"],
                    "nicType": "GVNIC",
                    "aliasIpRanges": [{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}],
                }
            ],
            "scheduling": {
                "onHostMaintenance": "TERMINATE",
                "automaticRestart": True,
                "provisioningModel": "RESERVATION_BOUND",
                "instanceTerminationAction": "DELETE",
            },
            "reservationAffinity": {
                "type": "SPECIFIC_RESERVATION",
                "specificReservation": {"key": "compute.googleapis.com/reservation-name", "values": ["res"]},
            },
            "serviceAccount": {"email": o["nodes"]["email"], "scopes": ["cloud-platform"]},
            "shieldedInstanceConfig": {"enableSecureBoot": False},
            "metadata": {"tpu-role": "node", "kube-labels": "a=b"},
            "tags": ["tpu-node"],
            "labels": {"platform": "tpu"},
        },
    ),
    "slice": (
        "gcp:compute/instanceGroupManager:InstanceGroupManager",
        lambda o: {
            "name": "tpu-train",
            "zone": ZONE,
            "baseInstanceName": "tpu-train-w-###[1]",
            "targetSize": 2,
            "versions": [{"instanceTemplate": o["template"]["selfLinkUnique"]}],
            "targetSizePolicies": [{"mode": "BULK"}],
            "resourcePolicies": {"workloadPolicy": o["policy"]["selfLink"]},
            "instanceLifecyclePolicy": {"defaultActionOnFailure": "DO_NOTHING"},
            "updatePolicy": {
                "type": "OPPORTUNISTIC",
                "minimalAction": "REPLACE",
                "replacementMethod": "RECREATE",
                "maxSurgeFixed": 0,
                "maxUnavailableFixed": 1,
            },
            "waitForInstances": True,
            "waitForInstancesStatus": "STABLE",
        },
    ),
}


@dataclass
class Platform:
    """The platform's resources as the engine would handle them: checked, created in order, deleted in reverse.

    `table`: name -> (type, inputs from the outputs of what stands before).
    """

    url: str
    provider: GcpProvider
    table: Mapping[str, tuple[str, Callable[[Outputs], Json]]] = field(default_factory=lambda: PLATFORM)
    ids: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Json] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=dict)

    def checked(self, name: str, news: Json) -> Json:
        found = self.provider.check(subject(self.table[name][0], name), {}, news, b"seed")
        assert found.failures == []
        return dict(found.inputs)

    def create(self, name: str, timeout: float = 60, **changed: Any) -> None:
        token, made = self.table[name]
        self.inputs[name] = self.checked(name, {**made(self.outputs), **changed})
        state = self.provider.create(subject(token, name), copy.deepcopy(self.inputs[name]), timeout, False)
        self.ids[name], self.outputs[name] = state.id, plain_outputs(state.outputs)

    def up(self, *names: str) -> None:
        for name in names or self.table:
            self.create(name)

    def plan(self, name: str, **changed: Any) -> dict[str, bool]:
        """Path -> whether it replaces, of what the next update would change."""
        news = self.checked(name, {**self.inputs[name], **changed})
        planned = self.provider.diff(subject(self.table[name][0], name), self.outputs[name], news, ())
        return {change.path: change.replace for change in planned.changes}

    def update(self, name: str, **changed: Any) -> None:
        news = self.checked(name, {**self.inputs[name], **changed})
        about = subject(self.table[name][0], name)
        outputs = self.provider.update(about, self.ids[name], self.outputs[name], news, (), 60, False)
        self.outputs[name], self.inputs[name] = plain_outputs(outputs), news

    def refresh(self, name: str) -> None:
        """Reads a resource again; what the program wrote must still stand there."""
        about = subject(self.table[name][0], name)
        state = self.provider.read(about, self.ids[name], self.inputs[name], self.outputs[name])
        assert plain_outputs(state.inputs) == self.inputs[name]
        self.outputs[name] = plain_outputs(state.outputs)

    def destroy(self) -> None:
        for name in reversed(list(self.ids)):
            about = subject(self.table[name][0], name)
            self.provider.delete(about, self.ids.pop(name), self.outputs[name], 60)

    def get(self, path: str) -> Json:
        found: Json = self.call("GET", f"/compute/beta/projects/proj/{path}")
        return found

    def is_stable(self, group: str) -> bool:
        return bool(self.outputs[group]["statuses"][0]["isStable"])

    def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(method, f"{self.url}{path}", json=body, headers={"Authorization": "Bearer token"})
        return answer.raise_for_status().json()

    def inventory(self) -> Json:
        found: Json = self.call("GET", "/sandbox/inventory")
        found.pop("cloudkms.cryptoKeys", None)
        return found


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with google.serving() as running:
        yield running.url


def _platform(emulator: str) -> Iterator[Platform]:
    """An empty project with the user's own key and reservation."""
    provider = configured(**config_at(emulator))
    made = Platform(emulator, provider)
    made.call("POST", "/sandbox/reset")
    rings = f"/kms/v1/projects/proj/locations/{REGION}/keyRings"
    made.call("POST", f"{rings}?keyRingId=ring", {})
    made.call("POST", f"{rings}/ring/cryptoKeys?cryptoKeyId=key", {})
    seed = {"project": "proj", "zone": ZONE, "name": "res", "machine_type": "tpu7x-standard-4t", "count": 2}
    made.call("POST", "/sandbox/reservations", seed)
    yield made
    provider.cancel()


@pytest.fixture
def platform(emulator: str) -> Iterator[Platform]:
    yield from _platform(emulator)


@pytest.fixture(scope="class")
def standing(emulator: str) -> Iterator[Platform]:
    """The whole platform, shared by tests that leave it as they found it."""
    for made in _platform(emulator):
        made.up()
        yield made


def test_everything_lives_settles_and_dies(platform: Platform) -> None:
    platform.up()
    assert {name: found for name in PLATFORM if (found := platform.plan(name))} == {}
    for name in PLATFORM:
        platform.refresh(name)
    assert {name: found for name in PLATFORM if (found := platform.plan(name))} == {}
    assert platform.outputs["rule"]["ipAddress"] == platform.outputs["address"]["address"]
    assert platform.is_stable("slice")
    platform.destroy()
    assert platform.inventory() == {}


def test_a_machine_is_deleted_by_what_the_state_says_of_its_protection(platform: Platform) -> None:
    """A finding: the upgrade as documented let the machine go in the API only, which the real provider does not ask. So
    it says that the state has to be refreshed."""
    platform.up(*list(PLATFORM)[: list(PLATFORM).index("master")])
    platform.create("master", deletionProtection=True)
    about, name = subject(PLATFORM["master"][0], "master"), platform.inputs["master"]["name"]
    url = f"/compute/beta/projects/proj/zones/{ZONE}/instances/{name}"
    platform.call("POST", f"{url}/setDeletionProtection?deletionProtection=false")
    with pytest.raises(ProviderError, match=f"Cannot delete instance {name}: instance Deletion Protection is enabled"):
        platform.provider.delete(about, platform.ids["master"], platform.outputs["master"], 60)
    state = platform.provider.read(about, platform.ids["master"], platform.inputs["master"], platform.outputs["master"])
    platform.outputs["master"] = plain_outputs(state.outputs)
    # The replacement is protected again, and the edit alone would be one in place.
    assert platform.plan("master") == {"deletionProtection": False}
    platform.destroy()
    assert platform.inventory() == {}


# Resource, changed inputs, and whether each changed path replaces.
PLANS: dict[str, tuple[str, Json, dict[str, bool]]] = {
    "disk grows": ("data", {"size": 30}, {"size": False}),
    "disk shrinks": ("data", {"size": 10}, {"size": True}),
    "disk type": ("data", {"type": "pd-balanced"}, {"type": True}),
    "instance metadata": ("master", {"metadata": {"tpu-role": "x"}}, {}),
    "instance size": ("master", {"machineType": "n2-standard-8"}, {"machineType": False}),
    "check port": ("check", {"tcpHealthCheck": {"port": 443}}, {"tcpHealthCheck.port": False}),
    "backend protocol": ("backend", {"protocol": "UDP"}, {"protocol": False}),
    "rule ports": ("rule", {"ports": ["443"]}, {"ports[0]": True}),
    "rule reach": ("rule", {"allowGlobalAccess": True}, {"allowGlobalAccess": False}),
    "group members": ("group", {"instances": []}, {"instances": False}),
    "bucket place": ("backups", {"location": "us-east5"}, {"location": True}),
    "bucket versions": ("backups", {"versioning": {"enabled": False}}, {"versioning.enabled": False}),
    "role": ("writes", {"role": "roles/storage.objectAdmin"}, {"role": True}),
    "template machine": ("template", {"machineType": "tpu7x-standard-1t"}, {"machineType": True}),
    "template tags": ("template", {"tags": ["other"]}, {"tags[0]": True}),
    "slice base name": ("slice", {"baseInstanceName": "x"}, {"baseInstanceName": True}),
    "slice mode": ("slice", {"targetSizePolicies": [{"mode": "INDIVIDUAL"}]}, {"targetSizePolicies[0].mode": True}),
    "slice size": ("slice", {"targetSize": 0}, {"targetSize": False}),
}

# Resource, changed inputs: made in place and read back, then undone.
EDITS: dict[str, tuple[str, Json]] = {
    "disk labels": ("data", {"labels": {"platform": "other"}}),
    "instance metadata": ("master", {"metadata": {"tpu-role": "control-plane", "startup-script": "#!/bin/bash"}}),
    "instance tags": ("master", {"tags": ["api"]}),
    "instance labels": ("master", {"labels": {"a": "b"}}),
    "instance size": ("master", {"machineType": "n2-standard-8"}),
    "instance without the data disk": ("master", {"attachedDisks": []}),
    "check": ("check", {"tcpHealthCheck": {"port": 443}, "checkIntervalSec": 10}),
    "backend": ("backend", {"connectionDrainingTimeoutSec": 10}),
    "backend without groups": ("backend", {"backends": []}),
    "rule labels": ("rule", {"labels": {"platform": "other"}}),
    "rule reach": ("rule", {"allowGlobalAccess": True}),
    "group members": ("group", {"instances": []}),
    "bucket labels": ("backups", {"labels": {"other": "label"}}),
    "bucket rules": ("backups", {"lifecycleRules": [{"action": {"type": "Delete"}, "condition": {"age": 7}}]}),
    "secret labels": ("join", {"labels": {}}),
    "slice size": ("slice", {"targetSize": 0}),
    "slice size and policy": (
        "slice",
        {"targetSize": 0, "instanceLifecyclePolicy": {"defaultActionOnFailure": "REPAIR"}},
    ),
}


class TestStandingPlatform:
    @pytest.mark.parametrize("case", PLANS)
    def test_a_plan_says_whether_a_change_replaces(self, standing: Platform, case: str) -> None:
        name, changed, expected = PLANS[case]
        planned = standing.plan(name, **changed)
        assert planned
        assert expected.items() <= planned.items()
        assert any(planned.values()) == any(expected.values())

    @pytest.mark.parametrize("case", EDITS)
    def test_an_edit_is_made_in_place_and_undone(self, standing: Platform, case: str) -> None:
        name, changed = EDITS[case]
        before = {key: standing.inputs[name].get(key) for key in changed}
        for values in (changed, before):
            assert not any(standing.plan(name, **values).values())
            assert standing.plan(name, **values)
            standing.update(name, **values)
            assert standing.plan(name) == {}
            standing.refresh(name)
            assert standing.plan(name) == {}

    def test_a_running_machine_is_stopped_only_where_that_is_allowed(self, standing: Platform) -> None:
        with pytest.raises(ProviderError, match="allow_stopping_for_update = true"):
            standing.update("master", machineType="n2-standard-8", allowStoppingForUpdate=False)
        assert standing.get(f"zones/{ZONE}/instances/control-plane")["status"] == "RUNNING"


def test_secret_versions_are_read_by_a_function(platform: Platform) -> None:
    platform.up("net", "sub", "nodes", "join")
    token = "gcp:secretmanager/getSecretVersionAccess:getSecretVersionAccess"
    with pytest.raises(ProviderError, match=r"Error 404: Secret Version \[.*/tpu-join/versions/latest\] not found"):
        platform.provider.invoke(token, {"secret": "tpu-join"})
    platform.call("POST", "/sm/v1/projects/proj/secrets/tpu-join:addVersion", {"payload": {"data": "b25l"}})
    found = platform.provider.invoke(token, {"secret": platform.outputs["join"]["id"]})
    assert (found["secretData"], found["version"], found["secret"]) == (Secret("one"), "1", "tpu-join")
    with pytest.raises(ProviderError, match="not known yet"):
        platform.provider.invoke(token, {"secret": UNKNOWN})


def _sdk_results(function: str) -> set[str]:
    """The properties of a function's result, by the SDK's source (importing it takes seconds)."""
    root = Path(str(importlib.util.find_spec("pulumi_gcp").submodule_search_locations[0]))  # type: ignore[union-attr,index]
    return set(re.findall(r"pulumi.get\(__ret__, '(\w+)'\)", (root / "compute" / f"{function}.py").read_text()))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


def test_templates_are_read_as_data_sources(platform: Platform) -> None:
    platform.up("net", "sub", "nodes", "template")
    token = "gcp:compute/getInstanceTemplate:getInstanceTemplate"
    name = platform.outputs["template"]["name"]
    found = plain_outputs(platform.provider.invoke(token, {"name": name, "project": "proj"}))
    assert found["machineType"] == "tpu7x-standard-4t"
    assert found["schedulings"][0]["provisioningModel"] == "RESERVATION_BOUND"
    assert found["reservationAffinities"][0]["specificReservations"][0]["values"] == ["res"]
    assert found["networkInterfaces"][0]["aliasIpRanges"][0]["subnetworkRangeName"] == "pods"
    assert found["serviceAccounts"][0]["email"] == platform.outputs["nodes"]["email"]
    assert found["selfLinkUnique"] == platform.outputs["template"]["selfLinkUnique"]
    assert {_snake(key) for key in found} <= _sdk_results("get_instance_template")
    with pytest.raises(ProviderError, match=r"InstanceTemplate .*/other not found"):
        platform.provider.invoke(token, {"name": "other"})
    with pytest.raises(ProviderError, match="by its name, not by filter"):
        platform.provider.invoke(token, {"filter": "name = a"})


def test_a_slice_without_capacity_is_kept_when_the_wait_is_over(platform: Platform) -> None:
    """The group exists, its machines do not: a later `up` goes on, and destroy finds everything."""
    platform.call("POST", "/sandbox/stock", {"zone": ZONE, "machine_type": "tpu7x-standard-4t", "machines": 1})
    platform.up("net", "sub", "nodes", "policy")
    platform.create("template", scheduling={"onHostMaintenance": "TERMINATE"}, reservationAffinity=None)
    with pytest.raises(InitializationFailed, match=r"timeout after .* while waiting for the instances") as failed:
        platform.create("slice", timeout=0.5)
    platform.ids["slice"], platform.outputs["slice"] = failed.value.identity, plain_outputs(failed.value.outputs)
    assert not platform.is_stable("slice")
    assert "compute.instances" not in platform.inventory()
    platform.call("POST", "/sandbox/stock", {"zone": ZONE, "machine_type": "tpu7x-standard-4t", "machines": 2})
    platform.update("slice")
    assert platform.is_stable("slice")
    platform.destroy()
    assert platform.inventory() == {}
