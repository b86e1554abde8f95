"""VMs of one platform, with the network and what they reach: for tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from components.compute.boot_script import boot_script
from sandbox.hosts.fabric import Fabric
from sandbox.kubernetes.pki import CertificateAuthority
from sandbox.kubernetes.supervisor import Supervisor
from tests.bootstrap.google import Vm, email
from tests.bootstrap.machine import Role
from tests.bootstrap.vm.machine import Place, VirtualMachine
from tests.bootstrap.vm.outside import Outside
from tests.bootstrap.vm.packages import repositories
from tests.bootstrap.vm.signing import SigningKey

_PINNED_KEY = re.compile(r"_KEY=[0-9A-F]{40}\b")


class Lab:
    """Makes VMs that are off; `outside` is what they reach."""

    def __init__(self, folder: Path, fabric: Fabric, supervisor: Supervisor, emulator: str, containerd: str) -> None:
        self._folder, self._fabric, self._supervisor = folder, fabric, supervisor
        self._key = SigningKey()
        self._authority = CertificateAuthority(folder / "authority", "test-servers")
        (folder / "repositories").mkdir()
        served = repositories(containerd, self._key, folder / "repositories")
        self.outside = Outside(fabric, emulator, served, self._authority)
        self.machines: list[VirtualMachine] = []

    def machine(self, role: Role, account: str, name: str, place: Place, metadata: Mapping[str, str]) -> VirtualMachine:
        """A VM whose metadata are these and its startup script. `account`: the service account that it acts as."""
        number = len(self.machines) + 1
        script = _PINNED_KEY.sub(f"_KEY={self._key.fingerprint}", boot_script(role))
        interface = {"ip": place.address, "ipAliases": [place.pods], "mtu": 1460}
        record = {
            "attributes": {**metadata, "startup-script": script},
            "id": 4000000000000000000 + number,
            "name": name,
            "networkInterfaces": [interface],
            "zone": "projects/123456/zones/us-east5-b",
        }
        vm = Vm(record, f"sandbox-service-account:{email(account)}")
        self.outside.know(place.address, vm)
        authority = self._authority.pair.certificate.read_text()
        made = VirtualMachine(self._folder / name, vm, place, self._fabric, self._supervisor, authority)
        self.machines.append(made)
        return made


@contextmanager
def lab(folder: Path, emulator: str, containerd: str) -> Iterator[Lab]:
    """VMs in an empty folder whose path is short. They ask for this version of the package containerd.io. All of them
    are gone in the end."""
    supervisor = Supervisor(folder)
    fabric = Fabric(supervisor, None)
    try:
        fabric.start()
        made = Lab(folder, fabric, supervisor, emulator, containerd)
        made.outside.start()
        try:
            yield made
        finally:
            for each in made.machines:
                each.remove()
            made.outside.stop()
    finally:
        fabric.stop()
        supervisor.stop_all()
