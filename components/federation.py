"""Who pods of a self-managed cluster are to Google Cloud, where any of them calls it."""

from components.built_cluster import Built
from components.compute import published_endpoint
from components.gcp.enabled_apis import Services
from components.gcp.identity_pool import IdentityPool
from plan.federation import federated_namespaces
from plan.platform import Platform


def identity_pool(platform: Platform, services: Services, built: Built) -> IdentityPool | None:
    """The cluster's own pool of identities; None on GKE, and where no pod calls Google."""
    if built.published is None or not federated_namespaces(platform):
        return None
    keys = built.published.apply(published_endpoint.keys_of)
    return IdentityPool("identity-pool", platform=platform, keys=keys, after=services.enabled)
