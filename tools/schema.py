"""JSON Schema of a whole `Pulumi.<stack>.yaml`, made from the configuration models: editors complete and check it."""

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel

from platform_config.platform import PLATFORM_KEY, PlatformConfig
from platform_config.reading import PROJECT_ID, PROJECT_KEY

NULL = {"type": "null"}


def stack_file_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a stack file; keys of other Pulumi packages are let pass."""
    platform = platform_schema()
    definitions = platform.pop("$defs")
    definitions[title(PlatformConfig)] = platform
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of a TPU platform",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": [PROJECT_KEY, PLATFORM_KEY],
                "properties": {
                    PROJECT_KEY: {
                        "type": "string",
                        "pattern": f"^(?:{PROJECT_ID})$",
                        "description": "Google Cloud project id.",
                    },
                    PLATFORM_KEY: {"$ref": f"#/$defs/{title(PlatformConfig)}"},
                },
            }
        },
        "$defs": dict(sorted(definitions.items())),
    }


def platform_schema() -> dict[str, Any]:
    """The schema of the platform by itself: without the project, which has a key of its own, and with descriptions."""
    schema = PlatformConfig.model_json_schema()
    del schema["properties"]["project"]
    schema["required"].remove("project")
    definitions = {PlatformConfig.__name__: schema, **schema["$defs"]}
    for model in models():
        properties = definitions[model.__name__]["properties"]
        for key, description in field_descriptions(model).items():
            if key in properties:
                properties[key]["description"] = description
    return _tidy(schema)  # type: ignore[no-any-return]


def title(model: type[BaseModel]) -> str:
    """What the schema and the page call a model."""
    return model.model_config.get("title") or model.__name__


def render() -> str:
    """The schema as it is committed."""
    return json.dumps(stack_file_schema(), indent=2) + "\n"


def _tidy(node: Any) -> Any:
    """Without what pydantic adds for programs (titles, unset values in defaults), and closed where names are."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _tidy(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
    if "default" in node:
        node["default"] = _set_values(node["default"])
        if node["default"] in (None, [], {}):
            del node["default"]
    if "patternProperties" in node:
        node["additionalProperties"] = False
    return _with_null(node)


def _with_null(node: dict[str, Any]) -> dict[str, Any]:
    """A value or nothing: as one schema, where the value is no model. The loader takes `key: null` as unset, and so
    does the schema."""
    alternatives = [item for item in node.get("anyOf", ()) if item != NULL]
    if len(alternatives) != 1 or NULL not in node["anyOf"] or "type" not in alternatives[0]:
        return node
    del node["anyOf"]
    node = {**alternatives[0], **node, "type": [alternatives[0]["type"], "null"]}
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node:
        node["enum"] = [*node["enum"], None]
    return node


def _set_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _set_values(item) for key, item in value.items() if item is not None}
    return [_set_values(item) for item in value] if isinstance(value, list) else value


def models(root: type[BaseModel] = PlatformConfig) -> Iterator[type[BaseModel]]:
    """A model and every model below it, each once, in the order in which keys name them."""
    seen: set[type[BaseModel]] = set()
    waiting = [root]
    while waiting:
        model = waiting.pop(0)
        if model not in seen:
            seen.add(model)
            yield model
            waiting += [found for field in model.model_fields.values() for found in _models_in(field.annotation)]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field of a model and of its bases.

    Read from the source here rather than by pydantic at import (`use_attribute_docstrings`), which would make every
    start of the program parse its own source.
    """
    descriptions: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            descriptions |= _class_docs(inspect.getmodule(base)).get(base.__name__, {})
    return descriptions


@cache
def _class_docs(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """By class and field: the string literal that follows a field."""
    tree = ast.parse(inspect.getsource(module)) if module else ast.Module([], [])
    return {
        node.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
