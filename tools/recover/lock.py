"""Who holds a stack's lock, and whether that process is gone.

The engine writes one file for each lock: pid, user, host and time (upstream: pkg/backend/diy/lock.go), below
`.pulumi/locks/organization/<project>/<stack>/` of the backend. They are read from a folder and from a bucket of Cloud
Storage. Of any other backend the engine itself says who holds the lock, once a command needs it.
"""

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

from tools.preflight.cloud import Cloud, NoConnectionError, RefusedError
from tools.recover.checkpoint import moment

NAMELESS = ("", "localhost")
"""Names that many machines have."""


@dataclass(frozen=True)
class Holder:
    """The process that has locked a stack; `gone`: it was a process of this machine, and does not exist any more.
    `broken`: the lock's file, where it does not say who wrote it. `not_here`: this machine has the name of the
    holder's, and no such process; but many machines share a bucket, and their names need not differ."""

    user: str
    host: str
    pid: int
    since: datetime | None
    gone: bool
    broken: str = ""
    not_here: bool = False

    def __str__(self) -> str:
        if self.broken:
            return f"somebody: {self.broken} cannot be read"
        since = f" since {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        not_here = ", which this machine does not run, although it has that name" if self.not_here else ""
        return f"{self.user}@{self.host} (pid {self.pid}){since}{not_here}"


def holders(backend: str, folder: Path, project: str, stack: str, cloud: Cloud) -> tuple[Holder, ...] | None:
    """Everybody who holds the stack's lock; None where that cannot be read here.

    `backend`: its address; `folder`: where a relative address begins, the folder of Pulumi.yaml.
    """
    below = f".pulumi/locks/organization/{project}/{stack}/"
    if root := folder_of(backend, folder):
        return _in_folder(root / below)
    address = urlparse(backend)
    if address.scheme == "gs":
        prefix = unquote(address.path).strip("/")
        return _in_bucket(cloud, address.netloc, f"{prefix}/{below}" if prefix else below)
    return None


def folder_of(backend: str, folder: Path) -> Path | None:
    """The folder that a backend's address names, seen from `folder`; None where the state is not in a folder."""
    address = urlparse(backend)
    return folder / Path(unquote(address.netloc + address.path)).expanduser() if address.scheme == "file" else None


def _in_folder(folder: Path) -> tuple[Holder, ...] | None:
    try:
        return tuple(_holder(path.read_bytes(), str(path)) for path in sorted(folder.glob("*.json")))
    except OSError:
        return None


def _in_bucket(cloud: Cloud, bucket: str, prefix: str) -> tuple[Holder, ...] | None:
    def each() -> Iterator[Holder]:
        for row in cloud.pages("storage", "objects.list", "items", bucket=bucket, prefix=prefix):
            name = str(row["name"])
            text = cloud.media("storage", "objects.get", bucket=bucket, object=name)
            if name.endswith(".json") and text is not None:
                found = _holder(text, f"gs://{bucket}/{name}")
                yield replace(found, gone=False, not_here=found.gone)

    try:
        return tuple(each())
    except (RefusedError, NoConnectionError):
        return None


def _holder(text: bytes, file: str) -> Holder:
    try:
        row = json.loads(text)
        host, pid = str(row.get("hostname", "")), int(row.get("pid") or 0)
        return Holder(str(row.get("username", "")), host, pid, moment(row.get("timestamp")), _is_gone(host, pid))
    except (ValueError, TypeError, AttributeError):
        return Holder("", "", 0, None, False, file)


def _is_gone(host: str, pid: int) -> bool:
    """Whether it is certain that the process does not run: its host is this one, and has no such process."""
    if host in NAMELESS or host != socket.gethostname() or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
