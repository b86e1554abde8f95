"""The JobSet controller: jobs that span the hosts of one or several slices."""

import pulumi
import pulumi_kubernetes as k8s

from components.access import ClusterAccess
from components.controllers import chart_release, controller_namespace, on_system_pool
from spec.platform import Platform
from spec.software import jobset_size

CHART = "oci://registry.k8s.io/jobset/charts/jobset"
NAMESPACE = "jobset-system"
# Every upgrade of the chart would empty the Secret with the webhook's certificate, and no JobSet nor any of its pods
# could be created until the kubelet has caught up: the post-renderer keeps the Secret's data out of the release. The
# path is relative, since it lies in the state and a deployment may run from any checkout.
POST_RENDERER = "components/postrender/keep_webhook_certificate"


class JobSet(pulumi.ComponentResource):
    """The JobSet chart, on the system pool, sized by the platform."""

    TYPE = "tpu:kubernetes:JobSet"
    release: k8s.helm.v3.Release

    def __init__(
        self, name: str, *, platform: Platform, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        namespace = controller_namespace(f"{name}-namespace", NAMESPACE, access, self)
        self.release = chart_release(
            f"{name}-release",
            release="jobset",
            chart=CHART,
            version=platform.software.jobset.version,
            namespace=NAMESPACE,
            values={
                "controller": {
                    "nodeSelector": on_system_pool(platform),
                    "resources": jobset_size(platform.most_nodes).resources(),
                }
            },
            access=access,
            parent=self,
            depends_on=[namespace],
            postrender=POST_RENDERER,
        )
        self.register_outputs({"version": platform.software.jobset.version})
