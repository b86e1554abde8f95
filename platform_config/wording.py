"""Turns pydantic's errors into the path in the stack file, what is wrong there, and what to write instead."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, Tag
from pydantic_core import ErrorDetails

from platform_config import other_words
from platform_config.capacity import Reservation
from platform_config.errors import ConfigError
from platform_config.fields import shown
from platform_config.platform import PlatformConfig, below
from platform_config.slice import Slice

WRITE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text; quote what YAML reads as something else",
    "dict_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "finite_number": "a number",
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "string_too_short": "some text",
    "too_long": "at most {max_length} characters or entries",
    "too_short": "at least {min_length} of them",
}
"""What to write instead, by pydantic's type of error, with that error's context filled in."""

FOREIGN = {Slice: other_words.SLICE, PlatformConfig: other_words.PLATFORM, Reservation: other_words.RESERVATION}
"""By model: keys of other tools, and what to write instead."""

UNKNOWN_KEY = "unknown key"
MISSING = "is missing"

DECISIVE = ("machine_type", "generation", "topology", "chips", "count", "capacity")
"""Keys of a slice that a key which the program does not know may stand for."""

TAGS = ("kind", "model")
"""Keys that select an alternative of a union."""


class Place(NamedTuple):
    """Where an error is: `path` as written, `value` found there, `model` whose keys are possible there.

    `field`: keys down to the innermost field, or entry of a mapping of models, that has the value. `alternatives`: all
    models that are possible for the value, or in place of `model`. `bare`: the name that stands for a whole model.
    """

    path: str
    field: tuple[str, ...]
    key: str
    value: Any
    model: type[BaseModel] | None
    alternatives: tuple[type[BaseModel], ...]
    bare: str | None


def translated(detail: ErrorDetails, raw: Mapping[str, Any]) -> ConfigError:
    """Pydantic's error about a raw platform, in our words; it names the alternative that an unknown key is of."""
    place = _place(detail["loc"], raw, ends_in_key=detail["type"] == "extra_forbidden")
    message, hint, suffix = _words(detail, place)
    return ConfigError(below(place.path + suffix), message, hint)


def field_of(location: tuple[int | str, ...], raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys down to the innermost field that has what pydantic's location names."""
    return _place(location, raw, ends_in_key=False).field


def unknown_fields(detail: ErrorDetails, raw: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The fields whose values are unknown because of an error. A misspelt key is also the one that was meant."""
    if detail["type"] != "extra_forbidden":
        return [field_of(detail["loc"], raw)]
    place = _place(detail["loc"], raw, ends_in_key=True)
    if place.field[-1:] != (place.key,):
        return [place.field]
    message, hint = _unknown_key(place)
    found = meant(ConfigError(place.path, message, hint))
    others: Sequence[str] = [found.rpartition(".")[2]] if found else []
    if place.model is Slice and not (found and message == UNKNOWN_KEY):
        others = DECISIVE  # another tool's key may stand for several
    written = _at(raw, place.field[:-1])
    return [place.field, *((*place.field[:-1], key) for key in others if key not in written)]


def _at(raw: Mapping[str, Any], field: tuple[str, ...]) -> Mapping[str, Any]:
    value: Any = raw
    for key in field:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _words(detail: ErrorDetails, place: Place) -> tuple[str, str, str]:
    """Message, hint, and what to append to the path."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "refused":
        return context["message"], context["hint"], ""
    if kind == "missing":
        bare = f"write {{model: {place.bare}, {place.key}: {place.key.upper()}}}"
        return MISSING, bare if place.bare else f"add {place.key}:", ""
    if kind == "extra_forbidden":
        return *_unknown_key(place), ""
    if kind == "literal_error":
        expected = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
        return f"{shown(place.value)} is not possible here", similar(str(place.value), expected), ""
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_alternative(context, place)
    if kind in WRITE:
        instead = f"write {WRITE[kind].format(**context)}"
        if place.value is None:
            instead += ", or leave the key out"
        return f"{shown(place.value)} is not possible here", instead, ""
    return f"{shown(place.value)}: {detail['msg']}", "see docs/configuration.md", ""


def _unknown_key(place: Place) -> tuple[str, str]:
    """A key that is unknown here, but may belong to an alternative: other clusters do not have GKE's settings."""
    owners = [f"{key}: {tag}" for other in place.alternatives for key, tag in _tags(other) if _has(other, place.key)]
    if owners:
        return f"is a setting of {' or '.join(owners)}", f"leave it out, or write {' or '.join(owners)}"
    if word := FOREIGN.get(place.model, {}).get(place.key) if place.model else None:
        return f"unknown key: {word.why}", word.instead
    return UNKNOWN_KEY, similar(place.key, _keys(place.model))


def _has(model: type[BaseModel], key: str) -> bool:
    return key in model.model_fields


def _tags(model: type[BaseModel]) -> list[tuple[str, str]]:
    """Key and value by which a value in a stack file selects this model."""
    return [(key, tag) for key in TAGS if _has(model, key) for tag in get_args(model.model_fields[key].annotation)]


def _wrong_alternative(context: Mapping[str, Any], place: Place) -> tuple[str, str, str]:
    """A union of models whose selecting key has an unknown value, or none."""
    key = context["discriminator"].strip("'")
    known = [tag for model in place.alternatives for _, tag in _tags(model)]
    given = place.value.get(key) if isinstance(place.value, dict) else place.value
    suffix = f".{key}" if isinstance(place.value, dict) else ""
    if Reservation in place.alternatives and (instead := other_words.CAPACITY_MODELS.get(str(given).lower())):
        return f"{shown(given)} is not possible here", f"write {instead}", suffix
    if not isinstance(place.value, dict):
        return f"{shown(place.value)} is not possible here", similar(str(place.value), known), ""
    if key not in place.value:
        return "is missing", f"one of {', '.join(known)}", f".{key}"
    return f"{shown(given)} is not possible here", similar(str(given), known), f".{key}"


def meant(error: ConfigError) -> str | None:
    """Path of the key that an unknown key is suggested to be."""
    found = re.match(r"did you mean (\w+)\?$|write (\w+): ", error.hint)
    if not error.message.startswith(UNKNOWN_KEY) or not found:
        return None
    return f"{error.path.rpartition('.')[0]}.{found[1] or found[2]}"


def similar(given: str, known: Sequence[str]) -> str:
    """A hint at the value that was meant, or else at all that are possible."""
    close = get_close_matches(given.lower(), known, 1) or get_close_matches(given.upper(), known, 1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"


def _keys(model: type[BaseModel] | None) -> list[str]:
    return [key for key in model.model_fields if key != "project" or model is not PlatformConfig] if model else []


def _place(location: tuple[int | str, ...], raw: Mapping[str, Any], *, ends_in_key: bool) -> Place:
    """Follows pydantic's location through the model and the raw value in parallel.

    Pydantic's locations also contain tags that nobody wrote: alternatives of unions and marks of mapping keys. A bare
    value has index 0 where a list is expected. `ends_in_key`: the last part is always a key that a person wrote.
    """
    annotation: Any = PlatformConfig
    value: Any = raw
    path, key, model = "", "", None
    field: tuple[str, ...] = ()
    inside_field = False
    union: tuple[type[BaseModel], ...] = ()
    bare: str | None = None
    for index, part in enumerate(location):
        annotation = _plain(annotation)
        alternative = next((member for member in _members(annotation) if part in dict(_tags(member)).values()), None)
        if alternative is not None:
            union, annotation = _members(annotation), alternative
            bare = value if isinstance(value, str) else None
        elif isinstance(part, int):
            annotation, inside_field = get_args(annotation)[0], True
            if isinstance(value, list):
                path, value = f"{path}[{part}]", value[part]
        elif part in (forms := _forms(annotation)):  # the form of a limit, which nobody wrote
            annotation, inside_field = forms[part], True
        elif part != "[key]" or ends_in_key or index < len(location) - 1 or model is not None or not path:
            model, annotation = _inside(annotation, part)
            inside_field = inside_field or (model is None and not _is_model(annotation))
            field = field if inside_field else (*field, part)
            path, key = f"{path}.{part}" if path else part, part
            value = value.get(part) if isinstance(value, dict) else None
    # The location ends at the union itself, or at a key of the last alternative.
    return Place(
        path, field, key, value, model, _members(_plain(annotation)) or (union if model in union else ()), bare
    )


def _plain(annotation: Any) -> Any:
    """An annotation without its metadata and without None."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    members = [member for member in get_args(annotation) if member is not NoneType]
    if NoneType in get_args(annotation) and len(members) == 1:
        return _plain(members[0])
    return annotation


def _members(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models of a union; none of any other annotation."""
    members = map(_plain, get_args(annotation))
    return tuple(member for member in members if isinstance(member, type) and issubclass(member, BaseModel))


def _is_model(annotation: Any) -> bool:
    plain = _plain(annotation)
    return bool(_members(plain)) or (isinstance(plain, type) and issubclass(plain, BaseModel))


def _forms(annotation: Any) -> dict[str, Any]:
    """The alternatives of a union that have names of their own, by name."""
    return {
        item.tag: member
        for member in get_args(annotation)
        if get_origin(member) is Annotated
        for item in get_args(member)[1:]
        if isinstance(item, Tag)
    }


def _inside(annotation: Any, part: str) -> tuple[type[BaseModel] | None, Any]:
    """The model that has `part` as a key (None for a mapping with free keys), and the type found there."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(part)
        return annotation, field.annotation if field else Any
    arguments = get_args(annotation)
    return None, arguments[-1] if arguments else Any
