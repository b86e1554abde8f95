"""What pods of a self-managed cluster read to become known to Google Cloud."""

import json
from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan.federation import CONFIG_MAP, CREDENTIAL, credential, federated_teams
from plan.platform import Platform


class FederatedCredentials(pulumi.ComponentResource):
    """A ConfigMap for each team with storage: whom the token must be for, and what to do with it.

    `audience`: the provider in Google Cloud. `namespaces`: for each, what must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:FederatedCredentials"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        audience: pulumi.Output[str],
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for namespace in federated_teams(platform):
            options = access.options(self, depends_on=namespaces[namespace])
            credential_of_pods(f"{name}-{namespace}", namespace, audience, options)
        self.register_outputs({"namespaces": list(federated_teams(platform))})


def credential_of_pods(
    name: str, namespace: str, audience: pulumi.Output[str], options: pulumi.ResourceOptions
) -> k8s.core.v1.ConfigMap:
    """What tells pods of a namespace what to do with their token; `name`: of the resource. Nothing in it is secret."""
    return k8s.core.v1.ConfigMap(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(name=CONFIG_MAP, namespace=namespace),
        data={CREDENTIAL: audience.apply(lambda known: json.dumps(credential(known), indent=2))},
        opts=options,
    )
