"""The stand-in for TPU Provisioner asks for the node pools that the real one asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.tpu_provisioner.node_pool import JOB_KEY, JOBSET_NAME, PodError, creation_request, pool_name
from sandbox.tpu_provisioner.settings import SettingError, read

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "provisioner_requests.json").read_text())
# The cluster and the settings that all cases were recorded with.
ENVIRONMENT = {
    "GCP_PROJECT_ID": "my-project",
    "GCP_CLUSTER": "my-cluster",
    "GCP_CLUSTER_LOCATION": "us-east5",
    "GCP_ZONE": "us-east5-b",
    "GCP_NODE_SERVICE_ACCOUNT": "nodes@my-project.iam.gserviceaccount.com",
}


def recorded_pod(case: dict[str, Any]) -> dict[str, Any]:
    labels = {JOBSET_NAME: "train", JOB_KEY: "0123456789abcdef", **case.get("labels", {})}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-workers-0", "controller": True}
    container = {"name": "main", "resources": {"requests": {"google.com/tpu": str(case["google.com/tpu"])}}}
    return {
        "metadata": {
            "name": "train-workers-0-0-abcde",
            "namespace": "team",
            "labels": labels,
            "annotations": case.get("annotations", {}),
            "ownerReferences": [owner],
        },
        "spec": {"nodeSelector": case["node_selector"], "containers": [container]},
    }


def test_all_cases_are_there() -> None:
    assert len(CASES) == 28


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_request_is_the_recorded_one(case: dict[str, Any]) -> None:
    settings = read({**ENVIRONMENT, **case.get("environment", {})})
    if "error" in case:
        with pytest.raises(PodError) as refused:
            creation_request(recorded_pod(case), settings)
        assert str(refused.value) == case["error"]
    else:
        assert creation_request(recorded_pod(case), settings) == case["request"]


def test_a_pools_name_has_room_for_34_letters_of_the_jobset() -> None:
    pod = recorded_pod(CASES[0])
    pod["metadata"]["labels"][JOBSET_NAME] = "x" * 60
    assert pool_name(pod) == "x" * 34 + "-01234"


@pytest.mark.parametrize(
    "variable",
    [{"CONCURRENCY": "many"}, {"NODE_MIN_LIFESPAN": "soon"}, {"GCP_FORCE_ON_DEMAND": "maybe"}, {"PROVIDER": "mock"}],
)
def test_a_setting_that_makes_no_sense_is_named(variable: dict[str, str]) -> None:
    [name] = variable
    with pytest.raises(SettingError, match=name):
        read(variable)


def test_durations_are_written_as_in_go() -> None:
    assert read({"NODE_MIN_LIFESPAN": "1m30s"}).node_min_lifespan == 90
    assert read({}).node_min_lifespan == 10
