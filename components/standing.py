"""What stands already, as the engine knows it from the last update."""

from collections.abc import Mapping
from typing import Any

import pulumi

from spec.standing import Standing

READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"
READ_RESOURCES = "pulumi:pulumi:readStackResourceOutputs"
"""Functions of the engine itself. They register nothing, and read the state of any stack; here, of this one."""


def read_standing() -> Standing:
    """The resources of the stack's own state, before this update; none where nobody can read them, with a warning."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    try:
        # A stack that an older CLI has made, and nothing was ever done with, has no state at all: the engine breaks
        # down when it is asked for its resources, but not when it is asked for its outputs.
        if pulumi.runtime.is_dry_run() and not _ask(READ_OUTPUTS, {"name": stack}):
            return Standing({})
        resources = _ask(READ_RESOURCES, {"stackName": stack})
    except Exception as error:
        pulumi.log.warn(f"whether another cluster would replace the one that stands is not checked: {error}")
        return Standing({})
    return Standing({urn: resource.get("outputs") or {} for urn, resource in resources.items()})


def _ask(function: str, arguments: Mapping[str, str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = pulumi.runtime.invoke(function, dict(arguments)).value["outputs"]
    return found
