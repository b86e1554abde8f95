"""Slices on demand through the real engine: no TPU host at first, a job brings its slices, and they go after it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import yaml

from catalogue.labels import ACCELERATOR_LABEL, JOBSET_LABEL
from sandbox import workload
from sandbox.kubernetes.api import ApiError, Object
from sandbox_adapter import workload_command
from tests.sandbox.conftest import PLATFORM, Project
from tests.sandbox.workloads import PATIENCE_SECONDS, Jobs, eventually, jobs_of

MACHINE, ZONE = "ct6e-standard-4t", "us-east5-a"


def created_pools(project: Project, stack: str) -> tuple[int, Any]:
    """Exit code and JSON of `python -m tools pools`."""
    command = [sys.executable, "-m", "tools", "pools", "-f", f"Pulumi.{stack}.yaml", "--json"]
    environment = dict(project.session.environment)
    done = subprocess.run(
        command, cwd=project.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def without_own_pools(project: Project, jobs: Jobs) -> Object:
    """The tool's job, as somebody writes it who does not know of the selector."""
    job = workload.manifest(workload_command(jobs.stack, jobs.choice), project.folder, 1)
    template = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    del template["spec"]["nodeSelector"][JOBSET_LABEL]
    return job


def restarts(jobs: Jobs, job: Any) -> int:
    """How often the JobSet controller has started a job anew."""
    metadata = job["metadata"]
    live = jobs.client.get(job["apiVersion"], job["kind"], metadata["name"], metadata["namespace"]) or {}
    return int(live.get("status", {}).get("restarts", 0))


def finish(jobs: Jobs, job: Object) -> None:
    """Ends a job, and waits until its hosts are gone."""
    jobs.end(job)
    for _ in workload.watch(jobs.client, job, PATIENCE_SECONDS, until_no_hosts=True):
        pass


def test_gke_creates_the_slices_of_a_class_and_destroy_leaves_none(project: Project) -> None:
    """What GKE created is in no state: an edit of the class touches no running slice, and it ends with the cluster."""
    project.copy_stack("ondemand")
    project.up("ondemand")
    project.assert_clean("ondemand")
    project.call("POST", "stock", {"zone": ZONE, "machine_type": MACHINE, "model": "spot", "machines": 4})
    with jobs_of(project, "ondemand") as jobs:
        fall_back_where_the_first_choice_is_out_of_stock(project, jobs)
        outlive_an_edit(project, jobs)
    project.destroy("ondemand")


def fall_back_where_the_first_choice_is_out_of_stock(project: Project, jobs: Jobs) -> None:
    """Two jobs of two slices each; of spot hosts there is one slice, so that the second slice is flex-start."""
    assert not jobs.client.list_all("v1", "Node", labelSelector=ACCELERATOR_LABEL), "no slice before there is a job"
    first = jobs.submit("first")
    pods = jobs.running(first)
    jobs.assert_whole_slices(first, pods)
    spot = jobs.client.list_all("v1", "Node", labelSelector="cloud.google.com/gke-spot=true")
    assert (len(spot), len(pods)) == (4, 8)
    project.assert_clean("ondemand")
    second = jobs.run_example()
    eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
    jobs.finish_in_order(first, second)
    eventually("all slices are given back", lambda: not jobs.nodes(first))
    project.assert_clean("ondemand")


def outlive_an_edit(project: Project, jobs: Jobs) -> None:
    """Running slices stay as they are where their class gets another capacity."""
    job = jobs.submit("third")
    jobs.running(job)
    file = project.folder / "Pulumi.ondemand.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"][PLATFORM]["slices"]["train"]["capacity"] = "on-demand"
    file.write_text(yaml.safe_dump(content))
    before = jobs.nodes(job)
    project.up("ondemand")
    project.assert_clean("ondemand")
    found = jobs.client.get("cloud.google.com/v1", "ComputeClass", "tpu-ondemand-train") or {}
    assert [each.get("spot") for each in found["spec"]["priorities"]] == [None]
    assert jobs.nodes(job) == before, "running slices stay"


def test_tpu_provisioner_creates_a_pool_for_each_job_and_destroy_leaves_none(project: Project) -> None:
    """At the end there are the pools of a job that runs, and two that could not be created."""
    project.copy_stack("provisioner")
    project.up("provisioner")
    project.assert_clean("provisioner")
    with jobs_of(project, "provisioner") as jobs:
        create_a_pool_for_each_job_and_delete_it_after(project, jobs)
        find_a_pool_that_could_not_be_created(project, jobs)
        jobs.running(jobs.submit("left"))
    output = project.succeed("destroy", "-s", "provisioner", "--yes", "--skip-preview", "--run-program")
    assert "of JobSet team-a/left" in output, "the pools that go with the cluster are named"
    assert "cannot be listed" not in output
    assert not project.state("provisioner").get("resources")
    assert project.session.inventory() == {}


def create_a_pool_for_each_job_and_delete_it_after(project: Project, both: Jobs) -> None:
    """Two jobs of one shape at once. The pool of the first goes when it ends, and the second does not notice."""
    jobs = replace(both, choice=replace(both.choice, count=1))
    assert not jobs.client.list_all("v1", "Node", labelSelector=ACCELERATOR_LABEL), "no slice before there is a job"
    with pytest.raises(ApiError, match="run on the node pool of another JobSet"):
        jobs.client.create(without_own_pools(project, both))
    first, second = jobs.submit("first"), jobs.submit("second")
    for job in (first, second):
        jobs.assert_whole_slices(job, jobs.running(job))
    assert not jobs.nodes(first).keys() & jobs.nodes(second).keys(), "no JobSet takes another's pool"
    code, pools = created_pools(project, "provisioner")
    assert (code, [pool["jobset"] for pool in pools]) == (0, ["team-a/first", "team-a/second"])
    project.assert_clean("provisioner")
    jobs.end(first)
    eventually("the pool of the first is gone", lambda: not jobs.nodes(first))
    assert jobs.running(second)
    assert restarts(jobs, second) == 0, "the pool of the second went with the first"
    finish(jobs, second)
    finish(jobs, jobs.run_example())
    assert created_pools(project, "provisioner") == (0, [])
    project.assert_clean("provisioner")


def find_a_pool_that_could_not_be_created(project: Project, jobs: Jobs) -> None:
    """The controller announces it as a success, and never tries again."""
    for _ in range(2):
        project.inject(kind="operation", method="POST", path="/nodePools$", code="ZONE_RESOURCE_POOL_EXHAUSTED")
    job = jobs.submit("broken")

    def found(problem: str) -> bool:
        code, pools = created_pools(project, "provisioner")
        return code == 1 and [problem in pool["problem"] for pool in pools] == [True, True]

    eventually("the check finds both broken pools", lambda: found("its creation failed"))
    jobs.client.delete(job)
    eventually("it finds that nobody needs them", lambda: found("its JobSet is gone"))
