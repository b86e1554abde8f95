"""Reads a platform and checks all rules."""

from collections.abc import Iterable
from pathlib import Path

from plan.platform import Platform
from platform_config import stack_file
from platform_config.errors import ConfigError, ConfigErrors
from platform_config.platform import PLATFORM_KEY, below
from platform_config.reading import (
    ENCRYPTED,
    MARKS,
    PLACEHOLDERS,
    PROJECT_KEY,
    given,
    is_project,
    parse,
    project_errors,
    secret_paths,
    stack_name,
)
from platform_config.wording import meant
from rules.check import check


def load_platform(raw: object, *, project: str | None, stack: str = "", keys: Iterable[str] = ()) -> Platform:
    """The platform in `raw`, the value of `tpu-platform:platform` as YAML or JSON gives it.

    `project` is the value of `gcp:project`; the headline of errors names `stack`. `keys` are all keys of the
    configuration, to suggest the one that was misspelt. Raises ConfigErrors with everything that is wrong, in form and
    by the rules.
    """
    errors = list(project_errors(project))
    known = project if project and is_project(project) else PLACEHOLDERS["project"]
    written, malformed = parse(raw, known, keys)
    errors += malformed
    platform = Platform.of(written) if written else None
    if platform is not None:
        kind_known = not any(error.path in (below("cluster"), below("cluster.kind")) for error in malformed)
        found = check(platform, complete=not malformed, backend=platform.backend if kind_known else None)
        misspelt = {meant(error) for error in malformed}
        # A finding about a placeholder, or about the default of a misspelt key, says nothing about what a person wrote.
        errors += (
            error
            for error in found
            if error.path not in misspelt and not any(mark in error.message + error.hint for mark in MARKS)
        )
    if errors or platform is None:
        raise ConfigErrors(errors, f"stack {stack}" if stack else "")
    return platform


def load_stack_file(path: Path) -> Platform:
    """The platform in a `Pulumi.<stack>.yaml`, read without Pulumi. Raises ConfigErrors, also where it has none."""
    config = stack_file.read(path)
    raw, project = config.get(PLATFORM_KEY), config.get(PROJECT_KEY)
    if secrets := list(secret_paths(raw, PLATFORM_KEY)) + list(secret_paths(project, PROJECT_KEY)):
        raise ConfigErrors([ConfigError(where, *ENCRYPTED) for where in secrets], f"stack {stack_name(path)}")
    platform = given(raw) if isinstance(raw, str) else raw
    return load_platform(platform, project=project, stack=stack_name(path), keys=config)
