"""The platform's VPC: created here, or an existing one that is referenced and never changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from plan.hosts import API_PORT
from plan.network import HEALTH_CHECKS, network_id, proxies_name, subnetwork_id, subnetwork_name
from plan.platform import Platform
from platform_config.network import CreatedNetwork
from platform_config.self_managed import SelfManagedCluster

# Powers of two. The maximum is what one machine may take of the 64,512 ports of an address.
MIN_NAT_PORTS, MAX_NAT_PORTS = 64, 4096

# Where Google's health checks of passthrough load balancers come from (Cloud Load Balancing documentation).
PROBERS = {
    "internal": HEALTH_CHECKS,
    "external": ("35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"),
}


@dataclass(frozen=True)
class Machines:
    """The service accounts of machines, by which firewall rules select them.

    `control_plane`: empty where the control plane does not run on the platform's machines.
    """

    nodes: Sequence[pulumi.Input[str]]
    control_plane: Sequence[pulumi.Input[str]] = ()


EVERYTHING: Mapping[str, Sequence[str]] = {"tcp": (), "udp": (), "icmp": ()}
# Ports that hosts and pods use on a control plane: the API server, kubelets (controllers read metrics there), and
# CoreDNS, which may run there. Not etcd: only control plane machines talk to it.
KUBELET, DNS = "10250", "53"
FOR_HOSTS: Mapping[str, Sequence[str]] = {"tcp": (str(API_PORT), KUBELET, DNS), "udp": (DNS,), "icmp": ()}
API: Mapping[str, Sequence[str]] = {"tcp": (str(API_PORT),)}


@dataclass(frozen=True)
class Opening:
    """A firewall rule: from address ranges, or from machines with some accounts, to machines.

    `allowed`: ports by protocol; an empty list means all ports. `needed`: machines cannot work without it. `after`:
    names of rules that must be created or edited before it.
    """

    name: str
    targets: Sequence[pulumi.Input[str]]
    allowed: Mapping[str, Sequence[str]]
    ranges: Sequence[str] = ()
    machines: Sequence[pulumi.Input[str]] = ()
    needed: bool = True
    after: Sequence[str] = ()


class Network(pulumi.ComponentResource):
    """VPC, node subnet with its ranges, NAT for private nodes, and firewall rules between the platform's own machines.

    In an existing VPC it creates only the rules that a self-managed control plane needs.
    """

    TYPE = "tpu:gcp:Network"
    network: pulumi.Input[str]
    subnetwork: pulumi.Input[str]
    pods_range: str
    services_range: str | None
    ready: list[pulumi.Resource]
    firewalls: list[pulumi.Resource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        machines: Machines,
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
            if spec.proxy_only_cidr:
                self._proxies(name, platform, spec.proxy_only_cidr, vpc)
            self.network, self.subnetwork = vpc.id, subnet.id
            # Private nodes pull images through NAT. Without it the first pool never gets ready.
            self.ready = [subnet, nat]
            project, first = platform.project, []
        else:
            self.network, self.subnetwork = network_id(platform, spec), subnetwork_id(platform, spec)
            self.ready = []
            project, first = spec.project or platform.project, list(after)
        rules: dict[str, pulumi.Resource] = {}
        for opening in openings(platform, machines):
            before = [*first, *(rules[other] for other in opening.after)]
            rules[opening.name] = self._firewall(name, platform, project, opening, before)
        self.firewalls = list(rules.values())
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
        # Without GKE, services have no range in the subnet: their addresses exist inside nodes only.
        ranges = {spec.pods_range: spec.pods_cidr}
        if platform.backend == "gke":
            ranges[spec.services_range] = spec.services_cidr
        return gcp.compute.Subnetwork(
            f"{name}-subnet",
            project=platform.project,
            name=subnetwork_name(platform),
            region=platform.region,
            network=vpc.id,
            ip_cidr_range=spec.nodes_cidr,
            secondary_ip_ranges=[
                gcp.compute.SubnetworkSecondaryIpRangeArgs(range_name=range_name, ip_cidr_range=cidr)
                for range_name, cidr in ranges.items()
            ],
            private_ip_google_access=True,
            log_config=gcp.compute.SubnetworkLogConfigArgs(
                aggregation_interval="INTERVAL_10_MIN", flow_sampling=0.1, metadata="EXCLUDE_ALL_METADATA"
            ),
            # Every machine has a part of the range for pods, so the range cannot change while machines exist.
            opts=self._options(replace_on_changes=None if platform.backend == "gke" else ["secondaryIpRanges"]),
        )

    def _proxies(self, name: str, platform: Platform, cidr: str, vpc: gcp.compute.Network) -> gcp.compute.Subnetwork:
        """Where proxies of regional load balancers are. A region of a network has one such subnet that is active."""
        return gcp.compute.Subnetwork(
            f"{name}-proxies",
            project=platform.project,
            name=proxies_name(platform),
            region=platform.region,
            network=vpc.id,
            ip_cidr_range=cidr,
            purpose="REGIONAL_MANAGED_PROXY",
            role="ACTIVE",
            # Google expands no range of proxies, and a network has one active subnet for them in a region.
            opts=self._options(replace_on_changes=["ipCidrRange"]),
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
            # Every pod of a node shares its ports: 64, the fixed default, run out when a slice pulls images or data.
            enable_dynamic_port_allocation=True,
            min_ports_per_vm=MIN_NAT_PORTS,
            max_ports_per_vm=MAX_NAT_PORTS,
            log_config=gcp.compute.RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
            opts=self._options(),
        )

    def _firewall(
        self, name: str, platform: Platform, project: str, opening: Opening, after: list[pulumi.Resource]
    ) -> gcp.compute.Firewall:
        """Allows what the opening says; everything else stays denied. `project`: the network's."""
        return gcp.compute.Firewall(
            f"{name}-{opening.name}",
            project=project,
            name=f"{platform.name}-{opening.name}",
            network=self.network,
            direction="INGRESS",
            source_ranges=list(opening.ranges) or None,
            source_service_accounts=list(opening.machines) or None,
            target_service_accounts=list(opening.targets),
            allows=[
                gcp.compute.FirewallAllowArgs(protocol=protocol, ports=list(ports) or None)
                for protocol, ports in opening.allowed.items()
            ],
            # People edit the rules that let them in. The others are protected, since machines need them.
            opts=self._options(depends_on=after, protect=None if opening.needed else False),
        )


def openings(platform: Platform, machines: Machines) -> Iterator[Opening]:
    """What the firewall allows. To hosts: the platform's machines and pods (collectives between slices, kubelets). To a
    self-managed control plane: hosts and pods on the ports they use, its own machines, the networks it names, and
    Google's health checks."""
    spec, cluster = platform.network, platform.cluster
    if isinstance(spec, CreatedNetwork) or isinstance(cluster, SelfManagedCluster):
        assert spec.nodes_cidr is not None
        assert spec.pods_cidr is not None
        inside = [spec.nodes_cidr, spec.pods_cidr]
        own: list[Opening] = []
        if machines.control_plane:
            own.append(Opening("control-plane", machines.control_plane, FOR_HOSTS, ranges=inside))
            # Between the members of etcd.
            own.append(Opening("replicas", machines.control_plane, EVERYTHING, machines=machines.control_plane))
        yield from own
        # In stacks of an earlier version this rule opened the control plane, too. The edit that removes it waits for
        # the rules that let hosts in instead: otherwise a failure in between cuts all hosts off from the API server.
        yield Opening("internal", machines.nodes, EVERYTHING, ranges=inside, after=[each.name for each in own])
    if not isinstance(cluster, SelfManagedCluster):
        return
    control_plane = cluster.control_plane
    if control_plane.authorized_networks:
        sources = [network.cidr for network in control_plane.authorized_networks]
        yield Opening("api", machines.control_plane, API, ranges=sources, needed=False)
    probers = sorted({prober for front in control_plane.fronts for prober in PROBERS[front]})
    yield Opening("health-checks", machines.control_plane, API, ranges=probers)
