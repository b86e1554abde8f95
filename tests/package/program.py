"""A program that uses the component, and the program of the same stack."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
from google.protobuf import json_format, struct_pb2

from package.provider import TYPE, PlatformProvider
from platform_config import stack_file
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY, stack_name
from tests.graph.recording import GraphMonitor, record, record_main, stack_config

NAME = "platform"
STACK = "pulumi:pulumi:Stack"


def construct(inputs: dict[str, Any], *, outputs: dict[str, Any] | None = None) -> Callable[[], Any]:
    """A program that has the component constructed, as the engine's request would."""

    async def run() -> None:
        root = pulumi.runtime.get_root_resource()
        result = PlatformProvider().construct(NAME, TYPE, inputs, pulumi.ResourceOptions(parent=root))
        await pulumi.Output.from_input(result.urn).future()
        if outputs is not None:
            outputs.update(result.state)

    return run


@cache
def program(path: Path, preview: bool) -> GraphMonitor:
    """The graph of the stack, with keys in the order in which the engine passes them."""
    config = {key: json.dumps(value, sort_keys=True) for key, value in stack_file.read(path).items()}
    config[PROJECT_KEY] = stack_file.read(path)[PROJECT_KEY]
    return record_main(config, preview=preview, stack=stack_name(path))


def config_of(path: Path) -> dict[str, str]:
    """The configuration of the stack of somebody else's program: the project, and nothing of the platform."""
    return {key: value for key, value in stack_config(path).items() if key != PLATFORM_KEY}


def platform_of(path: Path) -> dict[str, Any]:
    """The platform in a stack file, with numbers as the engine passes them."""
    wire = struct_pb2.Struct()
    json_format.ParseDict(stack_file.read(path)[PLATFORM_KEY], wire)
    return json_format.MessageToDict(wire)


@cache
def constructed(path: Path, preview: bool) -> GraphMonitor:
    return record(construct(platform_of(path)), preview=preview, config=config_of(path), stack=stack_name(path))
