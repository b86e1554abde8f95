"""Makes `destroy` of a protected platform fail before it has deleted anything.

The engine deletes in rounds, dependents first, and refuses a protected resource only in that resource's round. By then
it has deleted everything without dependents, queues for example. But the engine keeps what a protected resource depends
on. So one resource that nobody edits depends on all others, and is protected if any other is.
"""

from collections.abc import Sequence

import pulumi

from plan.platform import Platform


def protected(platform: Platform) -> pulumi.ResourceOptions:
    """Options of a component that a protected platform must keep: its children inherit the protection."""
    return pulumi.ResourceOptions(protect=platform.protect)


def registered_resources() -> list[pulumi.Resource]:
    """A list that grows with each custom resource that the program registers."""
    found: list[pulumi.Resource] = []

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        if isinstance(args.resource, pulumi.CustomResource):
            found.append(args.resource)

    pulumi.runtime.register_stack_transformation(note)
    return found


class Protection(pulumi.ComponentResource):
    """Depends on `everything`, so `destroy` reaches it first. It has no counterpart in the cloud.

    Where nothing is protected it is registered unprotected. Without it, a stack that turns protection off would have to
    delete a resource that is still protected in the state, which the engine refuses.
    """

    TYPE = "tpu:platform:Protection"

    def __init__(self, name: str, *, platform: Platform, everything: Sequence[pulumi.Resource]) -> None:
        protect = platform.protect or any(plan.protect for plan in platform.slice_plans)
        super().__init__(self.TYPE, name, None, pulumi.ResourceOptions(depends_on=list(everything), protect=protect))
        self.register_outputs({})
