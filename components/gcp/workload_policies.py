"""Workload policies: the placement of multi-host slices on generations that take no COMPACT placement."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from plan.platform import Platform
from plan.slices import WorkloadPolicy


class WorkloadPolicies(pulumi.ComponentResource):
    """One policy for each topology and mode, shared by the slices of that shape and deleted with the platform."""

    TYPE = "tpu:gcp:WorkloadPolicies"
    by_name: dict[str, gcp.compute.ResourcePolicy]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.by_name = {
            policy.name: self._policy(f"{name}-{policy.name}", platform, policy, after)
            for policy in platform.workload_policies
        }
        self.register_outputs({"names": sorted(self.by_name)})

    def _policy(
        self, name: str, platform: Platform, policy: WorkloadPolicy, after: Sequence[pulumi.Resource]
    ) -> gcp.compute.ResourcePolicy:
        return gcp.compute.ResourcePolicy(
            name,
            project=platform.project,
            region=platform.region,
            name=policy.name,
            workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT",
                accelerator_topology=policy.topology,
                accelerator_topology_mode=policy.mode,
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                delete_before_replace=True,
                # The provider plans a rename as an update, which the API refuses.
                replace_on_changes=["name"],
            ),
        )
