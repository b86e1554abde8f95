"""Reads a platform from its configuration, and reports all errors of form at once."""

import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from platform_config.errors import ConfigError
from platform_config.fields import MOST_LEVELS, MOST_VALUES, shown
from platform_config.platform import PLATFORM_KEY, PlatformConfig, below
from platform_config.slice import Slice
from platform_config.wording import translated

PROJECT_KEY = "gcp:project"
PROJECT_ID = r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]"

# Placeholders for what is missing or malformed, so that everything else can still be checked. They break no rule: the
# zone is in no table, and the network's ranges are large.
PLACEHOLDERS: dict[str, Any] = {
    "project": "unknown-project0",
    "zone": "unknown-region1-a",
    "network": {
        "kind": "existing",
        "network": "n",
        "subnetwork": "n",
        "pods_range": "n",
        "services_range": "n",
        "nodes_cidr": "11.0.0.0/8",
        "pods_cidr": "64.0.0.0/3",
        "services_cidr": "12.0.0.0/12",
    },
}
MARKS = ("unknown-project0", "unknown-region1")
# The same for required keys of an existing cluster.
CLUSTER_PLACEHOLDERS = {
    "server": "https://unknown",
    "ca": "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
    "join_secret": "projects/unknown/secrets/join",
    "access_secret": "projects/unknown/secrets/access",
}
MOST_ERRORS = 100
"""Most errors of form that are shown at once."""
ENCRYPTED = ("is encrypted, so only Pulumi can read it", "nothing in a platform is a secret: set it without --secret")
DECISIVE = ("machine_type", "generation", "topology", "chips", "capacity")
"""Keys of a slice that most rules need: if one is malformed, the whole slice is left out."""


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


def parse(raw: object, project: str, keys: Iterable[str]) -> tuple[PlatformConfig | None, list[ConfigError]]:
    """The platform, and its errors of form. Malformed parts are left out, so that rules can check the rest."""
    if raw is None:
        close = get_close_matches(PLATFORM_KEY, [key for key in keys if key != PLATFORM_KEY], 1)
        hint = (
            f"write {PLATFORM_KEY} instead of {close[0]}"
            if close
            else "see docs/configuration.md; the least is a zone and a slice"
        )
        return None, [ConfigError(PLATFORM_KEY, "is missing", hint)]
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
    raw = {**_with_text_keys(raw), "project": project}
    try:
        return PlatformConfig.model_validate(raw), errors
    except ValidationError as error:
        details = _deepest(error.errors(include_url=False))
    errors += (translated(detail, raw) for detail in details[:MOST_ERRORS])
    if len(details) > MOST_ERRORS:
        hint = "correct those above first"
        errors.append(ConfigError(PLATFORM_KEY, f"has {len(details) - MOST_ERRORS} more errors of form", hint))
        return None, errors
    try:
        return PlatformConfig.model_validate(_without_malformed(raw, details)), errors
    except ValidationError:
        return None, errors


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


def _without_malformed(raw: dict[str, Any], details: list[ErrorDetails]) -> dict[str, Any]:
    """The raw platform without malformed settings; the whole part where other settings depend on a malformed one."""
    rest: dict[str, Any] = dict(raw)
    rest["slices"] = dict(raw["slices"]) if isinstance(raw.get("slices"), dict) else {}
    for detail in details:
        match detail["loc"]:
            case ("slices", str(name), str(key), *_) if key in Slice.model_fields and key not in DECISIVE:
                if name in rest["slices"]:
                    rest["slices"][name] = {k: v for k, v in rest["slices"][name].items() if k != key}
            case ("slices", str(name), *_):
                rest["slices"].pop(name, None)
            case ("cluster", str(), str(key), *_) if isinstance(rest.get("cluster"), dict):
                cluster = {k: v for k, v in rest["cluster"].items() if k != key}
                rest["cluster"] = cluster | ({key: CLUSTER_PLACEHOLDERS[key]} if key in CLUSTER_PLACEHOLDERS else {})
            case (str(section), *_) if section in PLACEHOLDERS:
                rest[section] = PLACEHOLDERS[section]
            case (str(section), *_):
                rest.pop(section, None)
    return rest
