"""Which caller may do what: policy bindings, and the permissions of the roles they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from sandbox.google.callers import members
from sandbox.google.policies import get_policy
from sandbox.google.project_numbers import project_number
from sandbox.google.world import World

_PROJECT = ("resourcemanager.projects.get", "resourcemanager.projects.list")
ACT_AS = "iam.serviceAccounts.actAs"
AGENT_ROLE = "roles/container.serviceAgent"
_IMAGES_READ = (
    *("artifactregistry.*.get", "artifactregistry.*.list", "artifactregistry.repositories.downloadArtifacts"),
    *_PROJECT,
)
_VERSION_MANAGER = ("add", "destroy", "disable", "enable", "get", "list")
# Predefined roles that machines are given, and the basic ones; from Google's IAM roles and permissions index, cut to
# the services this emulator serves. A role that is not listed grants nothing here.
PREDEFINED: dict[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/viewer": ("*.get", "*.list"),
    "roles/artifactregistry.reader": _IMAGES_READ,
    "roles/artifactregistry.writer": (*_IMAGES_READ, "artifactregistry.repositories.uploadArtifacts"),
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
    "roles/container.clusterAdmin": ("container.clusters.*", "container.operations.*", *_PROJECT),
    "roles/container.clusterViewer": (
        *(f"container.clusters.{verb}" for verb in ("connect", "get", "list")),
        *_PROJECT,
    ),
    AGENT_ROLE: ("compute.*", "container.*", ACT_AS, "iam.serviceAccounts.get", *_PROJECT),
    "roles/iam.serviceAccountUser": (
        ACT_AS,
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
    "roles/storage.bucketViewer": ("storage.buckets.get", "storage.buckets.list"),
    "roles/storage.legacyBucketReader": (
        "storage.buckets.get",
        "storage.multipartUploads.list",
        "storage.objects.list",
    ),
    "roles/storage.objectAdmin": ("storage.objects.*", *_PROJECT),
    "roles/storage.objectCreator": ("storage.objects.create", *_PROJECT),
    "roles/storage.objectUser": ("storage.objects.*", *_PROJECT),
    "roles/storage.objectViewer": ("storage.objects.get", "storage.objects.list", *_PROJECT),
}


def allows(world: World, caller: str, permission: str, resources: Sequence[str]) -> bool:
    """Whether a caller holds a permission on a resource or on one of those it is part of.

    `resources` are the names under which the store keeps policies, e.g. a project and a secret in it. A binding with a
    condition grants nothing: the emulator does not evaluate conditions.
    """
    own = frozenset(members(caller))
    return any(grants(world, role, permission) for resource in resources for role in _roles_of(world, resource, own))


def service_agent(project: str) -> str:
    """The e-mail of the account with which GKE itself works in a project.

    Google gives it AGENT_ROLE on the project. Here the project's policy does not show that, and nobody can revoke it.
    """
    return f"service-{project_number(project)}@container-engine-robot.iam.gserviceaccount.com"


def _roles_of(world: World, resource: str, own: frozenset[str]) -> Iterator[str]:
    kind, _, name = resource.partition("/")
    if kind == "projects" and f"serviceAccount:{service_agent(name)}" in own:
        yield AGENT_ROLE
    for binding in get_policy(world, resource).get("bindings", []):
        if own.intersection(binding["members"]) and "condition" not in binding:
            yield binding["role"]


def grants(world: World, role: str, permission: str) -> bool:
    """Whether a predefined role, or a custom one that exists, contains a permission."""
    custom = world.store.get("iam.roles", role) or {}
    own = [] if custom.get("deleted") else custom.get("includedPermissions", [])
    return any(fnmatchcase(permission, pattern) for pattern in (*PREDEFINED.get(role, ()), *own))
