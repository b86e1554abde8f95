"""The component makes the graph of a stack, below itself, and refuses bad inputs before anything is registered."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
from google.protobuf import json_format, struct_pb2

from package.provider import TYPE, PlatformProvider
from platform_config import stack_file
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY, stack_name
from tests.graph.recording import STACK_FILES, GraphMonitor, record, record_main, stack_config

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


def words(request: Any) -> dict[str, Any]:
    """A request without the place in the code that it comes from; what it depends on has no order."""
    plain: dict[str, Any] = json_format.MessageToDict(request)
    del plain["stackTrace"]
    plain.pop("sourcePosition", None)
    for depends in (plain, *plain.get("propertyDependencies", {}).values()):
        for key in {"dependencies", "urns"} & depends.keys():
            depends[key] = sorted(depends[key])
    return plain


def without_component(monitor: GraphMonitor) -> dict[str, Any]:
    """The requests of a program with the component, as if its children were the stack's."""
    [component], [stack] = monitor.of_type(TYPE), monitor.of_type(STACK)
    requests = {urn: words(request) for urn, request in monitor.requests.items() if urn != component}
    found: dict[str, Any] = json.loads(json.dumps(requests).replace(component, stack).replace(f"{TYPE}$", ""))
    return found


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
@pytest.mark.parametrize("path", STACK_FILES, ids=stack_name)
def test_the_graph_is_that_of_the_stack(path: Path, preview: bool) -> None:
    """Request by request: inputs, dependencies, providers, protection, triggers, hooks. Only the parents are longer."""
    ours, theirs = program(path, preview), constructed(path, preview)
    assert without_component(theirs) == {urn: words(request) for urn, request in ours.requests.items()}
    assert [request.type for urn, request in theirs.requests.items() if TYPE not in urn] == [STACK]
    assert theirs.hooks.keys() == ours.hooks.keys()


@pytest.mark.parametrize("path", STACK_FILES, ids=stack_name)
def test_the_outputs_are_those_of_the_stack(path: Path) -> None:
    theirs = constructed(path, False)
    [component] = theirs.of_type(TYPE)
    assert theirs.outputs[component] == program(path, False).exports
