"""What the components of in-cluster controllers share: a namespace of their own, a pinned chart, the system pool."""

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


def on_system_pool(platform: Platform) -> dict[str, str]:
    """Node selector of the system pool: controllers stay off TPU hosts, and an uninstall still finds nodes. A cluster
    that somebody else runs has no such pool; there the taint of TPU hosts keeps controllers off them."""
    pool = platform.system_pool
    if pool is None:
        return {}
    return {NODE_POOL_LABEL: pool.name if platform.backend == "gke" else hosts.group_name(platform, pool.name)}
