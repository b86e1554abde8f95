"""ComputeClasses: for a slice group, the order in which GKE tries its pools, or from which GKE creates them."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from catalogue.labels import COMPUTE_CLASS_LABEL
from components.kubernetes.cluster_access import ClusterAccess
from plan.platform import Platform
from plan.slices import ComputeClass, SlicePlan
from platform_config.capacity import Reservation
from platform_config.slice import SecondaryBootDisk

Spec = dict[str, Any]


class ComputeClasses(pulumi.ComponentResource):
    """One ComputeClass for each group. Its pods run in the first alternative that has, or can get, capacity."""

    TYPE = "tpu:kubernetes:ComputeClasses"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        access: ClusterAccess,
        node_email: pulumi.Input[str],
        policies: Mapping[str, pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        for compute_class in platform.compute_classes:
            if compute_class.creates_pools:
                spec = _creating(platform, compute_class, node_email)
            else:
                spec = _ordering(compute_class)
            k8s.apiextensions.CustomResource(
                f"{name}-{compute_class.name}",
                api_version="cloud.google.com/v1",
                kind="ComputeClass",
                metadata=k8s.meta.v1.ObjectMetaArgs(name=compute_class.name),
                spec=spec,
                opts=access.options(self, outside=_policies(compute_class, policies)),
            )
        self.register_outputs({"names": [compute_class.name for compute_class in platform.compute_classes]})


def _policies(compute_class: ComputeClass, policies: Mapping[str, pulumi.Resource]) -> list[pulumi.Resource]:
    """Workload policies that its pools refer to by name."""
    placement = compute_class.alternatives[0].placement
    return [policies[placement.policy]] if placement and placement.policy else []


def _ordering(compute_class: ComputeClass) -> Spec:
    """The program declares the pools; GKE tries them in this order."""
    return {
        "priorities": [{"nodepools": [pool.name for pool in plan.pools]} for plan in compute_class.alternatives],
        "nodePoolAutoCreation": {"enabled": False},
        **_never_moved(),
    }


def _creating(platform: Platform, compute_class: ComputeClass, node_email: pulumi.Input[str]) -> Spec:
    """GKE creates a pool for each slice that pods wait for, and tries these capacity models in order."""
    return {
        "priorities": [_priority(platform, plan) for plan in compute_class.alternatives],
        "nodePoolAutoCreation": {"enabled": True},
        "nodePoolConfig": _hosts(compute_class.alternatives[0], node_email),
        **_never_moved(),
    }


def _never_moved() -> Spec:
    """GKE never moves a running slice to a cheaper pool, and never takes hosts of another kind instead."""
    return {"activeMigration": {"optimizeRulePriority": False}, "whenUnsatisfiable": "DoNotScaleUp"}


def _hosts(plan: SlicePlan, node_email: pulumi.Input[str]) -> Spec:
    """What all alternatives have in common. GKE sets the class's own label and taint."""
    labels = {key: value for key, value in plan.labels.items() if key != COMPUTE_CLASS_LABEL}
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in plan.spec.taints]
    return {
        "serviceAccount": plan.spec.service_account or node_email,
        "imageType": "cos_containerd",
        "imageStreaming": {"enabled": plan.spec.image_streaming},
        "gvnic": {"enabled": True},
        "ipType": "private",
        "nodeLabels": labels,
        **({"taints": taints} if taints else {}),
    }


def _priority(platform: Platform, plan: SlicePlan) -> Spec:
    """One capacity model: where GKE gets the hosts of a slice."""
    generation = plan.generation
    priority: Spec = {
        "tpu": {"type": generation.accelerator, "count": plan.chips_per_host, "topology": plan.topology},
        "maxPodsPerNode": plan.spec.max_pods_per_node,
        "storage": _storage(platform, plan),
    }
    if isinstance(plan.alternative, Reservation):
        priority["reservations"] = {"affinity": "Specific", "specific": _reserved(platform, plan.alternative)}
    else:
        # The zone of a reservation is the reservation's own.
        priority["location"] = {"zones": [platform.zone]}
    if plan.model.gke.spot:
        priority["spot"] = True
    if plan.model.gke.flex_start:
        priority["flexStart"] = {"enabled": True}
    if plan.max_run_duration:
        priority["maxRunDurationSeconds"] = int(plan.max_run_duration.removesuffix("s"))
    if plan.placement and plan.placement.policy:
        priority["placement"] = {"policyName": plan.placement.policy}
    return priority


def _reserved(platform: Platform, reservation: Reservation) -> list[Spec]:
    """The reservation, or each part of it that slices may use."""
    whole: Spec = {"name": reservation.name, "zones": [platform.zone]}
    if reservation.project:
        whole["project"] = reservation.project
    if reservation.block is None:
        return [whole]
    if not reservation.sub_block:
        return [{**whole, "reservationBlock": {"name": reservation.block}}]
    return [
        {**whole, "reservationBlock": {"name": reservation.block, "reservationSubBlock": {"name": sub_block}}}
        for sub_block in reservation.sub_block
    ]


def _storage(platform: Platform, plan: SlicePlan) -> Spec:
    storage: Spec = {"bootDiskType": plan.boot_disk.type, "bootDiskSize": plan.boot_disk.size_gb}
    if plan.spec.kms_key:
        storage["bootDiskKMSKey"] = plan.spec.kms_key
    if plan.spec.secondary_boot_disks:
        storage["secondaryBootDisks"] = [_image_cache(platform, disk) for disk in plan.spec.secondary_boot_disks]
    return storage


def _image_cache(platform: Platform, disk: SecondaryBootDisk) -> Spec:
    """A disk image with container images, as `projects/P/global/images/NAME` or `global/images/NAME`."""
    owner, _, name = disk.image.rpartition("global/images/")
    project = owner.removeprefix("projects/").removesuffix("/") or platform.project
    return {"diskImageName": name, "project": project, "mode": "CONTAINER_IMAGE_CACHE"}
