"""Passthrough load balancers in front of the API servers of a self-managed control plane.

The internal one always exists: machines without a public address reach an external one only through NAT, from addresses
that the firewall does not know. The platform can ask for an external one too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from components.gcp.network import Network
from plan.hosts import API_PORT, ControlPlaneMachine
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster


@dataclass(frozen=True)
class Front:
    """A load balancer's address for clients. `scheme`: INTERNAL (in the VPC) or EXTERNAL."""

    name: str
    scheme: str

    @property
    def internal(self) -> bool:
        return self.scheme == "INTERNAL"


INTERNAL, EXTERNAL = Front("internal", "INTERNAL"), Front("external", "EXTERNAL")
FRONTS = {front.name: front for front in (INTERNAL, EXTERNAL)}


class ApiAddresses(pulumi.ComponentResource):
    """The addresses of the load balancers. They exist before the machines, whose certificates name them."""

    TYPE = "tpu:compute:ApiAddresses"
    by_front: dict[Front, gcp.compute.Address]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: SelfManagedCluster,
        network: Network,
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self.by_front = {
            front: gcp.compute.Address(
                f"{name}-{front.name}",
                project=platform.project,
                name=f"{platform.name}-api-{front.name}",
                region=platform.region,
                address_type=front.scheme,
                subnetwork=network.subnetwork if front.internal else None,
                labels=platform.labels,
                opts=pulumi.ResourceOptions(
                    parent=self,
                    depends_on=list(after),
                    delete_before_replace=True,
                    protect=front.internal and platform.protect,
                ),
            )
            for front in map(FRONTS.__getitem__, cluster.control_plane.fronts)
        }
        self.register_outputs({"addresses": [address.address for address in self.by_front.values()]})


class LoadBalancer(pulumi.ComponentResource):
    """One health check, a group for each machine, and for each front a backend service and a forwarding rule.

    Nodes reach the API server by the internal front, which is protected with the platform. A setting adds and removes
    the external one.
    """

    TYPE = "tpu:compute:LoadBalancer"
    ready: list[pulumi.CustomResource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        network: Network,
        addresses: ApiAddresses,
        machines: Mapping[ControlPlaneMachine, gcp.compute.Instance],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._network = name, platform, network
        check = self._health_check(after)
        groups = [self._group(machine, instance) for machine, instance in machines.items()]
        self.ready = [
            self._forwarding_rule(front, address, self._backend_service(front, groups, check))
            for front, address in addresses.by_front.items()
        ]
        self.register_outputs({"fronts": [front.name for front in addresses.by_front]})

    def _options(self, *, kept: bool, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
        protect = kept and self._platform.protect
        return pulumi.ResourceOptions(parent=self, depends_on=list(after), delete_before_replace=True, protect=protect)

    def _health_check(self, after: Sequence[pulumi.Resource]) -> gcp.compute.RegionHealthCheck:
        """The load balancer uses a machine while its API server reports that it is ready."""
        return gcp.compute.RegionHealthCheck(
            f"{self._name}-health-check",
            project=self._platform.project,
            name=f"{self._platform.name}-api",
            region=self._platform.region,
            check_interval_sec=5,
            timeout_sec=5,
            healthy_threshold=2,
            unhealthy_threshold=2,
            https_health_check=gcp.compute.RegionHealthCheckHttpsHealthCheckArgs(port=API_PORT, request_path="/readyz"),
            opts=self._options(kept=True, after=after),
        )

    def _group(self, machine: ControlPlaneMachine, instance: gcp.compute.Instance) -> gcp.compute.InstanceGroup:
        """The group of one machine.

        A deleted machine leaves its group, and the next machine of that name does not enter it, so the group is
        replaced with the machine. A group in use cannot be deleted, so the new group is created first. So it has no
        fixed name, and no other property that is unknown while the machine is replaced.
        """
        return gcp.compute.InstanceGroup(
            f"{self._name}-{machine.replica}",
            project=self._platform.project,
            zone=machine.zone,
            network=self._network.network,
            instances=[instance.self_link],
            opts=pulumi.ResourceOptions(parent=self, replacement_trigger=instance.instance_id),
        )

    def _backend_service(
        self, front: Front, groups: Sequence[gcp.compute.InstanceGroup], check: gcp.compute.RegionHealthCheck
    ) -> gcp.compute.RegionBackendService:
        return gcp.compute.RegionBackendService(
            f"{self._name}-{front.name}-backend",
            project=self._platform.project,
            name=f"{self._platform.name}-api-{front.name}",
            region=self._platform.region,
            load_balancing_scheme=front.scheme,
            protocol="TCP",
            health_checks=check.id,
            backends=[
                gcp.compute.RegionBackendServiceBackendArgs(group=group.self_link, balancing_mode="CONNECTION")
                for group in groups
            ],
            opts=self._options(kept=front.internal),
        )

    def _forwarding_rule(
        self, front: Front, address: gcp.compute.Address, service: gcp.compute.RegionBackendService
    ) -> gcp.compute.ForwardingRule:
        return gcp.compute.ForwardingRule(
            f"{self._name}-{front.name}-rule",
            project=self._platform.project,
            name=f"{self._platform.name}-api-{front.name}",
            region=self._platform.region,
            load_balancing_scheme=front.scheme,
            ip_protocol="TCP",
            ip_address=address.address,
            ports=[str(API_PORT)],
            backend_service=service.id,
            network=self._network.network if front.internal else None,
            subnetwork=self._network.subnetwork if front.internal else None,
            labels=self._platform.labels,
            opts=self._options(kept=front.internal),
        )
