"""One stack = one TPU platform: read `tpu-platform:platform`, check all of it, register the graph, export its facts."""

from pathlib import Path
from typing import Any

import pulumi

from components.stack_state import read_standing
from plan.platform import Platform
from platform_config.errors import ConfigErrors
from platform_config.lines import lines_if_same
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY, keys_meant
from platform_config.stack_file import PROJECT_NAME
from rules.cluster_identity import refuse_another_cluster
from rules.load import load_configuration


async def main() -> dict[str, Any]:
    """Register the platform of the selected stack. A bad configuration registers nothing and prints every error."""
    try:
        platform = load()
        refuse_another_cluster(platform, read_standing(), origin=f"stack {pulumi.get_stack()}")
    except ConfigErrors as errors:
        raise pulumi.RunError(str(errors)) from None

    # Imported late: a bad stack file is refused before any part of the provider SDKs is loaded.
    from components.platform import build

    return await build(platform)


def load() -> Platform:
    """The platform of the selected stack. Raises ConfigErrors."""
    # By full name, since `pulumi new` gives the project another one.
    read = {PLATFORM_KEY: pulumi.Config(PROJECT_NAME).get("platform"), PROJECT_KEY: pulumi.Config("gcp").get("project")}
    config = pulumi.runtime.get_config_env() | {key: value for key, value in read.items() if value is not None}
    stack = pulumi.get_stack()
    file = Path(f"Pulumi.{stack}.yaml")  # programs run in the project's directory
    return load_configuration(config, stack=stack, lines=lambda: lines_if_same(file, config, keys_meant(config)))


pulumi.run(main)
