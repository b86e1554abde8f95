"""Where one running sandbox keeps its files: one short directory for each program, in the per-user cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.hosts import cgroups
from sandbox.toolchain import cache_dir

# Where `sandbox` is imported from.
IMPORT_ROOT = Path(__file__).resolve().parent.parent
# Names the run directory of the sandbox that a process belongs to; set in the sandbox's own shell.
RUN_VARIABLE = "TPU_SANDBOX_RUN"


@dataclass(frozen=True)
class RunDirectory:
    """The files of one sandbox. The path stays short: unix sockets lie below it, and those allow about 100 characters.

    The lock is held by the emulator process for as long as it lives, so that a sandbox that was killed is recognised
    by its free lock, without guessing from process ids.
    """

    root: Path

    @classmethod
    def named(cls) -> RunDirectory | None:
        """The one that TPU_SANDBOX_RUN names, as it does in the sandbox's own shell."""
        named = os.environ.get(RUN_VARIABLE)
        return cls(Path(named)) if named else None

    @classmethod
    def of(cls, program_dir: Path) -> RunDirectory:
        """The one of the program in a folder: at most one sandbox for each."""
        return cls(cache_dir() / "run" / hashlib.sha256(str(program_dir).encode()).hexdigest()[:8])

    @property
    def lock(self) -> Path:
        """Beside the directory, because the directory is removed while the lock is held."""
        return self.root.with_suffix(".lock")

    @property
    def ready_file(self) -> Path:
        return self.root / "emulator.json"

    @property
    def emulator_url(self) -> str:
        """Where the emulated cloud answers. Raises FileNotFoundError while it does not."""
        return str(json.loads(self.ready_file.read_text())["url"])

    @property
    def program_file(self) -> Path:
        """The folder of the program that the sandbox was started for."""
        return self.root / "program"

    @property
    def log(self) -> Path:
        return self.root / "emulator.log"

    @property
    def cloud_state(self) -> Path:
        return self.root / "cloud.json"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def pulumi_home(self) -> Path:
        return self.root / "home"

    @property
    def backend(self) -> Path:
        return self.root / "state"

    @property
    def stacks(self) -> Path:
        return self.root / "stacks"

    @property
    def kubernetes(self) -> Path:
        """Where the control planes of emulated clusters live."""
        return self.root / "kubernetes"

    @property
    def token_file(self) -> Path:
        """The one bearer token of this sandbox, for Google's APIs and, as administrator, for every cluster."""
        return self.kubernetes / "admin-token"

    @property
    def registry_file(self) -> Path:
        """The address of the proxy that leads to the chart registry."""
        return self.root / "registry"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl: every running cluster, as administrator. No file while there is no cluster."""
        return self.kubernetes / "kubeconfig"

    @property
    def trust_file(self) -> Path:
        """Certificate authorities that the sandbox trusts: the public ones, and its own for the clusters' endpoints."""
        return self.root / "trust.pem"

    @property
    def origins_file(self) -> Path:
        """Where each provider plugin of this sandbox comes from."""
        return self.root / "origins.json"

    def locked(self) -> bool:
        """Whether a sandbox is alive here."""
        with self._lock(fcntl.LOCK_SH) as fd:
            return fd is None

    @contextmanager
    def hold(self) -> Iterator[int | None]:
        """Hold the lock; yields its file descriptor, for a child to inherit, or None where another process holds it."""
        with self._lock(fcntl.LOCK_EX) as fd:
            yield fd

    @contextmanager
    def _lock(self, kind: int) -> Iterator[int | None]:
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a") as handle:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
            else:
                yield handle.fileno()

    def remove(self) -> bool:
        """Remove the directory unless a sandbox is alive in it; says whether there was something to remove."""
        with self.hold() as fd:
            if fd is None or not self.root.exists():
                return False
            self.clear()
            return True

    def clear(self) -> None:
        """Removes what a sandbox has left: the directory, and the cgroups of its real hosts. The lock is held."""
        cgroups.remove(self.root)
        shutil.rmtree(self.root)
