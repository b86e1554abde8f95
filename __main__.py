"""One stack = one TPU platform: read `tpu-platform:platform`, check all of it, register the graph, export its facts."""

import gc
import importlib

import pulumi

from components.standing import read_standing
from spec.errors import SpecErrors
from spec.load import given, load_platform
from spec.platform import Platform
from spec.standing import another_cluster


def main() -> None:
    """Register the platform of the selected stack; a bad configuration registers nothing and prints every error."""
    try:
        platform = load_platform(
            given(pulumi.Config().get("platform")),
            project=pulumi.Config("gcp").get("project"),
            stack=pulumi.get_stack(),
            keys=pulumi.runtime.get_config_env(),
        )
        refuse_another_cluster(platform)
    except SpecErrors as errors:
        raise pulumi.RunError(str(errors)) from None

    gc.disable()  # importing the provider SDKs allocates a million long-lived objects; scanning them doubles the time
    from components.platform import build

    importlib.import_module(f"components.{platform.backend}")  # what build() is going to import

    gc.freeze()
    gc.enable()
    for name, value in build(platform).items():
        pulumi.export(name, value)


def refuse_another_cluster(platform: Platform) -> None:
    """Raise SpecErrors where the platform would be another cluster than the one that stands."""
    if errors := another_cluster(platform, read_standing()):
        raise SpecErrors(errors, f"stack {pulumi.get_stack()}")


main()
