"""Buckets that the platform makes for teams."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from plan.platform import Platform
from plan.storage import SOFT_DELETE_SECONDS, StorePlan, bucket_labels, stores


class Buckets(pulumi.ComponentResource):
    """A private bucket for each store without one. By default it outlives the platform, with all objects in it."""

    TYPE = "tpu:gcp:Buckets"
    by_name: dict[str, gcp.storage.Bucket]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        after: Sequence[pulumi.Resource],
        on_error: pulumi.ErrorHook,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._after = name, platform, after
        hooks = pulumi.ResourceHookBinding(on_error=[on_error])
        self.by_name = {store.bucket: self._bucket(store, hooks) for store in stores(platform) if store.made}
        self.register_outputs({"buckets": sorted(self.by_name)})

    def _bucket(self, store: StorePlan, hooks: pulumi.ResourceHookBinding) -> gcp.storage.Bucket:
        storage = gcp.storage
        return storage.Bucket(
            f"{self._name}-{store.volume}",
            project=self._platform.project,
            name=store.bucket,
            location=self._platform.region,
            labels=bucket_labels(self._platform, store),
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            hierarchical_namespace=storage.BucketHierarchicalNamespaceArgs(enabled=True),
            soft_delete_policy=storage.BucketSoftDeletePolicyArgs(
                retention_duration_seconds=SOFT_DELETE_SECONDS if store.spec.soft_delete else 0
            ),
            lifecycle_rules=_lifecycle(store),
            # Only a bucket that is to go with its team is emptied for it.
            force_destroy=not store.kept,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(self._after),
                # Its name stays the same, so a new one cannot stand beside it. A bucket that is kept refuses its
                # replacement: the name is taken.
                delete_before_replace=True,
                retain_on_delete=store.kept,
                hooks=hooks,
            ),
        )


def _lifecycle(store: StorePlan) -> list[gcp.storage.BucketLifecycleRuleArgs]:
    ages = {"AbortIncompleteMultipartUpload": 7}
    if store.expire_days:
        ages["Delete"] = store.expire_days
    return [
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type=action),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=age),
        )
        for action, age in ages.items()
    ]
