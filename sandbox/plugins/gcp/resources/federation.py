"""Workload identity pools and their providers (upstream: `services/iambeta`)."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.plugins.gcp.mapping import Json
from sandbox.plugins.gcp.resources.rest import Context, Rest, Variables


@dataclass(frozen=True, kw_only=True)
class _Federation(Rest):
    """What is deleted can still be read for 30 days; it counts as gone."""

    def fetch(self, context: Context, variables: Variables) -> Json | None:
        found = super().fetch(context, variables)
        return None if found and found.get("state") == "DELETED" else found


_POOL = "projects/{project}/locations/global/workloadIdentityPools"

POOL = _Federation(
    type="gcp:iam/workloadIdentityPool:WorkloadIdentityPool",
    api="iam",
    collection=_POOL,
    item=f"{_POOL}/{{workloadIdentityPoolId}}",
    create_query={"workloadIdentityPoolId": "{workloadIdentityPoolId}"},
    fields={"workloadIdentityPoolId": None},
    masked=True,
)

PROVIDER = _Federation(
    type="gcp:iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
    api="iam",
    collection=f"{_POOL}/{{workloadIdentityPoolId}}/providers",
    item=f"{_POOL}/{{workloadIdentityPoolId}}/providers/{{workloadIdentityPoolProviderId}}",
    create_query={"workloadIdentityPoolProviderId": "{workloadIdentityPoolProviderId}"},
    fields={"workloadIdentityPoolId": None, "workloadIdentityPoolProviderId": None},
    masked=True,
)

ROWS = (POOL, PROVIDER)
