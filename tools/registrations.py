"""What the program registers for a platform, found by running it in this process: no engine, no cloud, two seconds.

The monitor here stands for the engine of a first preview: it takes registrations and answers that ids and computed
outputs are not known yet. It differs in that no provider checks anything, and in that a function's call is answered
with nothing.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml
from google.protobuf import json_format
from pulumi.runtime import mocks, rpc

from components.platform import build
from spec.platform import Platform
from tools.generated import ROOT

ENDPOINT_PATH = ("controlPlaneEndpointsConfig", "dnsEndpointConfig")


@dataclass(frozen=True)
class Registration:
    """A resource or component: its type token and its inputs, unknown ones as the engine's marker."""

    type: str
    inputs: Mapping[str, Any]


class _NothingKnown(mocks.Mocks):
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return "", _with_unknown_endpoint(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        return {}, None


def _with_unknown_endpoint(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs come back as outputs; a cluster's endpoint is an output that lies inside an input."""
    outer, inner = ENDPOINT_PATH
    if inner not in inputs.get(outer, {}):
        return inputs
    return {**inputs, outer: {**inputs[outer], inner: {**inputs[outer][inner], "endpoint": rpc.UNKNOWN}}}


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

    def program() -> None:
        build(_without_own_templates(platform))

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))
    try:
        pulumi.runtime.reset_options()
        pulumi.runtime.configure(
            pulumi.runtime.Settings(
                project=yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["name"],
                stack=stack,
                organization="organization",
                root_directory=str(ROOT),
                dry_run=True,
                monitor=monitor,
                engine=mocks.MockEngine(None),
            )
        )
        loop.run_until_complete(pulumi.runtime.run_in_stack(program))
    finally:
        pulumi.runtime.reset_options()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(None)
    return monitor.found
