"""The multi-host stacks as committed: up, a clean preview, jobs on the real scheduler, JobSet and Kueue, destroy."""

from __future__ import annotations

from sandbox import workload
from sandbox.faults import Staged
from sandbox.kubernetes.api import Object
from tests.sandbox.conftest import Project
from tests.sandbox.recovery import tool
from tests.sandbox.workloads import Jobs, eventually, jobs_of


def test_the_blueprint_runs_multislice_jobs_on_slices_that_queued_provisioning_brings(project: Project) -> None:
    """Three slices of two hosts, none there at first; two jobs of two slices each, so that the second has to wait."""
    project.copy_stack("blueprint")
    project.up("blueprint")
    project.assert_clean("blueprint")
    with jobs_of(project, "blueprint") as jobs:
        first = jobs.submit("first")
        assert not jobs.nodes(first), "no slice before there is a job"
        pods = jobs.running(first)
        second = jobs.submit("second")
        jobs.assert_whole_slices(first, pods)
        assert len(jobs.nodes(first)) == 2, "no more slices than are asked for"
        eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
        jobs.finish_in_order(first, second)
        eventually("all slices are given back", lambda: not jobs.nodes(first))
    project.assert_clean("blueprint")
    project.destroy("blueprint")


def rehearse(project: Project, jobs: Jobs, job: Object) -> None:
    """The drill "A slice is taken back" of docs/drills.md: pods on lost hosts go, and the job restarts on new ones."""
    before = jobs.running(job)
    staged, slice_ = Staged(project.session), min(jobs.nodes(job))
    hosts = set(staged.interrupt(slice_, "preempted", None))
    assert hosts == set(staged.lost())
    eventually(
        "no pod is on a lost host", lambda: hosts.isdisjoint(each["spec"].get("nodeName") for each in jobs.pods(job))
    )
    eventually("the job restarts", lambda: jobs.restarts(job) == 1)
    report = tool(project, "status", "-s", "recipe", "--json")
    assert {f"host {name}" for name in hosts} <= {each["what"] for each in report["interruptions"]}
    staged.clear()
    again = jobs.running(job)
    assert {each["metadata"]["uid"] for each in again}.isdisjoint(each["metadata"]["uid"] for each in before)
    assert jobs.restarts(job) == 1, "one restart for the whole slice"


def test_the_recipe_gives_a_job_every_chip_of_every_host_and_mixes_no_slices(project: Project) -> None:
    """Two slices of two hosts with four chips each, which pods claim through DRA; both jobs want both slices.

    `destroy` leaves nothing behind, although a job and a server run.
    """
    project.copy_stack("recipe")
    project.up("recipe")
    project.assert_clean("recipe")
    with jobs_of(project, "recipe") as jobs:
        first = jobs.submit("first")
        pods = jobs.running(first)
        second = jobs.submit("second")
        jobs.assert_whole_slices(first, pods)
        for pod in pods:
            chips = workload.allocations(jobs.client, pod)
            assert {chip["pool"] for chip in chips} == {pod["spec"]["nodeName"]}
            assert len({chip["device"] for chip in chips}) == 4
        eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
        jobs.finish_in_order(first, second)
        rehearse(project, jobs, jobs.submit("left"))
        jobs.serve("large", "server")
    project.destroy("recipe")
