"""Whose rights a call has, and on what: service accounts that hand other accounts to machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.tests.emulated_google import (
    ACCOUNT,
    ACCOUNTS,
    INSTANCES,
    POOLS,
    PROJECT,
    TEMPLATES,
    Body,
    Cloud,
    connected,
    instance,
    pool,
    template,
)

CALLER = f"provisioner@{PROJECT}.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{CALLER}"
PROJECT_POLICY = f"/crm/v1/projects/{PROJECT}"
ROLE = f"projects/{PROJECT}/roles/pools"
POOL_PERMISSIONS = ("container.clusters.get", "container.clusters.update", "container.operations.get")
USER = "roles/iam.serviceAccountUser"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """A cluster, the account of its nodes, and an account that may change pools and make machines, and nothing else."""
    with connected() as cloud:
        cloud.make_cluster()
        cloud.offer("v5e", "v6e", "tpu7x")
        cloud.ok("POST", ACCOUNTS, {"accountId": "provisioner"})
        role = {"includedPermissions": list(POOL_PERMISSIONS)}
        cloud.ok("POST", f"/iam/v1/projects/{PROJECT}/roles", {"roleId": "pools", "role": role})
        cloud.bind(PROJECT_POLICY, (ROLE, MEMBER), ("roles/compute.admin", MEMBER))
        yield cloud


MACHINES: dict[str, tuple[str, Body]] = {
    "pool": (POOLS, pool(machine="ct6e-standard-1t")),
    "instance": (INSTANCES, instance(serviceAccounts=[{"email": ACCOUNT}])),
    "template": (TEMPLATES, template(serviceAccounts=[{"email": ACCOUNT}])),
}


@pytest.mark.parametrize("made", MACHINES)
def test_an_account_is_handed_to_machines_by_whoever_its_own_policy_names(cloud: Cloud, made: str) -> None:
    path, body = MACHINES[made]
    with cloud.acting_as(CALLER) as caller:
        error = caller.refused(403, "POST", path, body)
        assert f'The user does not have access to service account "{ACCOUNT}"' in error["message"]
        assert "iam.serviceAccounts.actAs" in error["message"]
        cloud.bind(f"{ACCOUNTS}/{CALLER}", (USER, MEMBER))
        caller.refused(403, "POST", path, body)
        cloud.bind(f"{ACCOUNTS}/{ACCOUNT}", (USER, MEMBER))
        caller.ok("POST", path, body)
        cloud.bind(f"{ACCOUNTS}/{ACCOUNT}")
        body = {**body, "name": "second"} if made != "pool" else pool("second", "ct6e-standard-1t")
        caller.refused(403, "POST", path, body)


def test_a_role_on_the_project_covers_its_accounts(cloud: Cloud) -> None:
    cloud.bind(PROJECT_POLICY, (ROLE, MEMBER), (USER, MEMBER))
    with cloud.acting_as(CALLER) as caller:
        caller.ok("POST", POOLS, pool(machine="ct6e-standard-1t"))
