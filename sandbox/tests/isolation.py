"""What keeps tests apart from the person who runs them, and one test's files from another's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from ssl import SSLContext
from typing import Any

import pytest
from httpx import create_ssl_context
from httpx._transports import default as transports

from sandbox.environment import FOREIGN, PLUGINS_VARIABLE, Plugins
from sandbox.hosts.choice import PODS_VARIABLE, Pods, what_is_missing
from sandbox.kubernetes.plain_programs import PROVISIONER_VARIABLE
from sandbox.run_directory import RUN_VARIABLE


def isolate() -> None:
    """Take the variables of whoever runs the tests out of this process; choose the stand-in plugins and played pods."""
    for name in list(os.environ):
        if name.startswith((*FOREIGN, RUN_VARIABLE)):
            del os.environ[name]
    os.environ.pop(PROVISIONER_VARIABLE, None)
    os.environ[PLUGINS_VARIABLE] = Plugins.STAND_IN
    os.environ[PODS_VARIABLE] = Pods.PLAYED


def read_authorities_once() -> None:
    """Let HTTP clients share what they trust by default. Each reads all public certificate authorities anew, 20 to
    40 ms for a client that then speaks plain HTTP to the emulator."""
    transports.__dict__["create_ssl_context"] = _trusted


def _trusted(verify: Any = True, cert: Any = None, trust_env: bool = True) -> SSLContext:
    """What a client trusts; own settings, and variables that name other authorities, are followed as by httpx."""
    if verify is True and cert is None and not trust_env:
        return _authorities()
    return create_ssl_context(verify, cert, trust_env)


@cache
def _authorities() -> SSLContext:
    return create_ssl_context(trust_env=False)


def leave_out_real_pods(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that run containers where no container can run."""
    leave_out(config, items, "real_pods", what_is_missing())


def leave_out(config: pytest.Config, items: list[pytest.Item], marker: str, obstacle: str) -> None:
    """Deselects the tests with a marker if there is an obstacle."""
    left_out = [each for each in items if obstacle and each.get_closest_marker(marker)]
    if left_out:
        items[:] = [each for each in items if each not in left_out]
        config.hook.pytest_deselected(items=left_out)
        config.stash.setdefault(OBSTACLES, {})[marker] = obstacle


OBSTACLES = pytest.StashKey[dict[str, str]]()
"""Why tests with a marker were left out."""


@contextmanager
def short_directory() -> Iterator[Path]:
    """A temporary directory with a short path: unix sockets below pytest's own would be too long."""
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        yield Path(scratch)
