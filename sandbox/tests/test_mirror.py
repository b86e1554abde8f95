"""The folder that stands for a mounted bucket, and the bucket's objects: what is written, and what is never deleted."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from sandbox.hosts.fuse_plugin import Mirror
from sandbox.kubernetes.fuse import Storage, Volume


@dataclass(frozen=True)
class Objects(Storage):
    """A bucket in memory. `answers`: statuses that the next writes get."""

    answers: list[int] = field(default_factory=list)
    content: dict[str, bytes] = field(default_factory=dict)

    def list(self, bucket: str, prefix: str) -> dict[str, str]:
        return {name: str(hash(content)) for name, content in self.content.items()}

    def write(self, bucket: str, name: str, content: bytes) -> str:
        if self.answers:
            request = httpx.Request("POST", "http://storage")
            httpx.Response(self.answers.pop(0), request=request).raise_for_status()
        self.content[name] = content
        return str(hash(content))

    def delete(self, bucket: str, name: str) -> None:
        del self.content[name]


def mirror(folder: Path, storage: Storage) -> Mirror:
    made = Mirror(folder / "mounted", Volume("v", "bucket", [], {}, False), storage)
    made.prepare()
    (folder / "mounted" / "result").write_text("42")
    return made


def test_a_folder_that_is_gone_does_not_delete_its_objects(tmp_path: Path) -> None:
    """A finding: a step that came after the last one found no file, and deleted the objects."""
    storage = Objects("", "")
    made = mirror(tmp_path, storage)
    made.step(last=True)
    made.end()
    (tmp_path / "mounted" / "result").unlink()
    made.step()
    assert storage.content == {"result": b"42"}


def test_a_write_that_fails_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    storage = Objects("", "", [503])
    made = mirror(tmp_path, storage)
    with pytest.raises(httpx.HTTPStatusError):
        made.step(last=True)
    made.step(last=True)
    assert storage.content == {"result": b"42"}


def test_a_write_that_is_refused_is_not_tried_again(tmp_path: Path) -> None:
    storage = Objects("", "", [403])
    made = mirror(tmp_path, storage)
    made.step(last=True)
    made.step(last=True)
    assert storage.content == {}
