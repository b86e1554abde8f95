"""The provider of the package: builds a platform below a component of somebody else's program."""

from pathlib import Path
from typing import Any

import pulumi
from pulumi.provider import ConstructResult, Provider
from pulumi.runtime.settings import set_root_resource

from components.platform import build
from components.stack_state import read_standing
from package.inputs import of_component, plain
from plan.program_version import program_version
from platform_config.errors import ConfigError, ConfigErrors
from platform_config.stack_file import PROJECT_NAME
from rules.cluster_identity import refuse_another_cluster
from rules.load import load_platform

TYPE = f"{PROJECT_NAME}:index:Platform"
SCHEMA = Path(__file__).with_name("schema.json")
"""Made by `python -m tools schema --write`."""


class PlatformProvider(Provider):
    """Serves one component, `Platform`. Its inputs are the keys of a stack file's platform, its outputs what a stack
    exports."""

    def __init__(self) -> None:
        super().__init__(program_version(), SCHEMA.read_text())

    def construct(
        self, name: str, resource_type: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """The component, and all of the platform below it. Bad inputs register nothing, and are all named at once."""
        if resource_type != TYPE:
            raise refusal(f"this package has no {resource_type} -> write {TYPE}")
        outputs: dict[str, Any] = {}
        # The URN is waited for before the outputs are read: when it is known, they are complete.
        return ConstructResult(pulumi.Output.from_input(constructed(name, inputs, options, outputs)), outputs)


async def constructed(
    name: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None, outputs: dict[str, Any]
) -> str:
    """The URN of the component, after the whole graph is registered below it; fills `outputs`.

    Raises InputPropertiesError with everything that is wrong.
    """
    try:
        raw = await plain(inputs)
        refuse_another_project(options)
        platform = load_platform(raw, project=pulumi.Config("gcp").get("project"))
        component = PlatformComponent(name, raw, options)
        # What has no parent becomes a child of the root resource; here this is not the stack, but the component.
        set_root_resource(component)
        refuse_another_cluster(platform, read_standing())
    except ConfigErrors as errors:
        raise refusal(str(of_component(errors, name))) from None
    outputs |= await build(platform)
    component.register_outputs(outputs)
    urn = await component.urn.future()
    assert urn
    return urn


def refuse_another_project(options: pulumi.ResourceOptions | None) -> None:
    """Raise ConfigErrors where a provider is given for what the platform creates in Google Cloud: it may be of another
    project than the one from which names, links and quotas are derived."""
    # The SDK hands them on by package.
    if options and isinstance(options.providers, dict) and "gcp" in options.providers:
        what = "is given, but the platform takes project and credentials from the stack"
        raise ConfigErrors([ConfigError("options.providers.gcp", what, "set gcp:... in the stack's configuration")])


def refusal(text: str) -> pulumi.InputPropertiesError:
    """What the engine shows as it is. The SDK cannot send it without a list of properties."""
    return pulumi.InputPropertiesError(text, [])


class PlatformComponent(pulumi.ComponentResource):
    """The component itself. Its inputs are in the state, so that previews show what of them changes."""

    def __init__(self, name: str, inputs: dict[str, Any], options: pulumi.ResourceOptions | None) -> None:
        super().__init__(TYPE, name, inputs, options)
