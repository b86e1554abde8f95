"""The emulator's memory: named JSON objects by kind, mirrored to a SQLite file when one is given."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Resource = dict[str, Any]


class Change(NamedTuple):
    """One write: the new value of `name` among the objects of `kind`, or None to remove it."""

    kind: str
    name: str
    value: Resource | None


class Store:
    """Objects are replaced, never edited in place: what `get` returns must not be changed.

    Every `apply` is one transaction of the file, so a killed emulator finds whole changes when it starts again.
    `lock` serialises whole requests (read, decide, write); it is re-entrant. `watcher` gets every batch of changes once
    it is written, with the lock held.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.lock = threading.RLock()
        self.watcher: Callable[[list[Change]], None] = lambda changes: None
        self._objects: dict[str, dict[str, Resource]] = {}
        self._file = self._open(path) if path else None

    def _open(self, path: Path) -> sqlite3.Connection:
        file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        file.execute("PRAGMA synchronous = OFF")  # survives a killed process; a power cut may lose the file
        file.execute("CREATE TABLE IF NOT EXISTS objects (kind TEXT, name TEXT, value TEXT, PRIMARY KEY (kind, name))")
        for kind, name, value in file.execute("SELECT kind, name, value FROM objects ORDER BY rowid"):
            self._objects.setdefault(kind, {})[name] = json.loads(value)
        return file

    def get(self, kind: str, name: str) -> Resource | None:
        return self._objects.get(kind, {}).get(name)

    def all(self, kind: str, prefix: str = "") -> dict[str, Resource]:
        """A copy of the objects of a kind whose names start with `prefix`, in order of creation."""
        with self.lock:
            return {name: value for name, value in self._objects.get(kind, {}).items() if name.startswith(prefix)}

    def put(self, kind: str, name: str, value: Resource | None) -> None:
        self.apply([Change(kind, name, value)])

    def apply(self, changes: Iterable[Change]) -> None:
        """Writes all changes, or (in the file) none of them."""
        with self.lock:
            changes = [Change(*change) for change in changes]
            for kind, name, value in changes:
                objects = self._objects.setdefault(kind, {})
                if value is None:
                    objects.pop(name, None)
                else:
                    objects[name] = value
            self._save(changes)
            self.watcher(changes)

    def _save(self, changes: list[Change]) -> None:
        if self._file is None or not changes:
            return
        self._file.execute("BEGIN")
        for kind, name, value in changes:
            if value is None:
                self._file.execute("DELETE FROM objects WHERE kind = ? AND name = ?", (kind, name))
            else:
                row = (kind, name, json.dumps(value))
                self._file.execute(
                    "INSERT INTO objects VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", row
                )
        self._file.execute("COMMIT")

    def clear(self) -> None:
        with self.lock:
            gone = [Change(kind, name, None) for kind, objects in self._objects.items() for name in objects]
            self._objects.clear()
            if self._file:
                self._file.execute("DELETE FROM objects")
            self.watcher(gone)

    def close(self) -> None:
        with self.lock:
            if self._file:
                self._file.close()
                self._file = None
