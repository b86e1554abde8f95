"""Backups of a self-managed cluster, for the loss of its disk: hourly snapshots of etcd, and the cluster's keys."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.bootstrap_secrets import empty_secret, grant
from plan.hosts import KEYS
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster

WRITER = "roles/storage.objectCreator"
KEEPER = "roles/secretmanager.secretVersionAdder"


class Backups(pulumi.ComponentResource):
    """A private bucket and a secret. The control plane (service account `member`) can add to both, and neither read nor
    empty them.

    A snapshot holds every Kubernetes secret, encrypted; the keys decrypt them and sign every certificate. So the two
    are in different services, and a restore needs rights on both, which no machine has. Neither is replaced with the
    data disk, since they exist for the day it is lost.
    """

    TYPE = "tpu:gcp:Backups"
    bucket: gcp.storage.Bucket
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: SelfManagedCluster,
        member: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        storage = gcp.storage
        self.bucket = storage.Bucket(
            f"{name}-bucket",
            project=platform.project,
            # Bucket names are global. The project's id, which is global too, makes this one unique.
            name=f"{platform.project}-{platform.name}-etcd",
            location=platform.region,
            labels=platform.labels,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            versioning=storage.BucketVersioningArgs(enabled=True),
            lifecycle_rules=[
                storage.BucketLifecycleRuleArgs(
                    action=storage.BucketLifecycleRuleActionArgs(type="Delete"),
                    condition=storage.BucketLifecycleRuleConditionArgs(
                        age=cluster.control_plane.backup_days, with_state="ANY"
                    ),
                )
            ],
            encryption=(
                storage.BucketEncryptionArgs(default_kms_key_name=cluster.kms_key) if cluster.kms_key else None
            ),
            # The bucket of a protected platform is not deleted until somebody empties it.
            force_destroy=not platform.protect,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after), delete_before_replace=True),
        )
        writer = storage.BucketIAMMember(
            f"{name}-writer",
            bucket=self.bucket.name,
            role=WRITER,
            member=member,
            opts=pulumi.ResourceOptions(parent=self),
        )
        keys = empty_secret(
            f"{name}-keys",
            platform,
            cluster,
            KEYS,
            pulumi.ResourceOptions(
                parent=self, depends_on=list(after), delete_before_replace=True, protect=platform.protect
            ),
        )
        keeper = grant(f"{name}-keeper", platform.project, keys.secret_id, KEEPER, member, parent=self)
        self.ready = [writer, keeper]
        self.register_outputs({"bucket": self.bucket.name})
