"""Reads `Pulumi.<stack>.yaml` without Pulumi, as Pulumi does."""

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from platform_config import engine_yaml
from platform_config.errors import ConfigError, ConfigErrors

PROJECT_NAME = "tpu-platform"
"""Name of the Pulumi project: keys without a namespace are the project's."""


ENGINE_KEYS = {"config", "environment", "secretsprovider", "encryptedkey", "encryptionsalt"}
"""Keys of a stack file that the engine knows."""


def read(path: Path) -> dict[str, Any]:
    """The configuration in a stack file, by full key, as the engine passes it to a program: mappings and lists
    unchanged, everything else as text. Raises ConfigErrors where the engine cannot read it, or where `config:` is
    misspelt, so that the engine would read nothing."""
    try:
        content = engine_yaml.document(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise _refused(path, "there is no such file", "pulumi stack init makes it; -f takes another file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, f"cannot be read: {error}", "check the file") from None
    except engine_yaml.Refused as error:
        raise _refused(path, error.message, error.hint) from None
    config = content.get("config") if isinstance(content, dict) else content
    for mapping in (content, config):
        for key in mapping if isinstance(mapping, dict) else ():
            if isinstance(key, engine_yaml.NotText):
                raise _refused(path, f"has the key {key}, which is not text", "write the name of a setting")
    if isinstance(content, dict) and "config" not in content and (strange := content.keys() - ENGINE_KEYS):
        key = min(strange)
        hint = "did you mean config:?" if get_close_matches(key, ["config"], 1) else f"write config: above {key}:"
        raise _refused(
            path, f"has {key[:60]}: and no config:", f"{hint} gcp:project and tpu-platform:platform are below it"
        )
    if content is not None and (not isinstance(content, dict) or not isinstance(config, dict | None)):
        raise _refused(path, "has no config: mapping", "put gcp:project and tpu-platform:platform below config:")
    read: dict[str, Any] = {}
    for key, value in (config or {}).items():
        full = full_key(path, key)
        if full in read:
            raise _refused(path, f"has {full} twice, as {key} too", "keep one of the two")
        read[full] = value if isinstance(value, dict | list) else _text(value)
    return read


def full_key(path: Path, key: str) -> str:
    """`platform` is the project's own key, and `a:config:b` an older spelling of `a:b`."""
    parts = key.split(":") if ":" in key else [PROJECT_NAME, key]
    if len(parts) == 3 and parts[1] == "config":
        parts = [parts[0], parts[2]]
    if len(parts) != 2 or not re.fullmatch(r"\S.*", key, re.DOTALL):
        raise _refused(path, f"has the key {key[:60]!r}", "keys below config: are NAMESPACE:NAME, such as gcp:project")
    return ":".join(parts)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value)


def _refused(path: Path, message: str, hint: str) -> ConfigErrors:
    return ConfigErrors([ConfigError(path.name, message, hint)])
