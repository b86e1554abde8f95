"""Access by role, on organizations, folders, projects and single resources; keys and buckets."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Setting, Settings, Stack, StackFinding
from policies.values import UNKNOWN, Finding, at, expect, items, mapping, settled, text

BROAD_ROLES = frozenset(
    f"roles/{role}"
    for role in (
        "owner",
        "editor",
        "admin",
        "writer",
        "accesscontextmanager.policyAdmin",
        "aiplatform.admin",
        "appengine.appAdmin",
        "cloudbuild.builds.builder",
        "cloudbuild.builds.editor",
        "cloudbuild.workerPoolOwner",
        "cloudfunctions.admin",
        "cloudfunctions.developer",
        "cloudkms.admin",
        "composer.admin",
        "compute.admin",
        "compute.instanceAdmin",
        "compute.instanceAdmin.v1",
        "compute.orgFirewallPolicyAdmin",
        "compute.securityAdmin",
        "compute.xpnAdmin",
        "container.admin",
        "container.clusterAdmin",
        "dataflow.admin",
        "dataproc.admin",
        "dataproc.editor",
        "deploymentmanager.editor",
        "iam.denyAdmin",
        "iam.organizationRoleAdmin",
        "iam.roleAdmin",
        "iam.securityAdmin",
        "iam.serviceAccountAdmin",
        "iam.serviceAccountKeyAdmin",
        "iam.workloadIdentityPoolAdmin",
        "notebooks.admin",
        "orgpolicy.policyAdmin",
        "resourcemanager.folderAdmin",
        "resourcemanager.folderIamAdmin",
        "resourcemanager.organizationAdmin",
        "resourcemanager.projectIamAdmin",
        "run.admin",
        "secretmanager.admin",
        "storage.admin",
        "workflows.admin",
    )
)
"""Roles that own the project, or that lead to this: they can grant roles, run code under another account, or read every
secret and bucket."""

PROJECT_WIDE_ROLES = (
    "roles/iam.serviceAccountUser",
    "roles/iam.serviceAccountTokenCreator",
    "roles/secretmanager.secretAccessor",
)
SERVICE_AGENT = re.compile(r"roles/.*[sS]erviceAgent")
GOOGLE_AGENT = re.compile(r"serviceAccount:(service-[0-9]+@.+|[0-9]+@cloud(services|build)\.gserviceaccount\.com)")
EVERYBODY = ("allusers", "allauthenticatedusers")


class Grant(NamedTuple):
    """One role, its members, and the properties of both; UNKNOWN for what is not known yet."""

    role: Any
    members: list[Any]
    role_path: str
    member_path: str


def _grants(resource: Resource) -> Iterator[Grant]:
    """What a resource grants: one role to a member or to several, or all the roles of a policy."""
    if at(resource.props, "policyData") is None:
        path = "member" if at(resource.props, "member") is not None else "members"
        members = [at(resource.props, path)] if path == "member" else items(resource.props, path)
        yield Grant(at(resource.props, "role"), members, "role", path)
        return
    for binding in items(_policy(resource), "bindings"):
        yield Grant(at(binding, "role"), items(binding, "members"), "policyData", "policyData")


def _policy(resource: Resource) -> Any:
    """The parsed policy; empty where it is not known yet, or where it is no JSON, which the API refuses."""
    data = at(resource.props, "policyData")
    try:
        return json.loads(data) if isinstance(data, str) else mapping(resource.props, "policyData")
    except ValueError:
        return {}


@RESOURCE.rule(
    "broad-roles",
    *tokens.PROJECT_IAM,
    *tokens.PARENT_IAM,
    reason="A host, and every pod that breaks out of it, would own the project, or all projects of a folder or"
    " organization; roles that run code under another account, or hand out roles, lead there too.",
    remedy="Grant what is needed: nodes need roles/container.defaultNodeServiceAccount",
    source="CIS GKE Benchmark 5.2.1; GKE hardening guide, least privilege; Google Cloud IAM documentation, role"
    " recommendations",
    cis=("5.2.1",),
)
def broad_roles(resource: Resource, settings: Settings) -> Iterator[Finding]:
    above = PROJECT_WIDE_ROLES if resource.type in tokens.PARENT_IAM else ()
    for grant in _grants(resource):
        if not isinstance(grant.role, str):
            continue
        agents = all(isinstance(each, str) and GOOGLE_AGENT.fullmatch(each) for each in grant.members)
        borrowed = SERVICE_AGENT.fullmatch(grant.role) and settled(resource.props, grant.member_path) and not agents
        if grant.role in BROAD_ROLES or grant.role in above or borrowed:
            yield Finding(grant.role_path, f"grants {grant.role}")


CUSTOM_ROLE = re.compile(r"(projects|organizations)/[^/]+/roles/(?P<id>.+)")
STRONG_PERMISSIONS = (
    "*.setIamPolicy",
    "cloudbuild.builds.create",
    "cloudfunctions.functions.create",
    "cloudfunctions.functions.update",
    "compute.instances.osAdminLogin",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.projects.setCommonInstanceMetadata",
    "container.clusterRoleBindings.*",
    "container.clusterRoles.*",
    "container.roleBindings.*",
    "container.roles.*",
    "container.secrets.*",
    "deploymentmanager.deployments.create",
    "iam.roles.create",
    "iam.roles.update",
    "iam.serviceAccountKeys.create",
    "iam.serviceAccounts.actAs",
    "iam.serviceAccounts.get*Token",
    "iam.serviceAccounts.implicitDelegation",
    "iam.serviceAccounts.sign*",
    "orgpolicy.policy.set",
    "run.services.create",
    "run.services.update",
    "secretmanager.versions.access",
    "serviceusage.apiKeys.create",
    "storage.hmacKeys.create",
)
ALLOWED_ROLES = Setting(
    "roles",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "description": "Custom roles, as projects/P/roles/R, that may be granted unseen; * stands for anything.",
    },
)


@STACK.rule(
    "custom-roles",
    reason="A custom role holds what its author likes: a grant is followed to the role where the stack makes it, and"
    " refused where nobody can see what the role allows.",
    remedy="Make the role in the stack, without permissions that lead to more; or list it in the policy's settings",
    source="Google Cloud IAM documentation, custom roles; privileges that escalate",
    settings=[ALLOWED_ROLES],
)
def custom_roles(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for resource in stack.of_type(*tokens.PROJECT_IAM, *tokens.PARENT_IAM):
        for grant in _grants(resource):
            definition = _definition(stack, resource, grant.role)
            if definition is not None:
                for permission in _strong(definition):
                    yield StackFinding(resource.urn, grant.role_path, f"is {definition.name}, with {permission}")
            elif _unseen(grant.role, settings[ALLOWED_ROLES.name]):
                yield StackFinding(resource.urn, grant.role_path, f"is {grant.role}, which is not in the stack")


def _unseen(role: Any, allowed: list[str]) -> bool:
    """Whether this is a custom role that the settings do not name."""
    custom = isinstance(role, str) and CUSTOM_ROLE.fullmatch(role)
    return bool(custom) and not any(fnmatchcase(role, pattern) for pattern in allowed)


def _definition(stack: Stack, grant: Resource, role: Any) -> Resource | None:
    """The custom role of a grant if the stack creates it: found by reference, or by its id."""
    referred = [stack.by_urn.get(urn) for urn in grant.property_dependencies.get("role", ())]
    for each in referred:
        if each is not None and each.type in tokens.CUSTOM_ROLES:
            return each
    named = CUSTOM_ROLE.fullmatch(role) if isinstance(role, str) else None
    made = stack.of_type(*tokens.CUSTOM_ROLES) if named else iter(())
    return next((each for each in made if named and at(each.props, "roleId") == named["id"]), None)


def _strong(role: Resource) -> list[str]:
    permissions = [each for each in items(role.props, "permissions") if isinstance(each, str)]
    return [each for each in permissions if any(fnmatchcase(each, strong) for strong in STRONG_PERMISSIONS)]


@RESOURCE.rule(
    "project-wide-grant",
    *tokens.PROJECT_IAM,
    level="advisory",
    reason="On the project these roles mean every service account and every secret in it.",
    remedy="Grant them on the one service account or secret",
    source="Google Cloud IAM documentation, roles for service accounts; Secret Manager best practices",
)
def project_wide_grant(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for grant in _grants(resource):
        if grant.role is not UNKNOWN and grant.role in PROJECT_WIDE_ROLES:
            yield Finding(grant.role_path, f"grants {grant.role}")


@RESOURCE.rule(
    "public-grant",
    *tokens.IAM_GRANTS,
    *tokens.ACCESS_LISTS,
    reason="allUsers is the internet, and allAuthenticatedUsers is everybody with a Google account.",
    remedy="Name the accounts or groups",
    source="Google Cloud IAM documentation, principal identifiers",
)
def public_grant(resource: Resource, settings: Settings) -> Iterator[Finding]:
    for path, member in (*_members(resource), *_listed(resource)):
        if member.lower() in EVERYBODY:
            yield Finding(path, f"is {member}")
    for path in ("predefinedAcl", "defaultAcl"):
        if text(resource.props, path).lower().startswith(("public", "authenticated")):
            yield Finding(path, f"is {text(resource.props, path)}")


def _members(resource: Resource) -> Iterator[tuple[str, str]]:
    for grant in _grants(resource):
        yield from ((grant.member_path, each) for each in grant.members if isinstance(each, str))


def _listed(resource: Resource) -> Iterator[tuple[str, str]]:
    """Members of access lists of buckets, objects and datasets."""
    for path in ("entity", "iamMember", "specialGroup"):
        yield path, text(resource.props, path)
    for entry in items(resource.props, "roleEntities"):
        if isinstance(entry, str):
            yield "roleEntities", entry.rpartition(":")[2]


@RESOURCE.rule(
    "service-account-key",
    tokens.SERVICE_ACCOUNT_KEY,
    reason="A key file works for years, from anywhere, for whoever copies it; its private half lies in the state.",
    remedy="Use Workload Identity in clusters, and workload identity federation in CI",
    source="Google Cloud IAM documentation, best practices for service account keys",
)
def service_account_key(key: Resource, settings: Settings) -> Iterator[Finding]:
    yield Finding("", "is a service account key")


@RESOURCE.rule(
    "bucket-private",
    tokens.BUCKET,
    reason="Snapshots of a cluster hold its secrets; access by object can open one file unnoticed.",
    remedy="Set uniformBucketLevelAccess: true and publicAccessPrevention: enforced",
    source="CIS Google Cloud Foundation Benchmark 5.1, 5.2",
)
def bucket_private(bucket: Resource, settings: Settings) -> Iterator[Finding]:
    yield from expect(bucket.props, "uniformBucketLevelAccess", True)
    yield from expect(bucket.props, "publicAccessPrevention", "enforced")
