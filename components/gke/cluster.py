"""The GKE cluster: regional control plane, private nodes, no default pool, hardened defaults."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.network import Network
from components.known_output import unknown_if_absent
from plan.platform import Platform
from plan.teams import teams_with_secrets
from platform_config.cluster import GkeCluster

SECRET_ROTATION = "300s"
"""How often the add-on looks for a new version of a team's secret."""


class Cluster(pulumi.ComponentResource):
    """GKE control plane. The configuration fixes its name, because the name identifies the Kubernetes Provider."""

    TYPE = "tpu:gke:Cluster"
    cluster: gcp.container.Cluster
    endpoint: pulumi.Output[str]
    """DNS name of the control plane; its name carries the cluster's unique id."""
    works: pulumi.ResourceHook
    """A hook that refuses to create objects in a cluster without an endpoint."""

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        network: Network,
        node_email: pulumi.Input[str],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        spec = platform.gke
        container = gcp.container
        self.cluster = container.Cluster(
            f"{name}-gke",
            project=platform.project,
            name=platform.cluster_name,
            location=platform.location,
            # A zonal cluster's nodes are in its own zone; the provider refuses to have that zone named again.
            node_locations=[platform.zone] if spec.regional else None,
            deletion_protection=platform.protect,
            resource_labels=platform.labels,
            # Network
            network=network.network,
            subnetwork=network.subnetwork,
            networking_mode="VPC_NATIVE",
            ip_allocation_policy=container.ClusterIpAllocationPolicyArgs(
                cluster_secondary_range_name=network.pods_range,
                services_secondary_range_name=network.services_range,
                stack_type="IPV4",
            ),
            datapath_provider="ADVANCED_DATAPATH",
            enable_intranode_visibility=True,
            enable_l4_ilb_subsetting=True,
            enable_multi_networking=platform.needs_multi_networking or None,
            private_cluster_config=container.ClusterPrivateClusterConfigArgs(
                enable_private_nodes=True, enable_private_endpoint=not spec.ip_endpoint
            ),
            control_plane_endpoints_config=_endpoints(platform),
            master_authorized_networks_config=_authorized_networks(spec),
            # Pools: the temporary default pool is removed at once; slices and system nodes are their own resources.
            remove_default_node_pool=True,
            initial_node_count=1,
            node_config=_default_pool(platform.all_cpu_pools[0].machine_type, node_email),
            skip_node_pool_refresh=True,
            node_pool_defaults=_pool_defaults(spec),
            node_pool_auto_config=_created_pools(platform),
            # Versions and maintenance
            release_channel=container.ClusterReleaseChannelArgs(channel=spec.release_channel),
            min_master_version=spec.version,
            maintenance_policy=_maintenance(platform),
            # Security
            workload_identity_config=container.ClusterWorkloadIdentityConfigArgs(workload_pool=platform.identity_pool),
            enable_shielded_nodes=True,
            enable_legacy_abac=False,
            master_auth=container.ClusterMasterAuthArgs(
                client_certificate_config=container.ClusterMasterAuthClientCertificateConfigArgs(
                    issue_client_certificate=False
                )
            ),
            anonymous_authentication_config=container.ClusterAnonymousAuthenticationConfigArgs(mode="LIMITED"),
            rbac_binding_config=container.ClusterRbacBindingConfigArgs(
                enable_insecure_binding_system_authenticated=False,
                enable_insecure_binding_system_unauthenticated=False,
            ),
            authenticator_groups_config=_groups(spec),
            database_encryption=_database_encryption(spec),
            binary_authorization=_binary_authorization(spec),
            # No vulnerabilityMode: Google has shut down that scan, and the API returns another value than the one sent.
            security_posture_config=container.ClusterSecurityPostureConfigArgs(mode="BASIC"),
            secret_manager_config=container.ClusterSecretManagerConfigArgs(enabled=True),
            secret_sync_config=_secret_sync(platform),
            # Servers
            gateway_api_config=_gateways(spec),
            pod_autoscaling=_pod_autoscaling(spec),
            # Add-ons, observability, cost
            addons_config=_addons(platform),
            logging_config=container.ClusterLoggingConfigArgs(enable_components=["SYSTEM_COMPONENTS", "WORKLOADS"]),
            monitoring_config=container.ClusterMonitoringConfigArgs(
                enable_components=["SYSTEM_COMPONENTS", "JOBSET"],
                managed_prometheus=container.ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
            ),
            cost_management_config=container.ClusterCostManagementConfigArgs(enabled=True),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                delete_before_replace=True,
                ignore_changes=_not_ours(spec),
                custom_timeouts=pulumi.CustomTimeouts(create="90m", update="90m", delete="90m"),
            ),
        )
        self.endpoint = unknown_if_absent(self.cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint)
        self.works = _hook(platform, self.endpoint)
        self.register_outputs({"name": self.cluster.name})


def _hook(platform: Platform, endpoint: pulumi.Output[str]) -> pulumi.ResourceHook:
    """Ends an update with a message where a cluster in the state has no endpoint.

    Otherwise the kubeconfig is unknown during an update, and the engine panics.
    """

    async def refuse(_args: pulumi.ResourceHookArgs) -> None:
        if not await endpoint.is_known():
            raise pulumi.RunError(
                f"cluster {platform.cluster_name} has no endpoint: its creation failed, or has not ended. Look at"
                f" `gcloud container clusters list --project {platform.project}`. If the cluster is in ERROR, run"
                " `pulumi up --replace '**::cluster-gke'`. If it is PROVISIONING, wait, then run this command again."
            )

    return pulumi.ResourceHook("cluster-works", refuse)


def _not_ours(spec: GkeCluster) -> list[str]:
    """Properties that Google changes: the channel upgrades the version, and the default pool's settings go with it.

    Where the IP endpoint is off, the provider does not send whether it is private, and stores what GKE answers. No
    public source documents that answer, so the program accepts any.
    """
    unsent = [] if spec.ip_endpoint else ["privateClusterConfig.enablePrivateEndpoint"]
    return ["minMasterVersion", "nodeConfig", *unsent]


def _endpoints(platform: Platform) -> gcp.container.ClusterControlPlaneEndpointsConfigArgs:
    """The DNS endpoint, guarded by IAM, is always on; the IP endpoint only where networks are authorized to use it."""
    container, spec = gcp.container, platform.gke
    return container.ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=container.ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            allow_external_traffic=True,
            # A MultiKueue manager authenticates with a ServiceAccount's token, everybody else with IAM.
            enable_k8s_tokens_via_dns=True if platform.is_worker else None,
        ),
        ip_endpoints_config=container.ClusterControlPlaneEndpointsConfigIpEndpointsConfigArgs(enabled=spec.ip_endpoint),
    )


def _authorized_networks(spec: GkeCluster) -> gcp.container.ClusterMasterAuthorizedNetworksConfigArgs | None:
    if not spec.ip_endpoint:
        return None
    container = gcp.container
    return container.ClusterMasterAuthorizedNetworksConfigArgs(
        cidr_blocks=[
            container.ClusterMasterAuthorizedNetworksConfigCidrBlockArgs(
                cidr_block=network.cidr, display_name=network.name
            )
            for network in spec.authorized_networks
        ],
        gcp_public_cidrs_access_enabled=False,
    )


def _default_pool(machine_type: str, node_email: pulumi.Input[str]) -> gcp.container.ClusterNodeConfigArgs:
    """Settings of the default pool, which lives for a few minutes: organisation policies check it too.

    The machine type is set because GKE's default does not exist in every TPU zone.
    """
    container = gcp.container
    return container.ClusterNodeConfigArgs(
        machine_type=machine_type,
        service_account=node_email,
        oauth_scopes=["https://www.googleapis.com/auth/cloud-platform"],
        shielded_instance_config=container.ClusterNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        workload_metadata_config=container.ClusterNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
    )


def _pool_defaults(spec: GkeCluster) -> gcp.container.ClusterNodePoolDefaultsArgs:
    container = gcp.container
    return container.ClusterNodePoolDefaultsArgs(
        node_config_defaults=container.ClusterNodePoolDefaultsNodeConfigDefaultsArgs(
            gcfs_config=container.ClusterNodePoolDefaultsNodeConfigDefaultsGcfsConfigArgs(enabled=spec.image_streaming),
            insecure_kubelet_readonly_port_enabled="FALSE",
        )
    )


def _created_pools(platform: Platform) -> gcp.container.ClusterNodePoolAutoConfigArgs | None:
    """What a ComputeClass cannot say of the pools that GKE creates for it."""
    if not platform.creates_pools:
        return None
    container = gcp.container
    return container.ClusterNodePoolAutoConfigArgs(
        node_kubelet_config=container.ClusterNodePoolAutoConfigNodeKubeletConfigArgs(
            insecure_kubelet_readonly_port_enabled="FALSE"
        )
    )


def _maintenance(platform: Platform) -> gcp.container.ClusterMaintenancePolicyArgs:
    """One weekly window, without automatic minor or node upgrades: an upgrade recreates a whole slice at once."""
    container = gcp.container
    window = platform.gke.maintenance
    return container.ClusterMaintenancePolicyArgs(
        recurring_window=container.ClusterMaintenancePolicyRecurringWindowArgs(
            start_time=window.start, end_time=window.end, recurrence=window.recurrence
        ),
        maintenance_exclusions=[
            container.ClusterMaintenancePolicyMaintenanceExclusionArgs(
                exclusion_name=exclusion.name,
                start_time=exclusion.start,
                end_time=exclusion.end,
                exclusion_options=container.ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs(
                    scope=exclusion.scope, end_time_behavior=exclusion.end_time_behavior
                ),
            )
            for exclusion in platform.exclusions
        ],
    )


def _groups(spec: GkeCluster) -> gcp.container.ClusterAuthenticatorGroupsConfigArgs | None:
    if spec.security_group is None:
        return None
    return gcp.container.ClusterAuthenticatorGroupsConfigArgs(security_group=spec.security_group)


def _database_encryption(spec: GkeCluster) -> gcp.container.ClusterDatabaseEncryptionArgs | None:
    if spec.kms_key is None:
        return None
    return gcp.container.ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=spec.kms_key)


def _binary_authorization(spec: GkeCluster) -> gcp.container.ClusterBinaryAuthorizationArgs | None:
    if not spec.binary_authorization:
        return None
    return gcp.container.ClusterBinaryAuthorizationArgs(evaluation_mode="PROJECT_SINGLETON_POLICY_ENFORCE")


def _gateways(spec: GkeCluster) -> gcp.container.ClusterGatewayApiConfigArgs | None:
    """The Gateway API with GKE's classes of load balancers."""
    return gcp.container.ClusterGatewayApiConfigArgs(channel="CHANNEL_STANDARD") if spec.gateway else None


def _pod_autoscaling(spec: GkeCluster) -> gcp.container.ClusterPodAutoscalingArgs | None:
    """The profile of the horizontal autoscaler that reads metrics of pods by itself (AutoscalingMetric)."""
    return gcp.container.ClusterPodAutoscalingArgs(hpa_profile="PERFORMANCE") if spec.metric_autoscaling else None


def _secret_sync(platform: Platform) -> gcp.container.ClusterSecretSyncConfigArgs | None:
    """The add-on that makes Secrets of entries in Secret Manager, and looks for new versions of them."""
    if not teams_with_secrets(platform):
        return None
    container = gcp.container
    return container.ClusterSecretSyncConfigArgs(
        enabled=True,
        rotation_config=container.ClusterSecretSyncConfigRotationConfigArgs(
            enabled=True, rotation_interval=SECRET_ROTATION
        ),
    )


def _addons(platform: Platform) -> gcp.container.ClusterAddonsConfigArgs:
    container = gcp.container
    return container.ClusterAddonsConfigArgs(
        gcs_fuse_csi_driver_config=container.ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(
            enabled=platform.gke.gcs_fuse
        ),
        gce_persistent_disk_csi_driver_config=container.ClusterAddonsConfigGcePersistentDiskCsiDriverConfigArgs(
            enabled=True
        ),
        slice_controller_config=container.ClusterAddonsConfigSliceControllerConfigArgs(enabled=True)
        if platform.needs_slice_controller
        else None,
    )
