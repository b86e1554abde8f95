"""How the program asks Google something while it runs."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import pulumi


async def ask_google(function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function of the gcp provider. Raises Exception with the provider's words where it fails.

    Not by the SDK's own functions: they give Outputs, whose failure ends the program even where it is expected, and
    which make a secret of what is only kept beside secrets. The version is that of the resources' own provider.
    """
    options = pulumi.InvokeOptions(version=importlib.metadata.version("pulumi-gcp"))
    answer: dict[str, Any] = await pulumi.runtime.invoke_async(function, dict(arguments), options)
    return answer
