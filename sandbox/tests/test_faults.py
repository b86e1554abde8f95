"""`python -m sandbox fault`: what each command stages in the emulator, what it refuses, and that all of it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from typer.testing import CliRunner

from sandbox import cli
from sandbox.google.backend import ClusterRef, NoBackend
from sandbox.google.faults import Fault
from sandbox.kubernetes.nodes import parse_pool, pool_nodes
from sandbox.run_directory import RunDirectory
from sandbox.session import SandboxError, Session
from sandbox.tests.emulated_google import (
    GROUPS,
    INSTANCES,
    POOLS,
    PROJECT,
    REGION,
    ZONE,
    Body,
    Cloud,
    connected,
    group,
)

SPOT: Body = {"machineType": "ct6e-standard-1t", "spot": True}
Command = Callable[..., str]


class Nodes(NoBackend):
    """Stands for the clusters: the names of the nodes that a cluster would have, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def pools_changed(self, ref: ClusterRef, pools: list[dict[str, Any]]) -> None:
        self.names = [each.name for pool in pools for each in pool_nodes(parse_pool(pool), ref)]


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def cloud(nodes: Nodes) -> Iterator[Cloud]:
    with connected(backend=nodes) as made:
        made.offer("v6e", "tpu7x")
        yield made


@pytest.fixture
def fault(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command on the emulator, as if it were that of a running sandbox; returns what it prints."""
    session = Session(RunDirectory(tmp_path), cloud.emulator.url, 0, tmp_path)
    monkeypatch.setattr(cli, "_running", lambda: session)

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli.app, ["fault", *words], catch_exceptions=True)
        if isinstance(done.exception, SandboxError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return run


def pool(cloud: Cloud, name: str, config: Body, nodes: int = 1, **more: Any) -> str:
    """Makes a pool; its status."""
    cloud.ok("POST", POOLS, {"nodePool": {"name": name, "initialNodeCount": nodes, "config": config, **more}})
    return str(cloud.ok("GET", f"{POOLS}/{name}")["status"])


def slice_pool(cloud: Cloud) -> None:
    """A slice of four hosts."""
    placement = {"placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"}}
    assert pool(cloud, "train", {"machineType": "ct6e-standard-4t"}, 4, **placement) == "RUNNING"


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_stockout_lasts_until_it_is_cleared(cloud: Cloud, fault: Command) -> None:
    cloud.make_cluster()
    said = fault("stockout", "ct6e-standard-1t", "--zone", ZONE, "--capacity", "spot")
    assert f"staged: ct6e-standard-1t in {ZONE}: no more than 0 machines of spot" in said
    assert "ZONE_RESOURCE_POOL_EXHAUSTED, until cleared" in said
    assert [pool(cloud, name, SPOT) for name in ("one", "two")] == ["ERROR", "ERROR"]
    assert pool(cloud, "paid", {**SPOT, "spot": False}) == "RUNNING"
    assert fault("--clear") == fault() == "Nothing is staged.\n"
    assert pool(cloud, "three", SPOT) == "RUNNING"


def test_a_quota_that_is_used_up_is_shown_and_refuses_new_pools(cloud: Cloud, fault: Command) -> None:
    cloud.make_cluster()
    assert f"staged: quota in {REGION}: PREEMPTIBLE_TPU_V6E 0" in fault(
        "quota", "ct6e-standard-1t", "--zone", ZONE, "--capacity", "spot"
    )
    assert cloud.emulator.world.quota(REGION, "PREEMPTIBLE_TPU_V6E") == 0  # what preflight reads
    refused = {"nodePool": {"name": "one", "initialNodeCount": 1, "config": SPOT}}
    assert "PREEMPTIBLE_TPU_V6E" in cloud.refused(403, "POST", POOLS, refused)["message"]
    fault("--clear")
    assert pool(cloud, "two", SPOT) == "RUNNING"


def test_a_slice_that_loses_a_host_goes_as_a_whole_and_comes_back(cloud: Cloud, fault: Command, nodes: Nodes) -> None:
    cloud.make_cluster()
    slice_pool(cloud)
    assert pool(cloud, "serve", SPOT, 2) == "RUNNING"
    whole = list(nodes.names)
    train, serve = whole[:4], whole[4:]
    assert "4 hosts are gone, and come back in 1 s" in fault("host-lost", train[2], "--for", "1")
    assert nodes.names == serve
    until(lambda: nodes.names == whole)

    said = fault("preempt", serve[1], "--until-cleared")
    assert said.startswith("1 host is gone, and comes back with `python -m sandbox fault --clear`:")
    assert nodes.names == [*train, serve[0]]
    assert fault() == f"staged: host {serve[1]} of serve: preempted\n"
    [group] = [each for each in cloud.ok("GET", GROUPS)["items"] if each["name"].startswith(serve[0][:-5])]
    assert group["currentActions"]["recreating"] == 1
    operations = cloud.ok("GET", f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/operations")["items"]
    kinds = {
        (each["operationType"], each["targetLink"].rpartition("/")[2])
        for each in operations
        if each["targetLink"].rpartition("/")[2] in whole and "repair" not in each["operationType"]
    }
    lost = {("compute.instances.hostError", name) for name in train}
    assert kinds == lost | {("compute.instances.preempted", serve[1])}
    fault("--clear")
    assert nodes.names == whole

    fault("maintenance", "serve", "--until-cleared")
    assert nodes.names == train
    cloud.ok("DELETE", f"{POOLS}/serve")
    assert fault() == "Nothing is staged.\n"


@pytest.mark.parametrize("cleared", [True, False])
def test_a_return_is_for_one_loss(cloud: Cloud, fault: Command, nodes: Nodes, cleared: bool) -> None:
    """The hosts of a second drill came back when the first one's time was over."""
    cloud.make_cluster()
    slice_pool(cloud)
    whole = list(nodes.names)
    fault("preempt", "train", "--for", "3600")
    if cleared:
        fault("--clear")
        assert nodes.names == whole
    fault("preempt", whole[0] if cleared else "train", "--until-cleared")
    operations = cloud.emulator.world.operations
    for each in operations.all():
        if not each.done:
            operations.finish(each.name)
    assert nodes.names == []
    fault("--clear")
    assert nodes.names == whole


def test_a_group_makes_its_lost_host_anew_when_it_may(cloud: Cloud, fault: Command) -> None:
    cloud.make_network()
    cloud.make_slice_parts()
    cloud.ok("POST", GROUPS, group())

    def numbers() -> dict[str, str]:
        return {each["name"]: each["id"] for each in cloud.ok("GET", INSTANCES).get("items", [])}

    before = numbers()
    first = min(before)
    fault("preempt", first, "--until-cleared")
    assert numbers().keys() == before.keys() - {first}
    fault("--clear")
    until(lambda: numbers().keys() == before.keys())
    assert numbers()[first] != before[first]
    fault("host-lost", first, "--for", "1")
    until(lambda: numbers().keys() == before.keys())


def test_any_answer_can_be_staged(cloud: Cloud, fault: Command) -> None:
    said = fault("request", "kind=status", "status=503", "method=GET", "path=/clusters", "times=2")
    assert said == "staged: GET /clusters: answers 503, 2 more\n"
    cloud.refused(503, "GET", POOLS.partition("/tpu/")[0])
    assert fault() == "staged: GET /clusters: answers 503, 1 more\n"
    fault("--clear")


@pytest.mark.parametrize("kind", get_args(Fault.model_fields["kind"].annotation))
def test_every_kind_can_be_staged_and_is_shown(fault: Command, kind: str) -> None:
    assert fault("request", f"kind={kind}", "path=/nowhere", "step=a").startswith("staged: .* /nowhere in the step a: ")


WRONG = {
    "no machine": (("stockout", "ct6e-standard-9t", "--zone", ZONE), "does not exist in zone"),
    "no chips": (("quota", "n2-standard-4", "--zone", ZONE), "no machine type with TPUs"),
    "capacity": (
        ("stockout", "ct6e-standard-1t", "--zone", ZONE, "--capacity", "cheap"),
        "write on-demand, spot, flex-start",
    ),
    "no zone": (("stockout", "ct6e-standard-1t", "--zone", "us-east5-x"), "for example us-east5-a, us-east5-b"),
    "a region": (("quota", "ct6e-standard-1t", "--zone", "us-east5"), "for example us-east5-a, us-east5-b"),
    "nobody": (("preempt", "tarin"), "Nothing is called 'tarin'. Node pools and groups: train (4 hosts)"),
    "no words": (("request", "status"), "write KEY=VALUE"),
    "no kind": (("request", "status=503", "path=/x"), "kind: Field required; "),
    "a word": (("request", "kind=status", "stats=503"), "stats: Extra inputs are not permitted"),
    "a pattern": (("request", "kind=status", "path=("), "not a regular expression"),
    "no cluster": (("api-away",), "there is no cluster"),
    "both": (("--clear", "preempt", "train"), "--clear stands alone"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_and_stages_nothing(cloud: Cloud, fault: Command, case: str) -> None:
    cloud.make_cluster()
    slice_pool(cloud)
    words, said = WRONG[case]
    with pytest.raises(SandboxError) as refusal:
        fault(*words)
    assert said in str(refusal.value)
    assert fault() == "Nothing is staged.\n"


JOBSET = """
kind: Namespace
---
kind: JobSet
spec: {replicatedJobs: [{template: {spec: {template: {spec: {}}}}}]}
"""


def test_a_job_is_told_how_long_its_pods_run() -> None:
    done = CliRunner().invoke(cli.app, ["run-for", "3600"], input=JOBSET)
    namespace, job = yaml.safe_load_all(done.output)
    assert namespace == {"kind": "Namespace"}
    [row] = job["spec"]["replicatedJobs"]
    assert row["template"]["spec"]["template"]["metadata"] == {"annotations": {"sandbox/run-for": "3600s"}}


@pytest.mark.parametrize("text", ["a: [", "- 1", "a: 1"])
def test_what_is_no_job_is_refused(text: str) -> None:
    done = CliRunner().invoke(cli.app, ["run-for", "1"], input=text)
    assert isinstance(done.exception, SandboxError)
