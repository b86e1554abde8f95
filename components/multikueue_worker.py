"""A MultiKueue worker: what its manager may do in the cluster, and the kubeconfig to do it with."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.access import ClusterAccess
from components.kueue import NAMESPACE
from components.outputs import told
from spec.kueue import FRAMEWORKS
from spec.platform import Platform

ACCOUNT = "multikueue-manager"
EVERYTHING = ("create", "delete", "get", "list", "patch", "update", "watch")

# API group and resource of each framework that Kueue may queue.
FRAMEWORK_RESOURCES = {"batch/job": ("batch", "jobs"), "jobset.x-k8s.io/jobset": ("jobset.x-k8s.io", "jobsets")}


class MultiKueueWorker(pulumi.ComponentResource):
    """An account for the manager with the rights MultiKueue needs, and its kubeconfig as a secret.

    The account's token does not expire, since nothing on a manager renews it. It follows from the account's uid and the
    Secret's name: a new Secret for the same account brings the old token back, only a new account ends it.
    """

    TYPE = "tpu:kubernetes:MultiKueueWorker"
    kubeconfig: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        rbac = k8s.rbac.v1
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=ACCOUNT, namespace=NAMESPACE),
            automount_service_account_token=False,
            opts=access.options(self, depends_on=after),
        )
        role = rbac.ClusterRole(
            f"{name}-role",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=ACCOUNT),
            rules=[
                rbac.PolicyRuleArgs(api_groups=[group], resources=[resource], verbs=list(verbs))
                for group, resource, verbs in rights()
            ],
            opts=access.options(self),
        )
        rbac.ClusterRoleBinding(
            f"{name}-role-binding",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=ACCOUNT),
            role_ref=rbac.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=ACCOUNT),
            subjects=[rbac.SubjectArgs(kind="ServiceAccount", name=ACCOUNT, namespace=NAMESPACE)],
            opts=access.options(self, depends_on=[account, role]),
        )
        token = k8s.core.v1.Secret(
            f"{name}-token",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=f"{ACCOUNT}-token",
                namespace=NAMESPACE,
                annotations={"kubernetes.io/service-account.name": ACCOUNT},
            ),
            type="kubernetes.io/service-account-token",
            opts=access.options(self, depends_on=[account]),
        )
        known = pulumi.Output.all(data=told(token.data), endpoint=access.endpoint)
        self.kubeconfig = pulumi.Output.secret(
            known.apply(lambda of: kubeconfig(platform.cluster_name, of["endpoint"], of["data"]["token"]))
        )
        self.register_outputs({"account": ACCOUNT})


def rights() -> Iterator[tuple[str, str, Sequence[str]]]:
    """API group, resource and verbs that a manager needs on a worker, in all namespaces since it watches all at once.

    As Kueue's own tests grant them (v0.19 `test/util/multikueue.go`), but for reading queues, which only the automatic
    quotas that are off by default do.
    """
    yield "kueue.x-k8s.io", "workloads", EVERYTHING
    yield "kueue.x-k8s.io", "workloads/status", ("get", "patch", "update")
    for framework in FRAMEWORKS:
        group, resource = FRAMEWORK_RESOURCES[framework]
        yield group, resource, EVERYTHING
        yield group, f"{resource}/status", ("get",)


def kubeconfig(cluster: str, endpoint: str, token: str) -> str:
    """A kubeconfig of the kind Kueue accepts: the token itself, no file, no command, and a server it can verify.

    `endpoint`: the DNS endpoint, whose certificate is public; `token`: in base64, as a Secret has it.
    """
    value: Mapping[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": ACCOUNT}}],
        "clusters": [{"name": cluster, "cluster": {"server": f"https://{endpoint}"}}],
        "users": [{"name": ACCOUNT, "user": {"token": base64.b64decode(token).decode()}}],
    }
    return json.dumps(value)
