"""Kueue's queues and flavors."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from catalogue.labels import TOPOLOGY_LABEL
from policies import tokens
from policies.registry import RESOURCE, STACK, Resource, Setting, Settings, Stack, StackFinding
from policies.values import UNKNOWN, Finding, at, items, known, mapping, settled, text

OTHERS_FLAVORS = Setting(
    "flavors",
    {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "description": "ResourceFlavors that another stack makes, beside those of this one; * stands for anything.",
    },
)


@STACK.rule(
    "queue-flavors",
    reason="A queue whose flavor does not exist stays inactive, and takes no work. Names are followed to the flavors of"
    " the stack; where it makes none, another stack owns them.",
    remedy="Name a ResourceFlavor of the stack, make the one that is missing, or list another stack's in the"
    " policy's configuration",
    source="Kueue documentation, ClusterQueue: FlavorNotFound",
    settings=[OTHERS_FLAVORS],
)
def queue_flavors(stack: Stack, settings: Settings) -> Iterator[StackFinding]:
    named = [at(flavor.props, "metadata.name") for flavor in stack.matching(tokens.RESOURCE_FLAVOR)]
    if not named or UNKNOWN in named:
        return
    elsewhere = settings[OTHERS_FLAVORS.name]
    for queue in stack.matching(tokens.CLUSTER_QUEUE):
        for flavor in flavors_of(queue):
            name = text(flavor, "name")
            if not settled(flavor, "name") or name in named:
                continue
            if not any(fnmatchcase(name, pattern) for pattern in elsewhere):
                yield StackFinding(queue.urn, "spec.resourceGroups", f"names the flavor {name}")


def flavors_of(queue: Resource) -> Iterator[Any]:
    """The flavors of a ClusterQueue, each with its quotas."""
    for group in items(queue.props, "spec.resourceGroups"):
        yield from items(group, "flavors")


@RESOURCE.rule(
    "queue-namespaces",
    tokens.CLUSTER_QUEUE,
    reason="An empty selector lets every namespace use the queue, one that is left out none.",
    remedy="Set namespaceSelector to the namespaces that the queue is for",
    source="Kueue documentation, ClusterQueue.namespaceSelector",
)
def queue_namespaces(queue: Resource, settings: Settings) -> Iterator[Finding]:
    selector = at(queue.props, "spec.namespaceSelector")
    if selector is None or (known(selector) and not selector):
        yield Finding("spec.namespaceSelector", "is not set" if selector is None else "is empty, which is everybody")


@RESOURCE.rule(
    "flavor-selects",
    tokens.RESOURCE_FLAVOR,
    reason="A flavor without node labels promises chips of any host, of whatever generation and topology.",
    remedy=f"Set nodeLabels, at least {TOPOLOGY_LABEL}",
    source="Kueue documentation, ResourceFlavor.nodeLabels",
)
def flavor_selects(flavor: Resource, settings: Settings) -> Iterator[Finding]:
    labels = at(flavor.props, "spec.nodeLabels")
    if labels is not UNKNOWN and not mapping(flavor.props, "spec.nodeLabels"):
        yield Finding("spec.nodeLabels", "is not set")
