"""What the components of in-cluster controllers share: a namespace of their own, a pinned chart, the system pool; and,
without a chart, an account with rights and a DaemonSet."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.access import ClusterAccess
from spec import hosts
from spec.platform import Platform
from spec.queueing import NODE_POOL_LABEL

TIMEOUT_SECONDS = 600
# Helm keeps every revision as a Secret of up to 1 MB; the provider's default is to keep them all.
REVISIONS = 3


def controller_namespace(
    name: str, namespace: str, access: ClusterAccess, parent: pulumi.Resource, *, privileged: bool = False
) -> k8s.core.v1.Namespace:
    """The controller's own namespace, under Pod Security."""
    level = "privileged" if privileged else "restricted"
    return k8s.core.v1.Namespace(
        name,
        metadata=k8s.meta.v1.ObjectMetaArgs(
            name=namespace,
            labels={"pod-security.kubernetes.io/enforce": level},
        ),
        opts=access.options(parent),
    )


def chart_release(
    name: str,
    *,
    release: str,
    chart: str,
    version: str,
    namespace: str,
    values: Mapping[str, Any],
    access: ClusterAccess,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource],
    postrender: str | None = None,
) -> k8s.helm.v3.Release:
    """A Helm release whose name, namespace and values are literals, so that a preview can check all of it."""
    return k8s.helm.v3.Release(
        name,
        k8s.helm.v3.ReleaseArgs(
            name=release,
            chart=chart,
            version=version,
            namespace=namespace,
            create_namespace=False,
            values=values,
            # Without this an upgrade keeps old values that are no longer given.
            reset_values=True,
            max_history=REVISIONS,
            timeout=TIMEOUT_SECONDS,
            postrender=postrender,
        ),
        opts=access.options(parent, depends_on=depends_on),
    )


def account_with_rights(
    name: str,
    *,
    account: str,
    namespace: str,
    role: str,
    rules: Sequence[k8s.rbac.v1.PolicyRuleArgs],
    access: ClusterAccess,
    parent: pulumi.Resource,
) -> tuple[k8s.core.v1.ServiceAccount, k8s.rbac.v1.ClusterRoleBinding]:
    """A service account, and the binding to a ClusterRole of its own that holds `rules`."""
    rbac, metadata = k8s.rbac.v1, k8s.meta.v1.ObjectMetaArgs
    made = k8s.core.v1.ServiceAccount(
        f"{name}-account", metadata=metadata(name=account, namespace=namespace), opts=access.options(parent)
    )
    rights = rbac.ClusterRole(
        f"{name}-role", metadata=metadata(name=role), rules=list(rules), opts=access.options(parent)
    )
    binding = rbac.ClusterRoleBinding(
        f"{name}-binding",
        metadata=metadata(name=role),
        role_ref=rbac.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=role),
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


def on_system_pool(platform: Platform) -> dict[str, str]:
    """Node selector of the system pool: controllers stay off TPU hosts, and an uninstall still finds nodes. A cluster
    that somebody else runs has no such pool; there the taint of TPU hosts keeps controllers off them."""
    pool = platform.system_pool
    return {NODE_POOL_LABEL: hosts.node_pool(platform, pool.name)} if pool else {}
