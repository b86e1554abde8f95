"""The whole graph, read top to bottom: services, network, cluster, slices, access, and what runs inside."""

from collections.abc import Sequence
from typing import Any

import pulumi

from components.access import ClusterAccess
from components.built import Built
from components.claims import Claims
from components.compute_classes import ComputeClasses
from components.device_plugin import DevicePlugin
from components.dra_driver import DraDriver
from components.drain import drain_hook
from components.identity import NODES, NodeIdentity
from components.jobset import JobSet
from components.kueue import Kueue
from components.multikueue import MultiKueueManager
from components.multikueue_worker import MultiKueueWorker
from components.namespaces import Namespaces
from components.queues import Queues
from components.readiness import webhook_gate
from components.services import Services
from spec import multikueue, queueing
from spec.platform import Platform


def build(platform: Platform) -> dict[str, Any]:
    """Register every resource of the platform and return the stack's exports."""
    drain = drain_hook(platform)
    services = Services("services", platform=platform)
    identity = NodeIdentity("node-identity", platform=platform, account=NODES[platform.backend], after=services.enabled)
    # A back end is imported where it is used: each loads large parts of the provider SDK that the other never needs.
    if platform.backend == "gke":
        from components.gke import build_gke

        built = build_gke(platform, services, identity)
    else:
        from components.compute import build_compute

        built = build_compute(platform, services, identity, drain)
    access = built.access
    namespaces = Namespaces("namespaces", platform=platform, access=access)
    if platform.compute_classes:
        ComputeClasses("compute-classes", platform=platform, access=access)
    kueue = install_controllers(platform, access, namespaces)
    exported = exports(platform, built)
    if platform.is_worker:
        worker = MultiKueueWorker("multikueue", platform=platform, access=access, after=kueue)
        exported[multikueue.STACK_OUTPUT] = worker.kubeconfig
    return exported


def install_controllers(platform: Platform, access: ClusterAccess, namespaces: Namespaces) -> Sequence[pulumi.Resource]:
    """What hands out devices and JobSet side by side; Kueue after them, since it queues what they serve; then queues.

    Returns what must be there before anything else of Kueue; empty without queues.
    """
    devices = {plan.devices for plan in platform.slice_plans}
    if platform.backend == "compute" and "device-plugin" in devices:
        DevicePlugin("device-plugin", access=access)
    driver: list[pulumi.Resource] = []
    if "dra" in devices:
        driver = [DraDriver("dra-driver", platform=platform, access=access).release]
    claims: list[pulumi.Resource] = []
    if any(plan.devices == "dra" for plan in platform.shared_plans):
        # Also on a manager, which has no driver: Kueue counts a job's devices there before it hands the job out.
        claims = Claims("claims", platform=platform, access=access, namespaces=namespaces, after=driver).device_classes
    jobset = JobSet("jobset", platform=platform, access=access)
    if not platform.queues:
        return []
    kueue = Kueue("kueue", platform=platform, access=access, after=[jobset.release, *claims])
    after, gate = [kueue.release], webhook_gate()
    checks = {}
    if platform.multikueue and platform.is_manager:
        manager = MultiKueueManager(
            "multikueue",
            platform=platform,
            access=access,
            workers=platform.multikueue.workers,
            after=after,
            gate=gate,
        )
        checks[multikueue.CHECK] = manager.check
    Queues("queues", platform=platform, access=access, namespaces=namespaces, after=after, gate=gate, checks=checks)
    return after


def exports(platform: Platform, built: Built) -> dict[str, Any]:
    """What a person or a script needs next: how to reach the cluster, what stands where, what it costs."""
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
            for queue in queueing.cluster_queues(platform)
        },
        "totals": platform.totals,
        **built.facts,
    }
