"""The one place that turns a cluster into a Kubernetes Provider, so that identity and teardown rules cannot drift."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

EXEC_API = "client.authentication.k8s.io"


@dataclass(frozen=True)
class Endpoint:
    """`server`: the API server's URL; `ca`: its authority's certificate in PEM, in base64."""

    server: str
    ca: str

    @property
    def host(self) -> str:
        """The server without its scheme."""
        return self.server.removeprefix("https://")


@dataclass(frozen=True)
class ClusterAccess:
    """How resources inside a cluster are made: the Provider, and the options that every one of them must carry.

    - `endpoint`: the API server's host, with its port where that is not 443
    - `identity`: what the cluster stands and falls with; None if somebody else runs it
    - `generation`: a text that no other cluster in the same place has had; None if somebody else runs it
    - `after`: what everything inside comes after
    """

    endpoint: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider
    identity: pulumi.Resource | None
    generation: pulumi.Input[str] | None
    after: tuple[pulumi.Resource, ...] = ()

    def behind(self, *resources: pulumi.Resource) -> "ClusterAccess":
        """The same access for what comes after `resources`, too."""
        return replace(self, after=(*self.after, *resources))

    def options(
        self,
        parent: pulumi.Resource,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        owns_cloud_resources: bool = False,
        custom_timeouts: pulumi.CustomTimeouts | None = None,
    ) -> pulumi.ResourceOptions:
        """Options of a resource inside the cluster.

        A new cluster in the old one's place is empty while the state says otherwise, so another `generation` replaces
        everything inside. `replace_with` the cluster would do so too, but the engine then deletes in no particular
        order, and a Kueue that goes before its queues leaves them waiting for it for ever.

        `deleted_with` the cluster, because deleting objects one by one in a dying cluster hangs; objects that own cloud
        resources (load balancers, disks) are the exception and must be deleted while the cluster still works. So must
        all objects in a cluster that stays.
        """
        return pulumi.ResourceOptions(
            parent=parent,
            provider=self.provider,
            depends_on=[*self.after, *depends_on],
            deleted_with=None if owns_cloud_resources else self.identity,
            replacement_trigger=self.generation,
            delete_before_replace=True,
            custom_timeouts=custom_timeouts,
        )


class Access(pulumi.ComponentResource):
    """The Provider of a cluster."""

    TYPE = "tpu:kubernetes:Access"
    cluster: ClusterAccess

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Output[str],
        endpoint: pulumi.Output[str],
        identity: pulumi.Resource | None,
        generation: pulumi.Input[str] | None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        provider = k8s.Provider(
            f"{name}-provider",
            kubeconfig=kubeconfig,
            # The stack's one cluster, whatever it is called and wherever it lies: another identifier would replace the
            # Provider, and with it delete the old cluster's objects through a connection that is gone.
            cluster_identifier=f"{pulumi.get_project()}/{pulumi.get_stack()}",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.cluster = ClusterAccess(endpoint, kubeconfig, provider, identity, generation)
        self.register_outputs({"kubeconfig": kubeconfig})


def gke_kubeconfig(endpoint: pulumi.Output[str], context: str) -> pulumi.Output[str]:
    """Kubeconfig for a cluster's DNS endpoint: Google's public certificate, IAM decides, no credential inside."""
    plugin = {
        "apiVersion": f"{EXEC_API}/v1beta1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }
    server = {"server": pulumi.Output.concat("https://", endpoint)}
    return pulumi.Output.json_dumps(_kubeconfig(context, server, plugin))


def secret_kubeconfig(endpoint: Endpoint, secret: str, context: str) -> str:
    """Kubeconfig whose credential stays in Secret Manager, short-lived and guarded by IAM, until it is used.

    `secret`: projects/P/secrets/S, whose newest version is an ExecCredential.
    """
    _, project, _, name = secret.split("/")
    gcloud = {
        "apiVersion": f"{EXEC_API}/v1",
        "command": "gcloud",
        "args": ["secrets", "versions", "access", "latest", f"--secret={name}", f"--project={project}"],
        "installHint": "the gcloud CLI, logged in as somebody who may read the secret",
        "interactiveMode": "Never",
    }
    server = {"server": endpoint.server, "certificate-authority-data": endpoint.ca}
    return json.dumps(_kubeconfig(context, server, gcloud))


def _kubeconfig(context: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": {"exec": user}}],
    }
