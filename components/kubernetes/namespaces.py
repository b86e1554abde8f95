"""Namespaces that teams submit workloads to."""

import pulumi
import pulumi_kubernetes as k8s

from catalogue.labels import OPT_IN_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from plan import pod_security
from plan.platform import Platform


class Namespaces(pulumi.ComponentResource):
    """One Namespace a team, each under Pod Security."""

    TYPE = "tpu:kubernetes:Namespaces"
    by_name: dict[str, k8s.core.v1.Namespace]

    def __init__(
        self, name: str, *, platform: Platform, access: ClusterAccess, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        security = pod_security.namespace_labels(platform)
        self.by_name = {
            namespace: self._namespace(
                name,
                namespace,
                security | ({OPT_IN_LABEL: "true"} if namespace in platform.queue_namespaces else {}),
                access,
            )
            for namespace in platform.workload_namespaces
        }
        self.register_outputs({"names": sorted(self.by_name)})

    def _namespace(
        self, name: str, namespace: str, labels: dict[str, str], access: ClusterAccess
    ) -> k8s.core.v1.Namespace:
        return k8s.core.v1.Namespace(
            f"{name}-{namespace}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=namespace, labels=labels),
            opts=access.options(self),
        )
