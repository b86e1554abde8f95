"""What runs inside the emulated machines: what it is told, and what its service account lets it do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sandbox.google import Account, GuestCloud, Machine
from sandbox.google.errors import GoogleError
from sandbox.tests.emulated_google import (
    ACCOUNT,
    ACCOUNTS,
    COMPUTE,
    INSTANCES,
    PROJECT,
    SUBNETWORK,
    ZONE,
    Body,
    Cloud,
    connected,
    eventually,
    instance,
)

SECRET = f"projects/{PROJECT}/secrets/join"
SECRETS = f"/sm/v1/projects/{PROJECT}/secrets"


class Listener:
    """A guest that notes what it is told and, where it is asked to, fails."""

    def __init__(self) -> None:
        self.told: list[list[Machine]] = []
        self.cloud: GuestCloud | None = None
        self.closed = False
        self.failing = False

    def machines_changed(self, cloud: GuestCloud, project: str, machines: list[Machine]) -> None:
        assert project == PROJECT
        self.cloud = cloud
        self.told.append(machines)
        if self.failing:
            raise RuntimeError("a guest that fails")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def cloud(listener: Listener) -> Iterator[Cloud]:
    """A network, the node service account, and a secret without a version."""
    with connected(guests=listener) as cloud:
        cloud.make_network()
        cloud.ok("POST", ACCOUNTS, {"accountId": "tpu-nodes"})
        cloud.ok("POST", f"{SECRETS}?secretId=join", {"replication": {"automatic": {}}})
        yield cloud
    assert listener.closed


def machine(name: str = "vm", **extra: Any) -> Body:
    pods = [{"ipCidrRange": "/24", "subnetworkRangeName": "pods"}]
    own = {
        "networkInterfaces": [{"subnetwork": SUBNETWORK, "aliasIpRanges": pods}],
        "serviceAccounts": [{"email": ACCOUNT}],
        "metadata": {"items": [{"key": "tpu-role", "value": "node"}]},
    }
    return instance(name=name, **own, **extra)


def test_guests_see_machines_as_machines_see_themselves(cloud: Cloud, listener: Listener) -> None:
    cloud.ok("POST", f"{COMPUTE}/zones/{ZONE}/disks", {"name": "data", "sizeGb": "20"})
    [boot] = instance()["disks"]
    data = {"source": f"projects/{PROJECT}/zones/{ZONE}/disks/data", "deviceName": "etcd"}
    cloud.ok("POST", INSTANCES, machine() | {"disks": [boot, data]})
    eventually(lambda: bool(listener.told and listener.told[-1]))
    [seen] = listener.told[-1]
    assert (seen.short_name, seen.project, seen.zone) == ("vm", PROJECT, ZONE)
    assert (seen.attributes, seen.service_account) == ({"tpu-role": "node"}, ACCOUNT)
    assert (seen.address, seen.alias_ranges) == ("10.0.0.2", ("10.16.0.0/24",))
    disk = cloud.ok("GET", f"{COMPUTE}/zones/{ZONE}/disks/data")["id"]
    assert seen.data_disks == {"etcd": disk}


def test_guests_learn_of_changes_and_of_the_end(cloud: Cloud, listener: Listener) -> None:
    cloud.ok("POST", INSTANCES, machine())
    eventually(lambda: bool(listener.told and listener.told[-1]))
    [seen] = listener.told[-1]
    assert listener.cloud
    assert listener.cloud.exists(seen)
    found = cloud.ok("GET", f"{INSTANCES}/vm")
    items = {"items": [{"key": "tpu-role", "value": "other"}], "fingerprint": found["metadata"]["fingerprint"]}
    cloud.ok("POST", f"{INSTANCES}/vm/setMetadata", items)
    eventually(lambda: [m.attributes["tpu-role"] for m in listener.told[-1]] == ["other"])
    cloud.ok("POST", f"{INSTANCES}/vm/stop")
    eventually(lambda: listener.told[-1] == [])
    assert seen.name in listener.cloud.records("compute.instances")
    assert not listener.cloud.exists(seen)
    cloud.ok("DELETE", f"{INSTANCES}/vm")
    cloud.ok("POST", INSTANCES, machine())
    eventually(lambda: len(listener.told[-1]) == 1)
    assert listener.told[-1][0].id != seen.id
    assert not listener.cloud.exists(seen)
    cloud.control("reset")
    eventually(lambda: listener.told[-1] == [])


def test_a_guest_that_fails_is_told_again(cloud: Cloud, listener: Listener) -> None:
    listener.failing = True
    cloud.ok("POST", INSTANCES, machine())
    eventually(lambda: bool(listener.told and listener.told[-1]))
    cloud.ok("DELETE", f"{INSTANCES}/vm")
    eventually(lambda: listener.told[-1] == [])


def test_guests_are_told_again_after_a_restart(tmp_path: Path, listener: Listener) -> None:
    state = tmp_path / "state.sqlite"
    with connected(state=state) as cloud:
        cloud.make_network()
        cloud.ok("POST", INSTANCES, instance())
    with connected(state=state, guests=listener):
        eventually(lambda: [[m.short_name for m in told] for told in listener.told] == [["vm"]])


def test_what_a_machine_writes_is_read_at_its_serial_port(cloud: Cloud, listener: Listener) -> None:
    cloud.ok("POST", INSTANCES, machine())
    eventually(lambda: bool(listener.told and listener.told[-1]))
    [seen] = listener.told[-1]
    assert listener.cloud
    listener.cloud.log(seen, "booting")
    listener.cloud.log(seen, "joined")
    shown = cloud.ok("GET", f"{INSTANCES}/vm/serialPort?start=8")
    assert (shown["contents"], shown["next"]) == ("joined\n", "15")
    cloud.ok("DELETE", f"{INSTANCES}/vm")
    listener.cloud.log(seen, "too late")
    cloud.ok("POST", INSTANCES, machine())
    assert cloud.ok("GET", f"{INSTANCES}/vm/serialPort")["contents"] == ""


# What a service account may do


def bind(cloud: Cloud, role: str, policy: str = f"{SECRETS}/join", **condition: Any) -> None:
    binding = {"role": role, "members": [f"serviceAccount:{ACCOUNT}"], **condition}
    cloud.ok("POST", f"{policy}:setIamPolicy", {"policy": {"bindings": [binding]}})


@pytest.fixture
def account(cloud: Cloud, listener: Listener) -> Account:
    return GuestCloud(cloud.emulator.world).account(ACCOUNT)


def refusal(call: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(GoogleError) as refused:
        call()
    return refused.value.status, refused.value.message


def test_secrets_open_to_those_who_are_bound_to_them(cloud: Cloud, account: Account) -> None:
    status, message = refusal(lambda: account.add_secret_version(SECRET, b"one"))
    assert (status, "secretmanager.versions.add" in message, SECRET in message) == ("PERMISSION_DENIED", True, True)
    bind(cloud, "roles/secretmanager.secretVersionManager")
    assert account.replace_secret_version(SECRET, b"one").endswith("/versions/1")
    assert account.replace_secret_version(SECRET, b"two").endswith("/versions/2")
    states = [version["state"] for version in cloud.ok("GET", f"{SECRETS}/join/versions")["versions"]]
    assert states == ["ENABLED", "DESTROYED"]
    assert refusal(lambda: account.access_secret(SECRET))[0] == "PERMISSION_DENIED"
    bind(cloud, "roles/secretmanager.secretAccessor")
    assert account.access_secret(SECRET) == b"two"
    assert refusal(lambda: account.add_secret_version(SECRET, b"three"))[0] == "PERMISSION_DENIED"


def test_what_is_not_there_is_told_only_to_those_who_may_look(cloud: Cloud, account: Account) -> None:
    path = f"{INSTANCES}/gone"
    assert refusal(lambda: account.request("GET", path))[0] == "PERMISSION_DENIED"
    assert refusal(lambda: account.access_secret(SECRET))[0] == "PERMISSION_DENIED"
    bind(cloud, "roles/secretmanager.secretAccessor")
    assert refusal(lambda: account.access_secret(SECRET))[0] == "NOT_FOUND"
    bind(cloud, "roles/compute.viewer", f"/crm/v1/projects/{PROJECT}")
    assert refusal(lambda: account.request("GET", path))[0] == "NOT_FOUND"


def test_custom_roles_of_the_project_count_and_conditions_do_not(cloud: Cloud, account: Account) -> None:
    role = {"roleId": "join", "role": {"includedPermissions": ["secretmanager.versions.add"]}}
    cloud.ok("POST", f"/iam/v1/projects/{PROJECT}/roles", role)
    bind(cloud, f"projects/{PROJECT}/roles/join", f"/crm/v1/projects/{PROJECT}")
    account.add_secret_version(SECRET, b"one")
    cloud.ok("DELETE", f"/iam/v1/projects/{PROJECT}/roles/join")
    assert refusal(lambda: account.add_secret_version(SECRET, b"two"))[0] == "PERMISSION_DENIED"
    condition = {"title": "once", "expression": "request.time < timestamp('2020-01-01T00:00:00Z')"}
    bind(cloud, "roles/secretmanager.secretAccessor", condition=condition)
    assert refusal(lambda: account.access_secret(SECRET))[0] == "PERMISSION_DENIED"


def test_an_accounts_token_carries_its_rights_over_http(cloud: Cloud, account: Account) -> None:
    url = f"{cloud.emulator.url}{SECRETS}/join:addVersion"
    headers = {"Authorization": f"Bearer sandbox-service-account:{ACCOUNT}"}
    body = {"payload": {"data": "b25l"}}
    assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 403
    bind(cloud, "roles/secretmanager.secretVersionAdder")
    assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 200
    cloud.ok("POST", f"{ACCOUNTS}/{ACCOUNT}:disable", {})
    assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 401
    assert refusal(lambda: account.add_secret_version(SECRET, b"x"))[0] == "UNAUTHENTICATED"
    cloud.ok("DELETE", f"{ACCOUNTS}/{ACCOUNT}")
    assert httpx.post(url, json=body, headers=headers, trust_env=False).status_code == 401


# Buckets


def test_buckets_are_named_worldwide_and_know_their_project(cloud: Cloud, account: Account) -> None:
    buckets = "/storage/v1/b"
    found = cloud.ok("POST", f"{buckets}?project={PROJECT}", {"name": "backups", "location": "us-east5"})
    assert (found["location"], found["storageClass"]) == ("US-EAST5", "STANDARD")
    taken = cloud.refused(409, "POST", f"{buckets}?project=other", {"name": "backups"})
    assert "bucket name is not available" in taken["message"]
    for body, message in (
        ({"name": "UPPER"}, "Invalid bucket name"),
        ({"name": "elsewhere", "location": "mars1"}, "location constraint is not valid"),
    ):
        assert message in cloud.refused(400, "POST", f"{buckets}?project={PROJECT}", body)["message"]
    assert refusal(lambda: account.request("GET", f"{buckets}/backups/o"))[0] == "PERMISSION_DENIED"
    policy = cloud.ok("GET", f"{buckets}/backups/iam")
    binding = {"role": "roles/storage.objectViewer", "members": [f"serviceAccount:{ACCOUNT}"]}
    cloud.ok("PUT", f"{buckets}/backups/iam", {**policy, "bindings": [*policy["bindings"], binding]})
    assert account.request("GET", f"{buckets}/backups/o")["items"] == []
    assert cloud.refused(409, "PUT", f"{buckets}/backups/iam", policy)["status"] == "ABORTED"
    assert [bucket["name"] for bucket in cloud.ok("GET", f"{buckets}?project={PROJECT}")["items"]] == ["backups"]
    assert cloud.inventory()["storage.buckets"] == ["backups"]
    cloud.ok("DELETE", f"{buckets}/backups")
    cloud.refused(404, "GET", f"{buckets}/backups")
