"""What members of teams may do: a ClusterRole that is bound in each team's namespace, and a view of the cluster."""

from collections.abc import Iterable, Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.roles import RBAC, role_named
from plan.platform import Platform
from plan.teams import IN_CLUSTER, IN_NAMESPACE, Member, Right, all_members, members, role_name, viewer_role_name


class TeamRights(pulumi.ComponentResource):
    """Roles of the program's own: `edit` of Kubernetes cannot create JobSets, and may act as any account of pods.

    `namespaces`: for each namespace, the resources that must exist before anything in it.
    """

    TYPE = "tpu:kubernetes:TeamRights"

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
        self._name, self._access = name, access
        member = self._role("role", role_name(platform), IN_NAMESPACE)
        viewer = self._role("viewer-role", viewer_role_name(platform), IN_CLUSTER)
        if everybody := all_members(platform):
            self._view(viewer_role_name(platform), everybody, viewer)
        for team in platform.teams:
            if found := members(platform, team):
                self._bind(role_name(platform), team, found, [member, *namespaces[team]])
        self.register_outputs({"teams": sorted(platform.teams)})

    def _role(self, key: str, role: str, rights: Iterable[Right]) -> k8s.rbac.v1.ClusterRole:
        return k8s.rbac.v1.ClusterRole(
            f"{self._name}-{key}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=role),
            rules=[
                k8s.rbac.v1.PolicyRuleArgs(
                    api_groups=[right.group], resources=list(right.resources), verbs=list(right.verbs)
                )
                for right in rights
            ],
            opts=self._access.options(self),
        )

    def _view(self, role: str, found: Sequence[Member], depends_on: pulumi.Resource) -> None:
        k8s.rbac.v1.ClusterRoleBinding(
            f"{self._name}-viewers",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=role),
            role_ref=role_named(role),
            subjects=_subjects(found),
            opts=self._access.options(self, depends_on=[depends_on]),
        )

    def _bind(self, role: str, team: str, found: Sequence[Member], depends_on: Sequence[pulumi.Resource]) -> None:
        k8s.rbac.v1.RoleBinding(
            f"{self._name}-{team}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=role, namespace=team),
            role_ref=role_named(role),
            subjects=_subjects(found),
            opts=self._access.options(self, depends_on=depends_on),
        )


def _subjects(found: Sequence[Member]) -> list[k8s.rbac.v1.SubjectArgs]:
    return [k8s.rbac.v1.SubjectArgs(api_group=RBAC, kind=member.kind, name=member.address) for member in found]
