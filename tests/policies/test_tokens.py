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
    tokens.PROJECT_IAM[0]: gcp.projects.IAMMember,
    tokens.PROJECT_IAM[1]: gcp.projects.IAMBinding,
    tokens.KUBERNETES_PROVIDER: k8s.Provider,
    tokens.RELEASE: k8s.helm.v3.Release,
    tokens.CHART: k8s.helm.v4.Chart,
    tokens.NAMESPACE: k8s.core.v1.Namespace,
    tokens.SERVICE: k8s.core.v1.Service,
    tokens.CONFIG_MAP: k8s.core.v1.ConfigMap,
    tokens.DAEMON_SET: k8s.apps.v1.DaemonSet,
    tokens.ROLE: k8s.rbac.v1.Role,
    tokens.ROLE_BINDING: k8s.rbac.v1.RoleBinding,
    tokens.CLUSTER_ROLE: k8s.rbac.v1.ClusterRole,
    tokens.CLUSTER_ROLE_BINDING: k8s.rbac.v1.ClusterRoleBinding,
    tokens.POD: k8s.core.v1.Pod,
    tokens.WORKLOADS[2]: k8s.apps.v1.Deployment,
    tokens.WORKLOADS[3]: k8s.apps.v1.StatefulSet,
    tokens.WORKLOADS[4]: k8s.apps.v1.ReplicaSet,
    tokens.WORKLOADS[5]: k8s.batch.v1.CronJob,
    tokens.WORKLOADS[6]: k8s.batch.v1.Job,
}
GRANTS = (
    gcp.projects.IAMMember,
    gcp.projects.IAMBinding,
    gcp.serviceaccount.IAMMember,
    gcp.secretmanager.SecretIamMember,
    gcp.secretmanager.SecretIamBinding,
    gcp.storage.BucketIAMMember,
    gcp.kms.CryptoKeyIAMMember,
)


@pytest.mark.parametrize("token", EXACT)
def test_exact_tokens(token: str) -> None:
    assert token == EXACT[token].pulumi_type


@pytest.mark.parametrize("grant", GRANTS, ids=lambda grant: str(grant.pulumi_type))
def test_every_kind_of_grant_is_looked_at(grant: Any) -> None:
    assert any(fnmatch(grant.pulumi_type, pattern) for pattern in tokens.IAM_GRANTS)


def test_every_exact_token_is_compared() -> None:
    declared = {value for name, value in vars(tokens).items() if name.isupper() and isinstance(value, str)}
    declared |= {*tokens.PROJECT_IAM, *tokens.WORKLOADS}
    assert {token for token in declared if "*" not in token} == set(EXACT)
