"""A platform of which some settings could not be read. It lacks those fields: to look at one raises UnknownValueError.

So a rule needs no care for what is malformed: the findings that it makes before it looks at an unknown value hold, and
there it ends.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from platform_config.fields import Model, Unread
from platform_config.platform import PlatformConfig
from platform_config.wording import field_of

# Required settings of which only the value is unknown, so that the rest of their mapping can be read.
STAND_INS: dict[tuple[str, ...], Any] = {
    ("project",): "unknown-project0",
    ("zone",): "unknown-region1-a",
    ("cluster", "server"): "https://unknown",
    ("cluster", "ca"): "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
    ("cluster", "join_secret"): "projects/unknown/secrets/join",
    ("cluster", "access_secret"): "projects/unknown/secrets/access",
    ("queues", "*", "namespaces"): ["unknown"],
}

Some = TypeVar("Some", bound=Model)
Field = tuple[str, ...]
"""Keys from the platform down to a field, or down to an entry of a mapping of models."""


def partial(raw: dict[str, Any], unknown: Iterable[Field]) -> tuple[PlatformConfig | None, list[ErrorDetails]]:
    """The platform without its unknown fields, and errors that only show without them; None if nothing can be read."""
    hidden = set(unknown)
    further: list[ErrorDetails] = []
    while True:
        rest = _without(raw, hidden)
        try:
            platform = PlatformConfig.model_validate(rest)
        except ValidationError as error:
            found = set()
            for detail in error.errors(include_url=False):
                field = field_of(detail["loc"], rest)
                if field in hidden:  # what is required is hidden, so the whole mapping is
                    found.add(field[:-1])
                else:
                    found.add(field)
                    further.append(detail)
            if () in found or found <= hidden:
                return None, further
            hidden |= found
        else:
            for field in hidden:
                platform = _hidden(platform, field)
            return platform, further


def _without(raw: dict[str, Any], hidden: set[Field]) -> dict[str, Any]:
    """The raw platform without hidden fields, or with stand-ins for them."""
    rest = dict(raw)
    for field in hidden:
        inside: Any = rest
        for key in field[:-1]:
            if not isinstance(inside.get(key), dict):
                break
            inside[key] = dict(inside[key])
            inside = inside[key]
        else:
            inside.pop(field[-1], None)
            stand_in = STAND_INS.get((field[0], "*", *field[2:]) if field[0] == "queues" else field)
            if stand_in is not None and (field[0] != "cluster" or inside.get("kind") == "existing"):
                inside[field[-1]] = stand_in
    return rest


def _hidden(model: Some, field: Field) -> Some:
    """A copy of the model in which the field is unknown."""
    key, *inner = field
    if key not in model.__dict__:
        return model
    if not inner:
        return without(model, key)
    value = getattr(model, key)
    if isinstance(value, dict):
        name, *inner = inner
        entry = value.get(name)
        known = {other: each for other, each in value.items() if other != name}
        # Last, so that rules see all known entries first.
        return model.model_copy(
            update={key: known | {name: _hidden(entry, tuple(inner)) if entry and inner else Unread()}}
        )
    if isinstance(value, Model):
        return model.model_copy(update={key: _hidden(value, tuple(inner))})
    return without(model, key)


def without(model: Some, *keys: str) -> Some:
    """A copy of the model in which these fields are unknown."""
    copy = model.model_copy()
    for key in keys:
        copy.__dict__.pop(key, None)
    copy.__pydantic_fields_set__.update(keys)
    return copy


def is_whole(value: object) -> bool:
    """Whether everything in a model is known."""
    if isinstance(value, Unread):
        return False
    if isinstance(value, Model):
        fields = type(value).model_fields
        return fields.keys() <= value.__dict__.keys() and all(is_whole(value.__dict__[field]) for field in fields)
    return all(map(is_whole, _inside(value)))


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, tuple | list):
        yield from value
