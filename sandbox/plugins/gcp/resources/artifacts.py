"""Artifact Registry: repositories and members of their policies."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.plugins.gcp.mapping import Field, Json, link
from sandbox.plugins.gcp.resources.access import POLICY_VERSION, PolicyMember
from sandbox.plugins.gcp.resources.rest import Inputs, Rest, Variables
from sandbox.plugins.gcp.settings import Settings

_REPOSITORY = "projects/{project}/locations/{location}/repositories/{repositoryId}"


def _by_id(policies: list[Json]) -> Json:
    return {policy["id"]: {key: value for key, value in policy.items() if key != "id"} for policy in policies}


REPOSITORY = Rest(
    type="gcp:artifactregistry/repository:Repository",
    api="artifact_registry",
    collection="projects/{project}/locations/{location}/repositories",
    item=_REPOSITORY,
    create_query={"repository_id": "{repositoryId}"},
    fields={
        "repositoryId": None,
        "name": link(),
        "cleanupPolicies": Field(
            send=_by_id, receive=lambda named: [{"id": name, **policy} for name, policy in named.items()]
        ),
    },
    masked=True,
)


@dataclass(frozen=True, kw_only=True)
class RepositoryMember(PolicyMember):
    """`repository` is a name, or a full name that says project and location too."""

    def variables(self, settings: Settings, inputs: Inputs) -> Variables:
        parts = str(inputs.get("repository", "")).split("/")
        placed = {"project": parts[1], "location": parts[3]} if len(parts) == 6 else {}
        variables = super().variables(settings, {**inputs, **placed})
        return {**variables, "repositoryId": parts[-1]}


REPOSITORY_MEMBER = RepositoryMember(
    type="gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
    api="artifact_registry",
    collection="projects/{project}/locations/{location}/repositories",
    item=_REPOSITORY,
    get_method="GET",
    get_query={"options.requestedPolicyVersion": str(POLICY_VERSION)},
    resource_property="repository",
)

ROWS = (REPOSITORY, REPOSITORY_MEMBER)
