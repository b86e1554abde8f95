"""Limits how a team can open its pods to the world: load balancers cost, and the internet reaches them."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform
from plan.teams import object_limits


class TeamLimits(pulumi.ComponentResource):
    """A ResourceQuota for each team, on numbers of objects only: limits of CPU and memory would fail admitted jobs.

    `namespaces`: for each namespace, the resources that must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:TeamLimits"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for team, spec in platform.teams.items():
            k8s.core.v1.ResourceQuota(
                f"{name}-{team}",
                metadata=k8s.meta.v1.ObjectMetaArgs(name="team", namespace=team),
                spec=k8s.core.v1.ResourceQuotaSpecArgs(hard=object_limits(spec)),
                opts=access.options(self, depends_on=namespaces[team]),
            )
        self.register_outputs({"teams": sorted(platform.teams)})
