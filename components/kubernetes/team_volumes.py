"""Buckets and disks as files: a PersistentVolume and its claim for each store that jobs mount."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform
from plan.storage import (
    ATTRIBUTES,
    DISK_DRIVER,
    DISK_OPTIONS,
    DISK_ZONE_LABEL,
    FUSE_DRIVER,
    DiskPlan,
    MountPlan,
    mount_options,
    mounted,
)

USED = pulumi.CustomTimeouts(delete="2m")
"""How long a deletion waits for pods that still use a claim; its error then names what holds it."""
ANY_SIZE = "1Ti"
"""A volume needs a size. A bucket has none, and that of a disk which exists is asked by nobody."""


class TeamVolumes(pulumi.ComponentResource):
    """A volume is reserved for the one claim in the team's namespace, because otherwise any namespace may take it.

    A volume without its claim stays unusable. So what replaces one of the two replaces both. `ready`: by volume, the
    grants without which pods cannot mount it; a disk needs none.
    """

    TYPE = "tpu:kubernetes:TeamVolumes"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        namespaces: Mapping[str, Sequence[pulumi.Resource]],
        ready: Mapping[str, Sequence[pulumi.Resource]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._access = name, platform, access
        volumes = [store for team in sorted(platform.teams) for store in mounted(platform, team)]
        for store in volumes:
            volume = self._volume(store, namespaces[store.team], ready.get(store.volume, ()))
            self._claim(store, volume)
        self.register_outputs({"volumes": [store.volume for store in volumes]})

    def _volume(
        self, store: MountPlan, depends_on: Sequence[pulumi.Resource], rights: Sequence[pulumi.Resource]
    ) -> k8s.core.v1.PersistentVolume:
        return k8s.core.v1.PersistentVolume(
            f"{self._name}-{store.volume}",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=store.volume),
            spec=_spec(self._platform, store),
            opts=self._options(store, depends_on, rights),
        )

    def _claim(self, store: MountPlan, volume: k8s.core.v1.PersistentVolume) -> None:
        k8s.core.v1.PersistentVolumeClaim(
            f"{self._name}-{store.volume}-claim",
            metadata=k8s.meta.v1.ObjectMetaArgs(name=store.claim, namespace=store.team),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=[_access_mode(store)],
                storage_class_name="",
                # By the volume's output, so that the engine deletes the claim before the volume, which Kubernetes keeps
                # as long as it has a claim.
                volume_name=volume.metadata.name,
                volume_mode="Filesystem",
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(requests={"storage": ANY_SIZE}),
            ),
            opts=self._options(store, [volume]),
        )

    def _options(
        self, store: MountPlan, depends_on: Sequence[pulumi.Resource], rights: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        """Options of both, with what Kubernetes lets nobody change in a volume in their trigger."""
        fixed = f"{store.handle}, {store.access}"
        generation = self._access.generation
        return pulumi.ResourceOptions.merge(
            self._access.options(self, depends_on=depends_on, outside=rights),
            pulumi.ResourceOptions(
                custom_timeouts=USED,
                replacement_trigger=fixed if generation is None else pulumi.Output.concat(generation, ", ", fixed),
            ),
        )


def _access_mode(store: MountPlan) -> str:
    return "ReadOnlyMany" if store.access == "read" else "ReadWriteMany"


def _spec(platform: Platform, store: MountPlan) -> k8s.core.v1.PersistentVolumeSpecArgs:
    """The volume, with nothing in it that a controller fills in later."""
    core = k8s.core.v1
    options = DISK_OPTIONS if isinstance(store, DiskPlan) else mount_options(platform, store)
    return core.PersistentVolumeSpecArgs(
        access_modes=[_access_mode(store)],
        capacity={"storage": ANY_SIZE},
        claim_ref=core.ObjectReferenceArgs(
            api_version="v1", kind="PersistentVolumeClaim", name=store.claim, namespace=store.team
        ),
        csi=_source(store),
        mount_options=list(options),
        node_affinity=_in_zone(store.zone) if isinstance(store, DiskPlan) else None,
        persistent_volume_reclaim_policy="Retain",
        storage_class_name="",
        volume_mode="Filesystem",
    )


def _source(store: MountPlan) -> k8s.core.v1.CSIPersistentVolumeSourceArgs:
    core = k8s.core.v1
    if isinstance(store, DiskPlan):
        return core.CSIPersistentVolumeSourceArgs(
            driver=DISK_DRIVER, volume_handle=store.handle, fs_type="ext4", read_only=True
        )
    return core.CSIPersistentVolumeSourceArgs(
        driver=FUSE_DRIVER,
        volume_handle=store.handle,
        read_only=store.access == "read",
        volume_attributes=dict(ATTRIBUTES),
    )


def _in_zone(zone: str) -> k8s.core.v1.VolumeNodeAffinityArgs:
    """Nodes that can have a disk of a zone attached."""
    core = k8s.core.v1
    here = core.NodeSelectorRequirementArgs(key=DISK_ZONE_LABEL, operator="In", values=[zone])
    term = core.NodeSelectorTermArgs(match_expressions=[here])
    return core.VolumeNodeAffinityArgs(required=core.NodeSelectorArgs(node_selector_terms=[term]))
