"""TPU slices as GKE node pools."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.gke.node_config import hardened_node_config, upgrade_one_by_one
from plan import recreation
from plan.platform import Platform
from plan.slices import PoolPlan, SlicePlan

# The provider plans an edit of these as an update, which sends nothing (topology) or recreates every host in place
# (machine type, zone). Each of these edits replaces the slice instead.
REPLACES_SLICE = ["placementPolicy.tpuTopology", "nodeConfig.machineType", "nodeLocations"]
# Further edits that recreate all hosts and keep the pool. For a protected slice they count as a replacement, so that
# the engine refuses them before it changes anything.
MAKES_HOSTS_ANEW = sorted({*recreation.NODE_POOL} - {*REPLACES_SLICE})


class Slices(pulumi.ComponentResource):
    """A group of identical slices: one node pool for each multi-host slice, or one pool for all single-host slices."""

    TYPE = "tpu:gke:Slices"
    pools: list[gcp.container.NodePool]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        plan: SlicePlan,
        cluster: gcp.container.Cluster,
        node_email: pulumi.Input[str],
        policies: Mapping[str, gcp.compute.ResourcePolicy],
        before_create: Sequence[pulumi.ResourceHook] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._hooks = pulumi.ResourceHookBinding(before_create=list(before_create))
        placement = _placement(plan, policies)
        self.pools = [
            self._pool(f"{name}-{index}", platform, plan, pool, cluster, node_email, placement)
            for index, pool in enumerate(plan.pools)
        ]
        self.register_outputs({"pools": [pool.name for pool in plan.pools]})

    def _pool(
        self,
        name: str,
        platform: Platform,
        plan: SlicePlan,
        pool: PoolPlan,
        cluster: gcp.container.Cluster,
        node_email: pulumi.Input[str],
        placement: gcp.container.NodePoolPlacementPolicyArgs | None,
    ) -> gcp.container.NodePool:
        container = gcp.container
        autoscaling = _autoscaling(plan, pool)
        return container.NodePool(
            name,
            project=platform.project,
            cluster=cluster.id,
            name=pool.name,
            node_locations=[platform.zone],
            version=plan.version,
            max_pods_per_node=plan.spec.max_pods_per_node,
            node_count=pool.node_count,
            initial_node_count=pool.min_nodes,
            ignore_node_count_changes=True if autoscaling else None,
            autoscaling=autoscaling,
            placement_policy=placement,
            queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True) if plan.queued else None,
            management=container.NodePoolManagementArgs(auto_repair=plan.model.gke.auto_repair, auto_upgrade=True),
            upgrade_settings=upgrade_one_by_one(surge=0),
            network_config=_network_config(plan),
            node_drain_configs=_node_drain(plan),
            node_config=_node_config(plan, pool, node_email),
            opts=pulumi.ResourceOptions(
                parent=self,
                delete_before_replace=True,
                replace_on_changes=[*REPLACES_SLICE, *(MAKES_HOSTS_ANEW if plan.protect else [])],
                ignore_changes=list(_google_owned(plan)),
                custom_timeouts=_timeouts(plan),
                hooks=self._hooks,
            ),
        )


def _autoscaling(plan: SlicePlan, pool: PoolPlan) -> gcp.container.NodePoolAutoscalingArgs | None:
    """The bounds within which GKE scales a pool without a fixed size: per zone, since total bounds break slices."""
    if pool.node_count is not None:
        return None
    return gcp.container.NodePoolAutoscalingArgs(
        min_node_count=pool.min_nodes, max_node_count=pool.max_nodes, location_policy="ANY"
    )


def _placement(
    plan: SlicePlan, policies: Mapping[str, gcp.compute.ResourcePolicy]
) -> gcp.container.NodePoolPlacementPolicyArgs | None:
    if plan.placement is None:
        return None
    return gcp.container.NodePoolPlacementPolicyArgs(
        type=plan.placement.type,
        tpu_topology=plan.placement.topology,
        policy_name=policies[plan.placement.policy].name if plan.placement.policy else None,
    )


def _network_config(plan: SlicePlan) -> gcp.container.NodePoolNetworkConfigArgs:
    container = gcp.container
    return container.NodePoolNetworkConfigArgs(
        enable_private_nodes=True,
        accelerator_network_profile="auto" if plan.spec.dranet else None,
        additional_node_network_configs=[
            container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(
                network=network.network, subnetwork=network.subnetwork
            )
            for network in plan.spec.additional_networks
        ]
        or None,
    )


def _node_drain(plan: SlicePlan) -> list[gcp.container.NodePoolNodeDrainConfigArgs] | None:
    if plan.spec.node_drain is None:
        return None
    return [
        gcp.container.NodePoolNodeDrainConfigArgs(
            respect_pdb_during_node_pool_deletion=plan.spec.node_drain.respect_pdb,
            grace_termination_duration=plan.spec.node_drain.grace,
            pdb_timeout_duration=plan.spec.node_drain.pdb_timeout,
        )
    ]


def _node_config(
    plan: SlicePlan, pool: PoolPlan, node_email: pulumi.Input[str]
) -> gcp.container.NodePoolNodeConfigArgs:
    container = gcp.container
    return hardened_node_config(
        machine_type=plan.machine.name,
        service_account=plan.spec.service_account or node_email,
        disk_type=plan.boot_disk.type,
        disk_size_gb=plan.boot_disk.size_gb,
        labels=plan.labels,
        taints=plan.taints,
        resource_labels=plan.resource_labels,
        image_streaming=plan.spec.image_streaming,
        tags=list(plan.spec.tags) or None,
        spot=plan.model.gke.spot or None,
        flex_start=plan.model.gke.flex_start or None,
        max_run_duration=plan.max_run_duration,
        boot_disk_kms_key=plan.spec.kms_key,
        reservation_affinity=container.NodePoolNodeConfigReservationAffinityArgs(
            consume_reservation_type=pool.reservation.type,
            key=pool.reservation.key,
            values=list(pool.reservation.values) or None,
        ),
        secondary_boot_disks=[
            container.NodePoolNodeConfigSecondaryBootDiskArgs(disk_image=disk.image, mode="CONTAINER_IMAGE_CACHE")
            for disk in plan.spec.secondary_boot_disks
        ]
        or None,
        host_maintenance_policy=container.NodePoolNodeConfigHostMaintenancePolicyArgs(
            maintenance_interval=plan.spec.host_maintenance
        )
        if plan.spec.host_maintenance
        else None,
        advanced_machine_features=container.NodePoolNodeConfigAdvancedMachineFeaturesArgs(
            threads_per_core=plan.machine.threads_per_core
        )
        if plan.machine.threads_per_core
        else None,
    )


def _google_owned(plan: SlicePlan) -> tuple[str, ...]:
    """Properties that GKE changes: the size of a pool, and on some machines the threads per core."""
    return ("initialNodeCount", *(() if plan.machine.threads_per_core else ("nodeConfig.advancedMachineFeatures",)))


def _timeouts(plan: SlicePlan) -> pulumi.CustomTimeouts:
    """At least as long as the capacity model may wait for hosts: a shorter timeout would report false failures."""
    hours = f"{plan.timeout_hours}h"
    return pulumi.CustomTimeouts(create=hours, update=hours, delete="2h")
