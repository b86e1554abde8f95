"""The Kubernetes cluster: a hardened GKE cluster whose control plane spans the region and whose nodes share a zone."""

from typing import Annotated, Literal

from pydantic import Field

from platform_config.fields import (
    Count,
    DiskSize,
    Flag,
    KmsKey,
    Labels,
    MachineType,
    Model,
    Name,
    Positive,
    UtcTime,
    Version,
    text,
)
from platform_config.network import AuthorizedNetwork

ReleaseChannel = Literal["RAPID", "REGULAR", "STABLE", "EXTENDED", "UNSPECIFIED"]
MAX_EXCLUSIONS = 20
"""Most maintenance exclusions of a cluster."""

Scope = Literal["NO_UPGRADES", "NO_MINOR_UPGRADES", "NO_MINOR_OR_NODE_UPGRADES"]

_GROUP_CHECK, _GROUP_SCHEMA = text(
    r"gke-security-groups@[a-z0-9.-]+", "the group Google Groups for RBAC demands", "gke-security-groups@your.domain"
)
SecurityGroup = Annotated[str, _GROUP_CHECK, _GROUP_SCHEMA]


class Exclusion(Model):
    """A time in which GKE must not upgrade; without `end` it lasts until the version's end of support."""

    name: Name
    """Name of the exclusion."""
    start: UtcTime
    """Begin."""
    end: UtcTime | None = None
    """End; the version's end of support if unset."""
    scope: Scope = "NO_MINOR_OR_NODE_UPGRADES"
    """Which upgrades the exclusion stops."""

    @property
    def end_time_behavior(self) -> str | None:
        """GKE takes an end or this. With both it does not return the end, and every preview shows a change."""
        return None if self.end else "UNTIL_END_OF_SUPPORT"


HOLD_UPGRADES = Exclusion(name="hold-slices", start="2026-01-01T00:00:00Z")
"""An upgrade recreates a whole slice in one step, so minor and node upgrades wait for a person."""


_DAY = "(MO|TU|WE|TH|FR|SA|SU)"
_RECURRENCE_CHECK, _RECURRENCE_SCHEMA = text(
    rf"FREQ=DAILY|FREQ=WEEKLY;BYDAY={_DAY}(,{_DAY})*",
    "a recurrence of maintenance windows",
    "FREQ=DAILY or FREQ=WEEKLY;BYDAY=SA,SU",
)


class Maintenance(Model):
    """When GKE may upgrade and repair, all in UTC."""

    start: UtcTime = "2026-01-03T00:00:00Z"
    """Begin of the first window."""
    end: UtcTime = "2026-01-03T08:00:00Z"
    """End of the first window."""
    recurrence: Annotated[str, _RECURRENCE_CHECK, _RECURRENCE_SCHEMA] = "FREQ=WEEKLY;BYDAY=SA,SU"
    """Days on which the window repeats (RFC 5545)."""
    exclusions: Annotated[tuple[Exclusion, ...], Field(max_length=MAX_EXCLUSIONS)] = (HOLD_UPGRADES,)
    """Times without upgrades. By default there are no minor and node upgrades until end of support."""


class Taint(Model):
    """A node taint, in Kubernetes' spelling."""

    key: str
    """Key."""
    value: str = ""
    """Value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What happens to pods that do not tolerate it."""


class PoolOptions(Model):
    """Settings of all pools without TPUs."""

    max: Positive = 10
    """Most nodes. GKE only, which adds and removes them."""
    disk_type: str | None = None
    """Boot disk type; what the machine family takes if unset."""
    disk_size_gb: DiskSize = 100
    """Boot disk size in GB."""
    labels: Labels = {}
    """Kubernetes labels of the nodes."""
    taints: tuple[Taint, ...] = ()
    """Taints of the nodes."""


class CpuPool(PoolOptions):
    """A pool without TPUs, for example for a Pathways head: autoscaled on GKE, else with `min` nodes."""

    machine_type: MachineType
    """Compute Engine machine type, one that the zone offers."""
    min: Count = 0
    """Fewest nodes."""


class SystemPool(PoolOptions):
    """The pool that controllers run on: autoscaled on GKE, else with `min` nodes."""

    machine_type: MachineType | None = None
    """Compute Engine machine type; one that the zone offers if unset."""
    min: Positive = 2
    """Fewest nodes."""


class GkeCluster(Model):
    """A GKE Standard cluster: private nodes, Dataplane V2, Workload Identity, no default pool, DNS endpoint."""

    kind: Literal["gke"] = "gke"
    """Google Kubernetes Engine."""
    release_channel: ReleaseChannel = "REGULAR"
    """GKE release channel; UNSPECIFIED (none) only for slices with provisioning: tpu-provisioner, which need it."""
    version: Version | None = None
    """GKE version at creation, such as "1.35.2-gke.1842000"; the channel's default if unset."""
    regional: Flag = True
    """Control plane in three zones of the region, or only in the zone."""
    authorized_networks: tuple[AuthorizedNetwork, ...] = ()
    """Who may reach the control plane by address. None: only the IAM-guarded DNS endpoint."""
    maintenance: Maintenance = Maintenance()
    """When GKE may upgrade."""
    system_pool: SystemPool = SystemPool()
    """The pool that controllers run on."""
    cpu_pools: dict[Name, CpuPool] = {}
    """Further pools without TPUs, by name."""
    kms_key: KmsKey | None = None
    """Cloud KMS key that encrypts Kubernetes secrets."""
    security_group: SecurityGroup | None = None
    """Google group whose members Kubernetes RBAC may name."""
    binary_authorization: Flag = False
    """Enforce the project's Binary Authorization policy."""
    gcs_fuse: Flag = True
    """Mount Cloud Storage buckets as files."""
    image_streaming: Flag = True
    """Start containers before their image is fully pulled."""
    gateway: Flag = False
    """Let GKE make load balancers for servers (Gateway API). Without it later, the cluster keeps what it has."""
    metric_autoscaling: Flag = False
    """Scale servers by their own metrics (HPA profile PERFORMANCE), which is in preview."""

    @property
    def ip_endpoint(self) -> bool:
        """Whether the control plane also has an IP endpoint: only if authorized networks are given."""
        return bool(self.authorized_networks)
