"""Workloads in clusters: images, and rights of pods on their host."""

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import Any

from plan.pod_security import BASELINE_CAPABILITIES, TPU_CAPABILITIES
from policies import tokens
from policies.pods import containers, images, pods
from policies.registry import RESOURCE, Resource, Setting, Settings
from policies.values import UNKNOWN, Finding, at, is_set, items, number, text

OLD_REGISTRIES = ("k8s.gcr.io/",)

# Words in tags that move, unless the tag also names a version, a date or a commit.
MOVING = re.compile(
    r"alpha|beta|canary|current|dev|devel|develop|development|edge|head|latest|main|mainline|master|nightly|preview"
    r"|prod|production|release|snapshot|stable|staging|tip|trunk|unstable"
)
FIXED = re.compile(r"[0-9]+\.[0-9]+|[0-9]{6}|[0-9]{4}-[0-9]{2}|(?=[a-f]*[0-9])[0-9a-f]{7,40}")


@RESOURCE.rule(
    "image-pinned",
    *tokens.WORKLOADS,
    reason="An image without a tag, or with one that moves such as latest or main, is another one on every host that"
    " pulls it.",
    remedy="Name a version or, better, a digest",
    source="Kubernetes documentation, images; seen in the TPU DRA recipe and GKE's DRA tutorial",
)
def image_pinned(workload: Resource, settings: Settings) -> Iterator[Finding]:
    for path, image in images(workload):
        if "@sha256:" not in image and _moves(image.rpartition("/")[2].partition(":")[2]):
            yield Finding(path, f"is {image}")


def _moves(tag: str) -> bool:
    """Whether a tag may name another image later; true for a tag without any number."""
    if not re.search(r"[0-9]", tag):
        return True
    words = re.split(r"[-_.+]", tag.lower())
    return any(map(MOVING.fullmatch, words)) and not FIXED.search(tag.lower())


@RESOURCE.rule(
    "image-registry",
    *tokens.WORKLOADS,
    level="advisory",
    reason="These registries are frozen or closed.",
    remedy="Use registry.k8s.io",
    source="Kubernetes documentation: k8s.gcr.io is frozen since April 2023",
)
def image_registry(workload: Resource, settings: Settings) -> Iterator[Finding]:
    for path, image in images(workload):
        if image.startswith(OLD_REGISTRIES):
            yield Finding(path, f"is {image}")


# Level baseline of Pod Security, and the two capabilities that the TPU runtime needs with the DRA driver.
CAPABILITIES = frozenset(BASELINE_CAPABILITIES + TPU_CAPABILITIES)
AGENTS = Setting(
    "namespaces",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": ["kube-system"],
        "description": "Namespaces whose DaemonSets may use their host: device plugins and other agents of nodes.",
    },
)


@RESOURCE.rule(
    "pod-privileges",
    *tokens.WORKLOADS,
    reason="A privileged pod, or one in the host's network or files, is root on the host: it reads the host's token and"
    " every other pod. Agents of nodes are DaemonSets in kube-system, and even they must not mount the whole disk.",
    remedy="Stay within level baseline of Pod Security; use emptyDir, Services and device claims",
    source="Kubernetes documentation, Pod Security Standards, baseline; CIS GKE Benchmark 4.2.1",
    cis=("4.2.1", "4.6.3"),
    settings=[AGENTS],
)
def pod_privileges(workload: Resource, settings: Settings) -> Iterator[Finding]:
    namespace = at(workload.props, "metadata.namespace")
    in_place = namespace is UNKNOWN or namespace in settings[AGENTS.name]
    agent = in_place and ":DaemonSet" in workload.type
    for path, pod in pods(workload):
        for found in _privileges(path, pod):
            if not agent or found.message == WHOLE_DISK:
                yield found


WHOLE_DISK = "is the whole disk of the host"


def _privileges(path: str, pod: Any) -> Iterator[Finding]:
    """What a pod may do beyond level baseline."""
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if at(pod, key) is True:
            yield Finding(f"{path}.{key}", "is true")
    for index, volume in enumerate(items(pod, "volumes")):
        if is_set(volume, "hostPath"):
            folder = text(volume, "hostPath.path")
            whole = folder and normpath(folder).lstrip("/") == ""
            yield Finding(f"{path}.volumes.{index}.hostPath", WHOLE_DISK if whole else f"is {folder or 'set'}")
    if text(pod, "securityContext.seccompProfile.type") == "Unconfined":
        yield Finding(f"{path}.securityContext.seccompProfile", "is Unconfined")
    for below, container in containers(path, pod):
        yield from _container_privileges(below, container)


def _container_privileges(path: str, container: Any) -> Iterator[Finding]:
    context = f"{path}.securityContext"
    if at(container, "securityContext.privileged") is True:
        yield Finding(f"{context}.privileged", "is true")
    added = items(container, "securityContext.capabilities.add")
    names = [each.upper().removeprefix("CAP_") for each in added if isinstance(each, str)]
    if beyond := [name for name in names if name not in CAPABILITIES]:
        yield Finding(f"{context}.capabilities.add", f"has {', '.join(beyond)}")
    if text(container, "securityContext.procMount") == "Unmasked":
        yield Finding(f"{context}.procMount", "is Unmasked")
    if text(container, "securityContext.seccompProfile.type") == "Unconfined":
        yield Finding(f"{context}.seccompProfile", "is Unconfined")
    for index, port in enumerate(items(container, "ports")):
        if number(port, "hostPort"):
            yield Finding(f"{path}.ports.{index}.hostPort", f"is {number(port, 'hostPort')}")
