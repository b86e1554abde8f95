"""Reads a platform from its configuration, and reports all errors of form at once."""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from platform_config.errors import ConfigError
from platform_config.fields import MOST_LEVELS, MOST_VALUES, shown
from platform_config.partial import STAND_INS, partial
from platform_config.platform import PLATFORM_KEY, PlatformConfig, below
from platform_config.stack_file import PROJECT_NAME
from platform_config.wording import UNKNOWN_KEY, translated, unknown_fields

PROJECT_KEY = "gcp:project"
PROJECT_ID = r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"

KNOWN_KEYS = (PROJECT_KEY, PLATFORM_KEY)
CLOSE = 0.75
"""How much a misspelt name of a setting has in common with the right one."""
MOST_ERRORS = 100
"""Most errors of form that are shown at once."""
ENCRYPTED = ("is encrypted, so only Pulumi can read it", "nothing in a platform is a secret: set it without --secret")


def given(text: str | None) -> object:
    """The value of a key as the engine passes it: JSON. Other text stays text, and is refused later."""
    try:
        return json.loads(text, parse_constant=_refuse_constant) if text else None
    except (ValueError, RecursionError):
        return text


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def secret_paths(value: object, path: str) -> Iterator[str]:
    """Paths of encrypted values; only the engine has the key."""
    if isinstance(value, dict):
        if value.keys() == {"secure"} and isinstance(value["secure"], str):
            yield path
            return
        for key, item in value.items():
            yield from secret_paths(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from secret_paths(item, f"{path}[{index}]")


def stack_name(path: Path) -> str:
    """The stack that a `Pulumi.<stack>.yaml` configures."""
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def project_errors(project: object) -> Iterator[ConfigError]:
    if not project:
        yield ConfigError(PROJECT_KEY, "is missing", "pulumi config set gcp:project YOUR-PROJECT")
    elif not is_project(project):
        hint = "the id, not the display name or the number"
        yield ConfigError(PROJECT_KEY, f"{shown(project)} is not a project id", hint)


def is_project(project: object) -> bool:
    return isinstance(project, str) and re.fullmatch(PROJECT_ID, project) is not None


def keys_meant(config: Mapping[str, Any]) -> dict[str, str]:
    """For each key that the program reads, the key of the configuration that has its value, perhaps misspelt."""
    return {key: key if key in config else _close(config, key) or key for key in KNOWN_KEYS}


def _close(config: Mapping[str, Any], key: str) -> str | None:
    """A key that looks like this one, by its namespace and its name."""
    namespace, _, name = key.partition(":")
    for other in config:
        there, _, called = other.partition(":")
        # The engine reads a key without a namespace as one of the project's own.
        alike = there == PROJECT_NAME or get_close_matches(there, [namespace], 1)
        if other not in KNOWN_KEYS and alike and get_close_matches(called, [name], 1, CLOSE):
            return other
    return None


def key_errors(config: Mapping[str, Any]) -> Iterator[ConfigError]:
    """What is wrong with the keys of a configuration: misspelt, or beside the platform instead of below it."""
    meant = keys_meant(config)
    for key, there in meant.items():
        if key != there:
            yield ConfigError(there, UNKNOWN_KEY, f"did you mean {key}?")
    for key in config if meant[PLATFORM_KEY] in config else ():
        namespace, _, name = key.partition(":")
        if namespace == PROJECT_NAME and name in PlatformConfig.model_fields and key not in meant.values():
            yield ConfigError(key, "is beside the platform", f"write {name}: below {PLATFORM_KEY}:")


def parse(raw: object, project: str | None) -> tuple[PlatformConfig | None, list[ConfigError]]:
    """The platform, and its errors of form.

    It lacks what could not be read (`platform_config.partial`), so that rules can check the rest. `project`: None if it
    is unknown.
    """
    if raw is None:
        return None, [
            ConfigError(
                PLATFORM_KEY, "is missing", "python -m tools init STACK writes it; docs/configuration.md has every key"
            )
        ]
    if not isinstance(raw, dict):
        return None, [ConfigError(PLATFORM_KEY, "is not a mapping", "write keys below it, such as zone:")]
    if _is_beyond_measure(raw):
        hint = f"write at most {MOST_LEVELS} levels and {MOST_VALUES:,} values"
        return None, [ConfigError(PLATFORM_KEY, "is too deep or too large", hint)]
    errors = []
    if "project" in raw:
        errors.append(
            ConfigError(below("project"), "unknown key", f"the project is set once for all, as {PROJECT_KEY}")
        )
    raw = {**_with_text_keys(raw), "project": project or STAND_INS[("project",)]}
    unknown: list[tuple[str, ...]] = [] if project else [("project",)]
    details: list[ErrorDetails] = []
    try:
        platform = PlatformConfig.model_validate(raw)
        if project:
            return platform, errors
    except ValidationError as error:
        details = _deepest(error.errors(include_url=False))
    errors += (translated(detail, raw) for detail in details[:MOST_ERRORS])
    if len(details) > MOST_ERRORS:
        hint = "correct those above first"
        errors.append(ConfigError(PLATFORM_KEY, f"has {len(details) - MOST_ERRORS} more errors of form", hint))
        return None, errors
    rest, further = partial(raw, [*unknown, *(field for detail in details for field in unknown_fields(detail, raw))])
    return rest, errors + [translated(detail, raw) for detail in further]


def _is_beyond_measure(raw: object) -> bool:
    """Whether there are too many values, or too many levels. An object in several places counts in each."""
    level: list[object] = [raw]
    values = 0
    for _ in range(MOST_LEVELS):
        inside: list[object] = []
        for value in level:
            if isinstance(value, dict | list):
                inside += value.values() if isinstance(value, dict) else value
                if values + len(inside) > MOST_VALUES:
                    return True
        values += len(inside)
        level = inside
    return bool(level)


def _deepest(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Errors without those that follow from errors further inside: if all entries of a list are bad, the list is not
    too short."""
    inner = {detail["loc"][:length] for detail in details for length in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in inner]


def _with_text_keys(value: Any) -> Any:
    """Turns all keys into text: YAML reads the key in `1: ...` as a number, but it is a name."""
    if isinstance(value, dict):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value
