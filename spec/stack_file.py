"""Reads `Pulumi.<stack>.yaml` without Pulumi."""

from pathlib import Path
from typing import Any

import yaml

from spec.errors import SpecError, SpecErrors

# libyaml's parser where it is there: a thousand slices take a tenth of a second with it and two without.
_FastLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FastLoader):  # type: ignore[misc]
    """Refuses a key written twice, of which YAML would silently keep the last: a slice would be gone."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} is there twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)  # type: ignore[no-any-return]


def read(path: Path) -> dict[str, Any]:
    """The `config:` mapping of a stack file; raises SpecErrors for anything else."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except FileNotFoundError:
        raise _refused(path, "there is no such file", "pulumi stack init makes it; -f takes another file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(path, f"cannot be read: {error}", "check the file") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise _refused(
            path, f"is not YAML: {error.problem}{where}", "check indentation, quotes and brackets there"
        ) from None
    except yaml.YAMLError as error:
        raise _refused(path, f"is not YAML: {error}", "check the file") from None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise _refused(path, "has no config: mapping", "put gcp:project and tpu-platform:platform below config:")
    return config


def _refused(path: Path, message: str, hint: str) -> SpecErrors:
    return SpecErrors([SpecError(path.name, message, hint)])
