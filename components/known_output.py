"""Outputs that Google computes, which the state may lack."""

from typing import Any, TypeVar

import pulumi

T = TypeVar("T")


def unknown_if_absent(output: pulumi.Output[T]) -> pulumi.Output[T]:
    """An output that Google computes; unknown, as in a first preview, where the state has no value.

    The state has no value after the creation of a resource was interrupted, until the next update reads the resource.
    """

    def or_unknown(value: Any) -> Any:
        return pulumi.UNKNOWN if value is None else value

    return output.apply(or_unknown)
