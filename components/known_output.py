"""Values that Google computes, which the state may lack."""

from typing import Any, TypeVar

import pulumi

T = TypeVar("T")


def unknown_if_absent(output: pulumi.Output[T]) -> pulumi.Output[T]:
    """An output of a resource that Google computes; unknown, as in a first preview, where the state has no value.

    The state has none of a resource whose creation was cut short, until the next update has read it.
    """

    def or_unknown(value: Any) -> Any:
        return pulumi.UNKNOWN if value is None else value

    return output.apply(or_unknown)
