"""The one place that turns a cluster into a Kubernetes Provider, so that identity and teardown rules cannot drift."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

from spec.platform import Platform


class ClusterAccess(pulumi.ComponentResource):
    """Kubeconfig, Provider, and the options every resource inside the cluster must carry."""

    TYPE = "tpu:kubernetes:Access"
    endpoint: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: gcp.container.Cluster,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._cluster = cluster
        self._after = list(after)
        self.endpoint = cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint
        self.kubeconfig = kubeconfig(self.endpoint, platform.cluster_name)
        self.provider = k8s.Provider(
            f"{name}-provider",
            kubeconfig=self.kubeconfig,
            # The stack's one cluster, whatever it is called and wherever it lies: another identifier would replace the
            # Provider, and with it delete the old cluster's objects through a connection that is gone.
            cluster_identifier=f"{pulumi.get_project()}/{pulumi.get_stack()}",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})

    def options(
        self,
        parent: pulumi.Resource,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        owns_cloud_resources: bool = False,
        custom_timeouts: pulumi.CustomTimeouts | None = None,
    ) -> pulumi.ResourceOptions:
        """Options of a resource inside the cluster.

        A new cluster of the same name is empty while the state says otherwise, so a new endpoint (its name carries the
        cluster's unique id) replaces everything inside. `replace_with` the cluster would do so too, but the engine then
        deletes in no particular order, and a Kueue that goes before its queues leaves them waiting for it for ever.

        `deleted_with` the cluster, because deleting objects one by one in a dying cluster hangs; objects that own cloud
        resources (load balancers, disks) are the exception and must be deleted while the cluster still works.
        """
        return pulumi.ResourceOptions(
            parent=parent,
            provider=self.provider,
            depends_on=[*self._after, *depends_on],
            deleted_with=None if owns_cloud_resources else self._cluster,
            replacement_trigger=self.endpoint,
            delete_before_replace=True,
            custom_timeouts=custom_timeouts,
        )


def kubeconfig(endpoint: pulumi.Output[str], context: str) -> pulumi.Output[str]:
    """Kubeconfig for a cluster's DNS endpoint: Google's public certificate, IAM decides, no credential inside."""
    return pulumi.Output.json_dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "clusters": [{"name": context, "cluster": {"server": pulumi.Output.concat("https://", endpoint)}}],
            "users": [
                {
                    "name": context,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "gke-gcloud-auth-plugin",
                            "installHint": "gcloud components install gke-gcloud-auth-plugin",
                            "interactiveMode": "IfAvailable",
                            "provideClusterInfo": True,
                        }
                    },
                }
            ],
        }
    )
