"""A manager and a worker, two stacks with a cluster each, through the real engine and two real Kueues."""

from __future__ import annotations

import json
from typing import Any

from sandbox import workload
from sandbox.kubernetes.api import ApiClient, Object, is_true
from sandbox.tests.kubernetes_support import UNTIL_TOLD, end
from sandbox_adapter import Choice, workload_command
from tests.sandbox.conftest import Project
from tests.sandbox.workloads import eventually

PAIR = {"machine_type": "ct6e-standard-4t", "topology": "2x4", "capacity": "spot"}
QUEUES = {"research": {"namespaces": ["research"], "slices": {"pair": 1}}}
NAMESPACE = "research"


def outputs(project: Project, stack: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.succeed("stack", "output", "-s", stack, "--json"))
    return found


def client(project: Project, stack: str) -> ApiClient:
    return project.session.cluster_client(outputs(project, stack)["cluster"]["endpoint"])


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
    job = here.create(workload.manifest(arguments, project.folder, UNTIL_TOLD))
    eventually("a pod on each host of the worker's slice", lambda: len(pods(there)) == 2)
    assert not pods(here), "a manager runs nothing itself"
    eventually("the manager says where it runs", lambda: _place(here, job) == "us")
    end(there, pods(there))
    done = eventually("the end of the job, as the manager sees it", lambda: _completed(here, job))
    assert done["status"]["replicatedJobsStatus"][0]["succeeded"] == 1
    name = job["metadata"]["name"]
    eventually("removal of the worker's copy", lambda: not there.get(job["apiVersion"], job["kind"], name, NAMESPACE))

    project.succeed("destroy", "-s", "front", "--yes", "--skip-preview")
    project.destroy("us")


def _place(api: ApiClient, job: Object) -> str:
    """The worker that has taken a job."""
    return str(workload.workload_of(api, job).get("status", {}).get("clusterName", ""))


def _completed(api: ApiClient, job: Object) -> Object | None:
    live = api.get(job["apiVersion"], job["kind"], job["metadata"]["name"], NAMESPACE) or {}
    return live if is_true(live, "Completed") else None
