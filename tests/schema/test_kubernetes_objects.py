"""Every object that a stack puts into its cluster validates strictly against Kubernetes' and the CRDs' schemas."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from google.protobuf import json_format

from tests.graph.conftest import recorded
from tests.graph.recording import STACK_FILES

CRDS = Path(__file__).parents[1] / "data" / "crds"
KUBERNETES_VERSION = "1.36"
# Otherwise every object reads all of Kubernetes' definitions anew.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
RELEASE = "kubernetes:helm.sh/v3:Release"


def closed(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server does under strict validation."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and not open_ended:
        result["additionalProperties"] = False
    return result


@cache
def crd_schemas() -> dict[tuple[str, str], Any]:
    """Closed schemas of the CRDs, by (apiVersion, kind); `metadata` is the server's business."""
    found = {}
    for path in CRDS.glob("*.json"):
        crd = json.loads(path.read_text())
        for version, schema in crd["versions"].items():
            strict = closed(schema)
            strict["properties"]["metadata"] = {"type": "object"}
            # RE2 takes flags in the middle of a pattern, Python only at its start.
            text = json.dumps(strict).replace("^(?i)", "(?i)^")
            found[f"{crd['group']}/{version}", crd["kind"]] = json.loads(text)
    return found


@cache
def crd_validator(api_version: str, kind: str) -> Any:
    """The validator of a CRD's closed schema."""
    schema = crd_schemas()[api_version, kind]
    return jsonschema.validators.validator_for(schema)(schema)


def validate(manifest: dict[str, Any]) -> None:
    """Raise if the object is not valid, its unknown fields included."""
    key = manifest["apiVersion"], manifest["kind"]
    if key in crd_schemas():
        crd_validator(*key).validate(manifest)
    else:
        kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


def whole_numbers(value: Any) -> Any:
    """Protobuf has only floats; JSON schemas ask for integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    return value


def manifests(stack_file: Path) -> Iterator[dict[str, Any]]:
    """The Kubernetes objects that a stack registers, Helm releases aside."""
    for request in recorded(stack_file, preview=False).requests.values():
        if request.type.startswith("kubernetes:") and request.type != RELEASE:
            _, version, kind = request.type.split(":")
            manifest = whole_numbers(json_format.MessageToDict(request.object))
            yield {"apiVersion": version.removeprefix("core/"), "kind": kind, **manifest}


@pytest.mark.parametrize("stack_file", STACK_FILES, ids=lambda path: path.name.split(".")[1])
def test_objects_of_every_stack_are_valid(stack_file: Path) -> None:
    objects = list(manifests(stack_file))
    assert objects
    for manifest in objects:
        validate(manifest)


def test_an_unknown_field_of_a_built_in_kind_is_refused() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalisers": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(namespace)


@pytest.mark.parametrize("field", ["cohort", "admissionChecks"])
def test_fields_of_an_older_kueue_are_refused(field: str) -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "a"}}
    validate({**queue, "spec": {}})
    with pytest.raises(jsonschema.ValidationError, match=field):
        validate({**queue, "spec": {field: "x"}})
