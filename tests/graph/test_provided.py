"""A cluster that has some of what a platform uses: that part is not made, and all else is as it would be."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import pytest
import yaml

from platform_config.self_managed import InCluster
from tests.graph.emulated import recorded
from tests.graph.recording import GraphMonitor, inputs_of, reachable, short
from tests.graph.test_self_managed import GUEST, SERVE, TRAIN
from tests.platforms import EXISTING

Json = dict[str, Any]

PARTS = get_args(InCluster)
# By part, the component that makes it; of any platform below, each makes something.
# What is made for each part; policies go with what they speak of, which is its owner's business where it is provided.
COMPONENTS = {
    "device-plugin": ("tpu:kubernetes:DevicePlugin",),
    "dra-driver": ("tpu:kubernetes:DraDriver",),
    "jobset": ("tpu:kubernetes:JobSet",),
    "lws": ("tpu:kubernetes:LeaderWorkerSet",),
    "kueue": ("tpu:kubernetes:Kueue", "tpu:kubernetes:UnqueuedTpus"),
    "namespaces": ("tpu:kubernetes:Namespaces", "tpu:kubernetes:PodSecurity"),
}
EVERYTHING: Json = {
    **GUEST,
    "slices": {"train": TRAIN, "serve": {**SERVE, "devices": "dra"}},
    "namespaces": ["shared"],
    "queues": {"research": {"namespaces": ["team-a", "team-b"], "slices": {"train": 1, "serve": 3}}},
}
KUEUE = "kubernetes:kueue.x-k8s.io/"


@cache
def graph_with(*provided: str) -> GraphMonitor:
    """The graph of a platform that uses every part, in a cluster that has these."""
    return recorded({**EVERYTHING, "cluster": EXISTING | {"provides": list(provided)}})


def made(graph: GraphMonitor) -> dict[str, Any]:
    """Requests by a name to read."""
    return {short(urn): request for urn, request in graph.requests.items()}


def of_components(graph: GraphMonitor, types: tuple[str, ...]) -> set[str]:
    """Components, one of each type, and what they make."""
    components = {urn for type_ in types for urn in graph.of_type(type_)}
    assert len(components) == len(types)
    return {short(urn) for urn, request in graph.requests.items() if {urn, request.parent} & components}


def behind(graph: GraphMonitor) -> dict[str, set[str]]:
    """By each resource, everything that it comes after."""
    return {short(urn): {short(other) for other in reachable(graph, urn)} for urn in graph.requests}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_provided_is_not_made_and_all_else_is_as_before(part: str) -> None:
    everything, rest = graph_with(), graph_with(part)
    gone = of_components(everything, COMPONENTS[part])
    assert len(gone) >= 3
    assert set(made(rest)) == set(made(everything)) - gone
    for name, request in made(rest).items():
        if part == "namespaces" and name == "Release kueue-release":
            continue  # finds them by name, see below
        assert request.object == made(everything)[name].object, name


@pytest.mark.parametrize("part", PARTS)
def test_order_is_what_it_was(part: str) -> None:
    everything, rest = graph_with(), graph_with(part)
    gone = of_components(everything, COMPONENTS[part])
    assert behind(rest) == {name: found - gone for name, found in behind(everything).items() if name not in gone}


def test_of_a_cluster_that_has_everything_only_objects_of_ones_own_are_made() -> None:
    graph = graph_with(*PARTS)
    inside = {request.type for request in graph.requests.values() if request.type.startswith("kubernetes:")}
    assert {kind for kind in inside if not kind.startswith(KUEUE)} == {
        "kubernetes:resource.k8s.io/v1:DeviceClass",
        "kubernetes:resource.k8s.io/v1:ResourceClaimTemplate",
    }
    assert {kind.rpartition(":")[2] for kind in inside if kind.startswith(KUEUE)} == {
        *("ResourceFlavor", "ClusterQueue", "LocalQueue")
    }
    for urn, request in graph.requests.items():
        if request.type.startswith(KUEUE):
            assert list(request.hooks.on_error) == ["webhook-starting"], short(urn)
    assert graph.exports["queues"] == graph_with().exports["queues"]


def test_namespaces_that_nobody_labels_are_found_by_their_names() -> None:
    def selector(graph: GraphMonitor) -> Any:
        values = inputs_of(graph, "kueue-release")["values"]
        return yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])["managedJobsNamespaceSelector"]

    assert selector(graph_with()) == {"matchLabels": {"tpu-platform/queues": "true"}}
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
    assert selector(graph_with("namespaces")) == {"matchExpressions": [names]}


def test_a_manager_may_use_the_clusters_kueue() -> None:
    platform = {
        **GUEST,
        "slices": {},
        "cluster": EXISTING | {"provides": ["jobset", "kueue"]},
        "queues": {"research": {"namespaces": ["team-a"], "slices": {"train": 1}}},
        "multikueue": {
            "role": "manager",
            "workers": {"lab": {"secret": "lab-kubeconfig"}},
            "slices": {"train": {key: TRAIN[key] for key in ("machine_type", "topology")}},
        },
    }
    graph = recorded(platform)
    assert not graph.of_type("kubernetes:helm.sh/v3:Release")
    (check,) = graph.of_type("kubernetes:kueue.x-k8s.io/v1beta2:AdmissionCheck")
    (queue,) = graph.of_type("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue")
    assert check in reachable(graph, queue)
