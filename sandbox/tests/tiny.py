"""The sandbox's `pulumi` command for programs without any provider, so without an emulator."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox import environment, toolchain
from sandbox.kubernetes import assets
from sandbox.run_directory import RunDirectory
from sandbox.tests.isolation import short_directory

Run = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def tiny_engine(project: Path) -> Iterator[Run]:
    """The sandbox's `pulumi`, run in the project, with an emulator address but no emulator: no provider is used."""
    with short_directory() as scratch:
        run = RunDirectory(scratch / "run")
        run.root.mkdir()
        run.backend.mkdir()
        run.ready_file.write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": os.getpid()}))
        run.kubernetes.mkdir()
        run.token_file.write_text("token")
        environment.install(run, toolchain.engine(), assets.program("kubectl"), environment.Plugins.STAND_IN)

        def call(*arguments: str, cwd: Path = project, **extra: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [run.bin / "pulumi", *arguments],
                cwd=cwd,
                env={**environment.variables(run), **extra},
                capture_output=True,
                text=True,
                check=False,
            )

        yield call
