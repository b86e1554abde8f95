"""Reads the resources that exist already, from the stack's state."""

import os
from collections.abc import Mapping
from typing import Any

import pulumi

from plan.stack_state import Standing

READ_OUTPUTS = "pulumi:pulumi:readStackOutputs"
READ_RESOURCES = "pulumi:pulumi:readStackResourceOutputs"
"""Functions of the engine itself. They register nothing, and read the state of any stack; here, of this one."""

GO_ON = "TPU_PLATFORM_UNREAD_STATE"
"""Environment variable. With the value `go-on` the program continues without the stack's state (docs/operations.md)."""


def read_standing() -> Standing:
    """The resources in the stack's state, before this update. Raises RunError where they cannot be read."""
    if os.environ.get(GO_ON) == "go-on":
        pulumi.log.warn(f"{GO_ON}=go-on: it is not checked whether this update would replace the cluster")
        return Standing({})
    try:
        # A new stack may have no state. The engine then crashes when asked for the stack's resources, but not when
        # asked for its outputs. An update has a state: `_ask` waits for its first resource.
        if pulumi.runtime.is_dry_run() and not _ask(READ_OUTPUTS, "name"):
            return Standing({})
        resources = _ask(READ_RESOURCES, "stackName")
    except Exception as error:
        raise pulumi.RunError(
            f"stack {pulumi.get_stack()}: its state cannot be read, so it is unknown whether this would replace "
            f"the cluster: {error} -> try again; to continue without the check, set {GO_ON}=go-on"
        ) from None
    return Standing({urn: resource.get("outputs") or {} for urn, resource in resources.items()})


def _ask(function: str, argument: str) -> Mapping[str, Any]:
    """Calls an engine function once the stack itself is registered; an update then has it in the state."""
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{pulumi.get_stack()}"
    root = pulumi.runtime.get_root_resource()
    if root is None:
        raise pulumi.RunError("the program was not started by the engine")
    answer = pulumi.runtime.invoke(function, {argument: root.urn.apply(lambda _: stack)})
    found: Mapping[str, Any] = answer.value["outputs"]
    return found
