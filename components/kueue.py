"""The Kueue controller: admits workloads when the slices they need are theirs to use."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.access import ClusterAccess
from components.controllers import chart_release, controller_namespace, on_system_pool
from spec import kueue
from spec.platform import Platform
from spec.software import kueue_size

CHART = "oci://registry.k8s.io/kueue/charts/kueue"
NAMESPACE = "kueue-system"


class Kueue(pulumi.ComponentResource):
    """The Kueue chart with the platform's manager configuration. It comes after the controllers whose jobs it queues:
    a Kueue that does not come up must not hold up JobSet or the DRA driver."""

    TYPE = "tpu:kubernetes:Kueue"
    release: k8s.helm.v3.Release

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        namespace = controller_namespace(f"{name}-namespace", NAMESPACE, access, self)
        self.release = chart_release(
            f"{name}-release",
            release="kueue",
            chart=CHART,
            version=platform.software.kueue.version,
            namespace=NAMESPACE,
            values=values(platform),
            access=access,
            parent=self,
            depends_on=[namespace, *after],
        )
        self.register_outputs({"version": platform.software.kueue.version})


def values(platform: Platform) -> dict[str, Any]:
    """Chart values: two replicas, since all webhooks of queued namespaces go through them."""
    return {
        "managerConfig": {"controllerManagerConfigYaml": kueue.render(kueue.configuration(platform))},
        "controllerManager": {
            "replicas": 2,
            "nodeSelector": on_system_pool(platform),
            "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            "manager": {"resources": kueue_size(platform.most_nodes).resources()},
        },
    }
