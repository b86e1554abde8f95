"""`python -m tools workload train`: what a job runs, with which variables, and how it is kept and restarted."""

import contextlib
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plan.workloads.job import JAX_IMAGE
from plan.workloads.pods import SET_FOR_WORKERS
from tests.platforms import SELF_MANAGED
from tests.schema.test_kubernetes_objects import validate
from tests.tools.test_workload import BLUEPRINT, DEV, RECIPE, TEAM, app, pod_spec, printed, refused, train

IMAGE = ("--image", "example.com/own@sha256:0")


def container(file: Path, *arguments: str) -> Any:
    """The only container of a job, which has been found valid."""
    (jobset,) = printed(file, *arguments)
    validate(jobset)
    (found,) = pod_spec(jobset)["containers"]
    return found


def values(file: Path, *arguments: str) -> dict[str, Any]:
    """Variables by name: the value, or the label that it comes from."""
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"].split("'")[1]
        for each in container(file, *arguments).get("env", [])
    }


MEGASCALE = {
    "MEGASCALE_SLICE_ID": "jobset.sigs.k8s.io/job-index",
    "MEGASCALE_NUM_SLICES": "jobset.sigs.k8s.io/replicatedjob-replicas",
    "MEGASCALE_COORDINATOR_ADDRESS": "jobset.sigs.k8s.io/coordinator",
}


def test_a_job_of_one_slice_asks_no_metadata_server(stack_file: Any) -> None:
    """JAX asks there for each of the three that is unset, for six minutes where pods cannot reach it (jax#40854)."""
    slices = {
        "whole": {"machine_type": "ct6e-standard-4t", "topology": "2x2"},
        "claimed": {"machine_type": "ct6e-standard-4t", "topology": "2x2", "devices": "dra"},
    }
    file = stack_file(slices, cluster=SELF_MANAGED)
    skip = {"TPU_SKIP_MDS_QUERY": "true"}
    assert values(file, "whole") == MEGASCALE | skip
    assert values(file, "claimed") == MEGASCALE | skip | {"TPU_RUNTIME_METRICS_PORTS": "8431,8432,8433,8434"}


def test_a_job_with_claims_has_what_the_driver_does_not_set() -> None:
    """The device plugin sets the ports of metrics, the driver does not."""
    assert values(DEV, "serve", "--queue", "team") == MEGASCALE | {"TPU_RUNTIME_METRICS_PORTS": "8431"}
    found = values(RECIPE, "large", "--queue", "research")
    assert set(found) == {*MEGASCALE, "TPU_RUNTIME_METRICS_PORTS", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"}
    assert found["TPU_WORKER_HOSTNAMES"].count(",") == 3


@pytest.mark.parametrize(
    ("file", "arguments", "devices", "several"),
    [
        (DEV, ["serve"], 1, False),
        (RECIPE, ["pair", "--slices", "2"], 16, True),
        (BLUEPRINT, ["train", "--slices", "3"], 24, True),
        (TEAM, ["serve", "--queue", "product", "--slices", "2"], 2, True),
    ],
)
@pytest.mark.parametrize("missing", [0, 1])
def test_the_default_job_fails_unless_every_device_is_there(
    monkeypatch: pytest.MonkeyPatch, file: Path, arguments: list[str], devices: int, several: bool, missing: int
) -> None:
    """Runs what the container would run, with a JAX that shows some devices."""
    command = container(file, *arguments)["command"]
    assert command[:2] == ["python", "-c"]
    called: list[bool] = []
    distributed = SimpleNamespace(initialize=lambda: called.append(True))
    jax = SimpleNamespace(device_count=lambda: devices - missing, distributed=distributed)
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit) as ended:
        exec(command[2], {})
    assert ended.value.code == (1 if missing else 0)
    assert said.getvalue() == f"{devices - missing} of {devices} devices\n"
    assert bool(called) == several, "one process alone needs no coordinator"


def test_a_generation_with_two_devices_a_chip_has_all_of_them_counted(stack_file: Any) -> None:
    file = stack_file({"iron": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}}, zone="us-central1-c")
    assert "of 16 devices" in container(file, "iron")["command"][2]


@pytest.mark.parametrize(
    ("arguments", "command", "args"),
    [
        (["--", "python", "a.py", "--steps=5"], ["python", "a.py", "--steps=5"], None),
        (["--arg", "a.py", "--arg=--steps=5", "--", "python"], ["python"], ["a.py", "--steps=5"]),
        ([*IMAGE], None, None),
        ([*IMAGE, "--arg", "--steps=5"], None, ["--steps=5"]),
        ([*IMAGE, "--", "run"], ["run"], None),
    ],
)
def test_command_and_arguments(arguments: list[str], command: Any, args: Any) -> None:
    found = container(DEV, "serve", *arguments)
    assert (found.get("command"), found.get("args")) == (command, args)
    assert found["image"] == (IMAGE[1] if "--image" in arguments else JAX_IMAGE)


def test_variables_come_last_so_that_they_may_refer_to_others() -> None:
    found = container(RECIPE, "pair", "--env", "A=b=c", "--env", "ME=$(TPU_WORKER_ID)", "--env", "NONE=")
    assert found["env"][-3:] == [
        {"name": "A", "value": "b=c"},
        {"name": "ME", "value": "$(TPU_WORKER_ID)"},
        {"name": "NONE", "value": ""},
    ]


def test_restarts_and_how_long_a_job_is_kept() -> None:
    (jobset,) = printed(RECIPE, "pair")
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 3
    assert jobset["spec"]["ttlSecondsAfterFinished"] == 3600
    (jobset,) = printed(RECIPE, "pair", "--restarts", "0", "--ttl", "0")
    validate(jobset)
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert jobset["spec"]["ttlSecondsAfterFinished"] == 0


def test_the_coordinator_is_the_first_worker_of_the_first_slice() -> None:
    (jobset,) = printed(RECIPE, "pair", "--name", "n" * 26)
    validate(jobset)
    assert jobset["spec"]["coordinator"] == {"replicatedJob": "slice", "jobIndex": 0, "podIndex": 0}
    assert jobset["spec"]["network"]["subdomain"] == "n" * 26


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        (RECIPE, ["pair", "--name", "n" * 27], "has 27 characters, and JobSet takes 26"),
        (RECIPE, ["pair", "--arg", "x"], "--arg needs what takes it"),
        (RECIPE, ["pair", "--env", "A"], "--env A has no value: write NAME=VALUE"),
        (RECIPE, ["pair", "--env", "A=1", "--env", "A=2"], "--env A is written twice"),
        (RECIPE, ["pair", "--env", "A", "--env", "B=1", "--env", "B=2"], "NAME=VALUE; --env B is written twice"),
        (RECIPE, ["pair", "--env", "1A=x"], "1A is no name of a variable"),
        (RECIPE, ["pair", "--env", "=x"], "an empty text is no name of a variable"),
        *((BLUEPRINT, ["train", "--env", f"{name}=x"], f"{name} is set for the job") for name in SET_FOR_WORKERS),
        (TEAM, ["train", "--queue", "research", "--env", "STORAGE_DATA=x"], "STORAGE_DATA is set for the job"),
        (TEAM, ["train", "--queue", "research", "--env", "HF_TOKEN=x"], "HF_TOKEN is a secret of the job's team"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(file: Path, arguments: list[str], said: str) -> None:
    refused(train(file, *arguments), said)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        (["pair", "-s", "recipe", "python", "a.py", "--steps=5"], "pair -s recipe -- python a.py --steps=5"),
        (["pair", "--stack=recipe", "--json", "a.py", "--steps", "5"], "pair --stack=recipe --json -- a.py --steps 5"),
        (["-s", "recipe", "pair", "python", "a.py", "--", "--steps=5"], "-s recipe pair -- python a.py --steps=5"),
    ],
)
def test_who_forgets_the_two_dashes_reads_where_they_go(arguments: list[str], written: str) -> None:
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["workload", "train", *arguments], env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == 2
    assert f"what the container gets is written after two dashes: root workload train {written}" in result.stderr


def test_a_misspelt_option_is_still_named() -> None:
    result = train(RECIPE, "pair", "--quque", "research")
    assert result.exit_code == 2
    assert "--quque" in result.stderr
    assert "two dashes" not in result.stderr
