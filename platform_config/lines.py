"""In which line of a stack file each setting is."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from platform_config import stack_file
from platform_config.engine_yaml import MERGE, Loader
from platform_config.errors import ConfigErrors


@dataclass(frozen=True)
class Lines:
    """Lines of a stack file, counted from 1, by path as in `ConfigError.path`."""

    by_path: Mapping[str, int]

    def of(self, path: str) -> int | None:
        """The line of a setting, or of the innermost mapping that it is missing in."""
        for end in range(len(path), 0, -1):
            if (end == len(path) or path[end] in ".[") and path[:end] in self.by_path:
                return self.by_path[path[:end]]
        return self.by_path.get("")


def lines_of(path: Path, meant: Mapping[str, str]) -> Lines | None:
    """The lines of a stack file that can be read; None of any other.

    `meant`: by key as the program names it, the key that the file has for it.
    """
    try:
        config = stack_file.read(path)
        document = yaml.compose(path.read_text(encoding="utf-8-sig"), Loader=Loader)
    except (ConfigErrors, OSError, ValueError, yaml.YAMLError):
        return None
    found: dict[str, int] = {"": 1}
    doubtful: set[str] = set()
    for key, node in _pairs(document):
        if key.value == "config":
            found[""] = _line(key)
            for name, value in _pairs(node):
                full = stack_file.full_key(path, name.value)
                for called in {
                    full,
                    *(other for other, there in meant.items() if there == full and other not in config),
                }:
                    for where, line in ((called, _line(name)), *_inside(called, value)):
                        if found.setdefault(where, line) != line:
                            doubtful.add(where)
    return Lines({where: line for where, line in found.items() if where not in doubtful})


def lines_if_same(path: Path, config: Mapping[str, Any], meant: Mapping[str, str]) -> Lines | None:
    """The lines of a stack file if it has what a program was given, else None: `--config-file` names another file."""
    try:
        written = stack_file.read(path)
    except ConfigErrors:
        return None
    same = all(_value(written.get(key)) == _value(config.get(key)) for key in meant.values())
    return lines_of(path, meant) if same else None


def _value(value: Any) -> Any:
    """A value of the configuration, whether it is text, or JSON as the engine passes mappings on."""
    try:
        return json.loads(value if isinstance(value, str) else json.dumps(value))
    except (ValueError, RecursionError):
        return value


def _inside(path: str, node: Any) -> Iterator[tuple[str, int]]:
    """Path and line of everything in a value."""
    for key, value in _pairs(node):
        inner = f"{path}.{key.value}"
        yield inner, _line(key)
        yield from _inside(inner, value)
    for index, item in enumerate(node.value if isinstance(node, yaml.SequenceNode) else ()):
        yield f"{path}[{index}]", _line(item)
        yield from _inside(f"{path}[{index}]", item)


def _pairs(node: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping; own keys, then those of mappings that it merges."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    own = {key.value for key, _ in pairs}
    for key, value in pairs:
        if key.value != MERGE:
            yield key, value
            continue
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            for inherited in _pairs(source):
                if inherited[0].value not in own:
                    own.add(inherited[0].value)
                    yield inherited


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
