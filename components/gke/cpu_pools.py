"""CPU node pools: the system pool that carries controllers, and further pools a workload asks for."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gke.node_config import hardened_node_config, upgrade_one_by_one
from plan.platform import SYSTEM_POOL, Platform
from plan.slices import CpuPoolPlan


class CpuPools(pulumi.ComponentResource):
    """Autoscaled pools without TPUs. Controllers run here, so they neither wait for slices nor use their hosts."""

    TYPE = "tpu:gke:CpuPools"
    system: gcp.container.NodePool
    pools: dict[str, gcp.container.NodePool]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: gcp.container.Cluster,
        node_email: pulumi.Input[str],
        before_create: Sequence[pulumi.ResourceHook] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._hooks = pulumi.ResourceHookBinding(before_create=list(before_create))
        self.pools = {
            pool.name: self._pool(f"{name}-{pool.name}", platform, cluster, node_email, pool)
            for pool in platform.all_cpu_pools
        }
        self.system = self.pools[SYSTEM_POOL]
        self.register_outputs({"pools": sorted(self.pools)})

    def _pool(
        self,
        name: str,
        platform: Platform,
        cluster: gcp.container.Cluster,
        node_email: pulumi.Input[str],
        pool: CpuPoolPlan,
    ) -> gcp.container.NodePool:
        container = gcp.container
        return container.NodePool(
            name,
            project=platform.project,
            cluster=cluster.id,
            name=pool.name,
            node_locations=[platform.zone],
            initial_node_count=pool.min_nodes,
            ignore_node_count_changes=True,
            autoscaling=container.NodePoolAutoscalingArgs(
                total_min_node_count=pool.min_nodes, total_max_node_count=pool.max_nodes, location_policy="ANY"
            ),
            management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
            upgrade_settings=upgrade_one_by_one(surge=1),
            network_config=container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
            node_config=hardened_node_config(
                machine_type=pool.machine_type,
                service_account=node_email,
                disk_type=pool.disk_type,
                disk_size_gb=pool.disk_size_gb,
                labels=pool.labels,
                taints=pool.taints,
                resource_labels=platform.labels,
                image_streaming=platform.gke.image_streaming,
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                delete_before_replace=True,
                ignore_changes=["initialNodeCount"],
                # The system pool is protected, since the controllers run there; further pools are not.
                protect=platform.protect and pool.name == SYSTEM_POOL,
                hooks=self._hooks,
            ),
        )
