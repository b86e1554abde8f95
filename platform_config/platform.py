"""The platform: one object that a person writes."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from platform_config.cluster import GkeCluster
from platform_config.fields import INT32, Amount, Day, Flag, Labels, Model, Name, Zone
from platform_config.images import ImageRepository
from platform_config.monitoring import Monitoring
from platform_config.multikueue import MultiKueue
from platform_config.network import CreatedNetwork, Network
from platform_config.queues import Cohort, Queue
from platform_config.self_managed import ExistingCluster, SelfManagedCluster
from platform_config.slice import Slice
from platform_config.software import Software
from platform_config.teams import Team

PLATFORM_KEY = "tpu-platform:platform"
"""Key of the platform in a stack's configuration."""


def _kind(value: Any) -> Any:
    return {"kind": "gke", **value} if isinstance(value, dict) else value


Cluster = Annotated[
    GkeCluster | SelfManagedCluster | ExistingCluster, Field(discriminator="kind"), BeforeValidator(_kind)
]
"""GKE (`kind: gke`, the default), self-managed Kubernetes (`kind: self-managed`), or a cluster that exists."""


class Rate(Model):
    """Your price of a chip, instead of the list price."""

    usd_per_chip_hour: Amount
    """Price of one chip for an hour."""
    spot_usd_per_chip_hour: Amount | None = None
    """The same on spot capacity; without it spot has no price."""
    flex_start_usd_per_chip_hour: Amount | None = None
    """The same on flex-start and queued capacity; without it `usd_per_chip_hour` counts, as an upper bound."""
    as_of: Day
    """Day on which this price was valid."""
    source: Annotated[str, Field(min_length=1)]
    """Source of the price, for example a contract."""


class PlatformConfig(Model):
    """A Kubernetes cluster, its TPU slices and what schedules work onto them, in one zone of one project."""

    model_config = ConfigDict(title="Platform")

    name: Annotated[Name, Field(max_length=22)] = "tpu"
    """Prefix of every cloud name; two platforms of a project need two names."""
    project: str
    """Google Cloud project; from gcp:project."""
    zone: Zone
    """Zone of all slices; the region follows from it."""
    allow_unlisted_zone: Flag = False
    """Accept a TPU generation in a zone where it is not known to be offered."""
    protect: Flag = True
    """Refuse `destroy`, and updates that delete or replace a slice or another part that the platform needs."""
    labels: Labels = {}
    """Google Cloud labels of everything that takes labels."""
    cluster: Cluster = GkeCluster()
    """The Kubernetes cluster: GKE, one of the platform's own on Compute Engine, or one that exists."""
    network: Network = CreatedNetwork()
    """The network: a new one, or one that exists."""
    slices: dict[Name, Slice] = {}
    """TPU slices, by a name of your choice."""
    teams: dict[Name, Team] = {}
    """Teams, by name: each has the namespace of its name, which queues may name."""
    namespaces: tuple[Name, ...] = ("tpu-workloads",)
    """Kubernetes namespaces for workloads beside those of teams; none if there are teams and this is unset."""
    images: dict[Name, ImageRepository] = {}
    """Registries of container images, by a name of your choice."""
    queues: dict[Name, Queue] = {}
    """Who may use which slices, by queue; none: no Kueue."""
    overcommit: Flag = False
    """Let queues own more slices together than there are; workloads beyond that wait."""
    cohorts: dict[Name, Cohort] = {}
    """Trees of cohorts, for queues that share slices across cohorts."""
    priorities: dict[Name, Annotated[int, Field(strict=True, ge=-INT32 - 1, le=INT32)]] = {}
    """Priority classes of workloads, by name; higher numbers go first."""
    multikueue: MultiKueue | None = None
    """Role of this cluster in queues across several clusters."""
    monitoring: Monitoring = Monitoring()
    """Dashboard, alerts and metrics."""
    software: Software = Software()
    """Versions and settings of the controllers."""
    prices: dict[str, Rate] = {}
    """Your prices, by generation; list prices if unset."""


def below(path: str) -> str:
    """The full path in the stack file of a key of the platform."""
    return f"{PLATFORM_KEY}.{path}" if path else PLATFORM_KEY
