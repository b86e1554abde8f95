"""One stack = one TPU platform: read `tpu-platform:platform`, check all of it, register the graph, export its facts."""

import gc
import importlib

import pulumi

from components.stack_state import read_standing
from plan.platform import Platform
from platform_config.errors import ConfigErrors
from platform_config.reading import given
from rules.cluster_identity import another_cluster
from rules.load import load_platform


def main() -> None:
    """Register the platform of the selected stack. A bad configuration registers nothing and prints every error."""
    try:
        platform = load_platform(
            given(pulumi.Config().get("platform")),
            project=pulumi.Config("gcp").get("project"),
            stack=pulumi.get_stack(),
            keys=pulumi.runtime.get_config_env(),
        )
        refuse_another_cluster(platform)
    except ConfigErrors as errors:
        raise pulumi.RunError(str(errors)) from None

    gc.disable()  # the provider SDKs allocate a million long-lived objects; scanning them doubles the import time
    from components.platform import build

    importlib.import_module(f"components.{platform.backend}.back_end")  # build() imports it

    gc.freeze()
    gc.enable()
    for name, value in build(platform).items():
        pulumi.export(name, value)


def refuse_another_cluster(platform: Platform) -> None:
    """Raise ConfigErrors where the platform would replace the existing cluster."""
    if errors := another_cluster(platform, read_standing()):
        raise ConfigErrors(errors, f"stack {pulumi.get_stack()}")


main()
