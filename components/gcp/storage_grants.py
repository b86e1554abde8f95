"""Rights of teams on buckets: of their members, and of the pods in their namespaces."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.pod_identities import PodIdentities
from plan.platform import Platform
from plan.storage import ROLES, StorePlan, stores
from plan.teams import members


class StorageGrants(pulumi.ComponentResource):
    """One role of one member on one bucket each, and each once, whichever teams share members and buckets.

    `buckets`: those that the platform makes, by name. A bucket that exists gets grants and nothing else. `after`: the
    project's APIs.
    """

    TYPE = "tpu:gcp:StorageGrants"
    ready: dict[str, list[pulumi.Resource]]
    """The grants of a namespace's pods, by bucket: a pod that starts earlier cannot mount it."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        buckets: Mapping[str, gcp.storage.Bucket],
        pods: PodIdentities,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._buckets = name, buckets
        self._made: dict[tuple[str, str, str], gcp.storage.BucketIAMMember] = {}
        self.ready = {}
        for store in stores(platform):
            self.ready[store.volume] = self._grants(
                store, f"pods.{store.team}", pods.of_namespace(store.team), pods.after
            )
            for member in members(platform, store.team):
                self._grants(store, member.written, pulumi.Output.from_input(member.written), after)
        self.register_outputs({"grants": len(self._made)})

    def _grants(
        self, store: StorePlan, who: str, member: pulumi.Output[str], after: Sequence[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        """`who`: the member, as it is known before an update."""
        return [self._grant(store.bucket, role, who, member, after) for role in ROLES[store.access]]

    def _grant(
        self, bucket: str, role: str, who: str, member: pulumi.Output[str], after: Sequence[pulumi.Resource]
    ) -> gcp.storage.BucketIAMMember:
        key = (bucket, role, who)
        if key not in self._made:
            made = self._buckets.get(bucket)
            self._made[key] = gcp.storage.BucketIAMMember(
                f"{self._name}-{bucket}/{role.rpartition('.')[2]}/{who}",
                bucket=made.name if made else bucket,
                role=role,
                member=member,
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
            )
        return self._made[key]
