"""The whole graph, read top to bottom: services, network, cluster, slices, access, and what runs inside.

The provider SDKs take more than a second to import, and the engine as long to start a provider plugin. So each stage is
imported in a thread after what comes before it is registered, and the engine works meanwhile.
"""

import asyncio
import gc
import importlib
from collections.abc import Sequence
from typing import Any

import pulumi

from components.built_cluster import Built
from components.compute.drain_hook import drain_hook
from components.gcp.enabled_apis import Services
from components.gcp.node_identity import NODES, NodeIdentity
from components.protection import Protection, protected, registered_resources
from plan import monitoring, multikueue, queue_metrics, queues
from plan.federation import federated_namespaces
from plan.platform import Platform
from plan.program_version import program_version

COLLECTION = (50_000, 20, 100)
"""How many objects are made before Python looks for garbage, and how often it looks at older ones. What is registered
stays to the end: with Python's own numbers, 1,000 slices take a fifth more processor time, and no less memory."""


async def build(platform: Platform) -> dict[str, Any]:
    """Register every resource of the platform and return the stack's exports."""
    gc.set_threshold(*COLLECTION)
    everything = registered_resources()
    drain = drain_hook(platform)
    services = Services("services", platform=platform)
    identity = NodeIdentity(
        "node-identity",
        platform=platform,
        account=NODES[platform.backend],
        after=services.enabled,
        opts=protected(platform),
    )
    # Only the back end in use is imported: each loads large parts of the provider SDK that the other does not need.
    await load(f"components.{platform.backend}.back_end")
    if platform.backend == "gke":
        from components.gke.back_end import build_gke

        built = build_gke(platform, services, identity)
    else:
        from components.compute.back_end import build_compute

        built = build_compute(platform, services, identity, drain)
    await load("components.inside_cluster")
    from components.inside_cluster import build_inside

    inside = build_inside(platform, identity, built)
    exported = exports(platform, built)
    pool = None
    if federated_namespaces(platform):
        from components.federation import identity_pool

        pool = identity_pool(platform, services, built)
    if platform.teams or platform.images:
        # Imported where it is used, as the back ends: it loads further parts of the provider SDK.
        from components.teams import install_teams

        exported |= install_teams(platform, services, built, inside.namespaces, pool)
    install_monitoring(platform, services)
    if queue_metrics.installed(platform):
        from components.collector import install_collector

        install_collector(platform, services, built, pool, inside.kueue)
    if inside.worker:
        exported[multikueue.STACK_OUTPUT] = inside.worker.kubeconfig
    Protection("protection", platform=platform, everything=everything)
    return exported


async def load(module: str) -> None:
    """Import a module in a thread, while registrations go on."""

    def imported() -> None:
        gc.disable()  # the provider SDKs allocate a million long-lived objects; scanning them doubles the import time
        importlib.import_module(module)
        gc.freeze()
        gc.enable()

    await asyncio.to_thread(imported)


def install_monitoring(platform: Platform, services: Services) -> None:
    """What is shown and told about the platform, and its budget."""
    addresses: Sequence[pulumi.Input[str]] = ()
    if monitoring.watched(platform):
        from components.gcp.monitoring import Monitoring

        addresses = Monitoring("monitoring", platform=platform, after=services.enabled).addresses
    if platform.monitoring.budget:
        from components.gcp.budget import Budget

        Budget("budget", platform=platform, addresses=addresses, enabled=services.enabled)


def exports(platform: Platform, built: Built) -> dict[str, Any]:
    """What a person or a script needs next: how to reach the cluster, where its slices are, what it costs."""
    return {
        "cluster": {
            "name": built.name,
            "location": platform.location,
            "endpoint": built.access.endpoint,
            "connect": built.connect,
        },
        "kubeconfig": built.access.kubeconfig,
        "slices": {plan.name: plan.summary() for plan in platform.slice_plans},
        "queues": {
            queue.name: {"namespaces": list(queue.namespaces), "slices": dict(queue.spec.slices)}
            for queue in queues.cluster_queues(platform)
        },
        "totals": platform.totals,
        "program": {"version": program_version()},
        **built.facts,
    }
