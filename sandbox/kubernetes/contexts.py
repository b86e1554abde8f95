"""The sandbox's kubeconfig: a context for every running control plane, all with the administrator's token."""

from __future__ import annotations

import threading
from pathlib import Path

from sandbox.kubernetes.control_plane import ControlPlane, write_kubeconfig


class Contexts:
    """Keeps a kubeconfig equal to the control planes that run; without any there is no file."""

    def __init__(self, path: Path, token: str) -> None:
        self._path = path
        self._token = token
        self._planes: dict[str, ControlPlane] = {}
        self._lock = threading.Lock()

    def add(self, name: str, plane: ControlPlane) -> None:
        """The newest is the current context."""
        with self._lock:
            self._planes.pop(name, None)
            self._planes[name] = plane
            self._write()

    def remove(self, plane: ControlPlane) -> None:
        """One that is not there is no error; a later one of its name stays."""
        with self._lock:
            self._planes = {name: each for name, each in self._planes.items() if each is not plane}
            self._write()

    def _write(self) -> None:
        if self._planes:
            write_kubeconfig(self._path, self._planes, self._token)
        else:
            self._path.unlink(missing_ok=True)
