"""The IAM permissions a stack's identities need, from what its program registers.

Three identities: a viewer, who previews without a way into the cluster; an auditor, who also reads what is inside it;
and a deployer, who brings the stack up and destroys it. What an identity needs on the billing account is a set of its
own, because no role of a project can grant it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import yaml

from tools.permission_table import BILLING_ACCOUNT, GOOGLE, OTHER_CLUSTER, READ, VERBS, Row, kubernetes_row
from tools.registrations import Registration

Identity = Literal["deployer", "auditor", "viewer"]
CLUSTER = "gcp:container/cluster:Cluster"
_KNOWN = GOOGLE.keys() | BILLING_ACCOUNT.keys()


class UnknownTypesError(Exception):
    """The program registers types whose permissions are in no table: `types`."""

    def __init__(self, types: Iterable[str]) -> None:
        self.types = tuple(sorted(types))
        super().__init__(f"no permissions are known for {', '.join(self.types)}; add rows to tools/permission_table.py")


@dataclass(frozen=True)
class Permissions:
    """What one identity needs: permission -> the types that need it, both sorted.

    `google` are those of Google's own APIs, `kubernetes` those of objects inside a GKE cluster, which IAM grants too;
    `billing`: whether they are needed on the billing account, and not on the project.
    """

    identity: Identity
    google: Mapping[str, tuple[str, ...]]
    kubernetes: Mapping[str, tuple[str, ...]]
    billing: bool = False

    @property
    def names(self) -> list[str]:
        return sorted({*self.google, *self.kubernetes})


def needed(registered: Iterable[Registration], identity: Identity) -> Permissions:
    """The permissions on the project for a program's registrations. Raises UnknownTypesError.

    Inside a cluster that is not GKE's, the cluster itself decides, not IAM. Whoever only reads is granted the secrets
    that lead there one by one: on the project the right would open every secret.
    """
    registered = list(registered)
    unknown = {each.type for each in registered if each.type.startswith("gcp:") and each.type not in _KNOWN}
    if unknown:
        raise UnknownTypesError(unknown)
    in_gke = any(each.type == CLUSTER for each in registered)
    rows = GOOGLE | OTHER_CLUSTER if identity == "deployer" and not in_gke else GOOGLE
    google = [(each, rows.get(each.type)) for each in registered]
    inside = [(each, kubernetes_row(each.type)) for each in registered if in_gke and identity != "viewer"]
    return Permissions(identity, _by_permission(google, identity), _by_permission(inside, identity))


def needed_on_billing_account(registered: Iterable[Registration], identity: Identity) -> Permissions:
    """The permissions on the billing account for a program's registrations; none without a budget."""
    pairs = [(each, BILLING_ACCOUNT.get(each.type)) for each in registered]
    return Permissions(identity, _by_permission(pairs, identity), {}, billing=True)


def _by_permission(
    pairs: Iterable[tuple[Registration, Row | None]], identity: Identity
) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for each, row in pairs:
        for verb in VERBS if identity == "deployer" else (READ,):
            for permission in row.needs(verb, each.inputs) if row else ():
                found.setdefault(permission, set()).add(each.type)
    return {permission: tuple(sorted(found[permission])) for permission in sorted(found)}


def as_text(permissions: Permissions) -> str:
    """One permission a line, for scripts."""
    return "\n".join(permissions.names)


def as_json(permissions: Permissions) -> str:
    """Permissions with the types that need them."""
    groups = {"google": permissions.google, "kubernetes": permissions.kubernetes}
    return json.dumps({"identity": permissions.identity, **groups}, indent=2)


def as_role(permissions: Permissions, stack: str) -> str:
    """A custom role for `gcloud iam roles create ID --file=FILE`: of the project, or of the organization for what is
    needed on the billing account."""
    verb = {"deployer": "Brings up and destroys", "auditor": "Refreshes", "viewer": "Previews"}[permissions.identity]
    role = {
        "title": f"TPU platform {stack} {permissions.identity}{' billing' if permissions.billing else ''}",
        "description": f"{verb} the stack {stack}; made by python -m tools permissions.",
        "stage": "GA",
        "includedPermissions": permissions.names,
    }
    return yaml.safe_dump(role, sort_keys=False)
