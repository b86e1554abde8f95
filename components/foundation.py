"""What a platform registers first, before the large parts of the provider SDKs are loaded."""

from dataclasses import dataclass

import pulumi

from components.gcp.enabled_apis import Services
from components.protection import registered_resources
from plan.platform import Platform


@dataclass(frozen=True)
class Foundation:
    """What everything else stands on. `everything` grows with each custom resource that the program registers."""

    services: Services
    everything: list[pulumi.Resource]


def lay_foundation(platform: Platform) -> Foundation:
    """Register the Google APIs of the platform."""
    everything = registered_resources()
    return Foundation(Services("services", platform=platform), everything)
