"""Who the collector of queues' metrics is in Google Cloud, on GKE: its Kubernetes account itself, without a key."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.pod_identities import gke_identities
from plan.platform import Platform
from plan.queue_metrics import NAME, NAMESPACE, ROLE


class MetricsWriter(pulumi.ComponentResource):
    """The right to write metrics, and nothing else. `enabled`: the project's APIs; `cluster`: see gke_identities."""

    TYPE = "tpu:gcp:MetricsWriter"
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        enabled: Sequence[pulumi.Resource],
        cluster: pulumi.Resource | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        pods = gke_identities(platform, enabled, cluster)
        member = pods.of_account(NAMESPACE, NAME)
        self.ready = [
            gcp.projects.IAMMember(
                f"{name}-metrics",
                project=platform.project,
                role=ROLE,
                member=member,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(pods.after)),
            )
        ]
        self.register_outputs({"member": member})
