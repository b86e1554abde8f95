"""What makes `destroy` of a protected platform fail before it has touched anything.

The engine deletes in rounds, what stands on others first, and learns of a protected resource only when its turn comes:
by then the queues and all that nothing stands on are gone. What a protected resource depends on it spares. So one
resource that nobody edits depends on all others, and is protected where anything is.
"""

from collections.abc import Sequence

import pulumi

from plan.platform import Platform


def kept(platform: Platform) -> pulumi.ResourceOptions:
    """Options of a component that the platform cannot live without: its children inherit the protection."""
    return pulumi.ResourceOptions(protect=platform.protect)


def registered_from_now_on() -> list[pulumi.Resource]:
    """A list that grows with each custom resource that the program registers."""
    found: list[pulumi.Resource] = []

    def note(args: pulumi.ResourceTransformationArgs) -> None:
        if isinstance(args.resource, pulumi.CustomResource):
            found.append(args.resource)

    pulumi.runtime.register_stack_transformation(note)
    return found


class Protection(pulumi.ComponentResource):
    """Stands on `everything`, so that `destroy` meets it first. Nothing in the cloud belongs to it.

    It is registered unprotected where nothing is protected: a stack that loses its protection must not delete it, since
    the engine refuses that as for any protected resource.
    """

    TYPE = "tpu:platform:Protection"

    def __init__(self, name: str, *, platform: Platform, everything: Sequence[pulumi.Resource]) -> None:
        protect = platform.protect or any(plan.protect for plan in platform.slice_plans)
        super().__init__(self.TYPE, name, None, pulumi.ResourceOptions(depends_on=list(everything), protect=protect))
        self.register_outputs({})
