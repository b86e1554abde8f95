"""What still exists in the emulated cloud: the list that has to be empty after a destroy."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.google.compute_types import COLLECTIONS
from sandbox.google.secrets_and_keys import KEY_VERSIONS
from sandbox.google.service import short
from sandbox.google.store import Resource
from sandbox.google.world import SEEDED, World


def _always(world: World, name: str, value: Resource) -> bool:
    return True


def _unless_seeded(world: World, name: str, value: Resource) -> bool:
    return world.store.get(SEEDED, name) is None


def _of_own_bucket(world: World, name: str, value: Resource) -> bool:
    return _unless_seeded(world, value["bucket"], value)


def _usable_version(world: World, name: str, value: Resource) -> bool:
    return value["state"] != "DESTROYED" and _unless_seeded(world, name, value)


def _usable(world: World, name: str, value: Resource) -> bool:
    """Keys cannot be deleted; one whose versions are all destroyed (or about to be) is as good as gone."""
    return any(v["state"] == "ENABLED" for v in world.store.all(KEY_VERSIONS, f"{name}/").values())


KINDS: dict[str, Callable[[World, str, Resource], bool]] = {
    **{row.store_kind: _always for row in COLLECTIONS.values()},
    "compute.reservations": _unless_seeded,
    "container.clusters": _always,
    "container.nodePools": _always,
    "iam.serviceAccounts": _unless_seeded,
    "iam.roles": lambda world, name, value: not value.get("deleted"),
    "secretmanager.secrets": _unless_seeded,
    "secretmanager.versions": _usable_version,
    "cloudkms.cryptoKeys": _usable,
    "storage.buckets": _unless_seeded,
    "storage.objects": _of_own_bucket,
    "artifactregistry.repositories": _always,
    "billingbudgets.budgets": _always,
    "monitoring.dashboards": _always,
    "monitoring.alertPolicies": _always,
    "monitoring.notificationChannels": _unless_seeded,
    "logging.metrics": _always,
    "logging.exclusions": _always,
    "iam.workloadIdentityPools": lambda world, name, value: value["state"] == "ACTIVE",
    "iam.workloadIdentityPoolProviders": lambda world, name, value: value["state"] == "ACTIVE",
}


def inventory(world: World) -> dict[str, list[str]]:
    """Type -> names of everything that still exists, in creation order; types without any are left out.

    Not counted: projects, enabled services (a setting, which `disable_on_destroy=False` keeps on purpose), what
    others own, soft-deleted roles and identity pools, KMS key rings (Google never deletes them). IAM members of
    projects are listed as "ROLE MEMBER"; policies of other resources go with their resource.
    """
    found: dict[str, list[str]] = {}
    with world.store.lock:
        for kind, counts in KINDS.items():
            names = [short(name) for name, value in world.store.all(kind).items() if counts(world, name, value)]
            if names:
                found[kind] = names
        members = [
            f"{binding['role']} {member}"
            for name, policy in world.store.all("iam.policies").items()
            if name.startswith("projects/") and name.count("/") == 1
            for binding in policy.get("bindings", [])
            for member in binding["members"]
        ]
    return found | ({"projects.iamMembers": members} if members else {})
