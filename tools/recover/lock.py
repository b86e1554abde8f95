"""Who holds a stack's lock, and whether that process is gone.

The engine writes one file for each lock: pid, user, host and time (upstream: pkg/backend/diy/lock.go). Only the file
backend is read here; of any other the engine itself says who holds the lock, once a command needs it.
"""

import json
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

from tools.recover.checkpoint import moment

NAMELESS = ("", "localhost")
"""Names that many machines have."""


@dataclass(frozen=True)
class Holder:
    """The process that has locked a stack; `gone`: it was a process of this machine, and does not exist any more."""

    user: str
    host: str
    pid: int
    since: datetime | None
    gone: bool

    def __str__(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"{self.user}@{self.host} (pid {self.pid}){since}"


def holders(backend: str, project: str, stack: str) -> tuple[Holder, ...] | None:
    """Everybody who holds the stack's lock; None where the backend is not a folder, or cannot be read."""
    address = urlparse(backend)
    if address.scheme != "file":
        return None
    root = Path(unquote(address.netloc + address.path)).expanduser()
    folder = root / ".pulumi" / "locks" / "organization" / project / stack
    try:
        return tuple(_holder(path) for path in sorted(folder.glob("*.json")))
    except (OSError, ValueError, AttributeError):
        return None


def _holder(path: Path) -> Holder:
    row = json.loads(path.read_text())
    host, pid = str(row.get("hostname", "")), int(row.get("pid") or 0)
    return Holder(str(row.get("username", "")), host, pid, moment(row.get("timestamp")), _is_gone(host, pid))


def _is_gone(host: str, pid: int) -> bool:
    """Whether it is certain that the process does not run: its host is this one, and has no such process."""
    if host in NAMELESS or host != socket.gethostname() or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
