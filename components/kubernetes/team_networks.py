"""Keeps other namespaces' pods away from a team's pods."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from catalogue.labels import NAMESPACE_NAME_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform

METRICS_NAMESPACE = "gmp-system"
"""Where Managed Prometheus runs, which reads metrics of pods."""


class TeamNetworks(pulumi.ComponentResource):
    """A NetworkPolicy for each team: traffic comes from its own pods and from Managed Prometheus.

    Policies add up, so a team can open more. Outgoing traffic is free: without the metadata server no pod can call
    Google. `namespaces`: for each namespace, the resources that must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:TeamNetworks"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for team in platform.teams:
            k8s.networking.v1.NetworkPolicy(
                f"{name}-{team}",
                metadata=k8s.meta.v1.ObjectMetaArgs(name="team", namespace=team),
                spec=_spec(),
                opts=access.options(self, depends_on=namespaces[team]),
            )
        self.register_outputs({"teams": sorted(platform.teams)})


def _spec() -> k8s.networking.v1.NetworkPolicySpecArgs:
    net, selector = k8s.networking.v1, k8s.meta.v1.LabelSelectorArgs
    metrics = selector(match_labels={NAMESPACE_NAME_LABEL: METRICS_NAMESPACE})
    return net.NetworkPolicySpecArgs(
        pod_selector=selector(),
        policy_types=["Ingress"],
        ingress=[
            net.NetworkPolicyIngressRuleArgs(
                from_=[
                    net.NetworkPolicyPeerArgs(pod_selector=selector()),
                    net.NetworkPolicyPeerArgs(namespace_selector=metrics),
                ]
            )
        ],
    )
