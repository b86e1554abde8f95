"""IAM policies of any resource: read, replace under an etag, and what Google checks of their bindings."""

from __future__ import annotations

import itertools
import re

from sandbox.google.errors import GoogleError, invalid
from sandbox.google.project_numbers import project_number
from sandbox.google.service import Call, fingerprint
from sandbox.google.store import Change, Resource
from sandbox.google.world import World

KIND = "iam.policies"
EMPTY: Resource = {"version": 1, "etag": "ACAB"}
MEMBER = re.compile(
    r"(user|group|serviceAccount|domain|deleted:\w+|principal|principalSet|projectOwner|projectEditor|projectViewer):.+"
    r"|allUsers|allAuthenticatedUsers"
)
ROLE = re.compile(r"roles/[a-zA-Z0-9_.]+|(projects|organizations)/[^/]+/roles/[a-zA-Z0-9_.]{3,64}")
# Members that are workloads: the project's number, the pool, and what of it. Workforce pools belong to organizations.
PRINCIPAL = re.compile(
    r"(?P<kind>principal|principalSet)://iam\.googleapis\.com/"
    r"(?:projects/(?P<project>[^/]+)/locations/global/workloadIdentityPools"
    r"|locations/global/workforcePools)/(?P<pool>[^/]+)/(?P<rest>.+)"
)
SUBJECT = re.compile(r"subject/.+")
SUBJECTS = re.compile(r"(attribute\.[a-z0-9_]+|group|namespace|kubernetes\.(cluster|serviceaccount\.uid))/.+|\*")
OF_GKE = ".svc.id.goog"
# Roles that can be granted on buckets alone.
_BUCKET_ROLES = ("roles/storage.legacyBucket", "roles/storage.legacyObject")
WORKLOAD = re.compile(r"serviceAccount:([^\[]+\.svc\.id\.goog)\[[^/\]]+/[^/\]]+\]")
_GOOGLE_OWNED = ("gcp-sa-", "container-engine-robot")  # projects of service agents, which nobody creates
_revision = itertools.count(1)


def get_policy(world: World, resource: str) -> Resource:
    return world.store.get(KIND, resource) or EMPTY


def set_policy(call: Call, resource: str, wanted: Resource | None = None) -> Resource:
    """Replaces a policy by `wanted`, by default the body's `policy`.

    Raises 409 ABORTED on a stale etag, 400 for members or roles that do not exist.
    """
    policy = dict(call.body.get("policy") or {}) if wanted is None else dict(wanted)
    current = get_policy(call.world, resource)
    sent = policy.pop("etag", "")
    if sent and sent != current["etag"]:
        raise stale(sent, current["etag"])
    bindings = policy.get("bindings", [])
    for binding in bindings:
        _check_role(call, binding.get("role", ""), resource)
        for member in binding.get("members", []):
            _check_member(call, member)
    kept = [binding for binding in bindings if binding.get("members")]
    conditional = any("condition" in binding for binding in kept)
    stored = {**policy, "bindings": kept, "version": policy.get("version", 3) if conditional else 1}
    stored["etag"] = fingerprint([stored, next(_revision)])
    call.store.put(KIND, resource, stored)
    return stored


def stale(sent: str, current: str) -> GoogleError:
    return GoogleError(
        "ABORTED",
        "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff. The"
        f" request's ETag '{sent}' did not match the current policy's ETag '{current}'.",
    )


def _check_role(call: Call, role: str, resource: str) -> None:
    if not ROLE.fullmatch(role):
        raise invalid(f"Invalid role name '{role}'.")
    if role.startswith(_BUCKET_ROLES) and not resource.startswith("storage/buckets/"):
        raise invalid(f"Role {role} is not supported for this resource.")
    if role.startswith("projects/"):
        custom = call.store.get("iam.roles", role)
        if custom is None or custom.get("deleted"):
            raise invalid(f"Role {role} does not exist in the resource's hierarchy.")


def _check_member(call: Call, member: str) -> None:
    if not MEMBER.fullmatch(member):
        raise invalid(f"Invalid member '{member}': the member must be prefixed with its type, such as 'user:'.")
    workload = WORKLOAD.fullmatch(member)
    if workload and not call.world.has_identity_pool(workload[1]):
        raise _no_pool(workload[1])
    if member.startswith("principal"):
        _check_principal(call, member)
    kind, _, email = member.partition(":")
    account = re.fullmatch(r"[^@]+@([a-z0-9-]+)\.iam\.gserviceaccount\.com", email)
    if kind != "serviceAccount" or not account or account[1].startswith(_GOOGLE_OWNED):
        return
    if call.store.get("iam.serviceAccounts", f"projects/{account[1]}/serviceAccounts/{email}") is None:
        raise invalid(f"Service account {email} does not exist.")


def _no_pool(pool: str) -> GoogleError:
    return invalid(
        f"Identity Pool does not exist ({pool}). Please check that you specified a valid resource name as"
        " returned in the `name` attribute in the configuration API."
    )


def _check_principal(call: Call, member: str) -> None:
    """400 unless the member has Google's form, and its pool exists in the project of that number."""
    match = PRINCIPAL.fullmatch(member)
    form = SUBJECT if member.startswith("principal:") else SUBJECTS
    if match is None or not form.fullmatch(match["rest"]):
        raise invalid(f"Invalid principal or principalSet member '{member}'.")
    project, pool = match["project"], match["pool"]
    if project is None:
        return
    if pool.endswith(OF_GKE):
        exists = project == project_number(pool.removesuffix(OF_GKE)) and call.world.has_identity_pool(pool)
    else:
        name = f"projects/{project}/locations/global/workloadIdentityPools/{pool}"
        own = call.store.get("iam.workloadIdentityPools", name)
        exists = own is not None and own["state"] == "ACTIVE"
    if not exists:
        raise _no_pool(pool)


def forget_account(world: World, email: str, unique_id: str) -> list[Change]:
    """Policies keep the members of a deleted service account, marked as deleted."""
    old, new = f"serviceAccount:{email}", f"deleted:serviceAccount:{email}?uid={unique_id}"
    changes = []
    for name, policy in world.store.all(KIND).items():
        bindings = [
            {**b, "members": [new if member == old else member for member in b["members"]]} for b in policy["bindings"]
        ]
        if bindings != policy["bindings"]:
            changes.append(Change(KIND, name, {**policy, "bindings": bindings, "etag": fingerprint(bindings)}))
    return changes
