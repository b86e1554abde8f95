"""`python -m tools workload`: which queue takes work, and where it is refused because none would."""

from pathlib import Path
from typing import Any

import pytest

from plan.workloads.job import Job, WorkloadError, plan_named
from plan.workloads.jobset import jobset
from rules.load import load_stack_file
from tests.tools.test_serve import GEMMA, serve, served
from tests.tools.test_workload import BLUEPRINT, DEV, RECIPE, TEAM, printed, refused, train

CHIPS = {"machine_type": "ct6e-standard-4t", "topology": "2x2", "count": 3}


def place(manifest: Any) -> tuple[str, str | None]:
    """Namespace and queue."""
    return manifest["metadata"]["namespace"], manifest["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name")


@pytest.mark.parametrize(
    ("file", "arguments", "where"),
    [
        (DEV, ["serve"], ("team", "team")),
        (RECIPE, ["pair"], ("research", "research")),
        (BLUEPRINT, ["train"], ("team-a", "training")),
        (BLUEPRINT, ["train", "-n", "team-b"], ("team-b", "training")),
        (TEAM, ["serve", "-n", "product"], ("product", "product")),
        (RECIPE, ["large", "-n", "production"], ("production", "production")),
        (RECIPE, ["large", "-n", "tpu-workloads"], ("tpu-workloads", None)),
    ],
)
def test_work_goes_to_the_only_queue_there_is(file: Path, arguments: list[str], where: Any) -> None:
    """It went past the queue, on slices that the queue counts as its own."""
    assert place(printed(file, *arguments)[0]) == where


def test_a_server_goes_to_the_only_queue_too() -> None:
    assert place(served(DEV, "serve", *GEMMA)[0]) == ("team", "team")


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        (
            RECIPE,
            ["large"],
            "slices of large belong to queues research, production: write --queue research or production,"
            " or -n tpu-workloads to run past them",
        ),
        (RECIPE, ["pair", "-n", "production"], "queue production has no slices of pair: it has large"),
        (TEAM, ["train", "-n", "research", "--slices", "3"], "3 slices of train asked for, the platform has 2"),
        (BLUEPRINT, ["train", "-n", "tpu-workloads"], "only Kueue asks for hosts of train (queued provisioning)"),
        (BLUEPRINT, ["train", "-n", "tpu-workloads"], "write --queue training"),
    ],
)
def test_who_must_choose_reads_among_what(file: Path, arguments: list[str], said: str) -> None:
    refused(train(file, *arguments), said)


def test_a_namespace_of_several_queues_says_nothing(stack_file: Any) -> None:
    queues = {name: {"namespaces": ["research"], "slices": {"chips": 1}} for name in ("first", "second")}
    file = stack_file({"chips": CHIPS}, queues=queues)
    said = "namespace research has queues first, second: write --queue"
    refused(train(file, "chips", "-n", "research"), said)
    refused(serve(file, "chips", *GEMMA, "-n", "research"), said)


def test_a_queue_found_by_its_namespace_is_checked_like_one_that_is_written(stack_file: Any) -> None:
    queues = {"q": {"namespaces": ["a"], "slices": {"chips": 1}, "borrow": False}}
    file = stack_file({"chips": CHIPS}, queues=queues)
    for found in (["-n", "a"], []):
        refused(train(file, "chips", "--slices", "2", *found), "queue q can never have 2 slices of chips, at most 1")


def test_work_without_a_queue_of_its_own_keeps_out_of_queues(stack_file: Any) -> None:
    slices = {"chips": CHIPS, "free": {**CHIPS, "topology": "4x4"}}
    queues = {"q": {"namespaces": ["a"], "slices": {"chips": 1}}}
    file = stack_file(slices, queues=queues)
    assert place(printed(file, "free")[0]) == ("tpu-workloads", None)
    file = stack_file(slices, queues=queues, teams={"a": {}})
    refused(train(file, "free"), "queue q has no slices of free: it has chips")


def test_a_job_is_never_sent_to_the_first_of_several_teams(stack_file: Any) -> None:
    queues = {"q": {"namespaces": ["a", "b"], "slices": {"chips": 1}}}
    for more in ({}, {"queues": queues}):
        file = stack_file({"chips": CHIPS}, teams={"a": {}, "b": {}}, **more)
        refused(train(file, "chips"), "which team's work is it? Write --namespace a or b")
        assert place(printed(file, "chips", "-n", "b")[0])[0] == "b"


def test_hosts_of_queued_provisioning_come_for_queues_only() -> None:
    platform = load_stack_file(BLUEPRINT)
    plan = plan_named(platform, "train")
    with pytest.raises(WorkloadError, match="only Kueue asks for hosts of train"):
        jobset(platform, plan, Job("j", "team-a", 1))
    assert jobset(platform, plan, Job("j", "team-a", 1, "training"))
