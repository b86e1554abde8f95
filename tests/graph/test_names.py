"""Logical names that are joined from two names: never the same twice, and stacks that exist keep what they have."""

import json
from typing import Any

from tests.graph.recording import record_main
from tests.platforms import PROJECT, raw

SLICES = {"s": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 4, "capacity": "spot"}}


def local_queues(queues: dict[str, list[str]]) -> dict[str, list[str]]:
    """By the logical name of each LocalQueue, the names by which older stacks know it."""
    share = {name: {"namespaces": namespaces, "slices": {"s": 1}} for name, namespaces in queues.items()}
    config = {"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(raw(SLICES, queues=share))}
    graph = record_main(config)
    found: dict[str, Any] = graph.of_type("kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue")
    return {
        request.name: [alias.spec.name for alias in request.aliases]
        for request in found.values()
        if request.name.startswith("queues-localqueue-")
    }


def test_two_queues_whose_names_join_to_the_same_text_are_two() -> None:
    """Queue team with namespace a-prod, and queue team-a with prod, ended in `Duplicate resource URN`."""
    assert local_queues({"team": ["a-prod"], "team-a": ["prod", "other"]}) == {
        "queues-localqueue-team.a-prod": [],
        "queues-localqueue-team-a.prod": [],
        "queues-localqueue-team-a.other": ["queues-localqueue-team-a-other"],
    }
