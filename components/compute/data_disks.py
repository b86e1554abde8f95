"""The data disks of a self-managed control plane, which hold etcd and the cluster's keys."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from components.gcp.network import Network
from components.known_output import unknown_if_absent
from plan import hosts
from plan.cpu_machines import default_disk
from plan.first_disk import description
from plan.hosts import ControlPlaneMachine
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster


class DataDisks(pulumi.ComponentResource):
    """A data disk for each machine, in their order.

    The first one is the cluster's identity: its number (`generation`) is unique, so it tells one cluster from the next.
    Its description, which cannot be edited, holds the ranges that kubeadm reads once, when it creates a cluster. So the
    engine plans a new range as a new cluster. The other disks hold members of that cluster, and are replaced with it.
    """

    TYPE = "tpu:compute:DataDisks"
    by_machine: dict[ControlPlaneMachine, gcp.compute.Disk]
    first: gcp.compute.Disk
    generation: pulumi.Output[str]

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
        self._name, self._platform, self._cluster, self._after = name, platform, cluster, list(after)
        first, *others = hosts.control_plane_machines(platform)
        addresses = platform.network
        founder = pulumi.Output.from_input(network.subnetwork).apply(
            lambda subnetwork: description(subnetwork, str(addresses.pods_cidr), addresses.services_cidr)
        )
        self.first = self._disk(first, founder)
        self.generation = unknown_if_absent(self.first.disk_id)
        member = pulumi.Output.concat("Further one of the cluster of disk ", self.generation)
        self.by_machine = {first: self.first, **{machine: self._disk(machine, member) for machine in others}}
        self.register_outputs({"disks": [machine.disk for machine in self.by_machine]})

    def _disk(self, machine: ControlPlaneMachine, description: pulumi.Input[str]) -> gcp.compute.Disk:
        key = self._cluster.kms_key
        return gcp.compute.Disk(
            f"{self._name}-{machine.replica}",
            project=self._platform.project,
            name=machine.disk,
            description=description,
            zone=machine.zone,
            type=default_disk(machine.machine_type),
            size=self._cluster.control_plane.disk_size_gb,
            labels=self._platform.labels,
            disk_encryption_key=gcp.compute.DiskDiskEncryptionKeyArgs(kms_key_self_link=key) if key else None,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self._after, delete_before_replace=True),
        )
