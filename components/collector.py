"""The collector of queues' metrics, and its right to write them."""

from collections.abc import Sequence

import pulumi

from components.built_cluster import Built
from components.gcp.enabled_apis import Services
from components.gcp.identity_pool import IdentityPool
from components.gcp.metrics_writer import MetricsWriter
from components.gcp.pod_identities import gke_identities
from components.kubernetes.queue_metrics import QueueMetrics
from plan.platform import Platform
from plan.queue_metrics import NAME, NAMESPACE


def install_collector(
    platform: Platform,
    services: Services,
    built: Built,
    pool: IdentityPool | None,
    controllers: Sequence[pulumi.Resource],
) -> None:
    """Register the collector. `pool`: of a self-managed cluster; `controllers`: what it reads."""
    if pool:
        pods, member = pool.pods, pool.pods.of_namespace(NAMESPACE)
    else:
        pods = gke_identities(platform, services.enabled, built.access.identity)
        member = pods.of_account(NAMESPACE, NAME)
    writer = MetricsWriter("metrics-writer", platform=platform, member=member, after=pods.after)
    QueueMetrics(
        "queue-metrics",
        platform=platform,
        access=built.access,
        audience=pool.audience if pool else None,
        after=[*controllers, *writer.ready],
    )
