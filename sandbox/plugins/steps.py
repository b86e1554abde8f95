"""What a plugin is doing, told to the emulated cloud, so that a fault can strike one step of an update.

Off unless the variable SANDBOX_STEPS is set. A step is written `create gcp:compute/network:Network::vpc`: what is done,
the resource's type and its name. Real plugins say none of this, so with these no fault that names a step strikes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

VARIABLE = "SANDBOX_STEPS"
STEP_HEADER, KILL_HEADER = "X-Sandbox-Step", "X-Sandbox-Kill"
"""Of a request that belongs to a step, and of the answer that says whom to kill."""
PROGRAM = "pulumi-language-python-exec"
"""In the command of the process that runs a program."""
_STEP: ContextVar[str] = ContextVar("step", default="")


@cache
def are_named() -> bool:
    """Whether this process tells its steps."""
    return bool(os.environ.get(VARIABLE))


@contextmanager
def step(name: str) -> Iterator[None]:
    """What this thread does is part of that step."""
    token = _STEP.set(name)
    try:
        yield
    finally:
        _STEP.reset(token)


def current() -> str:
    """The step that this thread works at; "" for none, or where steps are not told."""
    return _STEP.get() if are_named() else ""


def is_change(method: str, url: str) -> bool:
    """Whether a request changes something, by its method; reading a policy is a POST in some of Google's APIs."""
    return method not in ("GET", "HEAD") and not url.endswith(":getIamPolicy")


def kill(victim: str) -> None:
    """SIGKILL for `engine`, whose child this process is, for this `plugin`, or for the `program`."""
    import psutil  # costs start-up time that only a fault has to pay

    if victim == "plugin":
        os.kill(os.getpid(), signal.SIGKILL)
    engine = psutil.Process(os.getppid())
    for child in engine.children(recursive=True) if victim == "program" else (engine,):
        if victim == "engine" or any(PROGRAM in word for word in child.cmdline()):
            child.kill()
