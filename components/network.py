"""The VPC the platform lives in: created here, or an existing one that is referenced and never changed."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from spec.network import CreatedNetwork
from spec.platform import Platform


class Network(pulumi.ComponentResource):
    """VPC, node subnet with pod and service ranges, NAT for private nodes, and one firewall rule between own nodes."""

    TYPE = "tpu:gcp:Network"
    network: pulumi.Input[str]
    subnetwork: pulumi.Input[str]
    pods_range: str
    services_range: str
    ready: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        node_email: pulumi.Input[str],
        after: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        spec = platform.network
        self.pods_range, self.services_range = spec.pods_range, spec.services_range
        if isinstance(spec, CreatedNetwork):
            vpc = self._vpc(name, platform, spec, after)
            subnet = self._subnet(name, platform, spec, vpc)
            router = self._router(name, platform, vpc)
            nat = self._nat(name, platform, router)
            self._firewall(name, platform, spec, vpc, node_email)
            self.network, self.subnetwork = vpc.id, subnet.id
            # Private nodes pull images through NAT: without it the first pool comes up and never gets ready.
            self.ready = [subnet, nat]
        else:
            self.network, self.subnetwork = spec.network_id(platform.project), spec.subnetwork_id(platform)
            self.ready = []
        self.register_outputs({"network": self.network, "subnetwork": self.subnetwork})

    def _options(self, **extra: object) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, delete_before_replace=True, **extra)  # type: ignore[arg-type]

    def _vpc(
        self, name: str, platform: Platform, spec: CreatedNetwork, after: Sequence[pulumi.Resource]
    ) -> gcp.compute.Network:
        return gcp.compute.Network(
            f"{name}-vpc",
            project=platform.project,
            name=platform.name,
            auto_create_subnetworks=False,
            routing_mode="REGIONAL",
            mtu=spec.mtu,
            opts=self._options(depends_on=list(after)),
        )

    def _subnet(
        self, name: str, platform: Platform, spec: CreatedNetwork, vpc: gcp.compute.Network
    ) -> gcp.compute.Subnetwork:
        def secondary(range_name: str, cidr: str) -> gcp.compute.SubnetworkSecondaryIpRangeArgs:
            return gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=range_name, ip_cidr_range=cidr)

        return gcp.compute.Subnetwork(
            f"{name}-subnet",
            project=platform.project,
            name=f"{platform.name}-{platform.region}",
            region=platform.region,
            network=vpc.id,
            ip_cidr_range=spec.nodes_cidr,
            secondary_ip_ranges=[
                secondary(spec.pods_range, spec.pods_cidr),
                secondary(spec.services_range, spec.services_cidr),
            ],
            private_ip_google_access=True,
            log_config=gcp.compute.SubnetworkLogConfigArgs(
                aggregation_interval="INTERVAL_10_MIN", flow_sampling=0.1, metadata="EXCLUDE_ALL_METADATA"
            ),
            opts=self._options(),
        )

    def _router(self, name: str, platform: Platform, vpc: gcp.compute.Network) -> gcp.compute.Router:
        return gcp.compute.Router(
            f"{name}-router",
            project=platform.project,
            name=platform.name,
            region=platform.region,
            network=vpc.id,
            opts=self._options(),
        )

    def _nat(self, name: str, platform: Platform, router: gcp.compute.Router) -> gcp.compute.RouterNat:
        return gcp.compute.RouterNat(
            f"{name}-nat",
            project=platform.project,
            name=platform.name,
            region=platform.region,
            router=router.name,
            nat_ip_allocate_option="AUTO_ONLY",
            source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=self._options(),
        )

    def _firewall(
        self,
        name: str,
        platform: Platform,
        spec: CreatedNetwork,
        vpc: gcp.compute.Network,
        node_email: pulumi.Input[str],
    ) -> gcp.compute.Firewall:
        """Own nodes and pods may talk to own nodes (collectives between slices); everything else stays denied."""
        return gcp.compute.Firewall(
            f"{name}-internal",
            project=platform.project,
            name=f"{platform.name}-internal",
            network=vpc.id,
            direction="INGRESS",
            source_ranges=[spec.nodes_cidr, spec.pods_cidr],
            target_service_accounts=[node_email],
            allows=[gcp.compute.FirewallAllowArgs(protocol=protocol) for protocol in ("tcp", "udp", "icmp")],
            opts=self._options(),
        )
