"""What an object is called, where it lies, and what its `pulumi.com/` annotations ask for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sandbox.kubernetes.api import Object
from sandbox.plugins.provider import ProviderError, Subject

AUTONAMED = "pulumi.com/autonamed"
PATCH_FORCE = "pulumi.com/patchForce"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT = "pulumi.com/timeoutSeconds"
WAIT_FOR = "pulumi.com/waitFor"


def type_of(subject: Subject) -> tuple[str, str]:
    """API version and kind from a type such as `kubernetes:apps/v1:Deployment` or `kubernetes:core/v1:Namespace`."""
    _, module, kind = subject.type.split(":", 2)
    group, _, version = module.rpartition("/")
    if not group:
        raise ProviderError(f"{subject.type}: expected kubernetes:GROUP/VERSION:KIND")
    if kind.endswith("Patch"):
        raise ProviderError(f"{subject.type}: the sandbox's stand-in knows no Patch resources")
    return (version if group == "core" else f"{group}/{version}"), kind


def group_of(obj: Mapping[str, Any]) -> str:
    """The API group, empty for the core group."""
    return str(obj.get("apiVersion", "")).rpartition("/")[0]


def identity(obj: Object) -> str:
    """The resource's id: "namespace/name", or the name alone of an object outside namespaces."""
    metadata = obj["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def annotations_of(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations; empty where there are none, or where they are not known yet."""
    metadata = obj.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def is_true(obj: Mapping[str, Any], annotation: str) -> bool:
    return annotations_of(obj).get(annotation) == "true"


def made_name(name: str, seed: bytes) -> str:
    """A name where the program gives none: the resource's own and 8 hexadecimal digits of the engine's seed."""
    return f"{name}-{(seed or secrets.token_bytes(4)).hex()[:8]}"


def named(subject: Subject, inputs: Object, olds: Object, seed: bytes) -> Object:
    """The inputs' metadata with a name. One made here is kept from update to update, and marked by an annotation."""
    metadata: Object = inputs["metadata"]
    if metadata.get("name"):
        return metadata
    name = olds["metadata"]["name"] if is_true(olds, AUTONAMED) else made_name(subject.name, seed)
    return {**metadata, "name": name, "annotations": {**annotations_of(inputs), AUTONAMED: "true"}}


def same_place(old: Object, new: Object) -> bool:
    """Whether a new object would stand where the old one is, under a name that the program chose."""
    before, after = old.get("metadata", {}), new["metadata"]
    return not is_true(new, AUTONAMED) and all(before.get(key) == after.get(key) for key in ("name", "namespace"))
