"""The self-managed stack as committed, with the real engine: machines become a cluster, jobs run, nothing is left."""

from __future__ import annotations

import os
import subprocess

import pytest

from sandbox.kubernetes.nodes import TPU_RESOURCE
from tests.sandbox.conftest import Project
from tests.sandbox.workloads import eventually, jobs_of

pytestmark = pytest.mark.sandbox


def test_a_slice_of_managed_instances_serves_one_job_after_the_other(project: Project) -> None:
    """One slice of two hosts; both jobs want all of it."""
    project.copy_stack("gce")
    project.up("gce")
    project.assert_clean("gce")
    nodes = kubectl(project, "get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.name} {end}").split()
    assert [each for each in nodes if each.startswith("tpu-gce-train")] == [
        "tpu-gce-train-0-w-0001",
        "tpu-gce-train-0-w-0002",
    ]
    with jobs_of(project, "gce") as jobs:
        first = jobs.submit("first")
        pods = jobs.running(first)
        second = jobs.submit("second")
        jobs.assert_whole_slices(first, pods)
        for node in jobs.client.list_all("v1", "Node", labelSelector="cloud.google.com/gke-tpu-topology=2x2x2"):
            assert node["status"]["allocatable"][TPU_RESOURCE] == "4"
            assert node["spec"]["providerID"] == f"gce://my-project/us-central1-c/{node['metadata']['name']}"
        eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
        jobs.finish_in_order(first, second)
    project.destroy("gce")
    eventually("the cluster gone with its disk", lambda: not list(project.session.run.kubernetes.glob("disk-*")))


def kubectl(project: Project, *arguments: str) -> str:
    """A person's way in: the stack's kubeconfig, whose credential `gcloud` gives."""
    file = project.folder / "kubeconfig"
    file.write_text(project.succeed("stack", "output", "kubeconfig", "-s", "gce", "--show-secrets"))
    environment = {**os.environ, **project.session.environment}
    command = [str(project.session.run.bin / "kubectl"), "--kubeconfig", str(file), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
