"""A DaemonSet without a chart: a service account with rights, and the pods."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.roles import role_named


def account_with_rights(
    name: str,
    *,
    account: str,
    namespace: str,
    role: str,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    access: ClusterAccess,
    parent: pulumi.Resource,
    annotations: Mapping[str, pulumi.Input[str]] | None = None,
) -> tuple[k8s.core.v1.ServiceAccount, k8s.rbac.v1.ClusterRoleBinding]:
    """A service account, bound to a ClusterRole of its own with `rules`."""
    rbac, metadata = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs
    made = k8s.core.v1.ServiceAccount(
        f"{name}-account",
        metadata=metadata(name=account, namespace=namespace, annotations=annotations),
        opts=access.options(parent),
    )
    rights = rbac.ClusterRole(
        f"{name}-role", metadata=metadata(name=role), rules=list(rules), opts=access.options(parent)
    )
    binding = rbac.ClusterRoleBinding(
        f"{name}-binding",
        metadata=metadata(name=role),
        role_ref=role_named(role),
        subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=account, namespace=namespace)],
        opts=access.options(parent, depends_on=[made, rights]),
    )
    return made, binding


def daemon_set(
    name: str,
    *,
    daemon: str,
    namespace: str,
    pod: k8s.core.v1.PodSpecArgs,
    access: ClusterAccess,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource],
    annotations: Mapping[str, str] | None = None,
) -> k8s.apps.v1.DaemonSet:
    """A DaemonSet whose pods carry the label `k8s-app`."""
    labels, metadata = {"k8s-app": daemon}, k8s.meta.v1.ObjectMetaArgs
    return k8s.apps.v1.DaemonSet(
        name,
        metadata=metadata(name=daemon, namespace=namespace, labels=labels, annotations=annotations),
        spec=k8s.apps.v1.DaemonSetSpecArgs(
            selector=k8s.meta.v1.LabelSelectorArgs(match_labels=labels),
            template=k8s.core.v1.PodTemplateSpecArgs(metadata=metadata(labels=labels), spec=pod),
        ),
        opts=access.options(parent, depends_on=depends_on),
    )
