"""RBAC: roles and bindings in a cluster."""

from collections.abc import Iterator
from typing import Any

from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Settings, Stack, StackFinding
from policies.values import Finding, items, text

UNNAMED_SUBJECTS = ("system:anonymous", "system:unauthenticated", "system:authenticated", "system:serviceaccounts")
# Kubernetes itself lets every account read the keys that verify tokens.
FOR_EVERY_ACCOUNT = ("system:service-account-issuer-discovery",)
BINDINGS = (tokens.ROLE_BINDING, tokens.CLUSTER_ROLE_BINDING)


@RESOURCE.rule(
    "unnamed-subjects",
    *BINDINGS,
    reason="These groups are everybody: in GKE system:authenticated is anybody with a Google account, and"
    " system:serviceaccounts is every pod.",
    remedy="Bind the role to accounts or groups that you name",
    source="CIS GKE Benchmark 4.1.8 to 4.1.10; GKE documentation, RBAC best practices",
    cis=("4.1.8", "4.1.9", "4.1.10"),
)
def unnamed_subjects(binding: Resource, settings: Settings) -> Iterator[Finding]:
    discovery = text(binding.props, "roleRef.name") in FOR_EVERY_ACCOUNT
    for index, subject in enumerate(items(binding.props, "subjects")):
        name = text(subject, "name")
        if name in UNNAMED_SUBJECTS and not (discovery and name == "system:serviceaccounts"):
            yield Finding(f"subjects.{index}", f"is {name}")


@RESOURCE.rule(
    "cluster-admin",
    *BINDINGS,
    level="advisory",
    reason="cluster-admin, and the group system:masters, may do everything, unseen by admission.",
    remedy="Bind a role that lists what is needed",
    source="CIS GKE Benchmark 4.1.1, 4.1.6",
    cis=("4.1.1", "4.1.6"),
)
def cluster_admin(binding: Resource, settings: Settings) -> Iterator[Finding]:
    if text(binding.props, "roleRef.name") == "cluster-admin":
        yield Finding("roleRef", "is cluster-admin")
    for index, subject in enumerate(items(binding.props, "subjects")):
        if text(subject, "name") == "system:masters":
            yield Finding(f"subjects.{index}", "is system:masters")


STRONG_ROLES = ("cluster-admin", "admin", "edit")


@STACK.rule(
    "pods-administer",
    reason="Whoever may start a pod under such an account, or in such a group, is administrator. A binding is followed"
    " to its role, where the stack makes it: one with wildcards is as strong as cluster-admin.",
    remedy="Bind a role that lists what is needed to an account of its own",
    source="CIS GKE Benchmark 4.1.1, 4.1.4; Kubernetes documentation, RBAC good practices",
    cis=("4.1.1", "4.1.4"),
)
def pods_administer(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    for binding in stack.of_type(*BINDINGS):
        if not _strong(stack, binding):
            continue
        for index, subject in enumerate(items(binding.props, "subjects")):
            if _any_pod(subject):
                words = f"is {text(subject, 'name')}, with the role {text(binding.props, 'roleRef.name')}"
                yield StackFinding(binding.urn, f"subjects.{index}", words)


def _any_pod(subject: Any) -> bool:
    """Whether a subject is a group of accounts or nodes, or the default account of pods."""
    name, kind = text(subject, "name"), text(subject, "kind")
    if kind == "ServiceAccount":
        return name == "default"
    return name.startswith("system:serviceaccounts") or name == "system:nodes" or name.endswith(":default")


def _strong(stack: Stack, binding: Resource) -> bool:
    """Whether the role of a binding has no limits."""
    name, kind = text(binding.props, "roleRef.name"), text(binding.props, "roleRef.kind")
    if kind != "Role" and name in STRONG_ROLES:
        return True
    roles = stack.of_type(tokens.ROLE if kind == "Role" else tokens.CLUSTER_ROLE)
    return any(_has_wildcards(role) for role in roles if name and text(role.props, "metadata.name") == name)


def _has_wildcards(role: Resource) -> bool:
    rules = items(role.props, "rules")
    return any("*" in items(rule, "verbs") and "*" in items(rule, "resources") for rule in rules)


ESCALATING = ("bind", "escalate", "impersonate")


@RESOURCE.rule(
    "wide-role",
    tokens.ROLE,
    tokens.CLUSTER_ROLE,
    level="advisory",
    reason="A wildcard, or the verbs that hand on rights, make a small role as large as its owner likes.",
    remedy="List API groups, resources and verbs",
    source="CIS GKE Benchmark 4.1.3, 4.1.7",
    cis=("4.1.3", "4.1.7"),
)
def wide_role(role: Resource, settings: Settings) -> Iterator[Finding]:
    for index, rule in enumerate(items(role.props, "rules")):
        for key in ("apiGroups", "resources", "verbs"):
            if "*" in items(rule, key):
                yield Finding(f"rules.{index}.{key}", "has a wildcard")
        for verb in ESCALATING:
            if verb in items(rule, "verbs"):
                yield Finding(f"rules.{index}.verbs", f"has {verb}")
