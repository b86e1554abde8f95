"""Google's limits of clusters and pools."""

MAX_NODES = 15_000
"""Most nodes of a cluster, with or without GKE (GKE documentation, quotas and limits)."""

MAX_HOSTS_PER_POOL = 2000
"""A pool is one managed instance group, GKE's or the platform's, with at most 2,000 VMs (`gceLimitOnMigSizes`)."""
