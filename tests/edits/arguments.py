"""The arguments that a configuration takes, how one is edited, and which of them differ between two configurations."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

Json = dict[str, Any]
ABSENT = object()


def put(content: Json, changes: Json) -> Json:
    """A copy of `content` with dotted keys set; ABSENT takes one away."""
    result: Json = json.loads(json.dumps(content))
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = result
        for step in parents:
            target = target.setdefault(step, {})
        if value is ABSENT:
            target.pop(last)
        else:
            target[last] = value
    return result


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in a field's type, alternatives and elements included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def arguments(model: type[BaseModel], prefix: str = "") -> set[str]:
    """The dotted path of every argument that a model takes, without positions and names of one's own."""
    found: set[str] = set()
    for name, each_field in model.model_fields.items():
        below = list(models_in(each_field.annotation))
        found |= {path for other in below for path in arguments(other, f"{prefix}{name}.")} or {prefix + name}
    return found


def written(value: Any, known: set[str], path: str = "") -> dict[str, list[Any]]:
    """What a configuration says by argument; a capacity model in shorthand is its `model`."""
    if path in known:
        return {path: [value]}
    if isinstance(value, str):
        return {f"{path}.model": [value]}
    parts = value.items() if isinstance(value, dict) else [("", item) for item in value]
    found: dict[str, list[Any]] = {}
    for key, item in parts:
        below = f"{path}.{key}".strip(".")
        is_argument = any(f"{argument}.".startswith(f"{below}.") for argument in known)
        for where, values in written(item, known, below if is_argument else path).items():
            found.setdefault(where, []).extend(values)
    return found


def edited(pairs: Iterable[tuple[Json, Json]], known: set[str]) -> set[str]:
    """The arguments that differ in some pair of configurations."""
    found: set[str] = set()
    for before, after in pairs:
        left, right = written(before, known), written(after, known)
        found |= {path for path in left.keys() | right.keys() if left.get(path) != right.get(path)}
    return found
