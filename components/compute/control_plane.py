"""A self-managed control plane: machines that run kubeadm on their data disks, behind one address."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_gcp as gcp

from components.compute.boot_script import boot_script
from components.compute.load_balancer import EXTERNAL, INTERNAL, ApiAddresses, LoadBalancer
from components.gcp.network import Network
from components.gcp.node_identity import CLOUD_PLATFORM
from plan import hosts
from plan.cpu_machines import default_disk
from plan.hosts import CPU_MAX_PODS, ControlPlaneMachine
from plan.network import pod_prefix
from plan.platform import Platform
from platform_config.self_managed import SelfManagedCluster

BOOT_DISK_GB = 50
DATA_DEVICE = "data"
"""The boot script finds the data disk by this name: /dev/disk/by-id/google-data."""
# The provider plans a new disk as a detach and an attach, beside a running etcd. And Google does not delete a disk in
# use: only this makes the engine delete the machine before the disk.
REPLACES_MACHINE = ["attachedDisks"]


class ControlPlane(pulumi.ComponentResource):
    """One or three machines behind a load balancer.

    A machine can be replaced without loss: etcd and the cluster's keys are on its data disk, which the next machine of
    that name attaches. Only a new disk starts empty.
    """

    TYPE = "tpu:compute:ControlPlane"
    ready: list[pulumi.CustomResource]

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        cluster: SelfManagedCluster,
        network: Network,
        email: pulumi.Input[str],
        disks: Mapping[ControlPlaneMachine, gcp.compute.Disk],
        backups: gcp.storage.Bucket | None,
        after: Sequence[pulumi.Resource],
        needed: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`email`: service account of the machines. `disks`: the data disk of each. `needed`: what must exist before a
        machine boots, besides `after`."""
        super().__init__(self.TYPE, name, None, opts)
        self._name, self._platform, self._cluster, self._network = name, platform, cluster, network
        self._after, self._needed = list(after), [*after, *needed]
        api = ApiAddresses(
            f"{name}-addresses",
            platform=platform,
            cluster=cluster,
            network=network,
            after=after,
            opts=pulumi.ResourceOptions(parent=self),
        )
        addresses = {machine: self._address(machine) for machine in disks}
        shared: dict[str, pulumi.Input[str]] = {"tpu-api-address": api.by_front[INTERNAL].address}
        if EXTERNAL in api.by_front:
            shared["tpu-public-address"] = api.by_front[EXTERNAL].address
        if backups:
            shared["tpu-backup-bucket"] = backups.name
        first, *_ = addresses.values()
        peer = {"tpu-first-address": first.address}
        by_machine = {
            machine: self._machine(
                machine, addresses[machine], disk, email, {**shared, **(peer if machine.replica else {})}
            )
            for machine, disk in disks.items()
        }
        balancer = LoadBalancer(
            f"{name}-balancer",
            platform=platform,
            network=network,
            addresses=api,
            machines=by_machine,
            after=after,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.ready = [*by_machine.values(), *balancer.ready]
        self.register_outputs({"machines": [machine.name for machine in by_machine]})

    def _address(self, machine: ControlPlaneMachine) -> gcp.compute.Address:
        """A machine's fixed address: replicas join at the first one's, and etcd's members find each other by theirs."""
        return gcp.compute.Address(
            f"{self._name}-address-{machine.replica}",
            project=self._platform.project,
            name=machine.name,
            region=self._platform.region,
            address_type="INTERNAL",
            subnetwork=self._network.subnetwork,
            labels=self._platform.labels,
            opts=pulumi.ResourceOptions(parent=self, depends_on=self._after, delete_before_replace=True),
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
            labels=platform.machine_labels,
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
            # Under this key a new script or version is an update in place, with effect from the next boot.
            # `metadata_startup_script` would replace the machine.
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
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=self._needed,
                delete_before_replace=True,
                replace_on_changes=REPLACES_MACHINE,
            ),
        )
