"""Slices of every family and capacity model through the real engine: up, clean, refreshed, edited, gone."""

from __future__ import annotations

import json
from typing import Any

from tests.sandbox.conftest import Project

STACK = "slices"
PROJECT, OWNER, ZONE = "my-project", "owner-project", "us-central1-a"
GENERATIONS = ("v4", "v5e", "v5p", "v6e", "tpu7x")
BLOCK = "block-0001"
Json = dict[str, Any]

MACHINES = {
    "v4": "ct4p-hightpu-4t",
    "v5e": "ct5lp-hightpu-4t",
    "v5p": "ct5p-hightpu-4t",
    "v6e": "ct6e-standard-4t",
    "tpu7x": "tpu7x-standard-4t",
}


def reserved(family: str, **extra: Any) -> Json:
    return {"model": "reservation", "name": f"reserved-{family}", **extra}


def of(family: str, topology: str, capacity: Any, **extra: Any) -> Json:
    return {"machine_type": MACHINES[family], "topology": topology, "capacity": capacity, **extra}


# In each family single-host and multi-host slices, in all of them together every capacity model that there is.
SLICES: Json = {
    "v4": of("v4", "2x2x2", "on-demand"),
    "v4-single": of("v4", "2x2x1", reserved("v4")),
    "v5e": of("v5e", "2x4", "spot", count=2),
    "v5e-single": of("v5e", "2x2", "flex-start"),
    "v5p": of("v5p", "2x2x2", reserved("v5p", project=OWNER)),
    "v5p-single": of("v5p", "2x2x1", {"model": "on-demand", "max_run_duration": "2d"}, count=2),
    "v6e": of("v6e", "2x4", reserved("v6e", block=BLOCK)),
    "v6e-fallback": of("v6e", "4x4", [reserved("v6e"), "spot", "flex-start"]),
    "v6e-queued": of("v6e", "4x4", {"model": "queued", "max_run_duration": "36h"}),
    "tpu7x": of("tpu7x", "2x2x2", "spot"),
    "tpu7x-block": of(
        "tpu7x", "2x2x4", reserved("tpu7x", project=OWNER, block=BLOCK, sub_block=f"{BLOCK}-subblock-0001")
    ),
    "tpu7x-single": of("tpu7x", "2x2x1", reserved("tpu7x", active=False)),
}


def prepare(project: Project) -> None:
    """A zone with every generation, and a reservation for each, the project's own and one shared with it."""
    project.call("POST", "zones", {"zone": ZONE, "generations": list(GENERATIONS)})
    for family, machine in MACHINES.items():
        seed = {"zone": ZONE, "name": f"reserved-{family}", "machine_type": machine, "count": 16}
        project.call("POST", "reservations", {**seed, "project": PROJECT})
        project.call("POST", "reservations", {**seed, "project": OWNER, "share_with": [PROJECT]})


def write(project: Project, slices: Json) -> None:
    project.write_stack(
        STACK, zone=ZONE, allow_unlisted_zone=True, cluster={"release_channel": "RAPID"}, queues={}, slices=slices
    )


def planned(project: Project) -> list[tuple[str, str]]:
    """What a preview is going to do: operation and logical name, in order, without what stays."""
    steps = json.loads(project.succeed("preview", "-s", STACK, "--json", "--show-replacement-steps"))["steps"]
    return [(step["op"], step["urn"].rpartition("::")[2]) for step in steps if step["op"] != "same"]


def operations(steps: list[tuple[str, str]], name: str) -> list[str]:
    return [operation for operation, other in steps if other == name]


def pool_calls(project: Project, since: int) -> list[tuple[str, str]]:
    """Method and pool of every call since a request that made, changed or deleted a node pool."""
    calls = [row for row in project.requests() if row["seq"] > since and "/nodePools" in row["path"]]
    return [
        (row["method"], (row["body"] or {}).get("nodePool", {}).get("name") or row["path"].rpartition("/")[2])
        for row in calls
        if row["method"] != "GET"
    ]


def assert_one_is_replaced_alone(project: Project, pool: str) -> None:
    """A broken slice is made anew by the command of docs/operations.md; the others, its twin too, stay as they are."""
    [urn] = [each["urn"] for each in project.state(STACK)["resources"] if each["urn"].endswith(f"::slices-{pool}")]
    before = project.requests()[-1]["seq"]
    changes = project.up(STACK, "--target-replace", urn)
    assert changes.keys() == {"same", "replace"}
    assert changes["replace"] == 1
    assert pool_calls(project, before) == [("DELETE", pool), ("POST", pool)]
    project.assert_clean(STACK)


def test_every_family_and_capacity_model_lives(project: Project) -> None:
    prepare(project)
    write(project, SLICES)
    assert project.up(STACK).keys() == {"create"}
    project.assert_clean(STACK)
    project.succeed("refresh", "-s", STACK, "--yes", "--skip-preview", "--expect-no-changes")
    assert_one_is_replaced_alone(project, "v5e-1")

    relabelled, grown, reshaped = (
        {**SLICES["v5e"], "labels": {"team": "a"}},
        {**SLICES["v4"], "topology": "2x2x4"},
        {**SLICES["tpu7x"], "topology": "2x2x4"},
    )
    write(project, {**SLICES, "v5e": relabelled, "v4": grown, "tpu7x": reshaped})
    steps = planned(project)
    for name in ("slices-v5e-0", "slices-v5e-1"):
        assert operations(steps, name) == ["update"]
    for name in ("slices-v4-0", "slices-tpu7x-0"):
        assert operations(steps, name) == ["delete-replaced", "replace", "create-replacement"], "the name must be free"
    # The policy of a shape that no slice has any more goes last; the one of the new shape stands already.
    assert steps[-1] == ("delete", "workload-policies-tpu-dev-2x2x2")
    assert len(steps) == 2 * 1 + 2 * 3 + 1, steps

    before = project.requests()[-1]["seq"]
    changes = project.up(STACK)
    assert {op: count for op, count in changes.items() if op != "same"} == {"update": 2, "replace": 2, "delete": 1}
    calls = pool_calls(project, before)
    assert sorted(calls) == sorted(
        [(method, pool) for pool in ("v4-0", "tpu7x-0") for method in ("DELETE", "POST")]
        + [("PUT", pool) for pool in ("v5e-0", "v5e-1")]
    )
    for pool in ("v4-0", "tpu7x-0"):
        assert calls.index(("DELETE", pool)) < calls.index(("POST", pool))
    project.assert_clean(STACK)

    project.destroy(STACK)
