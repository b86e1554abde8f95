"""VMs that run boot scripts dry, in front of one emulator a test process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox.tests.emulated_google import PROJECT, Cloud, connected
from tests.bootstrap.google import CONTROL_PLANE, NODES, STRANGER, Internet, Secrets, Vm, email, internet
from tests.bootstrap.machine import Machine, Role

_numbers = itertools.count(1)
MakeMachine = Callable[..., Machine]
NewSecrets = Callable[[], Secrets]


@pytest.fixture(scope="session")
def google() -> Iterator[Cloud]:
    with connected() as cloud:
        for account in (NODES, CONTROL_PLANE, STRANGER):
            body = {"accountId": account, "serviceAccount": {"displayName": account}}
            cloud.ok("POST", f"/iam/v1/projects/{PROJECT}/serviceAccounts", body)
        yield cloud


@pytest.fixture(scope="session")
def outside() -> Iterator[Internet]:
    with internet() as served:
        yield served


@pytest.fixture(scope="session")
def new_secrets(google: Cloud) -> NewSecrets:
    """Makes the secrets of a platform that no other test uses."""
    return lambda: Secrets(google, f"platform{next(_numbers)}")


@pytest.fixture
def secrets(new_secrets: NewSecrets) -> Secrets:
    return new_secrets()


@pytest.fixture(scope="session")
def machine(google: Cloud, outside: Internet, tmp_path_factory: pytest.TempPathFactory) -> MakeMachine:
    """Makes a VM: `machine("node", account, **attributes)`; `replaces` gives it the data disk of another one.

    Names of attributes may have underscores for hyphens; of one that is given both ways the last value counts.
    """

    def make(role: Role, account: str, *, replaces: Machine | None = None, **attributes: str) -> Machine:
        number = next(_numbers)
        name = f"vm-{number}"
        named = {key.replace("_", "-"): value for key, value in attributes.items()}
        record: dict[str, Any] = {
            "attributes": named,
            "id": 4000000000000000000 + number,
            "name": name,
            "networkInterfaces": [{"ip": "10.0.0.7", "ipAliases": ["10.16.3.0/24"], "mtu": 8896}],
            "zone": "projects/123456/zones/us-east5-b",
        }
        vm = Vm(record, f"sandbox-service-account:{email(account)}")
        outside.vms[name] = vm
        folder = tmp_path_factory.mktemp(name)
        made = Machine(folder, role, vm, google.emulator.url, f"{outside.url}/{name}")
        if replaces is not None:
            disk = made.root / "var/lib/tpu-platform"
            (replaces.root / "var/lib/tpu-platform").rename(disk)
            made.say("blkid", 0)  # something is on the disk
        return made

    return make
