"""All simulated machines of a sandbox: a script for each running one that boots with the program's scripts."""

from __future__ import annotations

from pathlib import Path

from sandbox.adapter import MachineNames
from sandbox.google.guests import GuestCloud, Machine
from sandbox.guests.attributes import CONTROL_PLANE, NODE, SCRIPT, role
from sandbox.guests.clusters import Clusters
from sandbox.guests.control_plane import ControlPlaneMachine, disk_numbers
from sandbox.guests.node import NodeMachine
from sandbox.guests.project import Project
from sandbox.guests.script import Script
from sandbox.hosts.hosts import PLAYED, Real
from sandbox.kubernetes.contexts import Contexts
from sandbox.kubernetes.control_plane import STATUS_SECONDS

ROLES: dict[str, type[ControlPlaneMachine] | type[NodeMachine]] = {
    CONTROL_PLANE: ControlPlaneMachine,
    NODE: NodeMachine,
}


class VirtualMachines:
    """The emulator's `Guests`, for machines with these names. Clusters live below `run_dir`, and in the kubeconfig of
    `contexts`. `real` says how many hosts of each cluster run containers."""

    def __init__(
        self,
        names: MachineNames,
        run_dir: Path,
        token: str,
        contexts: Contexts,
        status_seconds: float = STATUS_SECONDS,
        real: Real = PLAYED,
    ) -> None:
        self._names = names
        self._clusters = Clusters(names, run_dir, token, contexts, status_seconds, real)
        self._projects: dict[str, Project] = {}
        self._scripts: dict[str, Script] = {}  # by the machine's number

    def machines_changed(self, cloud: GuestCloud, project: str, machines: list[Machine]) -> None:
        """Starts scripts in new machines and ends those of machines that are gone."""
        view = self._projects.setdefault(project, Project(cloud))
        view.update(machines)
        running = {each.id: each for each in machines}
        for number in [each for each, script in self._scripts.items() if script.machine.project == project]:
            if number not in running:
                self._scripts.pop(number).cancel()
        for number in running.keys() - self._scripts.keys():
            if script := self._boot(cloud, running[number], view):
                self._scripts[number] = script
        self._clusters.forget(disk_numbers(cloud))

    def _boot(self, cloud: GuestCloud, machine: Machine, project: Project) -> Script | None:
        played = ROLES.get(role(machine.attributes, self._names.attribute_prefix))
        if played is None or not machine.attributes.get(SCRIPT):
            cloud.log(machine, "No startup scripts to run.")  # the guest agent's own words
            return None
        return played(cloud, machine, self._clusters, project, self._names).script

    def close(self) -> None:
        """Ends all scripts, and with them the clusters; their data stays."""
        for script in self._scripts.values():
            script.abandon()
        self._clusters.close()
