"""The tools' jobs in real containers: JAX on four hosts of two slices finds its peers by what this program writes.

On GKE and on a self-managed cluster, with device plugin and with DRA. The job is the tool's, image and all; hosts know
its image as JAX for CPU (`sandbox_adapter.py`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import check_output
from typing import Any

import pytest

from plan.workloads.leader_worker_set import SET_LABEL
from plan.workloads.server import VLLM_PORT
from sandbox import workload
from sandbox.hosts.choice import Choice
from sandbox.kubernetes import assets
from sandbox.kubernetes.api import ApiClient, Object, is_true
from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from sandbox.tests.isolation import short_directory
from tests.sandbox.conftest import ROOT, Project, link_checkout
from tests.sandbox.warm_python import warm_up
from tests.sandbox.workloads import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.real_pods

HOSTS = 5  # two slices of two hosts, and one of one; many more would meet the kernel's limit of inotify instances
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "gke-plugin": ({"kind": "gke", "release_channel": "RAPID"}, "device-plugin"),
    "gke-dra": ({"kind": "gke", "release_channel": "RAPID"}, "dra"),
    "compute-plugin": ({"kind": "self-managed"}, "device-plugin"),
    "compute-dra": ({"kind": "self-managed"}, "dra"),
}
# Each process gives its number, plus one; all of them together have to come to 1 + 2 + 3 + 4.
CODE = """
import jax
from jax.experimental.multihost_utils import process_allgather
jax.distributed.initialize(initialization_timeout=300)
total = process_allgather(jax.numpy.array([jax.process_index() + 1])).sum()
print(f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices, sum {total}", flush=True)
"""


@pytest.fixture(scope="module", params=KINDS)
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, str]]:
    """A stack with two slices, up, all of its TPU hosts real."""
    name = request.param
    cluster, devices = KINDS[name]
    plan = Plan(pods=Choice(HOSTS, "real"))
    with short_directory() as scratch, running(RunDirectory(scratch / "run"), plan, ROOT) as session:
        warm_up(session.run)
        folder = link_checkout(tmp_path_factory.mktemp("real") / "project")
        made = Project(replace(session, program_dir=folder))
        made.succeed("stack", "init", name)
        slices = {
            "train": {"machine_type": "ct5p-hightpu-4t", "topology": "2x2x2", "count": 2, "devices": devices},
            "serve": {"machine_type": "ct6e-standard-4t", "topology": "2x2", "devices": devices},
        }
        queues = {"jobs": {"namespaces": ["team"], "slices": {"train": 2, "serve": 1}}}
        made.write_stack(name, zone="us-east5-a", cluster=cluster, slices=slices, queues=queues)
        made.up(name)
        yield made, name
        made.destroy(name)


def manifest(folder: Path, stack: str) -> Object:
    tool = (
        "-m",
        "tools",
        "workload",
        "train",
        "train",
        "--queue",
        "jobs",
        "--slices",
        "2",
        "-f",
        f"Pulumi.{stack}.yaml",
    )
    return workload.manifest((*tool, "--", "python", "-c", CODE), folder, seconds=1)


def written(client: ApiClient, job: Object) -> set[str]:
    """What the job's processes say of themselves."""
    lines = (line for _, line in workload.log_lines(client, job))
    return {line for line in lines if re.match(r"process \d", line)}


def test_the_processes_of_a_job_find_each_other(stack: tuple[Project, str]) -> None:
    project, name = stack
    client = project.cluster_client()
    assert client
    with client:
        job = client.apply(manifest(project.folder, name))
        for _ in workload.watch(client, job, timeout=PATIENCE_SECONDS):
            pass
        assert written(client, job) == {f"process {number} of 4, 16 devices, sum 10" for number in range(4)}


def test_a_job_with_a_hostname_too_few_fails(stack: tuple[Project, str]) -> None:
    """Two of the four processes then take the same number. On GKE its webhook sets what the job does not."""
    project, name = stack
    client = project.cluster_client()
    assert client
    with client:
        job = manifest(project.folder, name)
        job["metadata"]["name"] = "broken"
        job["spec"]["network"]["subdomain"] = "broken"
        job["spec"]["failurePolicy"] = {"maxRestarts": 0}
        [container] = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        others = [each for each in container.get("env", []) if each["name"] != "TPU_WORKER_HOSTNAMES"]
        container["env"] = [*others, {"name": "TPU_WORKER_HOSTNAMES", "value": "broken-slice-0-0.broken"}]
        applied = client.apply(job)
        eventually("the job fails", lambda: is_true(seen(client, applied), "Failed"))


def test_a_server_is_reached_by_the_name_of_its_service(stack: tuple[Project, str]) -> None:
    """The tool's vLLM server, image and all: ready once it answers, with as many devices as its host has."""
    project, name = stack
    client = project.cluster_client()
    assert client
    tool = [
        sys.executable,
        "-m",
        "tools",
        "workload",
        "serve",
        "serve",
        "--model",
        "acme/tiny",
        "--queue",
        "jobs",
        "--json",
    ]
    printed = check_output([*tool, "-f", f"Pulumi.{name}.yaml"], cwd=project.folder, text=True)
    with client:
        server, service = (client.create(each) for each in json.loads(printed))
        assert service["metadata"]["name"] == "serve-http"
        eventually("the server is ready", lambda: has_endpoint(client, "serve-http", "team"))
        [pod] = client.list_all("v1", "Pod", "team", labelSelector=f"{SET_LABEL}=serve")
        answer = json.loads(kubectl(project, "exec", pod["metadata"]["name"], "--", "python", "-c", ASKING))
        assert answer["choices"][0]["text"] == " one two"
        assert "serves acme/tiny on 4 devices" in kubectl(project, "logs", pod["metadata"]["name"])
        client.delete(server)


ASKING = f"""
import json, urllib.request
asked = json.dumps({{"prompt": "one two three", "max_tokens": 2}}).encode()
print(urllib.request.urlopen("http://serve-http.team:{VLLM_PORT}/v1/completions", asked).read().decode())
"""


def kubectl(project: Project, *arguments: str) -> str:
    """What kubectl prints of the namespace `team`."""
    command = [str(assets.program("kubectl")), f"--kubeconfig={project.session.run.kubeconfig}", "--namespace=team"]
    return check_output([*command, *arguments], text=True)


def has_endpoint(client: ApiClient, service: str, namespace: str) -> bool:
    selector = f"kubernetes.io/service-name={service}"
    slices = client.list_all("discovery.k8s.io/v1", "EndpointSlice", namespace, labelSelector=selector)
    return any(each["conditions"]["ready"] for found in slices for each in found.get("endpoints") or [])


def seen(client: ApiClient, job: Object) -> Object:
    found = client.get(job["apiVersion"], job["kind"], job["metadata"]["name"], job["metadata"]["namespace"])
    assert found
    return found
