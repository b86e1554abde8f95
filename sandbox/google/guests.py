"""What runs inside the emulated machines: how it learns of them, and what it may do from there.

The emulator itself runs nothing in a machine. Whoever simulates that implements `Guests`, and sees of the cloud what a
machine sees: its metadata, its service account's rights, and other machines by their addresses.
"""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sandbox.google.compute_types import relative
from sandbox.google.machines import region_of
from sandbox.google.service import short
from sandbox.google.store import Change, Resource

if TYPE_CHECKING:
    from sandbox.google.world import World

log = logging.getLogger(__name__)

INSTANCES = "compute.instances"
SERIAL = "sandbox.serialPorts"
# Kinds whose changes may matter to what runs in a machine: the machines, their disks, and the way to them.
WATCHED = frozenset(
    f"compute.{collection}"
    for collection in (
        "disks",
        "firewalls",
        "forwardingRules",
        "groupInstances",
        "instanceGroups",
        "instances",
        "regionBackendServices",
        "routers",
    )
)


@dataclass(frozen=True)
class Machine:
    """One running instance, as it sees itself through its metadata server.

    `name` is the full name "projects/P/zones/Z/instances/N", `id` the number that a new instance of the same name does
    not share. `alias_ranges` are the CIDRs of its first interface beside `address`; `data_disks` maps device names to
    the numbers of the disks, the boot disk left out; `record` is the API's own object.
    """

    name: str
    id: str
    attributes: Mapping[str, str]
    service_account: str
    address: str
    alias_ranges: tuple[str, ...]
    data_disks: Mapping[str, str]
    record: Resource

    @property
    def project(self) -> str:
        return self.name.split("/")[1]

    @property
    def zone(self) -> str:
        return self.name.split("/")[3]

    @property
    def region(self) -> str:
        return region_of(self.zone)

    @property
    def short_name(self) -> str:
        return short(self.name)


class Guests(Protocol):
    """What runs inside machines. Called from one thread, one call at a time, without any lock of the emulator."""

    def machines_changed(self, cloud: GuestCloud, project: str, machines: list[Machine]) -> None:
        """All running machines of a project, after changes to any of them, their disks or the way to them.

        Several changes may come as one call. An exception is logged and changes nothing.
        """

    def close(self) -> None:
        """Ends whatever runs; called once, with the world."""


class NoGuests:
    """Machines in which nothing runs."""

    def machines_changed(self, cloud: GuestCloud, project: str, machines: list[Machine]) -> None:
        pass

    def close(self) -> None:
        pass


class GuestCloud:
    """The cloud as seen from inside machines."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def time_scale(self) -> float:
        return self._world.operations.time_scale

    def seconds(self, realistic: float) -> float:
        """How long something takes here that takes `realistic` seconds on the real service."""
        return realistic / self.time_scale if self.time_scale else 0.0

    def exists(self, machine: Machine) -> bool:
        """Whether the very machine, not a namesake, is still running."""
        found = self._world.store.get(INSTANCES, machine.name)
        return found is not None and found["id"] == machine.id and found["status"] == "RUNNING"

    def records(self, kind: str, prefix: str = "") -> dict[str, Resource]:
        """Full name -> object of a kind such as "compute.disks"; for reading only."""
        return self._world.store.all(kind, prefix)

    def log(self, machine: Machine, line: str) -> None:
        """Writes a line to the machine's first serial port, where `getSerialPortOutput` shows it."""
        store = self._world.store
        with store.lock:
            if self.exists(machine):
                written = (store.get(SERIAL, machine.name) or {}).get("text", "")
                store.put(SERIAL, machine.name, {"text": f"{written}{line}\n"})

    def account(self, email: str) -> Account:
        """Calls as a service account. Raises nothing yet: each call is refused if the account may not make it."""
        return Account(self._world, email)


class Account:
    """Calls of the emulated APIs with the rights of a service account. Raises GoogleError where the API refuses."""

    def __init__(self, world: World, email: str) -> None:
        self._world = world
        self.email = email

    def request(
        self, method: str, path: str, body: Resource | None = None, query: Mapping[str, str] | None = None
    ) -> Resource:
        """The answer to any REST call; `path` as on the wire, e.g. "/sm/v1/projects/p/secrets/s"."""
        # These know the world, which knows this module.
        from sandbox.google.callers import require_usable
        from sandbox.google.dispatch import handle, routed

        require_usable(self._world, self.email)
        route = routed(method, path)
        answer: Resource = handle(self._world, route, body or {}, list((query or {}).items()), self.email)
        return answer

    def access_secret(self, secret: str) -> bytes:
        """The newest enabled version of "projects/P/secrets/S"."""
        answer = self.request("GET", f"/sm/v1/{secret}/versions/latest:access")
        return base64.b64decode(answer["payload"]["data"])

    def add_secret_version(self, secret: str, payload: bytes) -> str:
        """Adds a version to a secret; its full name."""
        body = {"payload": {"data": base64.b64encode(payload).decode()}}
        return str(self.request("POST", f"/sm/v1/{secret}:addVersion", body)["name"])

    def replace_secret_version(self, secret: str, payload: bytes) -> str:
        """Adds a version and destroys the older ones; the new one's full name."""
        added = self.add_secret_version(secret, payload)
        for version in self.request("GET", f"/sm/v1/{secret}/versions", query={"filter": "state:ENABLED"})["versions"]:
            if version["name"] != added:
                self.request("POST", f"/sm/v1/{version['name']}:destroy")
        return added


def machine(world: World, name: str, instance: Resource) -> Machine:
    """An instance's view of itself."""
    [nic, *_] = instance.get("networkInterfaces") or [{}]
    accounts = instance.get("serviceAccounts") or [{}]
    return Machine(
        name=name,
        id=instance["id"],
        attributes={i["key"]: i.get("value", "") for i in instance.get("metadata", {}).get("items", [])},
        service_account=accounts[0].get("email", ""),
        address=nic.get("networkIP", ""),
        alias_ranges=tuple(alias["ipCidrRange"] for alias in nic.get("aliasIpRanges", [])),
        data_disks=dict(_data_disks(world, instance)),
        record=instance,
    )


def _data_disks(world: World, instance: Resource) -> Iterable[tuple[str, str]]:
    for attached in instance.get("disks", []):
        disk = world.store.get("compute.disks", relative(attached.get("source", "")))
        if disk and not attached.get("boot"):
            yield attached["deviceName"], disk["id"]


class Messenger:
    """Tells the guests of a world what changed, in a thread of its own; only the newest state counts."""

    def __init__(self, world: World, guests: Guests) -> None:
        self._world = world
        self._guests = guests
        self._cloud = GuestCloud(world)
        self._changed: dict[str, None] = {}  # projects, in order of their first change
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="guests", daemon=True)
        self._thread.start()

    def note(self, changes: Iterable[Change]) -> None:
        """To be called with every change of the store; quick, and safe under its lock."""
        projects = {change.name.split("/")[1] for change in changes if change.kind in WATCHED}
        if projects:
            with self._wake:
                self._changed.update(dict.fromkeys(sorted(projects)))
                self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()
        self._guests.close()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._changed and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                project = next(iter(self._changed))
                del self._changed[project]
            try:
                self._guests.machines_changed(self._cloud, project, self._machines(project))
            except Exception:  # a guest's failure is not the cloud's
                log.exception("telling the guests of project %s failed", project)

    def _machines(self, project: str) -> list[Machine]:
        with self._world.store.lock:
            found = self._world.store.all(INSTANCES, f"projects/{project}/")
            return [machine(self._world, n, i) for n, i in found.items() if i["status"] == "RUNNING"]
