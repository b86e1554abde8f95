"""The collector's right to write metrics, of its pods themselves and without a key."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from plan.platform import Platform
from plan.queue_metrics import ROLE


class MetricsWriter(pulumi.ComponentResource):
    """The right to write metrics, and nothing else. `after`: what must exist before IAM takes the member."""

    TYPE = "tpu:gcp:MetricsWriter"
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        member: pulumi.Output[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.ready = [
            gcp.projects.IAMMember(
                f"{name}-metrics",
                project=platform.project,
                role=ROLE,
                member=member,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
            )
        ]
        self.register_outputs({"member": member})
