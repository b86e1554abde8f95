"""A manager and a worker, two stacks with a cluster each, through the real engine and two real Kueues."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from sandbox import workload
from sandbox.kubernetes.api import ApiClient, Object, is_true
from sandbox_adapter import Choice, workload_command
from tests.sandbox.conftest import Project

PAIR = {"machine_type": "ct6e-standard-4t", "topology": "2x4", "capacity": "spot"}
QUEUES = {"research": {"namespaces": ["research"], "slices": {"pair": 1}}}
NAMESPACE = "research"
PATIENCE_SECONDS = 60
JOB_SECONDS = 5


def outputs(project: Project, stack: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.succeed("stack", "output", "-s", stack, "--json"))
    return found


def client(project: Project, stack: str) -> ApiClient:
    return project.session.cluster_client(outputs(project, stack)["cluster"]["endpoint"])


def eventually(look: Callable[[], Any], what: str) -> Any:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.2)
    return found


def pods(api: ApiClient) -> list[Object]:
    return [pod for pod in api.list_all("v1", "Pod", NAMESPACE) if pod["status"].get("phase") == "Running"]


def test_a_job_goes_from_the_managers_queue_to_a_worker(project: Project) -> None:
    project.write_stack("us", name="tpu-us", slices={"pair": PAIR}, queues=QUEUES, multikueue={"role": "worker"})
    manager = {
        "role": "manager",
        "workers": {"us": {"stack": "organization/tpu-platform/us"}},
        "slices": {"pair": PAIR},
    }
    project.write_stack("front", name="tpu-front", slices={}, queues=QUEUES, multikueue=manager)

    for stack in ("us", "front"):
        project.up(stack)
    project.assert_clean("front")
    assert outputs(project, "us")["multikueue"] == "[secret]"

    here, there = client(project, "front"), client(project, "us")
    arguments = workload_command("front", Choice("pair", "research", 1))
    job = here.create(workload.manifest(arguments, project.folder, JOB_SECONDS))
    eventually(lambda: len(pods(there)) == 2, "a pod on each host of the worker's slice")
    assert not pods(here), "a manager runs nothing itself"
    assert workload.workload_of(here, job)["status"]["clusterName"] == "us"
    done = eventually(lambda: _completed(here, job), "the end of the job, as the manager sees it")
    assert done["status"]["replicatedJobsStatus"][0]["succeeded"] == 1
    name = job["metadata"]["name"]
    eventually(lambda: not there.get(job["apiVersion"], job["kind"], name, NAMESPACE), "removal of the worker's copy")

    project.succeed("destroy", "-s", "front", "--yes", "--skip-preview")
    project.destroy("us")


def _completed(api: ApiClient, job: Object) -> Object | None:
    live = api.get(job["apiVersion"], job["kind"], job["metadata"]["name"], NAMESPACE) or {}
    return live if is_true(live, "Completed") else None
