"""Reads a platform and checks all rules."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plan.platform import Platform
from platform_config import stack_file
from platform_config.errors import ConfigError, ConfigErrors
from platform_config.lines import Lines, lines_of
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import (
    ENCRYPTED,
    PROJECT_KEY,
    given,
    is_project,
    key_errors,
    keys_meant,
    parse,
    project_errors,
    secret_paths,
    stack_name,
)
from platform_config.wording import MISSING, meant
from rules.check import check

NO_LINES = Lines({})


def load_platform(
    raw: object,
    *,
    project: object,
    stack: str = "",
    others: Iterable[ConfigError] = (),
    lines: Callable[[], Lines | None] = lambda: None,
) -> Platform:
    """The platform in `raw`, the value of `tpu-platform:platform` as YAML or JSON gives it.

    `project` is the value of `gcp:project`; the headline of errors names `stack`. `others` are errors that the reader
    of the configuration found. `lines` gives the lines of the stack file, if that is known; it is asked if there are
    errors. Raises ConfigErrors with everything that is wrong, in form and by the rules, in the order of the file.
    """
    errors = [*project_errors(project), *others]
    written, malformed = parse(raw, project if isinstance(project, str) and is_project(project) else None)
    misspelt = {meant(error) for error in malformed}
    errors += (error for error in malformed if error.path not in misspelt or error.message != MISSING)
    platform = Platform.of(written) if written else None
    if platform is not None:
        errors += (error for error in check(platform) if error.path not in misspelt)
    if errors or platform is None:
        raise in_order(errors, lines(), stack)
    return platform


def load_configuration(config: Mapping[str, Any], *, stack: str, lines: Callable[[], Lines | None]) -> Platform:
    """The platform of a configuration, by full key; mappings may be JSON. See `load_platform`."""
    keys = keys_meant(config)
    raw, project = config.get(keys[PLATFORM_KEY]), config.get(keys[PROJECT_KEY])
    platform = given(raw) if isinstance(raw, str) else raw
    return load_platform(platform, project=project, stack=stack, others=key_errors(config), lines=lines)


def load_stack_file(path: Path) -> Platform:
    """The platform in a `Pulumi.<stack>.yaml`, read without Pulumi. Raises ConfigErrors, also where it has none."""
    config = stack_file.read(path)
    stack, keys = stack_name(path), keys_meant(config)
    secrets = [where for key in keys.values() for where in secret_paths(config.get(key), key)]
    try:
        platform = load_configuration(config, stack=stack, lines=lambda: lines_of(path, keys))
    except ConfigErrors as errors:
        others = [each for each in errors.errors if not any(_is_within(each.path, where) for where in secrets)]
    else:
        if not secrets:
            return platform
        others = []
    raise in_order([*others, *(ConfigError(where, *ENCRYPTED) for where in secrets)], lines_of(path, keys), stack)


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def in_order(errors: Iterable[ConfigError], lines: Lines | None, stack: str) -> ConfigErrors:
    """The errors in the order of the stack file, each with its line, if these are known."""
    located = [replace(error, line=(lines or NO_LINES).of(error.path)) for error in errors]
    return ConfigErrors(sorted(located, key=lambda error: error.line or 0), f"stack {stack}" if stack else "")
