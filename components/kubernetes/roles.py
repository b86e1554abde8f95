"""How bindings inside a cluster name their role and people."""

import pulumi_kubernetes as k8s

RBAC = "rbac.authorization.k8s.io"
"""The API group of roles, and of the users and groups that a binding names."""


def role_named(name: str, kind: str = "ClusterRole") -> k8s.rbac.v1.RoleRefArgs:
    """The role of a binding; `kind` is Role or ClusterRole."""
    return k8s.rbac.v1.RoleRefArgs(api_group=RBAC, kind=kind, name=name)
