"""What the component refuses: everything at once, and before anything is registered."""

import asyncio
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi.output import UNKNOWN
from pulumi.resource import DependencyProviderResource

from package.inputs import plain
from package.provider import TYPE, PlatformProvider, constructed
from platform_config.reading import PROJECT_KEY
from tests.graph.recording import record
from tests.package.program import NAME, STACK

PROJECT = {PROJECT_KEY: "my-project"}
SLICE = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}


def refused(
    inputs: Callable[[], dict[str, Any]],
    *,
    config: dict[str, str] = PROJECT,
    preview: bool = False,
    options: Callable[[], pulumi.ResourceOptions] = pulumi.ResourceOptions,
) -> str:
    """What the engine is told of inputs and options, which are made inside the program. Nothing may be registered."""
    found: list[pulumi.InputPropertiesError] = []

    async def program() -> None:
        with pytest.raises(pulumi.InputPropertiesError) as error:
            await constructed(NAME, inputs(), options(), {})
        found.append(error.value)

    monitor = record(program, config=config, preview=preview)
    assert [request.type for request in monitor.requests.values()] == [STACK]
    assert found[0].errors is not None, "without a list the SDK fails when it sends the error"
    return found[0].message


def test_all_mistakes_are_named_at_once_by_their_path_in_the_inputs() -> None:
    slices = {"train": SLICE | {"topology": "3x3"}, "odd": SLICE | {"count": 0.0, "shape": "4x4"}}
    message = refused(lambda: {"zon": "us-east5-b", "slices": slices})
    for path in ("zon", "slices.train.topology", "slices.odd.count", "slices.odd.shape"):
        assert f"\n  {path}\n" in message
    assert message.startswith(f"The configuration of {NAME} has ")
    assert "tpu-platform:platform" not in message


def test_the_project_is_the_stacks() -> None:
    assert f"\n  {PROJECT_KEY}\n    is missing" in refused(lambda: {"zone": "us-east5-b"}, config={})
    assert "\n  project\n" in refused(lambda: {"zone": "us-east5-b", "project": "my-project"})


def test_a_provider_of_another_project_is_refused() -> None:
    """As the SDK hands on what a program passes."""

    def options() -> pulumi.ResourceOptions:
        given = DependencyProviderResource("urn:pulumi:dev::other::pulumi:providers:gcp::mine::0123")
        return pulumi.ResourceOptions(providers={"gcp": given})

    assert "\n  options.providers.gcp\n" in refused(lambda: {"zone": "us-east5-b"}, options=options)


@pytest.mark.parametrize("preview", [False, True], ids=["update", "preview"])
def test_values_that_nobody_can_plan_with(preview: bool) -> None:
    async def unknown() -> Any:
        return UNKNOWN

    message = refused(
        lambda: {
            "zone": pulumi.Output.from_input(unknown()),
            "name": pulumi.Output.secret("hidden"),
            "slices": {"train": SLICE | {"count": UNKNOWN}},
            "namespaces": ["a", pulumi.Output.secret("hidden")],
        },
        preview=preview,
    )
    for path in ("zone", "slices.train.count"):
        assert f"\n  {path}\n    is not known before the update" in message
    for path in ("name", "namespaces[1]"):
        assert f"\n  {path}\n    is a secret" in message
    assert "hidden" not in message


def test_another_type_of_the_package() -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=TYPE):
        PlatformProvider().construct("other", "tpu-platform:index:Cluster", {})


def test_known_outputs_and_numbers() -> None:
    async def read() -> dict[str, Any]:
        return await plain({"a": pulumi.Output.from_input({"b": [1.0, 1.5, True]}), "c": {"z": 1.0, "y": None}})

    found = asyncio.run(read())
    assert found == {"a": {"b": [1, 1.5, True]}, "c": {"z": 1, "y": None}}
    assert [type(each) for each in found["a"]["b"]] == [int, float, bool]
    assert list(found["c"]) == ["y", "z"], "the engine passes keys in any order"
