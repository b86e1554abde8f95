"""The environment and the arguments of a container, as a kubelet derives them from the pod and what it refers to.

Different: of a pod's own fields (`fieldRef`) those in FIELDS are known, and no `resourceFieldRef`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping

from sandbox.kubernetes.api import ApiClient, Object
from sandbox.kubernetes.hosting import ContainerError

FIELDS: Mapping[str, Callable[[Object], str]] = {
    "metadata.name": lambda pod: str(pod["metadata"]["name"]),
    "metadata.namespace": lambda pod: str(pod["metadata"]["namespace"]),
    "metadata.uid": lambda pod: str(pod["metadata"]["uid"]),
    "spec.nodeName": lambda pod: str(pod["spec"]["nodeName"]),
    "spec.serviceAccountName": lambda pod: str(pod["spec"].get("serviceAccountName", "default")),
}
CONFIG_ERROR = "CreateContainerConfigError"
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def environment(client: ApiClient, pod: Object, container: Object) -> dict[str, str]:
    """All variables of a container. Raises ContainerError for what is missing and not optional."""
    namespace = pod["metadata"]["namespace"]
    found: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        data = _source(client, namespace, source, "configMapRef", "secretRef")
        found |= {f"{prefix}{key}": value for key, value in (data or {}).items()}
    for variable in container.get("env") or []:
        value = _value(client, pod, variable)
        if value is not None:
            found[variable["name"]] = _expanded(value, found)
    return found


def arguments(container: Object, variables: Mapping[str, str]) -> list[str]:
    """The container's arguments with its variables filled in."""
    return [_expanded(each, variables) for each in container.get("args") or []]


def _value(client: ApiClient, pod: Object, variable: Object) -> str | None:
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if field := source.get("fieldRef", {}).get("fieldPath"):
        if field not in FIELDS:
            raise ContainerError(CONFIG_ERROR, f"the sandbox does not know the field {field} of a pod")
        return FIELDS[field](pod)
    reference = source.get("configMapKeyRef") or source.get("secretKeyRef")
    if reference is None:
        raise ContainerError(CONFIG_ERROR, f"the sandbox does not know the source of the variable {variable['name']}")
    namespace = pod["metadata"]["namespace"]
    data = _source(client, namespace, source, "configMapKeyRef", "secretKeyRef")
    if data is None or reference["key"] in data or reference.get("optional"):
        return data.get(reference["key"]) if data else None
    kind = "ConfigMap" if "configMapKeyRef" in source else "Secret"
    named = f"{kind} {namespace}/{reference['name']}"
    raise ContainerError(CONFIG_ERROR, f"couldn't find key {reference['key']} in {named}")


def _source(client: ApiClient, namespace: str, source: Object, of_map: str, of_secret: str) -> dict[str, str] | None:
    """The data of the ConfigMap or Secret that a source refers to; None for an optional one that is not there."""
    kind, reference = ("ConfigMap", source[of_map]) if of_map in source else ("Secret", source[of_secret])
    found = client.get("v1", kind, reference["name"], namespace)
    if found is None:
        if reference.get("optional"):
            return None
        raise ContainerError(CONFIG_ERROR, f'{kind.lower()} "{reference["name"]}" not found')
    data: dict[str, str] = found.get("data") or {}
    return data if kind == "ConfigMap" else {key: base64.b64decode(value).decode() for key, value in data.items()}


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Text with $(NAME) replaced; a name that is not known stays as it is, and $$ is a single $."""

    def replaced(match: re.Match[str]) -> str:
        return variables.get(match[1], match[0]) if match[1] else "$"

    return _REFERENCE.sub(replaced, text)
