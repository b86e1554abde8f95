"""`python -m tools pools`: the node pools that TPU Provisioner has created, and which of them a person must look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tools import pools
from tools.__main__ import app
from tools.preflight.cloud import LOGIN, Cloud, NoConnectionError

Json = dict[str, Any]
IMAGE = f"example.com/images/tpu-provisioner@sha256:{'0' * 64}"
SLICE = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": "spot", "provisioning": "tpu-provisioner"}
ENDPOINT = {"dnsEndpointConfig": {"endpoint": "gke-1.us-east5.gke.goog"}}


def pool(name: str, jobset: str = "", status: str = "RUNNING", message: str = "") -> Json:
    labels = {
        "google.com/nodepool-manager": "tpu-provisioner",
        "google.com/tpu-provisioner-jobset-namespace": "team-a",
        "google.com/tpu-provisioner-jobset-name": jobset,
    }
    return {
        "name": name,
        "status": status,
        "statusMessage": message,
        "config": {"labels": labels if jobset else {"tpu-platform/slice": "train"}},
    }


def jobset(name: str, condition: str = "", minutes_ago: int = 0) -> Json:
    at = (datetime.now(UTC) - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{"type": condition, "status": "True", "lastTransitionTime": at}] if condition else []
    return {"metadata": {"namespace": "team-a", "name": name}, "status": {"conditions": conditions}}


@pytest.fixture
def run(stack_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command on a cluster with these pools and JobSets; None: there is no cluster, or kubectl fails."""
    file = stack_file(
        {"s": SLICE},
        cluster={"release_channel": "UNSPECIFIED"},
        software={"tpu_provisioner": {"image": IMAGE}},
    )

    def run(found: list[Json] | None, jobsets: list[Json] | None, *arguments: str) -> Result:
        async def kubectl(kubeconfig: str, _arguments: list[str], _seconds: int) -> str:
            assert json.loads(kubeconfig)["clusters"][0]["cluster"] == {"server": "https://gke-1.us-east5.gke.goog"}
            if jobsets is None:
                raise pools.KubectlError("connection refused")
            return json.dumps({"items": jobsets})

        cluster = None if found is None else {"nodePools": found, "controlPlaneEndpointsConfig": ENDPOINT}
        monkeypatch.setattr(Cloud, "find", lambda *_args, **_names: cluster)
        monkeypatch.setattr(pools, "kubectl", kubectl)
        return CliRunner().invoke(app, ["pools", "-f", str(file), *arguments])

    return run


def test_pools_whose_jobsets_run_need_nobody(run: Callable[..., Result]) -> None:
    done = run([pool("train-0", "train"), pool("system")], [jobset("train")], "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == [
        {"name": "train-0", "jobset": "team-a/train", "status": "RUNNING", "problem": ""}
    ]


@pytest.mark.parametrize(
    ("one", "jobsets", "problem"),
    [
        (pool("a-0", "a", "ERROR", "out of stock"), [jobset("a")], "its creation failed (out of stock)"),
        (pool("a-0", "a"), [], "its JobSet is gone"),
        (pool("a-0", "a"), [jobset("a", "Completed", minutes_ago=30)], "its JobSet is complete since"),
        (pool("a-0", "a"), [jobset("a", "Failed", minutes_ago=30)], "its JobSet has failed since"),
        (pool("a-0", "a"), [jobset("a", "Suspended", minutes_ago=30)], "is suspended, by its queue or a person, since"),
    ],
)
def test_pools_that_nobody_else_deletes_are_named_with_the_command(
    run: Callable[..., Result], one: Json, jobsets: list[Json], problem: str
) -> None:
    assert problem in json.loads(run([one], jobsets, "--json").stdout)[0]["problem"]
    done = run([one], jobsets)
    assert done.exit_code == 1
    command = "gcloud container node-pools delete a-0 --cluster tpu --location us-east5 --project my-project"
    assert command in done.stdout


def test_a_pool_has_ten_minutes_after_its_jobset(run: Callable[..., Result]) -> None:
    """The controller waits for an event of a node, which an idle kubelet sends every five minutes."""
    assert run([pool("a-0", "a")], [jobset("a", "Completed", minutes_ago=4)]).exit_code == 0


def test_a_pool_that_is_being_deleted_needs_nobody(run: Callable[..., Result]) -> None:
    assert run([pool("a-0", "a", "STOPPING")], []).exit_code == 0


def test_no_pool(run: Callable[..., Result]) -> None:
    done = run([pool("system")], None)
    assert (done.exit_code, done.stdout) == (0, "TPU Provisioner has created no node pool.\n")


@pytest.mark.parametrize(
    ("found", "words"),
    [(None, "there is no cluster tpu in us-east5"), ([pool("a-0", "a")], "cannot be listed: connection refused")],
)
def test_what_cannot_be_asked_is_no_traceback(run: Callable[..., Result], found: list[Json] | None, words: str) -> None:
    done = run(found, None)
    assert done.exit_code == 2
    assert words in done.stderr


def test_without_a_login_it_says_how_to_log_in(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_arguments: Any) -> None:
        raise NoConnectionError("no usable credentials: none", LOGIN)

    monkeypatch.setattr(pools, "created_pools", away)
    done = run([], None)
    assert done.exit_code == 2
    assert done.stderr == f"error: no usable credentials: none -> {LOGIN}\n"
