"""ComputeClasses: the order in which GKE tries the pools of a slice group with fallbacks."""

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform
from plan.slices import ComputeClass


class ComputeClasses(pulumi.ComponentResource):
    """One ComputeClass for each group. Its pods run in the first of its pools that has, or can get, capacity."""

    TYPE = "tpu:kubernetes:ComputeClasses"

    def __init__(
        self, name: str, *, platform: Platform, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for compute_class in platform.compute_classes:
            self._compute_class(f"{name}-{compute_class.name}", compute_class, access)
        self.register_outputs({"names": [compute_class.name for compute_class in platform.compute_classes]})

    def _compute_class(
        self, name: str, compute_class: ComputeClass, access: ClusterAccess
    ) -> k8s.apiextensions.CustomResource:
        return k8s.apiextensions.CustomResource(
            name,
            api_version="cloud.google.com/v1",
            kind="ComputeClass",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=compute_class.name),
            spec={
                "priorities": [{"nodepools": list(pools)} for pools in compute_class.priorities],
                # The program creates the pools, not GKE. GKE never moves a running slice to a cheaper pool.
                "nodePoolAutoCreation": {"enabled": False},
                "activeMigration": {"optimizeRulePriority": False},
                "whenUnsatisfiable": "DoNotScaleUp",
            },
            opts=access.options(self),
        )
