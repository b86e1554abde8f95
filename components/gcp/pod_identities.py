"""Who pods are to Google Cloud: members of the project's pool of Kubernetes identities, with no account and no key."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from components.gcp.provider_function import ask_google
from plan.platform import Platform

READ_PROJECT = "gcp:organizations/getProject:getProject"


@dataclass(frozen=True)
class PodIdentities:
    """How IAM knows pods.

    - `pool`: the pool's name below `iam.googleapis.com/`
    - `by_namespace`: what it calls a namespace
    - `after`: what must exist before IAM takes its members
    """

    pool: pulumi.Output[str]
    by_namespace: str
    after: Sequence[pulumi.Resource]

    def of_namespace(self, namespace: str) -> pulumi.Output[str]:
        """IAM member: every pod of a namespace. Whoever starts pods there can use any of its accounts."""
        return pulumi.Output.concat(
            "principalSet://iam.googleapis.com/", self.pool, f"/{self.by_namespace}/{namespace}"
        )

    def of_account(self, namespace: str, account: str) -> pulumi.Output[str]:
        """IAM member: one Kubernetes service account, on GKE."""
        return pulumi.Output.concat(
            "principal://iam.googleapis.com/", self.pool, f"/subject/ns/{namespace}/sa/{account}"
        )


def gke_identities(
    platform: Platform, enabled: Sequence[pulumi.Resource], cluster: pulumi.Resource | None
) -> PodIdentities:
    """Identities of pods on GKE. The pool is the project's, and exists once it has a cluster that uses it.

    `enabled`: the project's APIs; reading its number needs one of them.
    """
    number = project_number(platform, enabled)
    pool = pulumi.Output.concat(
        "projects/", number, f"/locations/global/workloadIdentityPools/{platform.identity_pool}"
    )
    return PodIdentities(pool, "namespace", [cluster] if cluster else [])


def project_number(platform: Platform, enabled: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """The project's number, which IAM wants in names of pools. `enabled`: the project's APIs."""
    ids = pulumi.Output.all(*(_id(service) for service in enabled))
    return ids.apply(lambda _known: _read_number(platform.project))


def _id(resource: pulumi.Resource) -> pulumi.Output[str]:
    assert isinstance(resource, pulumi.CustomResource)
    return resource.id


async def _read_number(project: str) -> str:
    return str((await ask_google(READ_PROJECT, {"projectId": project}))["number"])
