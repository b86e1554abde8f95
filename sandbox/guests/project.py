"""The machines of one project, as programs on them see each other and the cloud."""

from __future__ import annotations

from collections.abc import Iterable

from sandbox.google.errors import GoogleError
from sandbox.google.guests import GuestCloud, Machine
from sandbox.google.machines import machine_type
from sandbox.google.service import short
from sandbox.guests.identity import account
from sandbox.kubernetes.api import Object
from sandbox.kubernetes.nodes import ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL

KUBE_LABELS = "kube-labels"
_PLUGIN_NEEDS = (ACCELERATOR_LABEL, CHIPS_LABEL, TOPOLOGY_LABEL)


class Project:
    """The running machines of a project; for the programs of its clusters it is their `node_agents.Hosts`."""

    def __init__(self, cloud: GuestCloud) -> None:
        self._cloud = cloud
        self._machines: dict[str, Machine] = {}  # by number
        self._crashed: set[str] = set()  # numbers of machines whose device plugin has said why it does not run

    def update(self, machines: Iterable[Machine]) -> None:
        """These machines run now, and no others."""
        self._machines = {each.id: each for each in machines}
        self._crashed &= self._machines.keys()

    def now(self, machine: Machine) -> Machine:
        """The machine with its present metadata."""
        return self._machines.get(machine.id, machine)

    def machine_at(self, address: str) -> Machine | None:
        """The machine with this internal address."""
        return next((each for each in self._machines.values() if each.address == address), None)

    def _named(self, name: str) -> Machine | None:
        return next((each for each in self._machines.values() if each.short_name == name), None)

    def chips(self, node: str) -> int:
        """The machine's chips, where the device plugin finds its labels: it panics without them."""
        machine = self._named(node)
        if machine is None:
            return 0
        kind = machine_type(short(machine.record["machineType"]))
        lacking = [key for key in _PLUGIN_NEEDS if f"{key}=" not in machine.attributes.get(KUBE_LABELS, "")]
        if not lacking:
            return kind.chips if kind else 0
        if machine.id not in self._crashed:
            self._crashed.add(machine.id)
            self._cloud.log(machine, f"tpu-device-plugin: panic: attribute {KUBE_LABELS} lacks {', '.join(lacking)}")
        return 0

    def zones(self, asking: str, whole_region: bool) -> list[str]:
        """The zone of the machine `asking`, or those of its region, read with the machine's service account."""
        machine = self._asking(asking)
        if not whole_region:
            return [machine.zone]
        found = account(self._cloud, machine).request("GET", f"/compute/v1/projects/{machine.project}/zones")
        return [each["name"] for each in found["items"] if short(each["region"]) == machine.region]

    def instance(self, asking: str, name: str, zones: Iterable[str]) -> Object | None:
        """The Compute instance of that name in one of the zones, read with the service account of `asking`."""
        machine = self._asking(asking)
        for zone in zones:
            path = f"/compute/v1/projects/{machine.project}/zones/{zone}/instances/{name}"
            try:
                return account(self._cloud, machine).request("GET", path)
            except GoogleError as error:
                if error.status != "NOT_FOUND":
                    raise
        return None

    def _asking(self, name: str) -> Machine:
        machine = self._named(name)
        if machine is None:
            raise GoogleError("UNAVAILABLE", f"the machine {name} is gone")
        return machine
