"""What every node pool has in common: hardened nodes, and upgrades that never wait for spare capacity."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_gcp as gcp

from plan.slices import NodeTaint


def hardened_node_config(
    *,
    machine_type: str,
    service_account: pulumi.Input[str],
    disk_type: str,
    disk_size_gb: int,
    labels: Mapping[str, str],
    taints: Sequence[NodeTaint],
    resource_labels: Mapping[str, str],
    image_streaming: bool,
    **capacity: Any,
) -> gcp.container.NodePoolNodeConfigArgs:
    """Node settings of a pool; `capacity` are further typed arguments of NodePoolNodeConfigArgs (spot, ...).

    It states every value that GKE would fill in, so that a second preview finds nothing to change.
    """
    container = gcp.container
    return container.NodePoolNodeConfigArgs(
        machine_type=machine_type,
        service_account=service_account,
        oauth_scopes=["https://www.googleapis.com/auth/cloud-platform"],
        image_type="COS_CONTAINERD",
        boot_disk=container.NodePoolNodeConfigBootDiskArgs(disk_type=disk_type, size_gb=disk_size_gb),
        labels=dict(labels),
        resource_labels=dict(resource_labels),
        taints=[
            container.NodePoolNodeConfigTaintArgs(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in taints
        ],
        metadata={"disable-legacy-endpoints": "true"},
        gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
        gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=image_streaming),
        workload_metadata_config=container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        shielded_instance_config=container.NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        kubelet_config=container.NodePoolNodeConfigKubeletConfigArgs(insecure_kubelet_readonly_port_enabled="FALSE"),
        **capacity,
    )


def upgrade_one_by_one(surge: int) -> gcp.container.NodePoolUpgradeSettingsArgs:
    """Surge upgrades with `surge` extra nodes. TPU pools get none, because there is no spare TPU capacity."""
    return gcp.container.NodePoolUpgradeSettingsArgs(
        strategy="SURGE", max_surge=surge, max_unavailable=0 if surge else 1
    )
