"""The service account that nodes run as."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from spec.platform import Platform

# What a GKE node needs and nothing more: logs, metrics, autoscaling metrics.
NODE_ROLE = "roles/container.defaultNodeServiceAccount"


class NodeIdentity(pulumi.ComponentResource):
    """A dedicated node service account: the project's default Compute Engine account may edit the whole project."""

    TYPE = "tpu:gcp:NodeIdentity"
    email: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        account = gcp.serviceaccount.Account(
            f"{name}-account",
            project=platform.project,
            account_id=f"{platform.name}-nodes",
            display_name=f"Nodes of TPU platform {platform.name}",
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )
        role = gcp.projects.IAMMember(
            f"{name}-role",
            project=platform.project,
            role=NODE_ROLE,
            member=account.member,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.email = account.email
        self.ready = [role]
        self.register_outputs({"email": self.email})
