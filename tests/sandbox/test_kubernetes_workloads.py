"""What `python -m tools workload train` prints, as a real API server stores it, and what `why` says of it there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sandbox.kubernetes import assets
from sandbox.kubernetes.api import ApiError, Object, is_true
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.tests.kubernetes_support import UNTIL_TOLD, end
from tests.graph.recording import ROOT
from tests.sandbox.admission import within
from tests.sandbox.queue_cluster import QueueCluster, queue_cluster
from tests.schema.test_kubernetes_objects import validate
from tools.__main__ import app

pytestmark = pytest.mark.sandbox

STACK = ROOT / "Pulumi.recipe.yaml"
PATIENCE = 240.0
NAMESPACE = "research"


@pytest.fixture(scope="module")
def cluster() -> Iterator[QueueCluster]:
    """The recipe's queues and its slices: claims through DRA, two hosts a slice and four."""
    written = yaml.safe_load(STACK.read_text())["config"]
    written["tpu-platform:platform"]["priorities"] = {"high": 1000}
    config = {key: value if isinstance(value, str) else json.dumps(value) for key, value in written.items()}
    with queue_cluster(config) as made:
        yield made


@pytest.fixture(scope="module")
def stack_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stack's file with a priority."""
    written = yaml.safe_load(STACK.read_text())
    written["config"]["tpu-platform:platform"]["priorities"] = {"high": 1000}
    path = tmp_path_factory.mktemp("stack") / "Pulumi.recipe.yaml"
    path.write_text(yaml.safe_dump(written))
    return path


def printed(stack_file: Path, *arguments: str) -> Object:
    """The JobSet that the tool prints."""
    command = ["workload", "train", "-f", str(stack_file), "--queue", "research", "--json", *arguments]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (jobset,) = json.loads(done.stdout)
    validate(jobset)
    made: Object = jobset
    return made


def run_for(jobset: Object, seconds: float) -> Object:
    """The same, with pods that run for so long on played hosts."""
    for each in jobset["spec"]["replicatedJobs"]:
        metadata = each["template"]["spec"]["template"].setdefault("metadata", {})
        metadata.setdefault("annotations", {})[RUN_FOR] = f"{seconds:g}s"
    return jobset


def container(stored: Object) -> Any:
    [job] = stored["spec"]["replicatedJobs"]
    [found] = job["template"]["spec"]["template"]["spec"]["containers"]
    return found


FLAGS: dict[str, tuple[list[str], Any]] = {
    "--slices": (["--slices", "2"], lambda stored: stored["spec"]["replicatedJobs"][0]["replicas"] == 2),
    "--name": (["--name", "other"], lambda stored: stored["metadata"]["name"] == "other"),
    "--namespace": (["-n", NAMESPACE], lambda stored: stored["metadata"]["namespace"] == NAMESPACE),
    "--queue": ([], lambda stored: stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"),
    "--priority": (
        ["--priority", "high"],
        lambda stored: stored["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high",
    ),
    "--image": (["--image", "example.com/a@sha256:0"], lambda stored: "command" not in container(stored)),
    "command": (
        ["--", "python", "a.py", "--steps=5"],
        lambda stored: container(stored)["command"] == ["python", "a.py", "--steps=5"],
    ),
    "--arg": (
        ["--arg", "--steps=5", "--arg", "x y", "--", "python"],
        lambda stored: container(stored)["args"] == ["--steps=5", "x y"],
    ),
    "--env": (
        ["--env", "A=b=c", "--env", "WHO=$(TPU_WORKER_ID)"],
        lambda stored: (
            container(stored)["env"][-2:]
            == [{"name": "A", "value": "b=c"}, {"name": "WHO", "value": "$(TPU_WORKER_ID)"}]
        ),
    ),
    "--restarts": (
        ["--restarts", "0"],
        lambda stored: (
            "maxRestarts" not in stored["spec"]["failurePolicy"] or stored["spec"]["failurePolicy"]["maxRestarts"] == 0
        ),
    ),
    "--restarts 7": (["--restarts", "7"], lambda stored: stored["spec"]["failurePolicy"]["maxRestarts"] == 7),
    "--ttl": (["--ttl", "60"], lambda stored: stored["spec"]["ttlSecondsAfterFinished"] == 60),
    "coordinator": (
        ["--name", "n" * 26],
        lambda stored: stored["spec"]["coordinator"] == {"jobIndex": 0, "podIndex": 0, "replicatedJob": "slice"},
    ),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_the_server_stores_what_a_flag_asks_for(cluster: QueueCluster, stack_file: Path, flag: str) -> None:
    arguments, holds = FLAGS[flag]
    command = arguments.index("--") if "--" in arguments else len(arguments)
    wanted = printed(stack_file, "pair", *arguments[:command], *arguments[command:])
    made = cluster.client.create(wanted)
    stored = cluster.client.get(made["apiVersion"], "JobSet", wanted["metadata"]["name"], NAMESPACE)
    assert stored
    assert holds(stored), stored


def test_a_coordinator_of_one_character_more_is_refused_by_jobset(cluster: QueueCluster, stack_file: Path) -> None:
    """The tool's limit of names is JobSet's own."""
    wanted = printed(stack_file, "pair", "--name", "n" * 26)
    longer = json.loads(json.dumps(wanted).replace("n" * 26, "n" * 27))
    with pytest.raises(ApiError, match="63"):
        cluster.client.create(longer, dry_run=True)


def test_pods_are_told_what_a_label_says(cluster: QueueCluster, stack_file: Path) -> None:
    """Every label that a variable comes from is on the pod, so that no variable is empty."""
    cluster.client.create(run_for(printed(stack_file, "pair", "--slices", "2"), UNTIL_TOLD))
    selector = "jobset.sigs.k8s.io/jobset-name=pair"
    pods = within(PATIENCE, lambda: _four(cluster.client.list_all("v1", "Pod", NAMESPACE, labelSelector=selector)))
    for pod in pods:
        for each in pod["spec"]["containers"][0]["env"]:
            if path := each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath"):
                assert pod["metadata"]["labels"][path.split("'")[1]], path
    coordinators = {pod["metadata"]["labels"]["jobset.sigs.k8s.io/coordinator"] for pod in pods}
    assert coordinators == {"pair-slice-0-0.pair"}


def _four(pods: list[Object]) -> list[Object]:
    return pods if len(pods) == 4 else []


@pytest.fixture(autouse=True)
def _empty(cluster: QueueCluster) -> Iterator[None]:
    """No test leaves a job behind, also one that fails."""
    yield
    for each in cluster.client.list_all("jobset.x-k8s.io/v1alpha2", "JobSet", NAMESPACE):
        cluster.client.delete(each)
    within(PATIENCE, lambda: cluster.chips("research") == 0)


def why(cluster: QueueCluster, stack_file: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """Exit code and text of `why`, which reads this cluster with the real kubectl."""
    folder = assets.program("kubectl").parent
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("COLUMNS", "400")
    done = CliRunner().invoke(app, ["why", "-f", str(stack_file), *arguments])
    return done.exit_code, done.output


def test_why_follows_a_job_from_the_queue_to_its_end(
    cluster: QueueCluster, stack_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs want both slices of the group: the second waits for the first, is preferred, and preempts it."""

    def asked(*arguments: str) -> tuple[int, str]:
        return why(cluster, stack_file, monkeypatch, *arguments)

    client = cluster.client
    client.create(run_for(printed(stack_file, "pair", "--slices", "2", "--name", "first"), UNTIL_TOLD))
    within(PATIENCE, lambda: "runs: 4 running" in asked("first")[1])
    exit_code, text = asked("first")
    assert exit_code == 0
    assert "4 of 4 have their chips" in text
    assert "4 of 4 hosts of" in text
    second = client.create(run_for(printed(stack_file, "pair", "--slices", "2", "--name", "second"), UNTIL_TOLD))
    within(PATIENCE, lambda: "held by research/first (16)" in asked("second")[1])
    exit_code, text = asked("jobset/second")
    assert exit_code == 0
    assert "JobSet research/second waits: research (ClusterQueue research): waits: " in text
    assert "research uses 16 of its 16 chips" in text
    exit_code, text = asked()
    assert "JobSet research/first" in text
    assert "JobSet research/second" in text
    client.delete(second)
    third = client.create(
        run_for(printed(stack_file, "pair", "--slices", "2", "--name", "third", "--priority", "high"), UNTIL_TOLD)
    )
    within(PATIENCE, lambda: "evicted before: Preempted for JobSet research/third" in asked("first")[1])
    selector = "jobset.sigs.k8s.io/jobset-name=third"
    pods = within(PATIENCE, lambda: _four(client.list_all("v1", "Pod", NAMESPACE, labelSelector=selector)))
    within(PATIENCE, lambda: "runs: 4 running" in asked("third")[1])
    end(client, pods)
    within(PATIENCE, lambda: is_true(client.get(third["apiVersion"], "JobSet", "third", NAMESPACE) or {}, "Completed"))
    exit_code, text = asked("third")
    assert exit_code == 0
    assert "JobSet research/third has ended" in text


def test_why_names_a_template_that_is_not_there(
    cluster: QueueCluster, stack_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue cannot count the chips of such a claim, so the job never leaves its queue."""
    broken = printed(stack_file, "pair", "--name", "broken")
    [job] = broken["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "gone"
    cluster.client.create(broken)
    within(PATIENCE, lambda: why(cluster, stack_file, monkeypatch, "broken")[0] == 1)
    assert "gone" in why(cluster, stack_file, monkeypatch, "broken")[1]
