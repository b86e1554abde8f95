"""A node machine: fetches the platform's join secret with its own service account, and joins the cluster."""

from __future__ import annotations

from sandbox.google.guests import GuestCloud, Machine
from sandbox.google.machines import machine_type
from sandbox.google.service import short
from sandbox.guests.attributes import MetadataError, NodeAttributes
from sandbox.guests.clusters import Clusters
from sandbox.guests.identity import read_join_secret, system_uuid
from sandbox.guests.network import require_connection, require_internet
from sandbox.guests.project import Project
from sandbox.guests.script import Script
from sandbox.kubernetes.joining import Kubelet, join
from sandbox.kubernetes.nodes import POOL_LABEL

BOOT_SECONDS = 120.0  # boot, packages, kubeadm join
API_PORT = 6443


class NodeMachine:
    """The programs of one node machine of a project."""

    def __init__(self, cloud: GuestCloud, machine: Machine, clusters: Clusters, project: Project) -> None:
        self._cloud = cloud
        self._machine = machine
        self._clusters = clusters
        self._project = project
        self._api_server = ""  # once it has joined
        self.script = Script(cloud, machine, BOOT_SECONDS, self._boot, self._end)

    def _boot(self) -> None:
        machine = self._project.now(self._machine)
        if self._has_joined(machine):
            return
        wanted = NodeAttributes.of(machine.attributes)
        if not machine.alias_ranges:
            raise MetadataError("the machine has no alias IP range: there are no addresses for its pods")
        require_internet(self._cloud, machine)
        secret = read_join_secret(self._cloud, machine, wanted.join_secret)
        if cluster := self._clusters.at(secret.apiServer):
            require_connection(self._cloud, machine, cluster.settings.api_address, API_PORT)
        join(secret, _kubelet(machine, wanted))
        self._api_server = secret.apiServer
        self.script.say(f"joined {secret.apiServer} as {machine.short_name}")

    def _has_joined(self, machine: Machine) -> bool:
        """A machine that starts again has its certificate still: its Node is alive as before."""
        for cluster in self._clusters.running():
            if cluster.machine_back(machine.short_name, system_uuid(machine)):
                self._api_server = cluster.plane.endpoint
                return True
        return False

    def _end(self) -> None:
        if cluster := self._clusters.at(self._api_server):
            cluster.machine_gone(self._machine.short_name)


def _kubelet(machine: Machine, wanted: NodeAttributes) -> Kubelet:
    """Labels of the metadata, and what the script adds: the machine's place, and its managed instance group."""
    kind = machine_type(short(machine.record["machineType"]))
    if kind is None:
        raise MetadataError(f"there is no machine type {machine.record['machineType']}")
    labels = {
        **wanted.node_labels,
        "topology.kubernetes.io/zone": machine.zone,
        "topology.kubernetes.io/region": machine.region,
    }
    if group := machine.attributes.get("created-by"):
        labels[POOL_LABEL] = short(group)
    return Kubelet(
        name=machine.short_name,
        system_uuid=system_uuid(machine),
        address=machine.address,
        machine=kind,
        version=wanted.kubernetes_version,
        labels=labels,
        taints=wanted.node_taints,
        max_pods=wanted.max_pods,
    )
