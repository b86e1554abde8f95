"""How pods of a cluster that is not GKE's are known to Google Cloud (Workload Identity Federation).

Form of the credential: AIP-4117, as Google's client libraries for Python and Go read it.
"""

from types import MappingProxyType
from typing import Any

from plan import queue_metrics
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Who signs tokens in a cluster that kubeadm makes (`iss`)."""
PROVIDER = "cluster"
MAPPING = MappingProxyType(
    {"google.subject": "assertion.sub", "attribute.namespace": "assertion['kubernetes.io']['namespace']"}
)
CONFIG_MAP, CREDENTIAL = "google-identity", "credential.json"
DIRECTORY, TOKEN = "/var/run/google-identity", "token"
TOKEN_SECONDS = 3600


def federated_teams(platform: Platform) -> tuple[str, ...]:
    """Teams whose pods get an identity by federation: those with storage, in a self-managed cluster."""
    if not isinstance(platform.cluster, SelfManagedCluster):
        return ()
    return tuple(name for name in sorted(platform.teams) if platform.teams[name].storage)


def federated_namespaces(platform: Platform) -> tuple[str, ...]:
    """Namespaces whose pods get an identity by federation: those of `federated_teams`, and that of the collector."""
    if not isinstance(platform.cluster, SelfManagedCluster):
        return ()
    return (*federated_teams(platform), *([queue_metrics.NAMESPACE] if queue_metrics.installed(platform) else []))


def token_audience(platform: Platform) -> str:
    """Whom pods' tokens are for. Manifests state it, so it is known without Google."""
    return f"{platform.project}/{platform.name}"


def credential(audience: str) -> dict[str, Any]:
    """What tells Google's libraries to trade the pod's own token for one of Google's. Nothing in it is secret.

    `audience`: full name of the pool's provider.
    """
    return {
        "type": "external_account",
        "audience": audience,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": f"{DIRECTORY}/{TOKEN}"},
    }
