"""Workload Identity Federation for GKE: whose token a program in a cluster gets.

Stands for what GKE's metadata server asks of Google's token services. Different: the token of an account is given where
the account's own policy names the ServiceAccount with roles/iam.workloadIdentityUser; other ways to the permission
iam.serviceAccounts.getAccessToken (another role, a policy of the project) are not seen. Tokens do not expire. A cluster
without a workload identity pool gives no token, where GKE would give that of the node. The last line of a refusal is
the emulator's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sandbox.google.backend import ClusterRef
from sandbox.google.callers import ACCOUNT_TOKEN, WORKLOAD_TOKEN, service_account, workload_caller, workload_member
from sandbox.google.errors import GoogleError
from sandbox.google.policies import get_policy
from sandbox.google.service import dig
from sandbox.google.world import World

ROLE = "roles/iam.workloadIdentityUser"
_GUIDE = "https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#authenticating_to"


@dataclass(frozen=True)
class WorkloadIdentity:
    """The cloud as programs in its clusters reach it; `url` is the emulator's."""

    world: World
    url: str

    def token(self, cluster: ClusterRef, namespace: str, name: str, google_account: str) -> str:
        """An access token for a ServiceAccount of a cluster.

        It is the token of `google_account`, the e-mail that the ServiceAccount's annotation names; where that is "", it
        stands for the ServiceAccount itself. Raises GoogleError where GKE's metadata server gives none.
        """
        found = self.world.store.get("container.clusters", cluster.path) or {}
        pool = dig(found, "workloadIdentityConfig", "workloadPool")
        if not pool:
            raise GoogleError("NOT_FOUND", f"Cluster {cluster.path} has no workload identity pool.")
        if not google_account:
            return WORKLOAD_TOKEN + workload_caller(cluster.project, cluster.path, pool, namespace, name)
        member = workload_member(pool, namespace, name)
        self._require(google_account, member)
        return ACCOUNT_TOKEN + google_account

    def setting(self, cluster: ClusterRef, *path: str) -> Any:
        """What the API's Cluster has at a path, None where it ends early."""
        return dig(self.world.store.get("container.clusters", cluster.path), *path)

    def _require(self, email: str, member: str) -> None:
        account = service_account(self.world, email)
        if account is None or account.get("disabled"):
            raise GoogleError("NOT_FOUND", _refusal("404 Not Found: Not found; Gaia id not found", email, member))
        bindings = get_policy(self.world, account["name"]).get("bindings", [])
        bound = (each for each in bindings if each["role"] == ROLE and "condition" not in each)
        if not any(member in each["members"] for each in bound):
            denied = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
            raise GoogleError("PERMISSION_DENIED", _refusal(f"403 Forbidden: {denied}", email, member))


def _refusal(answer: str, email: str, member: str) -> str:
    return (
        f"Unable to generate access token; IAM returned {answer}\n"
        "This error could be caused by a missing IAM policy binding on the target IAM service account.\n"
        f"For more information, refer to the Workload Identity documentation:\n\t{_GUIDE}\n"
        f"Looked for {ROLE} on {email} for {member}\n"
    )
