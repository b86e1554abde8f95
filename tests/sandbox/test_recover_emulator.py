"""What `python -m tools recover` reads with Google's own client: the locks of a backend in Cloud Storage."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandbox.stacks import endpoints
from sandbox.tests.emulated_google import PROJECT, Cloud, connected
from tools.preflight import cloud as client
from tools.recover.lock import Holder, holders

LOCKS = ".pulumi/locks/organization/tpu-platform"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with connected() as made:
        made.ok("POST", f"/storage/v1/b?project={PROJECT}", {"name": "state", "location": "us-east5"})
        yield made


def write(cloud: Cloud, name: str, content: Any) -> None:
    query = {"uploadType": "media", "name": name}
    cloud.http.post("/upload/storage/v1/b/state/o", params=query, content=json.dumps(content)).raise_for_status()


def held(cloud: Cloud, backend: str) -> tuple[Holder, ...] | None:
    settings = {key.removeprefix("gcp:"): value for key, value in endpoints(cloud.emulator.url, "token").items()}
    return holders(backend, Path("/"), "tpu-platform", "dev", client.Cloud(settings))


def test_who_holds_a_lock_in_a_bucket_is_said_and_nobody_is_taken_for_gone(cloud: Cloud) -> None:
    """Machines that share a bucket may share a name, too."""
    lock = {"pid": 2**22 + 1, "username": "me", "hostname": socket.gethostname(), "timestamp": "2026-11-23T10:56:25Z"}
    write(cloud, f"{LOCKS}/dev/a.json", lock)
    write(cloud, f"{LOCKS}/dev2/b.json", {**lock, "username": "of another stack"})
    write(cloud, f"below/this/{LOCKS}/dev/c.json", {**lock, "pid": os.getpid(), "hostname": "other"})
    since = datetime(2026, 11, 23, 10, 56, 25, tzinfo=UTC)
    [here] = held(cloud, "gs://state") or ()
    assert here == Holder("me", socket.gethostname(), 2**22 + 1, since, gone=False, not_here=True)
    assert "does not run, although it has that name" in str(here)
    assert held(cloud, "gs://state/") == (here,)
    assert held(cloud, "gs://state/below/this?a=b") == (Holder("me", "other", os.getpid(), since, gone=False),)
    assert held(cloud, "gs://state/elsewhere") == ()


def test_a_lock_that_cannot_be_read_is_no_lock_that_is_not_there(cloud: Cloud) -> None:
    assert held(cloud, "gs://nobody-has-this") is None
    for elsewhere in ("s3://state?region=us-east-1", "azblob://state", "https://api.pulumi.com"):
        assert held(cloud, elsewhere) is None
    write(cloud, f"{LOCKS}/dev/a.json", "half of it")
    [broken] = held(cloud, "gs://state") or ()
    assert str(broken) == f"somebody: gs://state/{LOCKS}/dev/a.json cannot be read"
    assert not broken.gone
