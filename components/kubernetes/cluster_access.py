"""The one place that makes a Kubernetes Provider of a cluster, and sets how objects inside are replaced and deleted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
import pulumi_kubernetes as k8s

from plan import kubeconfig


@dataclass(frozen=True)
class Endpoint:
    """`server`: the API server's URL; `ca`: its authority's certificate in PEM, in base64; `jwks`: the keys that verify
    tokens of its service accounts, in base64, empty where they are not known."""

    server: str
    ca: str
    jwks: str = ""

    @property
    def host(self) -> str:
        """The server without its scheme."""
        return self.server.removeprefix("https://")


@dataclass(frozen=True)
class ClusterAccess:
    """How to create resources inside a cluster: the Provider, and the options that each of them must have.

    - `endpoint`: the API server's host, with its port where that is not 443
    - `identity`: the resource that is deleted only with the cluster; None if somebody else runs it
    - `generation`: a text that is different for each cluster; None if somebody else runs it
    - `after`: what must exist before everything inside
    """

    endpoint: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider
    identity: pulumi.Resource | None
    generation: pulumi.Input[str] | None
    after: tuple[pulumi.Resource, ...] = ()

    def behind(self, *resources: pulumi.Resource) -> "ClusterAccess":
        """The same access, for what must wait for `resources` as well."""
        return replace(self, after=(*self.after, *resources))

    def within(self, namespace: pulumi.Resource) -> "ClusterAccess":
        """The same access, for what must wait for a namespace, which waits for `after` itself."""
        return replace(self, after=(namespace,))

    def options(
        self,
        parent: pulumi.Resource,
        *,
        depends_on: Sequence[pulumi.Resource] = (),
        outside: Sequence[pulumi.Resource] = (),
        custom_timeouts: pulumi.CustomTimeouts | None = None,
    ) -> pulumi.ResourceOptions:
        """Options of a resource inside the cluster. It waits for `depends_on`, which is inside too, and for `outside`.

        What is inside waits for `after`, so that who waits for it need not name `after` again. The engine follows every
        path of dependencies when a deletion fails (upstream: `pkg/resource/graph`, `markAsDependency`), which takes
        minutes where each object names all that its dependencies name.

        A cluster that replaces another one is empty, although the state lists objects in it. So a new `generation`
        replaces everything inside. `replace_with` the cluster would do so too, but then the engine deletes in no
        particular order, and queues that outlive Kueue wait forever for it to release them.

        Objects are `deleted_with` the cluster, because deleting them one by one in a dying cluster hangs. In a
        cluster that somebody else runs, they are deleted one by one.
        """
        return pulumi.ResourceOptions(
            parent=parent,
            provider=self.provider,
            depends_on=[*(depends_on or self.after), *outside],
            deleted_with=self.identity,
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
            # Constant, whatever the cluster's name and location. A new identifier would replace the Provider, and the
            # engine would delete the old cluster's objects through a connection that is gone.
            cluster_identifier=f"{pulumi.get_project()}/{pulumi.get_stack()}",
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.cluster = ClusterAccess(endpoint, kubeconfig, provider, identity, generation)
        self.register_outputs({"kubeconfig": kubeconfig})


def gke_kubeconfig(endpoint: pulumi.Output[str], context: str) -> pulumi.Output[str]:
    """Kubeconfig for a GKE DNS endpoint: Google's public certificate, access by IAM, no credential inside."""
    return pulumi.Output.json_dumps(kubeconfig.gke_kubeconfig(pulumi.Output.concat("https://", endpoint), context))


def secret_kubeconfig(endpoint: Endpoint, secret: str, context: str) -> str:
    """Kubeconfig that reads its short-lived credential from Secret Manager; `secret`: projects/P/secrets/S."""
    return json.dumps(kubeconfig.secret_kubeconfig(endpoint.server, endpoint.ca, secret, context))
