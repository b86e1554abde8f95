"""Turns the inputs of the component into what a stack file's platform would be."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
from pulumi.output import UNKNOWN as NOT_KNOWN
from pulumi.output import Unknown

from platform_config.errors import ConfigError, ConfigErrors
from platform_config.platform import PLATFORM_KEY

UNKNOWN = (
    "is not known before the update, so the resources that follow from it cannot be planned",
    "write the value itself, or read it from a configuration or another stack",
)
SECRET = ("is a secret", "nothing in a platform is a secret: pass the value without pulumi.secret()")


async def plain(inputs: pulumi.Inputs) -> dict[str, Any]:
    """The inputs without outputs, with whole numbers as such. Raises ConfigErrors for all that cannot be read.

    A value that is not known in the first preview is refused in every preview and update: with it, the graph of the
    preview would not be that of the update.
    """
    found = {key: await resolved(inputs[key]) for key in sorted(inputs)}
    if errors := [ConfigError(path, *what) for key, value in found.items() for path, what in unreadable(value, key)]:
        raise ConfigErrors(errors)
    return found


class Secret:
    """In place of a secret value."""


async def resolved(value: Any) -> Any:
    """A value without outputs. What is not known is an `Unknown` in it, what is secret a `Secret`."""
    if isinstance(value, pulumi.Output):
        if await value.is_secret():
            return Secret()
        inside = await value.future(with_unknowns=True)
        return await resolved(inside) if inside is not None or await value.is_known() else NOT_KNOWN
    if isinstance(value, dict):
        # Sorted, as the engine passes the keys of a configuration: those of inputs come in any order.
        return {str(key): await resolved(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [await resolved(item) for item in value]
    # The engine passes all numbers as floating point.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unreadable(value: Any, path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """The path of each value that is not known or secret, and what to say of it."""
    if isinstance(value, Unknown):
        yield path, UNKNOWN
    elif isinstance(value, Secret):
        yield path, SECRET
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from unreadable(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unreadable(item, f"{path}[{index}]")


def of_component(errors: ConfigErrors, name: str) -> ConfigErrors:
    """Errors of a platform with their paths in the component's inputs, instead of in a stack file."""
    prefix = f"{PLATFORM_KEY}."
    return ConfigErrors((replace(each, path=each.path.removeprefix(prefix)) for each in errors.errors), name)
