"""Who pods of a self-managed cluster are to Google Cloud."""

from components.built_cluster import Built
from components.compute import published_endpoint
from components.gcp.enabled_apis import Services
from components.gcp.identity_pool import IdentityPool
from plan.platform import Platform


def identity_pool(platform: Platform, services: Services, built: Built) -> IdentityPool:
    """The cluster's own pool of identities."""
    assert built.published is not None
    keys = built.published.apply(published_endpoint.keys_of)
    return IdentityPool("identity-pool", platform=platform, keys=keys, after=services.enabled)
