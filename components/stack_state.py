"""What stands already, as the engine knows it from the last update."""

import os
from collections.abc import Mapping
from typing import Any

import pulumi

from plan.stack_state import Standing

READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"
READ_RESOURCES = "pulumi:pulumi:readStackResourceOutputs"
"""Functions of the engine itself. They register nothing, and read the state of any stack; here, of this one."""

GO_ON = "TPU_PLATFORM_UNREAD_STATE"
"""Environment variable that goes on without the stack's state, where it is `go-on` (docs/operations.md)."""


def read_standing() -> Standing:
    """The resources of the stack's own state, before this update. Raises RunError where they cannot be read."""
    if os.environ.get(GO_ON) == "go-on":
        pulumi.log.warn(f"{GO_ON}=go-on: not checked whether another cluster would replace the one that stands")
        return Standing({})
    try:
        # A new stack can be without any state. The engine breaks down when it is asked for the resources of such a
        # stack, but not when it is asked for its outputs. An update has a state: `_ask` waits for its first resource.
        if pulumi.runtime.is_dry_run() and not _ask(READ_OUTPUTS, "name"):
            return Standing({})
        resources = _ask(READ_RESOURCES, "stackName")
    except Exception as error:
        raise pulumi.RunError(
            f"stack {pulumi.get_stack()}: its state cannot be read, so nobody knows whether this would replace the "
            f"cluster that stands: {error} -> try again; to go on without the check, set {GO_ON}=go-on"
        ) from None
    return Standing({urn: resource.get("outputs") or {} for urn, resource in resources.items()})


def _ask(function: str, argument: str) -> Mapping[str, Any]:
    """What the engine finds, asked once it has registered the stack itself, which an update writes into the state."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    root = pulumi.runtime.get_root_resource()
    if root is None:
        raise pulumi.RunError("the program was not started by the engine")
    answer = pulumi.runtime.invoke(function, {argument: root.urn.apply(lambda _: stack)})
    found: Mapping[str, Any] = answer.value["outputs"]
    return found
