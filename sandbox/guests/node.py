"""A node machine: fetches the join secret with its own service account, and joins the cluster."""

from __future__ import annotations

from sandbox.adapter import MachineNames
from sandbox.google.guests import GuestCloud, Machine
from sandbox.google.service import short
from sandbox.guests.attributes import MetadataError, NodeAttributes
from sandbox.guests.clusters import Clusters
from sandbox.guests.identity import kubelet, read_join_secret, system_uuid
from sandbox.guests.network import API_PORT, require_connection, require_internet
from sandbox.guests.project import Project
from sandbox.guests.script import Script
from sandbox.kubernetes.joining import join
from sandbox.kubernetes.nodes import POOL_LABEL

BOOT_SECONDS = 120.0  # boot, packages, kubeadm join


class NodeMachine:
    """The programs of one node machine of a project."""

    def __init__(
        self, cloud: GuestCloud, machine: Machine, clusters: Clusters, project: Project, names: MachineNames
    ) -> None:
        self._names = names
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
        wanted = NodeAttributes.of(machine.attributes, self._names.attribute_prefix)
        if not machine.alias_ranges:
            raise MetadataError("the machine has no alias IP range: there are no addresses for its pods")
        require_internet(self._cloud, machine)
        secret = read_join_secret(self._cloud, machine, wanted.join_secret)
        if cluster := self._clusters.at(secret.apiServer):
            require_connection(self._cloud, machine, cluster.settings.api_address, API_PORT)
        own = kubelet(machine, wanted, _labels(machine, wanted), wanted.node_taints)
        if cluster:
            own = cluster.placed(own)
        join(secret, own)
        if cluster and own.real:
            cluster.begin_host(own, machine.alias_ranges[0])
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


def _labels(machine: Machine, wanted: NodeAttributes) -> dict[str, str]:
    """Labels of the metadata, and the machine's managed instance group, which the script adds."""
    group = machine.attributes.get("created-by")
    return {**wanted.node_labels, **({POOL_LABEL: short(group)} if group else {})}
