"""What the program reads of resources."""

from typing import Any, TypeVar

import pulumi

T = TypeVar("T")


def told(output: pulumi.Output[T]) -> pulumi.Output[T]:
    """What Google says of a resource; unknown, as in a first preview, where the state has only what was asked for.

    It has no more of a resource whose creation was cut short, until the next update has looked at it.
    """

    def or_unknown(value: Any) -> Any:
        return pulumi.UNKNOWN if value is None else value

    return output.apply(or_unknown)
