"""Quick import of the protocol stubs in `pulumi.runtime.proto`."""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType


def without_sdk() -> None:
    """Make `pulumi.runtime.proto` importable without the SDK's own start-up code (0.3 s of no use to a plugin).

    For plugin processes only: afterwards `import pulumi` yields an empty package in this interpreter.
    """
    spec = importlib.machinery.PathFinder.find_spec("pulumi")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the Pulumi SDK is not installed: pip install -r requirements-dev.txt")
    [root] = spec.submodule_search_locations
    for name, path in {"pulumi": root, "pulumi.runtime": f"{root}/runtime"}.items():
        package = ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
