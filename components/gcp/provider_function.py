"""Calls to Google while the program runs."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import pulumi


async def ask_google(function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function of the gcp provider. Raises Exception with the provider's message where it fails.

    The SDK's own functions do not fit. They return Outputs, whose failure ends the program even where it is expected,
    and which mark values beside secrets as secret. The version is that of the resources' own provider.
    """
    options = pulumi.InvokeOptions(version=importlib.metadata.version("pulumi-gcp"))
    answer: dict[str, Any] = await pulumi.runtime.invoke_async(function, dict(arguments), options)
    return answer
