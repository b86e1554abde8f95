"""The right of teams' members to reach the cluster."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from plan.platform import Platform
from plan.teams import all_members

CONNECT = "roles/container.clusterViewer"
"""Five permissions: to read clusters and the project, and to connect. What members do inside, RBAC decides."""


class TeamMembers(pulumi.ComponentResource):
    """One role for each member, whichever teams he is in. IAM has no policy of a cluster, so it is the project's."""

    TYPE = "tpu:gcp:TeamMembers"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for member in all_members(platform):
            gcp.projects.IAMMember(
                f"{name}-{member.written}",
                project=platform.project,
                role=CONNECT,
                member=member.written,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
            )
        self.register_outputs({"members": [member.written for member in all_members(platform)]})
