"""What a plan does to slices that run, whoever made the plan: the graph and the emulated cloud, or the real engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from plan.recreation import makes_hosts_anew
from sandbox.plugins.provider import Subject
from tests.edits.table import Effect, Row
from tests.graph.emulated import CREATE, DELETE, REPLACE, UPDATE, EmulatedCloud, recorded
from tests.graph.recording import GraphMonitor

POOLS = ("gcp:container/nodePool:NodePool", "gcp:compute/instanceGroupManager:InstanceGroupManager")
CLUSTER = "gcp:container/cluster:Cluster"
MACHINE = "gcp:compute/instance:Instance"
# What makes a cluster that cluster: itself, or the disk of its control plane.
CLUSTERS = (CLUSTER, "gcp:compute/disk:Disk")
SIZES = {"nodeCount", "targetSize"}
# What is inside the cluster, and the way there.
INSIDE = ("kubernetes:", "pulumi:providers:kubernetes")
# What follows queues: which namespaces have one, and which is a namespace's default. It changes when one comes or goes.
FOLLOWS_QUEUES = ("unqueued-tpus-binding", "queues-default-localqueue-")
# What shows slices: how many there should be.
FOLLOWS_SLICES = ("monitoring-dashboard",)
TYPES = ("gcp:", *INSIDE)
"""Beginnings of the types that an effect is about."""


@dataclass(frozen=True)
class Step:
    """What a plan does with a resource: one of create, update, delete and replace; `paths` are what changes."""

    type: str
    name: str
    operation: str
    paths: Collection[str] = ()

    @property
    def is_slice(self) -> bool:
        return self.type in POOLS and self.name.startswith("slices-")

    @property
    def group(self) -> str:
        """The slice's name, of a resource that is its hosts."""
        return self.name.removeprefix("slices-").partition("-")[0]

    @property
    def is_resized(self) -> bool:
        """Whether hosts of a slice come or go, and nothing else changes."""
        return self.is_slice and self.operation == UPDATE and set(self.paths) <= SIZES and bool(self.paths)

    @property
    def hosts_anew(self) -> bool:
        return self.operation == UPDATE and any(makes_hosts_anew(self.type, path) for path in self.paths)


def effect_of(steps: Collection[Step]) -> Effect:
    """The first effect of the table that applies to a plan that nothing refuses."""
    slices = [step for step in steps if step.is_slice]
    others = [step for step in steps if step.type in (*POOLS, MACHINE) and not step.is_slice]
    came, went = ({step.group for step in slices if step.operation == operation} for operation in (CREATE, DELETE))
    if any(step.operation == REPLACE for step in slices) or came & went:
        return Effect.REPLACED
    if any(step.hosts_anew and (step.is_slice or step.type == CLUSTER) for step in steps):
        return Effect.HOSTS
    if any(step.operation == REPLACE or step.hosts_anew or "machineType" in step.paths for step in others):
        return Effect.OTHERS
    follows = (*FOLLOWS_QUEUES, *FOLLOWS_SLICES) if slices else FOLLOWS_QUEUES
    operations = {step.operation for step in steps if not step.is_resized and not step.name.startswith(follows)}
    if operations & {UPDATE, REPLACE}:
        return Effect.IN_PLACE
    return Effect.ADDED if steps else Effect.NOTHING


def strays(rows: Collection[Row], steps: Collection[Step]) -> list[str]:
    """What a plan must not do whatever its effect: touch hosts of slices when edits name other slices only, or replace
    what makes a cluster that cluster."""
    keys = [key for row in rows for key in row.after]
    named = {key.split(".")[1] for key in keys if key.startswith("slices.")}
    named = named if all(key.startswith("slices.") for key in keys) else set()
    others = [step.name for step in steps if named and step.is_slice and step.group not in named]
    return others + [step.name for step in steps if step.type in CLUSTERS and step.operation == REPLACE]


def predicted(cloud: EmulatedCloud, after: Mapping[str, Any]) -> list[Step]:
    """What an edit does, by the graph: Google's resources as planned against the cloud in which a platform stands, and
    those inside the cluster by what the program registers, since no provider is asked about them."""
    assert cloud.graph
    old, new = cloud.graph, recorded(after)
    planned = [(Subject.of(urn), plan) for urn, plan in cloud.plan(new).items()]
    return [
        *(Step(subject.type, subject.name, plan.operation, plan.paths) for subject, plan in planned),
        *_inside(old, new),
    ]


def _inside(old: GraphMonitor, new: GraphMonitor) -> Iterator[Step]:
    for urn in sorted(old.requests.keys() | new.requests.keys()):
        before, after = old.requests.get(urn), new.requests.get(urn)
        request = after or before
        if request is None or not request.type.startswith(INSIDE):
            continue
        if before is None or after is None:
            yield Step(request.type, request.name, CREATE if before is None else DELETE)
        elif json_format.MessageToDict(before.object) != json_format.MessageToDict(after.object):
            yield Step(request.type, request.name, UPDATE)
