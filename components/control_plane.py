"""A control plane of the platform's own: machines that run kubeadm, their data disks, and one address for all."""

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_gcp as gcp

from components.boot_scripts import boot_script
from components.identity import CLOUD_PLATFORM
from components.load_balancer import EXTERNAL, INTERNAL, ApiAddresses, LoadBalancer
from components.network import Network
from spec import hosts
from spec.hosts import CPU_MAX_PODS, ControlPlaneMachine
from spec.network import pod_prefix
from spec.platform import Platform, default_disk
from spec.self_managed import SelfManagedCluster

BOOT_DISK_GB = 50
DATA_DEVICE = "data"
"""What the boot script finds the data disk by: /dev/disk/by-id/google-data."""


class ControlPlane(pulumi.ComponentResource):
    """One or three machines behind a load balancer.

    A machine may be replaced: etcd and the cluster's keys are on its data disk, which the next one of its name takes
    over. So the first data disk is the cluster's identity: `disk` is what everything inside is deleted with, and its
    `disk_id`, which no other disk has had, tells one cluster from the next.
    """

    TYPE = "tpu:compute:ControlPlane"
    disk: gcp.compute.Disk
    machines: list[gcp.compute.Instance]
    ready: list[pulumi.CustomResource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: SelfManagedCluster,
        network: Network,
        email: pulumi.Input[str],
        backups: gcp.storage.Bucket | None,
        after: Sequence[pulumi.Resource],
        needed: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`email`: the service account that the machines run as. `needed`: what a machine cannot start its work
        without, besides `after`."""
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._cluster, self._network = name, platform, cluster, network
        self._after, self._needed = list(after), [*after, *needed]
        machines = hosts.control_plane_machines(platform)
        api = ApiAddresses(
            f"{name}-addresses",
            platform=platform,
            cluster=cluster,
            network=network,
            after=after,
            opts=pulumi.ResourceOptions(parent=self),
        )
        addresses = [self._address(machine) for machine in machines]
        disks = [self._disk(machine) for machine in machines]
        shared: dict[str, pulumi.Input[str]] = {"tpu-api-address": api.by_front[INTERNAL].address}
        if EXTERNAL in api.by_front:
            shared["tpu-public-address"] = api.by_front[EXTERNAL].address
        if backups:
            shared["tpu-backup-bucket"] = backups.name
        peer = {"tpu-first-address": addresses[0].address}
        self.machines = [
            self._machine(machine, address, disk, email, {**shared, **(peer if machine.replica else {})})
            for machine, address, disk in zip(machines, addresses, disks, strict=True)
        ]
        balancer = LoadBalancer(
            f"{name}-balancer",
            platform=platform,
            network=network,
            addresses=api,
            machines=dict(zip(machines, self.machines, strict=True)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.disk = disks[0]
        self.ready = [*self.machines, *balancer.ready]
        self.register_outputs({"machines": [machine.name for machine in machines]})

    def _address(self, machine: ControlPlaneMachine) -> gcp.compute.Address:
        """Replicas find the first one by it, and etcd's members each other."""
        return gcp.compute.Address(
            f"{self._name}-address-{machine.replica}",
            project=self._platform.project,
            name=machine.name,
            region=self._platform.region,
            address_type="INTERNAL",
            subnetwork=self._network.subnetwork,
            labels=self._platform.labels,
            opts=self._options(),
        )

    def _disk(self, machine: ControlPlaneMachine) -> gcp.compute.Disk:
        key = self._cluster.kms_key
        return gcp.compute.Disk(
            f"{self._name}-disk-{machine.replica}",
            project=self._platform.project,
            name=machine.disk,
            zone=machine.zone,
            type=default_disk(machine.machine_type),
            size=self._cluster.control_plane.disk_size_gb,
            labels=self._platform.labels,
            disk_encryption_key=gcp.compute.DiskDiskEncryptionKeyArgs(kms_key_self_link=key) if key else None,
            opts=self._options(protect=self._platform.protect),
        )

    def _machine(
        self,
        machine: ControlPlaneMachine,
        address: gcp.compute.Address,
        disk: gcp.compute.Disk,
        email: pulumi.Input[str],
        addresses: dict[str, pulumi.Input[str]],
    ) -> gcp.compute.Instance:
        compute, platform = gcp.compute, self._platform
        return compute.Instance(
            f"{self._name}-machine-{machine.replica}",
            project=platform.project,
            name=machine.name,
            zone=machine.zone,
            machine_type=machine.machine_type,
            labels={**platform.labels, "tpu-platform": platform.name},
            boot_disk=compute.InstanceBootDiskArgs(
                auto_delete=True,
                kms_key_self_link=self._cluster.kms_key,
                initialize_params=compute.InstanceBootDiskInitializeParamsArgs(
                    image=self._cluster.image, size=BOOT_DISK_GB, type=default_disk(machine.machine_type)
                ),
            ),
            attached_disks=[compute.InstanceAttachedDiskArgs(source=disk.self_link, device_name=DATA_DEVICE)],
            network_interfaces=[
                compute.InstanceNetworkInterfaceArgs(
                    subnetwork=self._network.subnetwork,
                    network_ip=address.address,
                    nic_type="GVNIC",
                    alias_ip_ranges=[
                        compute.InstanceNetworkInterfaceAliasIpRangeArgs(
                            ip_cidr_range=f"/{pod_prefix(CPU_MAX_PODS)}", subnetwork_range_name=self._network.pods_range
                        )
                    ],
                )
            ],
            service_account=compute.InstanceServiceAccountArgs(email=email, scopes=[CLOUD_PLATFORM]),
            # Under this key a new script or version is an update in place that counts from the next boot; as
            # `metadata_startup_script` it would be another machine.
            metadata={
                **hosts.control_plane_metadata(platform, machine.replica),
                **addresses,
                "startup-script": boot_script("control_plane"),
            },
            shielded_instance_config=compute.InstanceShieldedInstanceConfigArgs(
                enable_secure_boot=True, enable_vtpm=True, enable_integrity_monitoring=True
            ),
            allow_stopping_for_update=True,
            deletion_protection=platform.protect,
            opts=self._options(depends_on=self._needed),
        )

    def _options(self, **extra: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, delete_before_replace=True, **{"depends_on": self._after, **extra})
