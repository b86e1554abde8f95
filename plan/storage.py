"""What follows from the storage of teams: buckets, rights, disks, volumes.

Mount options are those that Google publishes for TPU hosts (GoogleCloudPlatform/gcsfuse, samples/gke-csi-yaml/tpu).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from catalogue import versions
from catalogue.labels import PLATFORM_LABEL
from plan.platform import Platform
from platform_config.cluster import GkeCluster
from platform_config.teams import Store

FUSE_DRIVER = "gcsfuse.csi.storage.gke.io"
DISK_DRIVER = "pd.csi.storage.gke.io"
DISK_ZONE_LABEL = "topology.gke.io/zone"
"""Label of nodes by which the driver of disks says where they are."""
DISK_OPTIONS = ("read_ahead_kb=4096",)
"""As in Google's samples of Hyperdisk ML (GoogleCloudPlatform/kubernetes-engine-samples, ai-ml)."""
BUCKET_NAME_LIMIT = 63
SOFT_DELETE_SECONDS = 7 * 86400

# roles/storage.object* lack storage.buckets.get, for which Orbax and TensorStore ask. This role has it, and exists for
# buckets only.
READ_BUCKET = "roles/storage.legacyBucketReader"
ROLES: Mapping[str, tuple[str, ...]] = {
    "write": ("roles/storage.objectUser", READ_BUCKET),
    "read": ("roles/storage.objectViewer", READ_BUCKET),
}

# Stated although gcsfuse sets some of them by itself: it does so on large machine types only.
ALWAYS = (
    "implicit-dirs",
    "metadata-cache:negative-ttl-secs:0",
    "metadata-cache:ttl-secs:-1",
    "metadata-cache:stat-cache-max-size-mb:-1",
)
ATTRIBUTES = {"skipCSIBucketAccessCheck": "true", "gcsfuseMetadataPrefetchOnMount": "true"}
WRITING = ("write:enable-streaming-writes:true", "read_ahead_kb=1024")
RENAMING = "file-system:rename-dir-limit:200000"
SERVING = ("file-system:kernel-list-cache-ttl-secs:-1", "read_ahead_kb=131072")
BUFFERED_READ = "read:enable-buffered-read:true"
"""Only from `versions.BUFFERED_READ`; an older driver refuses the mount."""

Access = Literal["write", "read"]


@dataclass(frozen=True)
class VolumePlan:
    """A store of a team, as far as pods can mount it."""

    team: str
    name: str
    access: Access
    spec: Store

    @property
    def path(self) -> str:
        """Where it stands in the stack file, below the platform."""
        return f"teams.{self.team}.storage.{self.name}"

    @property
    def claim(self) -> str:
        """The PersistentVolumeClaim in the team's namespace."""
        return self.name

    @property
    def volume(self) -> str:
        """The PersistentVolume. No name contains a dot, so two stores never give the same one."""
        return f"{self.team}.{self.name}"


@dataclass(frozen=True)
class DiskPlan(VolumePlan):
    """A Hyperdisk ML disk that exists. `handle`: its full name, by which the driver knows it."""

    disk: str
    zone: str
    handle: str


@dataclass(frozen=True)
class StorePlan(VolumePlan):
    """A bucket. `bucket`: its name; `made`: whether the platform makes it."""

    bucket: str
    made: bool

    @property
    def handle(self) -> str:
        """The name by which the driver knows it."""
        return self.bucket

    @property
    def uri(self) -> str:
        return f"gs://{self.bucket}"

    @property
    def variable(self) -> str:
        """Environment variable with the address."""
        return f"STORAGE_{self.name.upper().replace('-', '_')}"

    @property
    def use(self) -> Literal["data", "checkpoints", "models"]:
        return self.spec.use or ("checkpoints" if self.access == "write" else "data")

    @property
    def kept(self) -> bool:
        """Whether the bucket stays when the store, the team or the platform is deleted."""
        return self.spec.keep or not self.made

    @property
    def expire_days(self) -> int | None:
        return int(self.spec.expire.removesuffix("d")) if self.spec.expire else None


MountPlan = StorePlan | DiskPlan
"""What pods find as files: both have a `handle`, a `claim` and a `volume`."""


def stores(platform: Platform) -> tuple[StorePlan, ...]:
    """The buckets of all teams, by team and name."""
    return tuple(store for team in sorted(platform.teams) for store in stores_of(platform, team))


def stores_of(platform: Platform, namespace: str) -> tuple[StorePlan, ...]:
    """Buckets of the team of a namespace, by name; none where the namespace is no team."""
    return tuple(
        StorePlan(
            namespace,
            name,
            spec.mode or ("write" if spec.bucket is None else "read"),
            spec,
            bucket=spec.bucket or bucket_name(platform, namespace, name),
            made=spec.bucket is None,
        )
        for name, spec in _written(platform, namespace)
        if spec.disk is None
    )


def disks(platform: Platform) -> tuple[DiskPlan, ...]:
    """The disks of all teams, by team and name."""
    return tuple(disk for team in sorted(platform.teams) for disk in disks_of(platform, team))


def disks_of(platform: Platform, namespace: str) -> tuple[DiskPlan, ...]:
    """Disks of the team of a namespace, by name; none where the namespace is no team."""
    return tuple(
        DiskPlan(
            namespace,
            name,
            "read",
            spec,
            disk=spec.disk,
            zone=platform.zone,
            handle=f"projects/{platform.project}/zones/{platform.zone}/disks/{spec.disk}",
        )
        for name, spec in _written(platform, namespace)
        if spec.disk is not None
    )


def _written(platform: Platform, namespace: str) -> list[tuple[str, Store]]:
    team = platform.teams.get(namespace)
    return sorted(team.storage.items()) if team else []


def bucket_name(platform: Platform, team: str, store: str) -> str:
    """Name of a bucket that is made. Bucket names are global; the project's id, which is global too, makes it unique.

    Underscores separate its parts, since a name in the stack file has none: with hyphens, team `a-b` of platform `one`
    and team `b` of platform `one-a` would share a bucket. The id of a project of an older organisation has a domain:
    `example.com:project`.
    """
    project = platform.project.replace(":", "_").replace(".", "_")
    return "_".join((project, platform.name, team, store))


def owner_labels(platform: Platform, store: StorePlan) -> dict[str, str]:
    """Google Cloud labels that say whose a bucket is that is made, when somebody finds it later."""
    return {PLATFORM_LABEL: platform.name, "tpu-team": store.team, "tpu-store": store.name}


def bucket_labels(platform: Platform, store: StorePlan) -> dict[str, str]:
    """Google Cloud labels of a bucket that is made."""
    return {**platform.labels, **owner_labels(platform, store)}


def mounted(platform: Platform, namespace: str) -> tuple[MountPlan, ...]:
    """Buckets and disks that jobs of a namespace find as files, by name."""
    every: tuple[MountPlan, ...] = (*stores_of(platform, namespace), *disks_of(platform, namespace))
    return tuple(sorted((store for store in every if store.spec.mount), key=lambda store: store.name))


def mount_options(platform: Platform, store: StorePlan) -> tuple[str, ...]:
    """Options of gcsfuse for what the files are."""
    options = list(ALWAYS)
    if store.use == "checkpoints":
        options += WRITING
        if not store.made:
            # A bucket that is made has a hierarchical namespace, where a directory is renamed in one step.
            options.append(RENAMING)
    elif store.use == "models":
        options += SERVING
        if _reads_ahead(platform):
            options.append(BUFFERED_READ)
    return tuple(options)


def _reads_ahead(platform: Platform) -> bool:
    version = platform.cluster.version if isinstance(platform.cluster, GkeCluster) else None
    return version is None or versions.reaches(version, versions.BUFFERED_READ.version)
