"""A MultiKueue worker: the rights of its manager in this cluster, and the kubeconfig that the manager uses."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from components.known_output import unknown_if_absent
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.roles import role_named
from plan.charts import KUEUE
from plan.kueue_configuration import DISPATCHED
from plan.multikueue import ACCOUNT
from plan.platform import Platform

# One role watches all namespaces, the other writes to namespaces of queues.
WATCHER, WRITER = ACCOUNT, f"{ACCOUNT}-writer"
WRITE = ("create", "delete", "get", "patch", "update")

# API group and resource of each kind of job that Kueue dispatches to workers.
FRAMEWORK_RESOURCES = {"batch/job": ("batch", "jobs"), "jobset.x-k8s.io/jobset": ("jobset.x-k8s.io", "jobsets")}

Rights = Sequence[tuple[str, str, Sequence[str]]]
"""API group, resource and verbs."""


class MultiKueueWorker(pulumi.ComponentResource):
    """A service account for the manager with the rights that MultiKueue needs, and its kubeconfig as a secret.

    Kueue reads its kubeconfig from a Secret and renews no token, so the token does not expire. It belongs to the Secret
    that `multikueue.token` names, and ends with that Secret. A new Secret of the same name for the same account has the
    same token.
    """

    TYPE = "tpu:kubernetes:MultiKueueWorker"
    kubeconfig: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._access = name, access
        assert platform.multikueue
        account = self._account(after)
        self._watching(account)
        writer = self._role("writer-role", WRITER, writes())
        for namespace in platform.queue_namespaces:
            self._writing(namespace, [account, writer, *namespaces[namespace]])
        token = self._token(platform.multikueue.token, account)
        known = pulumi.Output.all(data=unknown_if_absent(token.data), endpoint=access.endpoint)
        self.kubeconfig = pulumi.Output.secret(
            known.apply(lambda values: kubeconfig(platform.cluster_name, values["endpoint"], values["data"]["token"]))
        )
        self.register_outputs({"account": ACCOUNT})

    def _account(self, after: Sequence[pulumi.Resource]) -> k8s.core.v1.ServiceAccount:
        return k8s.core.v1.ServiceAccount(
            f"{self._name}-account",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=ACCOUNT, namespace=KUEUE.namespace),
            automount_service_account_token=False,
            opts=self._access.options(self, depends_on=after),
        )

    def _role(self, key: str, role: str, rights: Rights) -> k8s.rbac.v1.ClusterRole:
        return k8s.rbac.v1.ClusterRole(
            f"{self._name}-{key}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=role),
            rules=[
                k8s.rbac.v1.PolicyRuleArgs(api_groups=[group], resources=[resource], verbs=list(verbs))
                for group, resource, verbs in rights
            ],
            opts=self._access.options(self),
        )

    def _watching(self, account: pulumi.Resource) -> None:
        role = self._role("role", WATCHER, watches())
        k8s.rbac.v1.ClusterRoleBinding(
            f"{self._name}-role-binding",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=WATCHER),
            role_ref=role_named(WATCHER),
            subjects=[_subject()],
            opts=self._access.options(self, depends_on=[account, role]),
        )

    def _writing(self, namespace: str, depends_on: Sequence[pulumi.Resource]) -> None:
        k8s.rbac.v1.RoleBinding(
            f"{self._name}-writer-{namespace}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=WRITER, namespace=namespace),
            role_ref=role_named(WRITER),
            subjects=[_subject()],
            opts=self._access.options(self, depends_on=depends_on),
        )

    def _token(self, token: str, account: pulumi.Resource) -> k8s.core.v1.Secret:
        return k8s.core.v1.Secret(
            f"{self._name}-token",
            metadata=k8s.meta.v1.ObjectMetaArgs(
                name=f"{ACCOUNT}-{token}",
                namespace=KUEUE.namespace,
                annotations={"kubernetes.io/service-account.name": ACCOUNT},
            ),
            type="kubernetes.io/service-account-token",
            opts=self._access.options(self, depends_on=[account]),
        )


def _subject() -> k8s.rbac.v1.SubjectArgs:
    return k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=ACCOUNT, namespace=KUEUE.namespace)


def watches() -> Rights:
    """What a manager reads in all namespaces: Kueue opens one watch for each kind, and lists workloads to clean up.

    Kueue v0.19 `pkg/controller/admissionchecks/multikueue/multikueuecluster.go`. It reads queues only for the automatic
    quotas, which are off.
    """
    jobs = [(*FRAMEWORK_RESOURCES[framework], ("watch",)) for framework in DISPATCHED]
    return [("kueue.x-k8s.io", "workloads", ("list", "watch")), *jobs]


def writes() -> Rights:
    """What a manager does in the namespaces of queues: it copies workloads and jobs there, and reads their status."""
    rights: list[tuple[str, str, Sequence[str]]] = [
        ("kueue.x-k8s.io", "workloads", WRITE),
        ("kueue.x-k8s.io", "workloads/status", ("get", "patch", "update")),
    ]
    for group, resource in (FRAMEWORK_RESOURCES[framework] for framework in DISPATCHED):
        rights += [(group, resource, WRITE), (group, f"{resource}/status", ("get",))]
    return rights


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
