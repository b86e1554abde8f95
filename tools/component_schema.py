"""Pulumi's schema of the component package, made from the configuration models: programs in other languages get their
types from it, and Pulumi YAML checks programs with it.

It has what such a schema can say: types, keys, required keys. Forms, bounds and rules are checked when the component is
constructed, as those of a stack file. Inputs are plain, since the graph is planned from their values.
"""

import json
from typing import Any

from package.provider import TYPE
from plan import multikueue
from plan.program_version import program_version
from platform_config.stack_file import PROJECT_NAME
from tools.schema import NULL, platform_schema

ANY = {"$ref": "pulumi.json#/Any"}
TEXT = {"type": "string"}


def mapping(inside: dict[str, Any]) -> dict[str, Any]:
    """Names to values."""
    return {"type": "object", "additionalProperties": inside}


OUTPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "cluster": (mapping(TEXT), "The cluster: name, location, endpoint, and the command that connects to it."),
    "kubeconfig": (TEXT, "How to reach the cluster; no credential is in it."),
    "slices": (mapping(ANY), "What each group of slices is: machine type, topology, hosts, chips, price, node pools."),
    "queues": (mapping(ANY), "Namespaces of each queue, and the slices that it owns."),
    "totals": (mapping(ANY), "Slices, hosts, chips and price of the platform."),
    "program": (mapping(TEXT), "The version of the package."),
}
"""What every platform has: type and meaning. As a stack's outputs."""
FURTHER: dict[str, tuple[dict[str, Any], str]] = {
    "ready": (mapping({"type": "boolean"}), "Without GKE: whether each group of hosts has all of them."),
    "hosts": (mapping({"type": "array", "items": TEXT}), "Without GKE: names of the hosts of each group of slices."),
    "images": (mapping(TEXT), "Addresses of the registries of images."),
    "storage": (mapping(ANY), "Addresses of the teams' buckets, and whether they are kept on destroy."),
    multikueue.STACK_OUTPUT: (TEXT, "Of a worker: how its manager reaches it."),
}
"""What some platforms have."""


def package_schema() -> dict[str, Any]:
    """The schema, https://www.pulumi.com/docs/iac/guides/building-extending/packages/schema/."""
    platform = platform_schema()
    return {
        "name": PROJECT_NAME,
        "displayName": "TPU platform",
        "version": program_version(),
        "description": "A TPU platform on Google Cloud: a Kubernetes cluster, its slices, and queues in front of them.",
        "language": {"nodejs": {"respectSchemaVersion": True}, "python": {"respectSchemaVersion": True}},
        "types": {token(name): object_type(node) for name, node in sorted(platform["$defs"].items())},
        "resources": {
            TYPE: {
                "isComponent": True,
                "description": _words(platform["description"]),
                "inputProperties": properties(platform),
                "requiredInputs": platform["required"],
                "properties": {
                    key: {**type_, "description": text} for key, (type_, text) in (OUTPUTS | FURTHER).items()
                },
                "required": sorted(OUTPUTS),
            }
        },
    }


def token(model: str) -> str:
    """The type token of a model."""
    return f"{PROJECT_NAME}:index:{model}"


def object_type(node: dict[str, Any]) -> dict[str, Any]:
    """The type of a model."""
    return {
        "type": "object",
        "description": _words(node["description"]),
        "properties": properties(node),
        "required": node.get("required", []),
    }


def properties(node: dict[str, Any]) -> dict[str, Any]:
    """Type and meaning of each key of a model."""
    return {key: {**type_of(inside), "description": described(inside)} for key, inside in node["properties"].items()}


def described(node: dict[str, Any]) -> str:
    """The meaning of a key, with what its type does not say: its values and its default."""
    sentences = [_words(node.get("description", ""))]
    values = [node["const"]] if "const" in node else node.get("enum", [])
    if listed := [f"`{value}`" for value in values if value is not None]:
        sentences.append(f"One of {', '.join(listed)}.")
    if not isinstance(node.get("default", {}), dict | list):
        sentences.append(f"Default: `{json.dumps(node['default'])}`.")
    return " ".join(filter(None, sentences))


def type_of(node: dict[str, Any]) -> dict[str, Any]:
    """Pulumi's type of a value in JSON Schema. Null needs no type: a key with null counts as unset."""
    if "$ref" in node:
        return {"$ref": f"#/types/{token(node['$ref'].rpartition('/')[2])}", "plain": True}
    if alternatives := node.get("anyOf") or node.get("oneOf"):
        kinds = [type_of(each) for each in alternatives if each != NULL]
        return kinds[0] if len(kinds) == 1 else {"oneOf": kinds, "plain": True}
    kind = node["type"]
    if isinstance(kind, list):
        [kind] = (each for each in kind if each != "null")
    if kind == "array":
        return {"type": kind, "items": type_of(node["items"]), "plain": True}
    if kind == "object":
        [inside] = node.get("patternProperties", {}).values() or [node["additionalProperties"]]
        return {"type": kind, "additionalProperties": type_of(inside), "plain": True}
    return {"type": kind, "plain": True}


def _words(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def render() -> str:
    """The schema as it is committed."""
    return json.dumps(package_schema(), indent=2) + "\n"
