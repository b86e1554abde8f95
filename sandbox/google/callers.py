"""Who calls: bearer tokens, and the members of policies that they stand for.

A caller is the e-mail of a service account; or the members of policies that are a person or a workload, with commas
between, the most special one first ("user:...,group:...", "principal://...,principalSet://..."); or "", the deployer.
"""

from __future__ import annotations

import re

from sandbox.google.errors import GoogleError
from sandbox.google.project_numbers import project_number
from sandbox.google.store import Resource
from sandbox.google.world import World

# A bearer token that starts so stands for the access token of the service account whose e-mail follows.
ACCOUNT_TOKEN = "sandbox-service-account:"
# Likewise for a workload without an account at Google (a Kubernetes ServiceAccount, say); its members follow.
WORKLOAD_TOKEN = "sandbox-workload:"
# Likewise for a person: "user:eva@example.com,group:research@example.com" follows.
PERSON_TOKEN = "sandbox-person:"
POOLS = "iam.workloadIdentityPools"  # store kind: full name with the project's number -> pool
_PRINCIPAL = re.compile(
    r"principal://.+/workloadIdentityPools/(?P<pool>[^/]+\.svc\.id\.goog)/subject/ns/(?P<namespace>.+)/sa/(?P<name>.+)"
)
_OWN_POOL = re.compile(
    r"principal://iam\.googleapis\.com/(projects/\d+/locations/global/workloadIdentityPools/[^/]+)/.+"
)


def caller_of(world: World, authorization: str) -> str:
    """Whose token an Authorization header carries; "" for a token that is none of the above, the deployer's.

    Raises 401 UNAUTHENTICATED without a token, for an account that does not exist or is disabled, and for a workload
    whose pool is deleted or disabled.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise GoogleError(
            "UNAUTHENTICATED",
            "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or"
            " other valid authentication credential.",
        )
    if token.startswith(PERSON_TOKEN):
        return token.removeprefix(PERSON_TOKEN)
    if token.startswith(WORKLOAD_TOKEN):
        caller = token.removeprefix(WORKLOAD_TOKEN)
        _require_pool(world, caller)
        return caller
    email = token.removeprefix(ACCOUNT_TOKEN) if token.startswith(ACCOUNT_TOKEN) else ""
    if email:
        require_usable(world, email)
    return email


def _require_pool(world: World, caller: str) -> None:
    own = _OWN_POOL.fullmatch(caller.partition(",")[0])
    if own is None or own[1].endswith(".svc.id.goog"):
        return
    pool = world.store.get(POOLS, own[1])
    if pool is None or pool["state"] != "ACTIVE" or pool.get("disabled"):
        raise GoogleError("UNAUTHENTICATED", f"The workload identity pool {own[1]} is deleted or disabled.")


def require_usable(world: World, email: str) -> None:
    """401 UNAUTHENTICATED unless a service account exists and is not disabled."""
    account = service_account(world, email)
    if account is None or account.get("disabled"):
        raise GoogleError("UNAUTHENTICATED", f"Service account {email} does not exist or is disabled.")


def service_account(world: World, email: str) -> Resource | None:
    accounts = world.store.all("iam.serviceAccounts").values()
    return next((account for account in accounts if account["email"] == email), None)


def workload_caller(project: str, cluster: str, pool: str, namespace: str, name: str) -> str:
    """A Kubernetes ServiceAccount by itself; `pool` is "PROJECT.svc.id.goog", `cluster` the full name of a cluster."""
    pools = f"iam.googleapis.com/projects/{project_number(project)}/locations/global/workloadIdentityPools/{pool}"
    return ",".join(
        (
            f"principal://{pools}/subject/ns/{namespace}/sa/{name}",
            f"principalSet://{pools}/namespace/{namespace}",
            f"principalSet://{pools}/kubernetes.cluster/https://container.googleapis.com/v1/{cluster}",
            f"principalSet://{pools}/*",
        )
    )


def workload_member(pool: str, namespace: str, name: str) -> str:
    """The older way in which policies name it."""
    return f"serviceAccount:{pool}[{namespace}/{name}]"


def is_federated(caller: str) -> bool:
    """Whether a caller is a workload without an account at Google."""
    return caller.startswith("principal://")


def members(caller: str) -> tuple[str, ...]:
    """The members of policies that are this caller."""
    if ":" not in caller:
        return (f"serviceAccount:{caller}",)
    own = tuple(caller.split(","))
    principal = _PRINCIPAL.fullmatch(own[0])
    return (*own, workload_member(**principal.groupdict())) if principal else own
