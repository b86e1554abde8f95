"""What keeps tests apart from the person who runs them, and one test's files from another's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.environment import FOREIGN, PLUGINS_VARIABLE, Plugins
from sandbox.run_directory import RUN_VARIABLE


def isolate() -> None:
    """Take the variables of whoever runs the tests out of this process, and choose the stand-in plugins."""
    for name in list(os.environ):
        if name.startswith((*FOREIGN, RUN_VARIABLE)):
            del os.environ[name]
    os.environ[PLUGINS_VARIABLE] = Plugins.STAND_IN


@contextmanager
def short_directory() -> Iterator[Path]:
    """A temporary directory with a short path: unix sockets below pytest's own would be too long."""
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        yield Path(scratch)
