"""Submitting the tools' sample jobs to a stack that is up, and asking its cluster where they run."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sandbox import workload
from sandbox.kubernetes.api import ApiClient, Object, condition, is_true
from sandbox.kubernetes.nodes import POOL_LABEL
from sandbox.tests import kubernetes_support
from sandbox.tests.kubernetes_support import UNTIL_TOLD
from sandbox_adapter import Choice, choose, workload_command
from tests.graph.recording import ROOT
from tests.sandbox.conftest import Project

T = TypeVar("T")
PATIENCE_SECONDS = 300.0


def eventually(what: str, look: Callable[[], T]) -> T:
    """The first true answer of `look`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, f"never seen: {what}"
        time.sleep(0.2)
    return found


def has_release(client: ApiClient, release: str, status: str) -> bool:
    """Whether the cluster has a Helm release in that status, in the namespace of its controller."""
    label = f"owner=helm,name={release},status={status}"
    return bool(client.list_all("v1", "Secret", f"{release}-system", labelSelector=label))


def place_pod(client: ApiClient, node: str) -> Object:
    """The pod default/training on a node; it does not go before its finalizer is taken away."""
    return client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "training", "namespace": "default", "finalizers": ["example.com/checkpoint"]},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "training", "image": "registry.k8s.io/pause:3.10"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
    )


@dataclass(frozen=True)
class Jobs:
    """The jobs of one stack, in its cluster."""

    client: ApiClient
    folder: Path
    stack: str
    choice: Choice

    def submit(self, name: str) -> Object:
        """A job of the stack's widest slices, from the tool's manifest; its pods run until `end`."""
        arguments = workload_command(self.stack, self.choice, "--name", name)
        return self.client.apply(workload.manifest(arguments, self.folder, UNTIL_TOLD))

    def run_example(self) -> Object:
        """The JobSet of the stack's `examples/STACK/train.yaml`, submitted; its pods run until `end`.

        Before that the API server takes every example of the stack, without storing it.
        """
        examples = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in self._example_files()}
        for each in itertools.chain.from_iterable(examples.values()):
            self.client.create(each, dry_run=True)
        (job,) = examples["train"]
        return self.client.create(workload.running_for(job, UNTIL_TOLD))

    def _example_files(self) -> list[Path]:
        found = sorted((ROOT / "examples" / self.stack).glob("*.yaml"))
        assert found, f"no examples of {self.stack}"
        return found

    def serve(self, slices: str, name: str) -> None:
        """A server of several hosts on one slice, from the tool's manifest; returns once its pods run."""
        wanted = (slices, "--queue", self.choice.queue, "--stack", self.stack, "--name", name, "--model", "tiny")
        command = [sys.executable, "-m", "tools", "workload", "serve", *wanted, "--experimental-multi-host"]
        printed = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout
        objects = [self.client.apply(each) for each in yaml.safe_load_all(printed)]
        server = next(each for each in objects if each["kind"] == "LeaderWorkerSet")
        hosts = server["spec"]["leaderWorkerTemplate"]["size"]
        selector = f"leaderworkerset.sigs.k8s.io/name={name}"

        def all_run() -> bool:
            found = self.client.list_all("v1", "Pod", server["metadata"]["namespace"], labelSelector=selector)
            return [each["status"].get("phase") for each in found] == ["Running"] * hosts

        eventually(f"{hosts} running pods of {name}", all_run)

    def pods(self, job: Object) -> list[Object]:
        metadata = job["metadata"]
        selector = f"jobset.sigs.k8s.io/jobset-name={metadata['name']}"
        return self.client.list_all("v1", "Pod", metadata["namespace"], labelSelector=selector)

    def restarts(self, job: Object) -> int:
        """How often JobSet has begun the job anew."""
        metadata = job["metadata"]
        found = self.client.get(job["apiVersion"], "JobSet", metadata["name"], metadata["namespace"]) or {}
        return int(found.get("status", {}).get("restarts", 0))

    def running(self, job: Object) -> list[Object]:
        """The job's pods once all of them run."""
        wanted = sum(
            each["replicas"] * each["template"]["spec"]["parallelism"] for each in job["spec"]["replicatedJobs"]
        )

        def all_run() -> list[Object]:
            found = [each for each in self.pods(job) if each["status"].get("phase") == "Running"]
            return found if len(found) == wanted else []

        return eventually(f"{wanted} running pods of {job['metadata']['name']}", all_run)

    def end(self, job: Object) -> None:
        """The job's work is done, once all of its pods run."""
        kubernetes_support.end(self.client, self.running(job))

    def nodes(self, job: Object) -> dict[str, set[str]]:
        """The nodes that are there for such a job, by node pool."""
        selector = job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"]
        labels = ",".join(f"{key}={value}" for key, value in selector.items())
        pools: dict[str, set[str]] = defaultdict(set)
        for node in self.client.list_all("v1", "Node", labelSelector=labels):
            pools[node["metadata"]["labels"][POOL_LABEL]].add(node["metadata"]["name"])
        return dict(pools)

    def assert_whole_slices(self, job: Object, pods: list[Object]) -> None:
        """Each slice of the job has a node pool of its own, and a pod on every host of it."""
        slices: dict[str, set[str]] = defaultdict(set)
        for pod in pods:
            slices[pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]].add(pod["spec"]["nodeName"])
        pools = list(self.nodes(job).values())
        assert len(slices) == self.choice.count
        assert all(hosts in pools for hosts in slices.values())
        assert sum(map(len, slices.values())) == len(pods), "no two pods share a host"

    def waits_for_quota(self, job: Object) -> bool:
        reserved = condition(workload.workload_of(self.client, job), "QuotaReserved")
        return reserved.get("status") == "False" and "insufficient" in reserved.get("message", "")

    def finish_in_order(self, first: Object, second: Object) -> None:
        """Ends both: the second is admitted after the first has given its slices back."""
        self.end(first)
        self.end(second)
        for _ in workload.watch(self.client, second, PATIENCE_SECONDS):
            pass
        done, later = (workload.workload_of(self.client, job) for job in (first, second))
        assert is_true(done, "Finished")
        assert condition(later, "Admitted")["lastTransitionTime"] >= condition(done, "Finished")["lastTransitionTime"]


@contextmanager
def jobs_of(project: Project, stack: str) -> Iterator[Jobs]:
    """The jobs of a stack that is up and has a queue."""
    outputs: dict[str, Any] = project.outputs(stack)
    choice = choose(outputs)
    assert choice
    with project.session.cluster_client(outputs["cluster"]["endpoint"]) as client:
        yield Jobs(client, project.folder, stack, choice)
