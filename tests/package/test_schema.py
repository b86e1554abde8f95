"""The schema of the package fits what the component takes and gives."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from package.provider import SCHEMA, TYPE, PlatformProvider
from plan import multikueue
from plan.program_version import program_version
from platform_config.platform import PlatformConfig
from platform_config.reading import stack_name
from tests.graph.recording import STACK_FILES
from tests.package.program import platform_of, program
from tools.component_schema import FURTHER
from tools.schema import models, title

PACKAGE = json.loads(SCHEMA.read_text())
PLATFORM = PACKAGE["resources"][TYPE]
SCALARS = {"string": str, "integer": int | float, "number": int | float, "boolean": bool}


def misfits(value: Any, type_: dict[str, Any], path: str) -> Iterator[str]:
    """Paths below which a value is not of Pulumi's type."""
    if alternatives := type_.get("oneOf"):
        if all(list(misfits(value, each, path)) for each in alternatives):
            yield path
    elif "$ref" in type_:
        inside = PACKAGE["types"][type_["$ref"].removeprefix("#/types/")]
        yield from misfits_of_object(value, inside["properties"], inside["required"], path)
    elif type_["type"] == "array" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from misfits(item, type_["items"], f"{path}[{index}]")
    elif type_["type"] == "object" and isinstance(value, dict):
        for key, item in value.items():
            yield from misfits(item, type_["additionalProperties"], f"{path}.{key}")
    elif type_["type"] not in SCALARS or not isinstance(value, SCALARS[type_["type"]]):
        yield path


def misfits_of_object(value: Any, properties: dict[str, Any], required: list[str], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield path
        return
    yield from (f"{path}.{key}" for key in {*value.keys() - properties.keys(), *set(required) - value.keys()})
    for key in value.keys() & properties.keys():
        yield from misfits(value[key], properties[key], f"{path}.{key}")


@pytest.mark.parametrize("path", STACK_FILES, ids=stack_name)
def test_stack_files_fit_the_inputs(path: Path) -> None:
    wrong = misfits_of_object(platform_of(path), PLATFORM["inputProperties"], PLATFORM["requiredInputs"], "")
    assert list(wrong) == []


def test_what_does_not_fit_is_found() -> None:
    inputs = platform_of(STACK_FILES[0]) | {"zon": "a", "protect": "no", "network": {"kin": "none"}}
    del inputs["zone"]
    found = set(misfits_of_object(inputs, PLATFORM["inputProperties"], PLATFORM["requiredInputs"], ""))
    assert found == {".zon", ".zone", ".protect", ".network"}


def test_every_model_and_key_has_its_type() -> None:
    types = {token.rpartition(":")[2]: set(node["properties"]) for token, node in PACKAGE["types"].items()}
    types[title(PlatformConfig)] = {*PLATFORM["inputProperties"], "project"}
    expected = {model.__name__: set(model.model_fields) for model in models() if model is not PlatformConfig}
    assert types == expected | {title(PlatformConfig): set(PlatformConfig.model_fields)}


def test_inputs_take_no_values_of_other_resources() -> None:
    """Else the graph would wait for them, and that of a first preview would not be that of the update."""

    def types(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            if "$ref" in node or (isinstance(node.get("type"), str) and "properties" not in node):
                yield node
            for inside in node.values():
                yield from types(inside)
        elif isinstance(node, list):
            for inside in node:
                yield from types(inside)

    found = [*types(PLATFORM["inputProperties"]), *types(PACKAGE["types"])]
    assert len(found) > len(PACKAGE["types"])
    assert all(node["plain"] for node in found)


def test_outputs_are_what_stacks_export() -> None:
    exported = {key for path in STACK_FILES for key in program(path, False).exports} | {multikueue.STACK_OUTPUT}
    assert exported == set(PLATFORM["properties"])
    always = set.intersection(*(set(program(path, False).exports) for path in STACK_FILES))
    assert always == set(PLATFORM["required"]) == exported - FURTHER.keys()


def test_the_package_is_of_the_programs_version() -> None:
    provider = PlatformProvider()
    assert provider.version == PACKAGE["version"] == program_version()
    assert json.loads(provider.schema or "") == PACKAGE
