"""Finds the pods of workloads, wherever a kind has its pod template."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policies.registry import Resource
from policies.values import at, items, strings

_IMAGE = re.compile(r"(ontainers\.[0-9]+\.image|volumes\.[0-9]+\.image\.reference)$")
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
# Keys that only the spec of a pod has; a patch may have no containers.
POD_KEYS = frozenset(("containers", "initContainers", "hostNetwork", "hostPID", "hostIPC"))
ROOTS = ("spec", "template", "items")


def images(workload: Resource) -> Iterator[tuple[str, str]]:
    """Path and image of every container."""
    for root in ROOTS:
        for path, value in strings(at(workload.props, root), root):
            if _IMAGE.search(path):
                yield path, value


def pods(workload: Resource) -> Iterator[tuple[str, Any]]:
    """Path and spec of every pod that a workload describes."""
    for root in ROOTS:
        yield from _below(at(workload.props, root), root)


def _below(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _below(each, f"{path}.{index}")
    elif isinstance(value, Mapping):
        if not POD_KEYS.isdisjoint(value):
            yield path, value
            return
        for key, each in value.items():
            yield from _below(each, f"{path}.{key}")


def containers(path: str, pod: Any) -> Iterator[tuple[str, Any]]:
    """Path and settings of every container of a pod."""
    for kind in CONTAINERS:
        for index, container in enumerate(items(pod, kind)):
            yield f"{path}.{kind}.{index}", container
