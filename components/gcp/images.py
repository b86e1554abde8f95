"""Registries of container images: Artifact Registry repositories, and who may pull and push."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from plan.images import PULL, ImagePlan, member_roles, repositories
from plan.platform import Platform


class Images(pulumi.ComponentResource):
    """Hosts and members of teams pull; members push for their team. `hosts`: their IAM members, by a short name."""

    TYPE = "tpu:gcp:Images"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        hosts: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._after = name, platform, after
        for plan in repositories(platform):
            made = self._repository(plan) if plan.made else None
            for key, host in hosts.items():
                self._grant(plan, made, key, PULL, host)
            for member, role in member_roles(platform, plan).items():
                self._grant(plan, made, member, role, member)
        self.register_outputs({"repositories": [plan.address for plan in repositories(platform)]})

    def _repository(self, plan: ImagePlan) -> gcp.artifactregistry.Repository:
        registry = gcp.artifactregistry
        mirrored = registry.RepositoryRemoteRepositoryConfigArgs(
            description="Docker Hub",
            docker_repository=registry.RepositoryRemoteRepositoryConfigDockerRepositoryArgs(
                public_repository="DOCKER_HUB"
            ),
        )
        return registry.Repository(
            f"{self._name}-{plan.name}",
            project=plan.project,
            location=plan.location,
            repository_id=plan.repository,
            format="DOCKER",
            mode="REMOTE_REPOSITORY" if plan.mirror else "STANDARD_REPOSITORY",
            description=f"Images of TPU platform {self._platform.name}",
            labels=self._platform.labels,
            remote_repository_config=mirrored if plan.mirror else None,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(self._after),
                delete_before_replace=True,
                protect=self._platform.protect,
            ),
        )

    def _grant(
        self,
        plan: ImagePlan,
        made: gcp.artifactregistry.Repository | None,
        key: str,
        role: str,
        member: pulumi.Input[str],
    ) -> None:
        gcp.artifactregistry.RepositoryIamMember(
            f"{self._name}-{plan.name}/{key}",
            project=plan.project,
            location=plan.location,
            repository=made.repository_id if made else plan.repository,
            role=role,
            member=member,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(self._after)),
        )
