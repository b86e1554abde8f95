"""What a control plane and those who join or use it tell each other: kept in Secret Manager, never in Pulumi's state.

The program makes the secrets empty and says who may do what; the control plane writes their versions.
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
    """Secrets that a self-managed control plane writes, in the platform's region; `member` is what it runs as.

    Only the secret that its machines keep among themselves may it read as well. `generation`: a text that no other
    cluster in the same place has had. Another one empties the secrets, by replacing them: what the last cluster wrote
    leads to an API server that is gone, and nothing in it tells so.
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
    """Lets hosts read the secret that says how to join, theirs or that of a cluster that exists.

    `project`, `secret`: where it is and its short name; `members`: what hosts run as, by a short name.
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
    """One role of one account on one secret."""
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
