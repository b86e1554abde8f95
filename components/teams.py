"""What makes a namespace a team: rights of people and pods, storage, secrets, registries of images."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.built_cluster import Built
from components.gcp.buckets import Buckets
from components.gcp.enabled_apis import Services
from components.gcp.identity_pool import IdentityPool
from components.gcp.images import Images
from components.gcp.kept_buckets import taken_hook
from components.gcp.pod_identities import PodIdentities, gke_identities
from components.gcp.secret_grants import SecretGrants
from components.gcp.storage_grants import StorageGrants
from components.gcp.team_members import TeamMembers
from components.kubernetes.addon_retry import addon_gate
from components.kubernetes.admission_policy import ACCOUNT_TOKENS, AdmissionPolicy
from components.kubernetes.cluster_access import ClusterAccess
from components.kubernetes.federated_credentials import FederatedCredentials
from components.kubernetes.team_limits import TeamLimits
from components.kubernetes.team_networks import TeamNetworks
from components.kubernetes.team_rights import TeamRights
from components.kubernetes.team_secrets import TeamSecrets
from components.kubernetes.team_volumes import TeamVolumes
from components.protection import protected
from plan import account_tokens, images, storage, teams
from plan.platform import Platform
from platform_config.platform import below

BUCKETS = "buckets"
Namespaced = Mapping[str, Sequence[pulumi.Resource]]
"""For each namespace, the resources that must exist before anything in it."""


def install_teams(
    platform: Platform, services: Services, built: Built, namespaces: Namespaced, pool: IdentityPool | None
) -> dict[str, Any]:
    """Register what teams and images need. Returns what the stack exports about them. `pool`: of a self-managed
    cluster."""
    access, enabled = built.access, services.enabled
    exported: dict[str, Any] = {}
    if platform.images:
        Images("images", platform=platform, hosts=built.hosts, after=enabled)
        exported["images"] = {plan.name: plan.address for plan in images.repositories(platform)}
    if not platform.teams:
        return exported
    TeamRights("team-rights", platform=platform, access=access, namespaces=namespaces)
    TeamLimits("team-limits", platform=platform, access=access, namespaces=namespaces)
    if refusal := account_tokens.policy(platform):
        AdmissionPolicy(ACCOUNT_TOKENS, "account-tokens", policy=refusal, access=access)
    if platform.backend == "gke":
        TeamMembers("team-members", platform=platform, after=enabled)
        TeamNetworks("team-networks", platform=platform, access=access, namespaces=namespaces)
    stores = storage.stores(platform)
    ready: Mapping[str, Sequence[pulumi.Resource]] = {}
    if stores or teams.teams_with_secrets(platform):
        pods = _pod_identities(platform, services, built, namespaces, pool)
        if stores:
            ready = _install_storage(platform, services, pods)
        if teams.teams_with_secrets(platform):
            _install_secrets(platform, access, namespaces, pods)
    if platform.backend == "gke" and (stores or storage.disks(platform)):
        TeamVolumes("team-volumes", platform=platform, access=access, namespaces=namespaces, ready=ready)
    exported["storage"] = {store.volume: {"address": store.uri, "kept_on_destroy": store.kept} for store in stores}
    return exported


def _pod_identities(
    platform: Platform, services: Services, built: Built, namespaces: Namespaced, pool: IdentityPool | None
) -> PodIdentities:
    """Who pods are in Google Cloud: on GKE without more, in a self-managed cluster by a pool of its own."""
    if pool is None:
        return gke_identities(platform, services.enabled, built.access.identity)
    FederatedCredentials(
        "federated-credentials",
        platform=platform,
        access=built.access,
        audience=pool.audience,
        namespaces=namespaces,
    )
    return pool.pods


def _install_storage(
    platform: Platform, services: Services, pods: PodIdentities
) -> Mapping[str, Sequence[pulumi.Resource]]:
    """Buckets beside the cluster; then rights on them, of which those of pods wait for the cluster.

    Returns by volume the rights without which pods cannot mount it.
    """
    paths = {f"{BUCKETS}-{store.volume}": (store.bucket, below(store.path)) for store in storage.stores(platform)}
    hook = taken_hook(platform.project, paths)
    buckets = Buckets(
        BUCKETS, platform=platform, after=services.enabled, on_error=hook, opts=protected(platform)
    ).by_name
    return StorageGrants("storage-grants", platform=platform, buckets=buckets, pods=pods, after=services.enabled).ready


def _install_secrets(platform: Platform, access: ClusterAccess, namespaces: Namespaced, pods: PodIdentities) -> None:
    grants = SecretGrants("secret-grants", platform=platform, pods=pods).by_team
    TeamSecrets(
        "team-secrets", platform=platform, access=access, namespaces=namespaces, grants=grants, gate=addon_gate()
    )
