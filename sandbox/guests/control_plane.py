"""A control-plane machine: brings its disk's cluster up, and keeps the secrets of its clients fresh.

With three replicas the first makes the cluster and the others join it by the peers' secret. Different from the real
thing: all of them stand before one API server, which runs as long as one of its machines does. Snapshots of etcd are
not taken.
"""

from __future__ import annotations

import json
import secrets
from datetime import timedelta

from sandbox.adapter import MachineNames
from sandbox.google.guests import Account, GuestCloud, Machine
from sandbox.guests.attributes import CONTROL_PLANE, ControlPlaneAttributes, MetadataError, role
from sandbox.guests.clusters import Clusters
from sandbox.guests.identity import account, kubelet, read_join_secret
from sandbox.guests.network import API_PORT, ETCD_PORTS, UnreachableError, require_internet, require_machine
from sandbox.guests.project import Project
from sandbox.guests.script import Script
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.joining import JoinSecret
from sandbox.kubernetes.kubeadm import ClusterSettings, KubeadmCluster

BOOT_SECONDS = 150.0  # boot, packages, images, kubeadm init
RENEW_EVERY = timedelta(minutes=30)
LIFETIME = timedelta(hours=2)


class ControlPlaneMachine:
    """The programs of one control-plane machine of a project."""

    def __init__(
        self, cloud: GuestCloud, machine: Machine, clusters: Clusters, project: Project, names: MachineNames
    ) -> None:
        self._names = names
        self._cloud = cloud
        self._machine = machine
        self._clusters = clusters
        self._project = project
        self._disk = ""  # the cluster's, once it is known
        self.script = Script(
            cloud, machine, BOOT_SECONDS, self._boot, self._end, self._publish, RENEW_EVERY.total_seconds()
        )

    def _boot(self) -> None:
        machine = self._project.now(self._machine)
        wanted = ControlPlaneAttributes.of(machine.attributes, self._names.attribute_prefix)
        require_internet(self._cloud, machine)
        disk = self._data_disk(machine) if wanted.replica == 0 else self._first_replicas_disk(machine, wanted)
        settings = ClusterSettings(
            wanted.cluster_name, wanted.kubernetes_version, wanted.pods_cidr, wanted.services_cidr, wanted.api_address
        )
        cluster = self._clusters.join(disk, machine.id, machine.project, settings, self._project)
        if not self._disk:
            self._disk = disk
            self.script.say(f"control plane of {settings.name} is up")
        cluster.add_control_plane_node(kubelet(machine, wanted, labels={}, taints=()))
        self._publish()

    def _first_replicas_disk(self, machine: Machine, wanted: ControlPlaneAttributes) -> str:
        """Joins the cluster of the first replica by what it has published for its peers."""
        self._data_disk(machine)  # holds this replica's etcd
        secret = read_join_secret(self._cloud, machine, wanted.peers(self._names.attribute_prefix))
        first = self._project.machine_at(wanted.first_address)
        disk = first.data_disks.get(self._names.data_disk, "") if first and self._is_control_plane(first) else ""
        cluster = self._clusters.of(disk)
        if cluster is None or cluster.plane.endpoint != secret.apiServer:
            raise UnreachableError(f"{wanted.first_address}:{API_PORT} does not answer: no control plane is there")
        assert first is not None
        for port in (API_PORT, *ETCD_PORTS):
            require_machine(self._cloud, machine, first, port)
        return disk

    def _is_control_plane(self, machine: Machine) -> bool:
        return role(machine.attributes, self._names.attribute_prefix) == CONTROL_PLANE

    def _data_disk(self, machine: Machine) -> str:
        name = self._names.data_disk
        if name not in machine.data_disks:
            raise MetadataError(f"no disk with the device name {name!r} is attached")
        return machine.data_disks[name]

    def _publish(self) -> None:
        """Writes the secrets anew: the first replica's work. Older versions are destroyed."""
        machine = self._project.now(self._machine)
        wanted = ControlPlaneAttributes.of(machine.attributes, self._names.attribute_prefix)
        cluster = self._clusters.of(self._disk)
        if wanted.replica or cluster is None:
            return
        writer = account(self._cloud, machine)
        if wanted.replicas > 1:
            peers = wanted.peers(self._names.attribute_prefix)
            self._write(writer, peers, _for_peers(cluster.mint_join_secret(LIFETIME)))
        self._write(writer, wanted.access_secret, cluster.mint_credential(LIFETIME))
        self._write(writer, wanted.join_secret, cluster.mint_join_secret(LIFETIME).model_dump(mode="json"))
        self._publish_endpoint(writer, wanted.endpoint_secret, cluster)

    def _publish_endpoint(self, writer: Account, secret: str, cluster: KubeadmCluster) -> None:
        """Once for each CA and secret; what was written last lies on the cluster's disk."""
        note = cluster.plane.run_dir / "endpoint-published"
        if not note.exists() or not _enabled(writer, secret, note.read_text()):
            note.write_text(self._write(writer, secret, cluster.endpoint()))

    def _write(self, writer: Account, secret: str, payload: Object) -> str:
        version = writer.replace_secret_version(secret, json.dumps(payload).encode())
        self.script.say(f"wrote {version}")
        return version

    def _end(self) -> None:
        if self._disk:
            self._clusters.leave(self._disk, self._machine.id)
            self._clusters.forget(disk_numbers(self._cloud))  # the disk may have gone while the cluster stopped
            if cluster := self._clusters.of(self._disk):
                cluster.machine_gone(self._machine.short_name)


def disk_numbers(cloud: GuestCloud) -> set[str]:
    """All disks that exist."""
    return {disk["id"] for disk in cloud.records("compute.disks").values()}


def _enabled(writer: Account, secret: str, version: str) -> bool:
    versions = writer.request("GET", f"/sm/v1/{secret}/versions").get("versions", [])
    return any(each["name"] == version and each["state"] == "ENABLED" for each in versions)


def _for_peers(secret: JoinSecret) -> Object:
    return {**secret.model_dump(mode="json"), "certificateKey": secrets.token_hex(32)}
