"""Google APIs that a platform calls, each with the part of the platform that calls it.

Sources: "Before you begin" of Google's how-to guides for each feature.
"""

from collections.abc import Iterator

from plan.federation import federated_namespaces
from plan.platform import Platform
from platform_config.cluster import GkeCluster
from platform_config.self_managed import ExistingCluster, SelfManagedCluster

EVERYWHERE = ("cloudresourcemanager", "compute", "iam", "logging", "monitoring")
"""For IAM members, machines, service accounts, and the logs and metrics of nodes."""


def google_apis(platform: Platform) -> tuple[str, ...]:
    """Full names of the APIs that must be enabled in the project, sorted."""
    names = {*EVERYWHERE, *_of_cluster(platform), *_of_keys(platform), *_of_teams(platform)}
    if platform.monitoring.budget:
        names.add("billingbudgets")
    return tuple(sorted(f"{name}.googleapis.com" for name in names))


def _of_cluster(platform: Platform) -> Iterator[str]:
    # GKE's add-on reads secrets for pods; without GKE hosts need a secret to join.
    yield "secretmanager"
    if isinstance(platform.cluster, GkeCluster):
        yield from _of_gke(platform.cluster)
    elif isinstance(platform.cluster, SelfManagedCluster) and platform.cluster.control_plane.backups:
        yield "storage"


def _of_gke(cluster: GkeCluster) -> Iterator[str]:
    yield "container"
    yield "containersecurity"  # the security posture dashboard
    yield "iamcredentials"  # Workload Identity
    if cluster.binary_authorization:
        yield "binaryauthorization"
    if cluster.image_streaming:
        yield "artifactregistry"
        yield "containerfilesystem"


def _of_keys(platform: Platform) -> Iterator[str]:
    cluster = platform.cluster
    keys = [] if isinstance(cluster, ExistingCluster) else [cluster.kms_key]
    if any([*keys, *(spec.kms_key for spec in platform.slices.values())]):
        yield "cloudkms"


def _of_teams(platform: Platform) -> Iterator[str]:
    if any(team.storage for team in platform.teams.values()):
        yield "storage"
    if federated_namespaces(platform):
        yield "iamcredentials"
        yield "sts"
    if platform.images:
        yield "artifactregistry"
