"""What the program registers for a platform, found by running it in this process: no engine, no cloud, two seconds.

The monitor here stands for the engine of a first preview: it takes registrations and answers that ids and computed
outputs are not known yet. It differs in that no provider checks anything, and in that a function's call is answered
with nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from pulumi.runtime import mocks

from components.platform import build
from plan.platform import Platform
from tools.in_process import run


@dataclass(frozen=True)
class Registration:
    """A resource or component: its type token and its inputs, unknown ones as the engine's marker."""

    type: str
    inputs: Mapping[str, Any]


class _NothingKnown(mocks.Mocks):
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return "", args.inputs

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        return {}, None


class _Monitor(mocks.MockMonitor):
    def __init__(self) -> None:
        super().__init__(_NothingKnown())
        self.found: list[Registration] = []

    def RegisterResource(self, request: Any) -> Any:
        self.found.append(Registration(request.type, json_format.MessageToDict(request.object)))
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


def _without_own_templates(platform: Platform) -> Platform:
    """Templates that somebody else made would be read from Google, which is not asked here. The program's own take
    their place; whoever may make those may also read."""
    slices = {name: spec.model_copy(update={"instance_template": None}) for name, spec in platform.slices.items()}
    return platform.model_copy(update={"slices": slices})


def registrations(platform: Platform, *, stack: str) -> list[Registration]:
    """Everything the program registers for a platform in a stack of that name; errors in the program are raised."""
    monitor = _Monitor()

    async def program() -> None:
        await build(_without_own_templates(platform))

    run(program, monitor, stack=stack, preview=True)
    return monitor.found
