"""Limits that Google sets on clusters and pools, whatever runs in them."""

MAX_NODES = 15_000
"""Nodes of a cluster, whoever runs it (GKE documentation, quotas and limits)."""

MAX_HOSTS_PER_POOL = 2000
"""A pool is one managed instance group, GKE's or the platform's, with at most 2,000 VMs (`gceLimitOnMigSizes`)."""
