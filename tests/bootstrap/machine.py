"""A dry machine: runs the real boot scripts with bash, on a scratch root, with stand-ins for what changes a VM."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.compute.boot_script import boot_script
from plan.hosts import API_PORT
from sandbox import toolchain
from tests.bootstrap.google import DOCKER_KEY, KUBERNETES_KEY, Vm, fingerprint

BOOT_UNIT = "tpu-boot.service"
Role = Literal["control_plane", "node"]
SHIMS = Path(__file__).parent / "shims"
# The directories of a VM that the scripts touch. In what runs here they lie below the scratch root; that is the only
# difference to the text that a VM boots.
MOVED = re.compile(r"""(?<![\w.:/*}$-])/(?=(?:etc|run|var|usr/local|dev/disk)[/\s"'])""")
# Run as they are.
TOOLS = (
    *("bash", "base64", "cat", "cp", "curl", "date", "dirname", "env", "find", "grep", "gzip", "head", "install", "ln"),
    *(
        "mkdir",
        "mktemp",
        "od",
        "openssl",
        "readlink",
        "rm",
        "rmdir",
        "sed",
        "sha256sum",
        "tar",
        "test",
        "touch",
        "tr",
        "wc",
    ),
)
# Only noted, or played by a file below shims/stand-ins.
STOOD_FOR = (
    *("apt-get", "apt-mark", "blkid", "crictl", "dpkg-query", "ip", "kubeadm", "kubectl", "mkfs.ext4", "modprobe"),
    *("dpkg", "mount", "mountpoint", "sleep", "swapoff", "sysctl", "systemctl"),
)
FILES = {
    "etc/apt/sources.list.d/": "",
    "etc/containerd/": "",
    "etc/default/": "",
    "etc/fstab": "LABEL=cloudimg-rootfs / ext4 defaults 0 1\n/swapfile none swap sw 0 0\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/modules-load.d/": "",
    "etc/os-release": 'NAME="Ubuntu"\nVERSION_CODENAME=noble\n',
    "etc/sysctl.d/": "",
    "etc/systemd/system/": "",
    "dev/disk/by-id/google-data": "",
    "run/": "",
    "usr/local/sbin/": "",
    "var/lib/etcd/": "",
    "etc/kubernetes/": "",
}


@dataclass(frozen=True)
class Boot:
    """What one run of a script gave: its exit code, all it printed, and every command it called, with arguments."""

    code: int
    output: str
    calls: list[list[str]]

    def of(self, *beginning: str) -> list[list[str]]:
        """The calls that begin with these words."""
        return [call for call in self.calls if tuple(call[: len(beginning)]) == beginning]


class Machine:
    """One VM with its boot disk below `folder`. Booting it again keeps the disk."""

    def __init__(self, folder: Path, role: Role, vm: Vm, emulator: str, internet: str) -> None:
        self.folder, self.role, self.vm = folder, role, vm
        self.api_port = API_PORT
        self.emulator, self.internet = emulator, internet
        self.root = folder / "root"
        for name, content in FILES.items():
            target = self.root / name
            (target if name.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
            if content or not name.endswith("/"):
                target.write_text(content)
        self._link_commands()

    def _link_commands(self) -> None:
        tools, path = self.folder / "tools", self.folder / "path"
        tools.mkdir()
        path.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found, f"the boot scripts' tests need {name}"
            (tools / name).symlink_to(found)
        (tools / "python3").symlink_to(Path(sys.executable).resolve())
        for name, program in toolchain.ensure(["kubeadm", "kubectl"]).items():
            (tools / name).symlink_to(program)
        for name in (*TOOLS, "python3", *STOOD_FOR):
            self.offer(name)
        # the scripts themselves are run by bash; noting that would tell nothing
        for name in ("bash", "env"):
            (path / name).unlink()
            (path / name).symlink_to(tools / name)

    def offer(self, name: str) -> None:
        """Makes a command known to the VM, as a stand-in that notes its calls."""
        (self.folder / "path" / name).symlink_to(SHIMS / "shim")

    def moved(self, text: str) -> str:
        """A script as it runs here: below the scratch root, on a port of its own, with the keys served here."""
        text = MOVED.sub(f"{self.root}/", text).replace(f"API_PORT={API_PORT}", f"API_PORT={self.api_port}")
        for name, key in (("DOCKER", DOCKER_KEY), ("KUBERNETES", KUBERNETES_KEY)):
            text = re.sub(rf"{name}_KEY=[0-9A-F]{{40}}\b", f"{name}_KEY={fingerprint(key)}", text)
        return text

    def as_on_a_vm(self, text: str) -> str:
        """The opposite: a text of the scratch root with the paths of a VM."""
        return text.replace(f"{self.root}/", "/")

    def read(self, path: str) -> str:
        """A file of the VM, with its paths as on a VM."""
        return self.as_on_a_vm((self.root / path.lstrip("/")).read_text())

    def exists(self, path: str) -> bool:
        return (self.root / path.lstrip("/")).exists()

    def say(self, name: str, content: object) -> None:
        """Tells a stand-in what to do: see the files below shims/stand-ins."""
        (self.folder / name).write_text(f"{content}\n")

    def boot(self) -> Boot:
        """Starts the startup script, as Google's agent does, and then once what it has systemd start."""
        script = self.folder / "startup-script"
        script.write_text(self.moved(boot_script(self.role)))
        script.chmod(0o700)
        started = self.run([str(script)])
        if ["systemctl", "start", "--no-block", BOOT_UNIT] not in started.calls:
            return started
        tried = self.start_boot_unit()
        return Boot(tried.code, started.output + tried.output, started.calls + tried.calls)

    def start_boot_unit(self) -> Boot:
        """What systemd runs for the boot, again where it has failed."""
        unit = (self.root / "etc/systemd/system" / BOOT_UNIT).read_text()
        (command,) = re.findall(r"(?m)^ExecStart=(.*)$", unit)
        return self.run(command.split())

    def run(self, command: list[str]) -> Boot:
        calls = self.folder / "calls"
        shutil.rmtree(calls, ignore_errors=True)
        calls.mkdir()
        done = subprocess.run(
            command,
            cwd=self.root,
            env={
                "PATH": str(self.folder / "path"),
                "DRY_RUN": str(self.folder),
                "STAND_INS": str(SHIMS / "stand-ins"),
                "ROOT": str(self.root),
                "EMULATOR": self.emulator,
                "INTERNET": self.internet,
                "LC_ALL": "C",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            start_new_session=True,  # a stand-in may end the script and all that it started
        )
        noted = [call.read_text().removesuffix("\x1f").split("\x1f") for call in sorted(calls.iterdir())]
        plain = [[self.as_on_a_vm(word) for word in call] for call in noted]
        return Boot(done.returncode, self.as_on_a_vm(done.stdout + done.stderr), plain)

    def kubeadm_configs(self, kind: str) -> list[Path]:
        """The configurations that kubeadm was given for "init", "join" or "upload-certs", in order."""
        return sorted((self.folder / "kubeadm").glob(f"{kind}-*.yaml"))

    def disk_text(self) -> str:
        """Everything below the root, /run too, in one string."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return "\n".join(path.read_text(errors="replace") for path in files)
