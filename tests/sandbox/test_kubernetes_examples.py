"""The manifests in `examples/` on the real API server of their stack: taken, queued, counted, run to its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from plan.slices import SlicePlan
from rules.load import load_stack_file
from sandbox.kubernetes.api import Object, condition, is_true
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.tests.kubernetes_support import UNTIL_TOLD, end
from sandbox.workload import workload_of
from tests.graph.recording import ROOT
from tests.sandbox.admission import within
from tests.sandbox.queue_cluster import QueueCluster, queue_cluster
from tools import examples
from tools.why.job import POD_LABELS

pytestmark = pytest.mark.sandbox

PATIENCE = 240.0
STACKS = [stack for stack in examples.STACKS if examples.has_own_pools(load_stack_file(ROOT / f"Pulumi.{stack}.yaml"))]
"""Not those with slices on demand: `test_engine_on_demand.py` has theirs."""


@pytest.fixture(scope="module", params=STACKS)
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[str, QueueCluster]]:
    """One cluster for each stack. Only the fixture has parameters: otherwise each test would make a cluster."""
    written = yaml.safe_load((ROOT / f"Pulumi.{request.param}.yaml").read_text())["config"]
    config = {key: value if isinstance(value, str) else json.dumps(value) for key, value in written.items()}
    with queue_cluster(config) as made:
        yield request.param, made


def test_every_example_is_taken_counted_and_run(
    cluster: tuple[str, QueueCluster], record_property: Callable[[str, object], None]
) -> None:
    stack, made = cluster
    for example in examples.examples(made.platform):
        text = (ROOT / "examples" / stack / f"{example.name}.yaml").read_text()
        manifests = [_running_until_told(each) for each in yaml.safe_load_all(text)]
        seconds = _endless(made, manifests) if example.endless else _to_the_end(made, manifests)
        record_property(f"{stack}/{example.name}", f"{seconds:.1f} s")
        print(f"{stack}/{example.name}: {seconds:.1f} s from submission to end, of pods that run for no time")


def _running_until_told(manifest: Object) -> Object:
    """The same, with pods that run on played hosts until the test ends them."""
    for template in _templates(manifest):
        template.setdefault("metadata", {}).setdefault("annotations", {})[RUN_FOR] = f"{UNTIL_TOLD}s"
    return manifest


def _templates(manifest: Object) -> list[Any]:
    spec = manifest["spec"]
    if manifest["kind"] == "Service":
        return []
    if manifest["kind"] == "LeaderWorkerSet":
        return [spec["leaderWorkerTemplate"]["workerTemplate"]]
    jobs = [each["template"]["spec"] for each in spec["replicatedJobs"]] if manifest["kind"] == "JobSet" else [spec]
    return [job["template"] for job in jobs]


def _plan(made: QueueCluster, manifest: Object) -> SlicePlan:
    """The plan whose hosts the manifest's pods select."""
    selector = _templates(manifest)[0]["spec"]["nodeSelector"]
    shape = {key: value for key, value in selector.items() if key.startswith("cloud.google.com/gke-tpu")}
    return next(each for each in made.platform.slice_plans if shape.items() <= each.tpu_labels.items())


def _pods(manifest: Object) -> int:
    if manifest["kind"] == "Job":
        return 1
    if manifest["kind"] == "LeaderWorkerSet":
        return int(manifest["spec"]["replicas"] * manifest["spec"]["leaderWorkerTemplate"]["size"])
    return sum(
        each["replicas"] * each["template"]["spec"]["parallelism"] for each in manifest["spec"]["replicatedJobs"]
    )


def _chips(made: QueueCluster, manifest: Object) -> int:
    return _pods(manifest) * _plan(made, manifest).chips_per_host


def _queue(manifest: Object) -> str:
    name: str = manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    return name


def _live(made: QueueCluster, manifest: Object) -> Object:
    metadata = manifest["metadata"]
    return made.client.get(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata["namespace"]) or {}


def _ended(live: Object) -> bool:
    assert not is_true(live, "Failed"), live["status"]
    return is_true(live, "Completed") or is_true(live, "Complete")


def _to_the_end(made: QueueCluster, manifests: list[Object]) -> float:
    """Submits all, sees the queue fill, ends them one after the other; returns the seconds until the last has ended."""
    queue = _queue(manifests[0])
    assert made.chips(queue) == 0
    begun = time.monotonic()
    first = made.client.create(manifests[0])
    within(PATIENCE, lambda: made.chips(queue) == _chips(made, manifests[0]))
    for each in manifests[1:]:
        later = made.client.create(each)
        within(PATIENCE, lambda later=later: _one_waits(made, first, later))  # type: ignore[misc]
    left = list(manifests)
    while left:
        # With priorities it is not the first that runs first.
        [runs, *_] = within(PATIENCE, lambda: [each for each in left if len(_running(made, each)) == _pods(each)])
        end(made.client, _running(made, runs))
        within(PATIENCE, lambda runs=runs: _ended(_live(made, runs)))  # type: ignore[misc]
        left.remove(runs)
    seconds = time.monotonic() - begun
    within(PATIENCE, lambda: made.chips(queue) == 0)
    _delete(made, manifests)
    return seconds


def _running(made: QueueCluster, manifest: Object) -> list[Object]:
    """Its pods that run."""
    selector = f"{POD_LABELS[manifest['kind']]}={manifest['metadata']['name']}"
    pods = made.client.list_all("v1", "Pod", manifest["metadata"]["namespace"], labelSelector=selector)
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def _one_waits(made: QueueCluster, first: Object, later: Object) -> bool:
    """Whether the queue holds one of two jobs that both want everything: the later, or by its priority the first."""
    reserved = condition(workload_of(made.client, later), "QuotaReserved")
    preempted = condition(workload_of(made.client, first), "Evicted")
    waits = reserved.get("status") == "False" and "insufficient" in reserved.get("message", "")
    return waits or preempted.get("reason") == "Preempted"


def _endless(made: QueueCluster, manifests: list[Object]) -> float:
    """Submits what runs until somebody deletes it; returns the seconds until its pods run."""
    (manifest,) = filter(_templates, manifests)
    queue = _queue(manifest)
    begun = time.monotonic()
    for each in manifests:
        made.client.create(each)
    within(PATIENCE, lambda: len(_running(made, manifest)) == _pods(manifest))
    seconds = time.monotonic() - begun
    # Kueue writes a queue's usage a moment after it has admitted a workload.
    within(PATIENCE, lambda: made.chips(queue) == _chips(made, manifest))
    _delete(made, manifests)
    within(PATIENCE, lambda: made.chips(queue) == 0)
    return seconds


def _delete(made: QueueCluster, manifests: list[Object]) -> None:
    for each in manifests:
        made.client.delete(each)
        within(PATIENCE, lambda each=each: not _live(made, each))  # type: ignore[misc]
