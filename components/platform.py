"""The whole graph, read top to bottom: services, network, cluster, slices, access, and what runs inside."""

from collections.abc import Mapping, Sequence
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
from components.pod_security import PodSecurity
from components.protection import Protection, kept, registered_from_now_on
from components.queues import Queues
from components.readiness import webhook_gate
from components.services import Services
from components.unqueued import UnqueuedTpus
from spec import multikueue, pod_security, queueing, unqueued
from spec.platform import Platform


def build(platform: Platform) -> dict[str, Any]:
    """Register every resource of the platform and return the stack's exports."""
    everything = registered_from_now_on()
    drain = drain_hook(platform)
    services = Services("services", platform=platform)
    identity = NodeIdentity(
        "node-identity",
        platform=platform,
        account=NODES[platform.backend],
        after=services.enabled,
        opts=kept(platform),
    )
    # A back end is imported where it is used: each loads large parts of the provider SDK that the other never needs.
    if platform.backend == "gke":
        from components.gke import build_gke

        built = build_gke(platform, services, identity)
    else:
        from components.compute import build_compute

        built = build_compute(platform, services, identity, drain)
    access = built.access
    namespaces = install_namespaces(platform, access)
    if platform.compute_classes:
        ComputeClasses("compute-classes", platform=platform, access=access)
    kueue = install_controllers(platform, access, namespaces)
    exported = exports(platform, built)
    if platform.is_worker:
        worker = MultiKueueWorker("multikueue", platform=platform, access=access, namespaces=namespaces, after=kueue)
        exported[multikueue.STACK_OUTPUT] = worker.kubeconfig
    Protection("protection", platform=platform, everything=everything)
    return exported


def install_namespaces(platform: Platform, access: ClusterAccess) -> Mapping[str, Sequence[pulumi.Resource]]:
    """By namespace, what everything in it comes after: itself, or nothing where the cluster has it already."""
    if not platform.installs("namespaces"):
        return dict.fromkeys(platform.workload_namespaces, ())
    made = Namespaces("namespaces", platform=platform, access=access).by_name
    if security := pod_security.policy(platform):
        PodSecurity("pod-security", policy=security, access=access)
    return {name: [namespace] for name, namespace in made.items()}


def install_controllers(
    platform: Platform, access: ClusterAccess, namespaces: Mapping[str, Sequence[pulumi.Resource]]
) -> Sequence[pulumi.Resource]:
    """What hands out devices and JobSet side by side; Kueue after them, since it queues what they serve; then queues.

    Returns what must be there before anything else of Kueue; empty without queues.
    """
    if platform.installs("device-plugin"):
        DevicePlugin("device-plugin", access=access, opts=kept(platform))
    driver: list[pulumi.Resource] = []
    if platform.installs("dra-driver"):
        driver = [DraDriver("dra-driver", platform=platform, access=access, opts=kept(platform)).release]
    after: list[pulumi.Resource] = []
    if any(plan.devices == "dra" for plan in platform.shared_plans):
        # Also on a manager, which has no driver: Kueue counts a job's devices there before it hands the job out.
        after += Claims("claims", platform=platform, access=access, namespaces=namespaces, after=driver).device_classes
    if platform.installs("jobset"):
        after.append(JobSet("jobset", platform=platform, access=access, opts=kept(platform)).release)
    if not platform.queues:
        return []
    if platform.installs("kueue"):
        after = [Kueue("kueue", platform=platform, access=access, after=after, opts=kept(platform)).release]
    gate, checks = webhook_gate(), {}
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
    if refusal := unqueued.policy(platform):
        UnqueuedTpus("unqueued-tpus", policy=refusal, access=access)
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
