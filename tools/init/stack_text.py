"""The text of a new stack file, with comments that say what the platform will be."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from plan.platform import Platform
from plan.words import counted
from platform_config import engine_yaml, stack_file
from platform_config.platform import PLATFORM_KEY
from platform_config.reading import PROJECT_KEY
from platform_config.slice import Slice
from platform_config.stack_file import PROJECT_NAME
from tools.init.checks import SLICES
from tools.init.questions import BY_KEY, Answers


def text(platform: Platform, stack: str, kept: Mapping[str, Any]) -> str:
    """The stack file of a platform that `tools.init.checks.raw` describes.

    `kept`: what an existing file of the stack has besides, such as the salt of its secrets.
    """
    return "\n".join(_lines(platform, stack, kept)) + "\n"


def _lines(platform: Platform, stack: str, kept: Mapping[str, Any]) -> Iterator[str]:
    plan = platform.slice_plans[0]
    yield "# yaml-language-server: $schema=schema/platform.schema.json"
    yield f"# Made by `python -m tools init {stack}`; change it as you like. docs/configuration.md has every key, and"
    yield f"# `python -m tools explain -s {stack}` shows what follows from it."
    yield "config:"
    yield f"  {PROJECT_KEY}: {_word(platform.project)}"
    yield from _yaml(kept.get("config", {}), 2)
    yield f"  {PLATFORM_KEY}:"
    yield f"    name: {_word(platform.name)}  # every cloud name begins with it; two platforms of a project need two"
    yield f"    zone: {platform.zone}  # of all slices; the region follows from it"
    if platform.allow_unlisted_zone:
        yield "    allow_unlisted_zone: true"
    yield "    protect: true  # destroy, and plans that delete or replace a slice or the cluster, are refused"
    if platform.backend == "gke":
        yield "    cluster: {kind: gke}  # release_channel, version, authorized_networks ...: docs/configuration.md"
    else:
        yield "    cluster: {kind: self-managed}  # control plane, backups, hosts for controllers: docs/self-managed.md"
    yield "    slices:"
    yield f"      {SLICES}:"
    hosts, chips = counted(plan.hosts, "host"), counted(plan.chips, "chip")
    yield f"        machine_type: {plan.machine.name}"
    yield f"        topology: {plan.topology}  # {chips} of {plan.generation.name} on {hosts}; docs/topologies.md"
    yield f"        count: {plan.count}  # slices"
    yield f"        capacity: {_capacity(plan.spec)}  # docs/capacity.md"
    yield "    teams:  # a namespace each, with rights for its members: docs/teams.md"
    for team in platform.teams:
        yield f"      {_word(team)}: {{}}  # for example {{members: [user:eva@example.com]}}"
    yield "    queues:  # who may use which slices: docs/queues.md"
    for name, queue in platform.queues.items():
        yield f"      {_word(name)}: {_flow(queue.model_dump(mode='json', exclude_unset=True))}"
    yield from _yaml({key: value for key, value in kept.items() if key != "config"}, 0)


def _capacity(spec: Slice) -> str:
    (capacity,) = spec.capacity
    written = capacity.model_dump(mode="json", exclude_unset=True)
    return capacity.model if written.keys() == {"model"} else _flow(written)


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _word(value: str) -> str:
    """Text as YAML, in quotes where YAML would take it for something else."""
    return value if _is_text(value) else json.dumps(value)


def _is_text(value: str) -> bool:
    """Whether the engine reads it as text without quotes."""
    try:
        return bool(engine_yaml.document(value) == value)
    except engine_yaml.Refused:
        return False


def _yaml(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    for line in yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False).splitlines() if value else ():
        yield " " * indent + line


class _Dumper(yaml.SafeDumper):
    """Writes what the engine reads as the same values; to PyYAML, which follows YAML 1.1, `1e3` is no number."""


def _written(dumper: _Dumper, value: str) -> yaml.Node:
    return dumper.represent_scalar(f"{engine_yaml.STANDARD}str", value, None if _is_text(value) else '"')


def _written_plain(dumper: _Dumper, key: engine_yaml.NotText) -> yaml.Node:
    """A key that is a number stays one."""
    tag = dumper.resolve(yaml.ScalarNode, str(key), (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, str(key))


_Dumper.add_representer(str, _written)
_Dumper.add_representer(engine_yaml.NotText, _written_plain)


def existing(path: Path) -> tuple[list[str], dict[str, Any], Answers]:
    """Of a stack's file: the project's own keys that a new platform replaces, what is not the platform's, and answers
    that it has.

    `pulumi new` writes answers to the questions of Pulumi.yaml as settings of the project, those of its option
    `--config` under the name that the new project has. Raises ConfigErrors.
    """
    if not path.exists():
        return [], {}, {}
    stack_file.read(path)  # refuses what the engine refuses, and a misspelt `config:`
    content = engine_yaml.document(path.read_text(encoding="utf-8-sig")) or {}
    config = dict(content.get("config") or {})
    answers: Answers = {}
    if in_google := config.pop(PROJECT_KEY, None):
        answers["project"] = str(in_google)
    replaced, ours = [], {PROJECT_NAME, _project(path.with_name("Pulumi.yaml"))}
    for key in [*config]:
        namespace, name = stack_file.full_key(path, key).split(":")
        if namespace in ours:
            value = config.pop(key)
            if name not in BY_KEY or isinstance(value, dict | list):
                replaced.append(f"{namespace}:{name}")
            elif value not in (None, "") and (namespace != PROJECT_NAME or name not in answers):
                answers[name] = str(value)  # beside an option's answer `pulumi new` writes its default
    kept = {key: value for key, value in content.items() if key != "config"}
    return replaced, kept | ({"config": config} if config else {}), answers


def _project(file: Path) -> str:
    """The name of the Pulumi project; "" where nobody knows."""
    content = engine_yaml.document(file.read_text(encoding="utf-8-sig")) if file.exists() else None
    return str(content.get("name", "")) if isinstance(content, dict) else ""
