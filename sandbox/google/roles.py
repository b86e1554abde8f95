"""Which service account may do what: policy bindings, and the permissions of the roles they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from sandbox.google.errors import GoogleError
from sandbox.google.policies import get_policy
from sandbox.google.world import World

_PROJECT = ("resourcemanager.projects.get", "resourcemanager.projects.list")
_VERSION_MANAGER = ("add", "destroy", "disable", "enable", "get", "list")
# Predefined roles that machines are given, and the basic ones; from Google's IAM roles and permissions index, cut to
# the services this emulator serves. A role that is not listed grants nothing here.
PREDEFINED: dict[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/viewer": ("*.get", "*.list"),
    "roles/artifactregistry.reader": ("artifactregistry.*.get", "artifactregistry.*.list"),
    "roles/compute.admin": ("compute.*", *_PROJECT),
    "roles/compute.instanceAdmin.v1": (
        "compute.disks.*",
        "compute.instanceGroupManagers.*",
        "compute.instanceGroups.*",
        "compute.instanceTemplates.*",
        "compute.instances.*",
        "compute.*.get",
        "compute.*.list",
        "compute.addresses.use",
        "compute.subnetworks.use",
        *_PROJECT,
    ),
    "roles/compute.networkViewer": (
        *(
            f"compute.{collection}.{verb}"
            for collection in (
                "addresses",
                "firewalls",
                "forwardingRules",
                "networks",
                "routers",
                "routes",
                "subnetworks",
            )
            for verb in ("get", "list")
        ),
        *_PROJECT,
    ),
    "roles/compute.viewer": ("compute.*.get", "compute.*.list", *_PROJECT),
    "roles/iam.serviceAccountUser": (
        "iam.serviceAccounts.actAs",
        "iam.serviceAccounts.get",
        "iam.serviceAccounts.list",
        *_PROJECT,
    ),
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",),
    "roles/secretmanager.admin": ("secretmanager.*", *_PROJECT),
    "roles/secretmanager.secretAccessor": ("secretmanager.versions.access", *_PROJECT),
    "roles/secretmanager.secretVersionAdder": ("secretmanager.versions.add", *_PROJECT),
    "roles/secretmanager.secretVersionManager": (
        *(f"secretmanager.versions.{verb}" for verb in _VERSION_MANAGER),
        *_PROJECT,
    ),
    "roles/secretmanager.viewer": (
        "secretmanager.secrets.get",
        "secretmanager.secrets.getIamPolicy",
        "secretmanager.secrets.list",
        "secretmanager.versions.get",
        "secretmanager.versions.list",
        *_PROJECT,
    ),
    "roles/storage.admin": ("storage.*", *_PROJECT),
    "roles/storage.objectAdmin": ("storage.objects.*", *_PROJECT),
    "roles/storage.objectCreator": ("storage.objects.create", *_PROJECT),
    "roles/storage.objectUser": ("storage.objects.*", *_PROJECT),
    "roles/storage.objectViewer": ("storage.objects.get", "storage.objects.list", *_PROJECT),
}


def require_usable(world: World, email: str) -> None:
    """401 UNAUTHENTICATED unless a service account exists and is not disabled."""
    account = _account(world, email)
    if account is None or account.get("disabled"):
        raise GoogleError("UNAUTHENTICATED", f"Service account {email} does not exist or is disabled.")


def _account(world: World, email: str) -> dict[str, object] | None:
    accounts = world.store.all("iam.serviceAccounts").values()
    return next((account for account in accounts if account["email"] == email), None)


def allows(world: World, email: str, permission: str, resources: Sequence[str]) -> bool:
    """Whether a service account holds a permission on a resource or on one of those it is part of.

    `resources` are the names under which the store keeps policies, e.g. a project and a secret in it. A binding with a
    condition grants nothing: the emulator does not evaluate conditions.
    """
    member = f"serviceAccount:{email}"
    return any(grants(world, role, permission) for resource in resources for role in _roles_of(world, resource, member))


def _roles_of(world: World, resource: str, member: str) -> Iterator[str]:
    for binding in get_policy(world, resource).get("bindings", []):
        if member in binding["members"] and "condition" not in binding:
            yield binding["role"]


def grants(world: World, role: str, permission: str) -> bool:
    """Whether a predefined role, or a custom one that exists, contains a permission."""
    custom = world.store.get("iam.roles", role) or {}
    own = [] if custom.get("deleted") else custom.get("includedPermissions", [])
    return any(fnmatchcase(permission, pattern) for pattern in (*PREDEFINED.get(role, ()), *own))
