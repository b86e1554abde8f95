"""One VM from the outside: its disk, its power, and commands that run in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox.hosts import cgroups, images
from sandbox.hosts.choice import SYSTEM_PATH
from sandbox.hosts.fabric import GATEWAY, Fabric
from sandbox.hosts.machine import PID_FILE
from sandbox.kubernetes.supervisor import Process, Supervisor
from sandbox.run_directory import IMPORT_ROOT
from tests.bootstrap.google import Vm
from tests.bootstrap.vm import containers, image, inside

CPUS, MEMORY_MIB = 2, 16 * 1024
DATA_DISK_BYTES = 4 << 30
DATA_DISK = "google-data"
START_SECONDS = 120.0


@dataclass(frozen=True)
class Place:
    """Where a VM is in the network. `front`: the load balancer's address, of a VM behind one."""

    address: str
    pods: str
    front: str = ""


class VirtualMachine:
    """Off until it is started; what it writes stays in `folder`. `authority`: see image.files."""

    def __init__(
        self, folder: Path, vm: Vm, place: Place, fabric: Fabric, supervisor: Supervisor, authority: str
    ) -> None:
        self.vm, self.place, self.folder = vm, place, folder
        self.name: str = vm.record["name"]
        self._fabric, self._supervisor, self._authority = fabric, supervisor, authority
        self._process: Process | None = None

    def start(self) -> None:
        """Switches it on; systemd is on its way then. Raises ProcessError, FabricError."""
        pid = self.folder / PID_FILE
        pid.unlink(missing_ok=True)
        if not self.folder.exists():
            self._format()
        cgroups.make(self.folder)
        environment = {"PATH": SYSTEM_PATH, "PYTHONPATH": str(IMPORT_ROOT)}
        command = ["-m", inside.__name__, str(self.folder)]
        self._process = self._supervisor.start(f"vm-{self.name}", Path(sys.executable), command, environment)
        self._process.wait_ready(pid.exists, START_SECONDS)
        ranges = [each for each in (self.place.pods, self.place.front) if each]
        self._fabric.attach(self.name, int(pid.read_text()), self.place.address, *ranges)

    def switch_off(self) -> None:
        """Pulls the plug; its disk stays."""
        if self._process:
            self._supervisor.stop(self._process)
            self._fabric.detach(self.name)
            self._process = None
        cgroups.remove(self.folder)

    def remake(self) -> None:
        """Switches it off and gives it a new boot disk; the data disk stays."""
        self.switch_off()
        kept = self.folder.with_name(f"{self.name}-data")
        (self.folder / DATA_DISK).rename(kept)
        shutil.rmtree(self.folder)
        self._format()
        kept.replace(self.folder / DATA_DISK)

    def remove(self) -> None:
        """Switches it off and removes its disks."""
        self.switch_off()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _format(self) -> None:
        self.folder.mkdir()
        images.copy_store(containers.store(), self.folder / "containerd")
        with (self.folder / DATA_DISK).open("wb") as disk:
            disk.truncate(DATA_DISK_BYTES)
        (self.folder / "machine.json").write_text(json.dumps(self._config()))

    def run(self, *command: str, check: bool = True) -> str:
        """What a command prints that runs in the VM as root. Fails with all that it printed where it fails."""
        entered = ["nsenter", "--target", (self.folder / PID_FILE).read_text(), "--all", "--", *command]
        environment = {"PATH": SYSTEM_PATH, "KUBECONFIG": "/etc/kubernetes/admin.conf", "HOME": "/root"}
        ran = subprocess.run(entered, capture_output=True, text=True, check=False, timeout=300, env=environment)
        assert not check or ran.returncode == 0, f"{' '.join(command)} in {self.name}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def journal(self, name: str = "") -> str:
        """What a unit has logged since the VM was switched on; what all have, without a name."""
        unit = ["--unit", name] if name else []
        return self.run("journalctl", "--no-pager", "--output", "cat", *unit, check=False)

    def _config(self) -> dict[str, object]:
        return {
            "name": self.name,
            "address": self.place.address,
            "gateway": GATEWAY,
            "cpus": CPUS,
            "memory_mib": MEMORY_MIB,
            "disks": {DATA_DISK: str(self.folder / DATA_DISK)},
            "removed": image.REMOVED,
            "files": image.files(self.name, self._authority, self.place.front),
            "links": image.LINKS,
        }
