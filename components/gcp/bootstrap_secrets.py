"""Secrets to join and to use a self-managed cluster: in Secret Manager, never in Pulumi's state.

The program creates empty secrets and grants access. The control plane writes the versions.
"""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from plan import hosts
from plan.hosts import PEERS
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster

READER = "roles/secretmanager.secretAccessor"
WRITER = "roles/secretmanager.secretVersionManager"


class BootstrapSecrets(pulumi.ComponentResource):
    """Secrets that a self-managed control plane writes, in the platform's region; `member` is its service account.

    The control plane may read only one of them: the secret that its machines share. `generation`: a text that is
    different for each cluster. A new generation replaces the secrets, because the old versions lead to an API server
    that is gone.
    """

    TYPE = "tpu:gcp:BootstrapSecrets"
    join: gcp.secretmanager.Secret
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: SelfManagedCluster,
        member: pulumi.Input[str],
        generation: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        secret_options = pulumi.ResourceOptions(
            parent=self, depends_on=list(after), delete_before_replace=True, replacement_trigger=generation
        )
        parts = hosts.secret_parts(platform)
        secrets = {part: empty_secret(f"{name}-{part}", platform, cluster, part, secret_options) for part in parts}
        self.join = secrets["join"]
        self.ready = [
            grant(f"{name}-{part}-writer", platform.project, secret.secret_id, WRITER, member, parent=self)
            for part, secret in secrets.items()
        ]
        if PEERS in secrets:
            peers = secrets[PEERS].secret_id
            self.ready.append(grant(f"{name}-{PEERS}-reader", platform.project, peers, READER, member, parent=self))
        self.register_outputs({"secrets": list(parts)})


class JoinGrants(pulumi.ComponentResource):
    """Lets hosts read the secret with the join token, the platform's or that of an existing cluster.

    `project`, `secret`: its project and short name; `members`: the hosts' IAM members, by a short name.
    """

    TYPE = "tpu:gcp:JoinGrants"
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        project: str,
        secret: pulumi.Input[str],
        members: Mapping[str, pulumi.Input[str]],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.ready = [
            grant(f"{name}-{key}", project, secret, READER, member, parent=self, after=after)
            for key, member in members.items()
        ]
        self.register_outputs({"members": sorted(members)})


def grant(
    name: str,
    project: str,
    secret: pulumi.Input[str],
    role: str,
    member: pulumi.Input[str],
    *,
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource] = (),
) -> gcp.secretmanager.SecretIamMember:
    """Grants one account one role on one secret."""
    return gcp.secretmanager.SecretIamMember(
        name,
        project=project,
        secret_id=secret,
        role=role,
        member=member,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(after)),
    )


def empty_secret(
    name: str, platform: Platform, cluster: SelfManagedCluster, part: str, opts: pulumi.ResourceOptions
) -> gcp.secretmanager.Secret:
    """A secret in the platform's region, to which the control plane adds versions."""
    secretmanager = gcp.secretmanager
    key = cluster.kms_key
    replica = secretmanager.SecretReplicationUserManagedReplicaArgs(
        location=platform.region,
        customer_managed_encryption=(
            secretmanager.SecretReplicationUserManagedReplicaCustomerManagedEncryptionArgs(kms_key_name=key)
            if key
            else None
        ),
    )
    return secretmanager.Secret(
        name,
        project=platform.project,
        secret_id=hosts.secret(platform, part).rpartition("/")[2],
        labels=platform.labels,
        replication=secretmanager.SecretReplicationArgs(
            user_managed=secretmanager.SecretReplicationUserManagedArgs(replicas=[replica])
        ),
        opts=opts,
    )
