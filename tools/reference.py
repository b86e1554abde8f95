"""Reference pages made from the program: every configuration key, and every rule a platform must satisfy."""

import json
import math
from collections.abc import Iterator
from typing import Any

from catalogue import topology
from catalogue.generations import GENERATIONS, MACHINES, Generation, HostImage, Machine
from plan.shape import shape
from platform_config.platform import PLATFORM_KEY, PlatformConfig
from rules.check import SCOPES
from rules.invariants import GROUP_INVARIANTS, INVARIANTS, Invariant
from rules.load import load_stack_file
from rules.registry import Rule
from tools.dashboard_picture import dashboard_picture
from tools.drawing import svg
from tools.generated import ROOT
from tools.monitoring_page import monitoring_page, monitoring_queries_page
from tools.page_entry import entry
from tools.permission_page import permissions_page
from tools.policies_page import policies_page
from tools.schema import NULL, models, platform_schema, title

NOTE = "<!-- Made by `python -m tools docs --write`; edit the models or rules instead. -->"


def configuration_page() -> str:
    """docs/configuration.md: one table for each model."""
    schema = platform_schema()
    definitions = {PlatformConfig.__name__: schema, **schema["$defs"]}
    lines = [
        "# Configuration",
        "",
        NOTE,
        "",
        f"Everything below is one object, `{PLATFORM_KEY}` in `Pulumi.<stack>.yaml`; the project is `gcp:project`.",
        "Editors complete and check it after `# yaml-language-server: $schema=schema/platform.schema.json` in line 1.",
        "Values mean what they mean to Pulumi's engine, not to YAML 1.1: `yes` and `off` are text, `010` is 8.",
        "Days and moments may be written with or without quotes.",
        "`python -m tools explain -s <stack>` shows what follows from it. [rules.md](rules.md) lists what is refused.",
    ]
    for model in models():
        if model.__name__ in definitions:
            definition = definitions[model.__name__]
            lines += _section(title(model), definition)
    return "\n".join(lines) + "\n"


def _section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"## {name}", "", " ".join(schema.get("description", "").partition("\n\n")[0].split()), "")
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    required = schema.get("required", [])
    # What tells alternatives apart comes first, although models inherit it last.
    for key, property_ in sorted(schema["properties"].items(), key=lambda item: item[0] not in ("kind", "model")):
        default = "**required**" if key in required else _default(property_)
        yield f"| `{key}` | {_value(property_)} | {default} | {_cell(property_.get('description', ''))} |"


def _value(schema: dict[str, Any]) -> str:
    """What a key takes, in words, with links to the models it may hold; that it may be empty goes without saying."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        return " or ".join(dict.fromkeys(_value(item) for item in alternatives if item != NULL))
    if "items" in schema:
        return f"list of {_value(schema['items'])}"
    if schema.get("type") == "object":
        inner = next(iter(schema.get("patternProperties", {}).values()), schema.get("additionalProperties"))
        return f"mapping of names to {_value(inner)}" if isinstance(inner, dict) else "mapping"
    return _cell(_scalar(schema))


def _scalar(schema: dict[str, Any]) -> str:
    words = {"boolean": "true or false", "integer": "whole number", "number": "number", "string": "text"}[_type(schema)]
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
        if key in schema
    ]
    pattern = [f"`{_pattern(schema['pattern'])}`"] if "pattern" in schema else []
    return " ".join([words, *bounds, *pattern])


def _type(schema: dict[str, Any]) -> str:
    """The type of a scalar, without null."""
    types = schema["type"]
    return str(next(name for name in types if name != "null") if isinstance(types, list) else types)


def _pattern(pattern: str) -> str:
    """Without what says that the whole text must match. A group that only ends the pattern stays whole."""
    if pattern.startswith("^(?:") and pattern.endswith(")$"):
        return pattern.removeprefix("^(?:").removesuffix(")$")
    return pattern.removeprefix("^").removesuffix("$")


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    # A nested object's own table shows its defaults.
    return "see there" if isinstance(default, dict) else _cell(f"`{json.dumps(default)}`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def topologies_page() -> str:
    """docs/topologies.md: generations, machine types and the slices they build."""
    lines = [
        "# Generations, machine types and topologies",
        "",
        NOTE,
        "",
        "A slice has the product of its topology in chips, on as many hosts as that takes. Prices are estimates.",
        "",
        "| generation | accelerator label | a chip | a pod | boot disks | flex-start | DRA | first GKE | without GKE "
        "| zones seen | USD per chip-hour |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *map(_generation_row, GENERATIONS.values()),
        "",
        "| machine type | chips | vCPU, memory | by itself | slices of several hosts (hosts) |",
        "|---|---|---|---|---|",
        *map(_machine_row, MACHINES.values()),
    ]
    return "\n".join(lines) + "\n"


def _without_gke(generation: Generation) -> str:
    images = generation.without_gke
    return f"image `{images.family}`" if isinstance(images, HostImage) else f"no: {images.reason}"


def _generation_row(generation: Generation) -> str:
    price = generation.price
    cells = (
        generation.name,
        f"`{generation.accelerator}`",
        _chip(generation),
        f"{generation.pod_chips:,} chips",
        ", ".join(generation.boot_disks),
        "yes" if generation.dws else "no",
        "yes" if generation.dra else "no",
        generation.min_version or "any",
        _without_gke(generation),
        ", ".join(generation.zones),
        f"{price.amount:.2f} ({price.as_of}); spot about {generation.spot_factor:.0%}" if price else "unknown",
    )
    return f"| {' | '.join(cells)} |"


def _chip(generation: Generation) -> str:
    fp8 = f", {generation.fp8_tflops:,} fp8" if generation.fp8_tflops else ""
    return f"{generation.hbm_gib} GiB HBM, {generation.bf16_tflops:,} TFLOP/s bf16{fp8}"


def _machine_row(machine: Machine) -> str:
    return (
        f"| {machine.name} | {machine.chips} | {machine.vcpus}, {machine.memory_gb} GB | {machine.topology} "
        f"| {_slices_of_several(machine)} |"
    )


def _slices_of_several(machine: Machine) -> str:
    if not machine.multi_host:
        return "none"
    cubes = machine.generation.cubes
    named = topology.SMALL_SHAPES_3D if cubes else topology.SHAPES_2D
    several = [shape(machine, dims) for dims in named if math.prod(dims) > machine.chips]
    listed = ", ".join(f"{found.topology} ({found.hosts})" for found in several)
    return (
        f"{listed}, and AxBxC of multiples of 4, A <= B <= C <= 256, at most {cubes} 4x4x4 cubes" if cubes else listed
    )


ABOUT = {None: "any cluster", "gke": "GKE", "compute": "without GKE"}
"""By back end of a rule: which clusters it is about."""


def rules_page() -> str:
    """docs/rules.md: what is refused and what is warned of, with the reason and who states it upstream."""
    lines = [
        "# Rules",
        "",
        NOTE,
        "",
        "A platform that breaks a rule is refused before anything is created, with the path in the stack file, what is",
        "wrong and what to write instead; all errors come at once. Warnings are shown by `python -m tools explain`.",
        "A rule is about any cluster, about GKE, or about clusters without GKE: `kind: self-managed` and `existing`.",
    ]
    sections: tuple[tuple[str, list[Rule[Any]]], ...] = (
        *((heading, list(scope.rules)) for heading, scope in SCOPES.items()),
    )
    for heading, rules in sections:
        lines += ["", f"## {heading}", ""]
        lines += [
            entry(rule.id, f"{rule.level}, {ABOUT[rule.backend]}", rule.reason, f"*Source: {rule.source}.*")
            for rule in rules
        ]
    lines += ["", "## Invariants", "", "No configuration can break these.", ""]
    invariants: list[Invariant[Any]] = [*INVARIANTS, *GROUP_INVARIANTS]
    lines += [entry(rule.id, "always", rule.statement, f"*Source: {rule.source}.*") for rule in invariants]
    return "\n".join(lines) + "\n"


PAGES = {
    "configuration.md": configuration_page,
    "policies.md": lambda: policies_page(NOTE),
    "permissions.md": permissions_page,
    "monitoring.md": monitoring_page,
    "monitoring-queries.md": monitoring_queries_page,
    "pictures/dashboard.svg": dashboard_picture,
    "pictures/platform.svg": lambda: svg(load_stack_file(ROOT / "Pulumi.team.yaml")),
    "rules.md": rules_page,
    "topologies.md": topologies_page,
}
