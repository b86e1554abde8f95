"""A policy for a type token that does not exist never finds anything: tokens are those of the provider SDKs."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pytest

from policies import tokens

EXACT: dict[str, Any] = {
    tokens.CLUSTER: gcp.container.Cluster,
    tokens.NODE_POOL: gcp.container.NodePool,
    tokens.INSTANCE: gcp.compute.Instance,
    tokens.TEMPLATE: gcp.compute.InstanceTemplate,
    tokens.REGION_TEMPLATE: gcp.compute.RegionInstanceTemplate,
    tokens.MIG: gcp.compute.InstanceGroupManager,
    tokens.REGION_MIG: gcp.compute.RegionInstanceGroupManager,
    tokens.AUTOSCALER: gcp.compute.Autoscaler,
    tokens.REGION_AUTOSCALER: gcp.compute.RegionAutoscaler,
    tokens.RESIZE_REQUEST: gcp.compute.ResizeRequest,
    tokens.RESOURCE_POLICY: gcp.compute.ResourcePolicy,
    tokens.DISK: gcp.compute.Disk,
    tokens.NETWORK: gcp.compute.Network,
    tokens.SUBNETWORK: gcp.compute.Subnetwork,
    tokens.ROUTER_NAT: gcp.compute.RouterNat,
    tokens.FIREWALL: gcp.compute.Firewall,
    tokens.FORWARDING_RULE: gcp.compute.ForwardingRule,
    tokens.SERVICE_ACCOUNT_KEY: gcp.serviceaccount.Key,
    tokens.BUCKET: gcp.storage.Bucket,
    tokens.SECRET: gcp.secretmanager.Secret,
    tokens.SECRET_VERSION: gcp.secretmanager.SecretVersion,
    tokens.INSTANCE_FROM_TEMPLATE: gcp.compute.InstanceFromTemplate,
    tokens.INSTANCE_FROM_IMAGE: gcp.compute.InstanceFromMachineImage,
    tokens.TPU_VM: gcp.tpu.V2Vm,
    tokens.QUEUED_RESOURCE: gcp.tpu.V2QueuedResource,
    tokens.KUBERNETES_PROVIDER: k8s.Provider,
    tokens.RELEASE: k8s.helm.v3.Release,
    tokens.CHART: k8s.helm.v4.Chart,
    tokens.NAMESPACE: k8s.core.v1.Namespace,
    tokens.NAMESPACE_PATCH: k8s.core.v1.NamespacePatch,
    tokens.SERVICE_ACCOUNT: k8s.core.v1.ServiceAccount,
    tokens.SERVICE: k8s.core.v1.Service,
    tokens.CONFIG_MAP: k8s.core.v1.ConfigMap,
    tokens.DAEMON_SET: k8s.apps.v1.DaemonSet,
    tokens.ROLE: k8s.rbac.v1.Role,
    tokens.ROLE_BINDING: k8s.rbac.v1.RoleBinding,
    tokens.CLUSTER_ROLE: k8s.rbac.v1.ClusterRole,
    tokens.CLUSTER_ROLE_BINDING: k8s.rbac.v1.ClusterRoleBinding,
}
# Groups of kinds that rules treat alike, in the order of their tokens.
GROUPS: dict[tuple[str, ...], tuple[Any, ...]] = {
    tokens.FIREWALL_POLICY_RULES: (
        gcp.compute.NetworkFirewallPolicyRule,
        gcp.compute.RegionNetworkFirewallPolicyRule,
        gcp.compute.FirewallPolicyRule,
    ),
    tokens.FIREWALL_POLICIES: (
        gcp.compute.NetworkFirewallPolicyWithRules,
        gcp.compute.RegionNetworkFirewallPolicyWithRules,
        gcp.compute.FirewallPolicyWithRules,
    ),
    tokens.PROJECT_IAM: (gcp.projects.IAMMember, gcp.projects.IAMBinding, gcp.projects.IAMPolicy),
    tokens.PARENT_IAM: (
        gcp.folder.IAMMember,
        gcp.folder.IAMBinding,
        gcp.folder.IAMPolicy,
        gcp.organizations.IAMMember,
        gcp.organizations.IAMBinding,
        gcp.organizations.IAMPolicy,
    ),
    tokens.CUSTOM_ROLES: (gcp.projects.IAMCustomRole, gcp.organizations.IAMCustomRole),
    tokens.ACCESS_LISTS: (
        gcp.storage.BucketACL,
        gcp.storage.DefaultObjectACL,
        gcp.storage.ObjectACL,
        gcp.storage.BucketAccessControl,
        gcp.storage.DefaultObjectAccessControl,
        gcp.storage.ObjectAccessControl,
        gcp.bigquery.DatasetAccess,
    ),
}
WORKLOADS = (
    k8s.core.v1.Pod,
    k8s.core.v1.PodPatch,
    k8s.core.v1.PodTemplate,
    k8s.core.v1.ReplicationController,
    k8s.apps.v1.DaemonSet,
    k8s.apps.v1.Deployment,
    k8s.apps.v1.DeploymentPatch,
    k8s.apps.v1.ReplicaSet,
    k8s.apps.v1.StatefulSet,
    k8s.batch.v1.CronJob,
    k8s.batch.v1.Job,
)
GRANTS = (
    gcp.projects.IAMMember,
    gcp.projects.IAMBinding,
    gcp.serviceaccount.IAMMember,
    gcp.secretmanager.SecretIamMember,
    gcp.secretmanager.SecretIamBinding,
    gcp.storage.BucketIAMMember,
    gcp.kms.CryptoKeyIAMMember,
    gcp.secretmanager.SecretIamPolicy,
    gcp.storage.BucketIAMPolicy,
    gcp.kms.KeyRingIAMPolicy,
    gcp.serviceaccount.IAMPolicy,
    *GROUPS[tokens.PROJECT_IAM],
    *GROUPS[tokens.PARENT_IAM],
)


@pytest.mark.parametrize("token", EXACT)
def test_exact_tokens(token: str) -> None:
    assert token == EXACT[token].pulumi_type


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: str(grant.pulumi_type))
def test_every_kind_of_grant_is_looked_at(grant: Any) -> None:
    assert any(fnmatch(grant.pulumi_type, pattern) for pattern in tokens.IAM_GRANTS)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0].split(":")[1])
def test_tokens_of_groups(group: tuple[str, ...]) -> None:
    assert group == tuple(each.pulumi_type for each in GROUPS[group])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload.pulumi_type))
def test_every_kind_of_workload_is_looked_at(workload: Any) -> None:
    assert any(fnmatch(workload.pulumi_type, pattern) for pattern in tokens.WORKLOADS)


def test_pods_are_not_confused_with_what_has_a_similar_name() -> None:
    others = (k8s.core.v1.Namespace, k8s.policy.v1.PodDisruptionBudget, k8s.apps.v1.ControllerRevision)
    assert not [each for each in others for pattern in tokens.WORKLOADS if fnmatch(each.pulumi_type, pattern)]


def test_every_exact_token_is_compared() -> None:
    declared = {value for name, value in vars(tokens).items() if name.isupper() and isinstance(value, str)}
    grouped = {value for name, value in vars(tokens).items() if name.isupper() and isinstance(value, tuple)}
    patterns = {tokens.WORKLOADS, tokens.IAM_GRANTS}
    of_single = {group for group in grouped if set(group) <= declared}
    assert {token for token in declared if "*" not in token} == set(EXACT)
    assert grouped - patterns - of_single == set(GROUPS)
