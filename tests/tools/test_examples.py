"""`examples/`: up to date, valid, in a queue, and within what Pod Security allows."""

from typing import Any

import pytest
import yaml

from catalogue.labels import PRIORITY_LABEL, QUEUE_LABEL
from plan.platform import Platform
from plan.pod_security import BASELINE_CAPABILITIES, TPU_CAPABILITIES, allows_capabilities
from plan.workloads.job import Job, WorkloadError, plan_named
from plan.workloads.plain_job import plain_job
from rules.load import load_stack_file
from tests.graph.recording import ROOT, STACK_FILES
from tests.platforms import load
from tests.schema.test_kubernetes_objects import validate
from tools import examples

MANIFESTS = [
    pytest.param(stack, manifest, id=f"{stack}-{example.name}-{number}")
    for stack in examples.STACKS
    for example in examples.examples(load_stack_file(ROOT / f"Pulumi.{stack}.yaml"))
    for number, manifest in enumerate(example.manifests)
]


def pod_specs(manifest: Any) -> list[Any]:
    spec = manifest["spec"]
    if manifest["kind"] == "LeaderWorkerSet":
        return [spec["leaderWorkerTemplate"]["workerTemplate"]["spec"]]
    jobs = [each["template"]["spec"] for each in spec["replicatedJobs"]] if manifest["kind"] == "JobSet" else [spec]
    return [job["template"]["spec"] for job in jobs]


def platform(stack: str) -> Platform:
    return load_stack_file(ROOT / f"Pulumi.{stack}.yaml")


def test_the_files_are_up_to_date_and_no_others_are_there() -> None:
    made = examples.files()
    assert [each.path for each in made if not each.is_fresh()] == [], "run: python -m tools examples --write"
    assert examples.left_over(made) == []
    assert set(examples.STACKS) == {path.name.split(".")[1] for path in STACK_FILES}


def test_a_file_that_no_stack_has_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    made = examples.files()
    monkeypatch.setattr(examples, "ROOT", tmp_path)
    (tmp_path / "examples" / "gone").mkdir(parents=True)
    (tmp_path / "examples" / "gone" / "hello.yaml").write_text("")
    assert [path.name for path in examples.left_over(made)] == ["hello.yaml"]


@pytest.mark.parametrize("stack", examples.STACKS)
def test_every_stack_has_something_to_try_to_train_and_to_look_around_in(stack: str) -> None:
    names = {each.name for each in examples.examples(platform(stack))}
    assert {"hello", "batch", "debug"} <= names
    hosts = [plan.hosts * plan.count for plan in platform(stack).slice_plans]
    assert ("train" in names) == (max(hosts) > 1)


def test_a_platform_without_queues_has_no_examples() -> None:
    assert list(examples.examples(load())) == []


@pytest.mark.parametrize(("stack", "manifest"), MANIFESTS)
def test_a_manifest_is_valid_and_passes_the_platforms_policies(stack: str, manifest: Any) -> None:
    """Those of Pod Security and of queues. The sandbox's tests ask the real API server."""
    validate(manifest)
    if manifest["kind"] == "Service":
        return
    of = platform(stack)
    queue = of.queues[manifest["metadata"]["labels"][QUEUE_LABEL]]
    assert manifest["metadata"]["namespace"] in queue.namespaces
    assert manifest["metadata"]["labels"].get(PRIORITY_LABEL, next(iter(of.priorities), None)) in (*of.priorities, None)
    capabilities = {*BASELINE_CAPABILITIES, *(TPU_CAPABILITIES if allows_capabilities(of) else ())}
    for spec in pod_specs(manifest):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not any("hostPath" in volume for volume in spec.get("volumes", []))
        for container in spec["containers"]:
            assert "@sha256:" in container["image"] or container["image"].rpartition(":")[2] not in ("", "latest")
            context = container.get("securityContext", {})
            assert not context.get("privileged")
            assert set(context.get("capabilities", {}).get("add", [])) <= capabilities
            assert not any("hostPort" in port for port in container["ports"])


def test_training_keeps_its_checkpoints_where_the_team_has_a_bucket() -> None:
    by_name = {each.name: each for each in examples.examples(platform("team"))}
    [spec] = pod_specs(by_name["train"].manifests[0])
    [container] = spec["containers"]
    assert {"name": examples.CHECKPOINTS, "value": "/checkpoints"} in container["env"]
    by_name = {each.name: each for each in examples.examples(platform("recipe"))}
    assert "has no bucket" in by_name["train"].about


@pytest.mark.parametrize("stack", examples.STACKS)
def test_slices_of_one_host_have_a_server(stack: str) -> None:
    names = {each.name for each in examples.examples(platform(stack))}
    assert ("serve" in names) == any(not plan.multi_host for plan in platform(stack).slice_plans)


def test_the_urgent_job_comes_second_so_that_it_has_something_to_preempt() -> None:
    by_name = {each.name: each for each in examples.examples(platform("blueprint"))}
    assert [each["metadata"]["labels"][PRIORITY_LABEL] for each in by_name["batch"].manifests] == ["low", "high"]


def test_programs_are_written_as_blocks() -> None:
    text = (ROOT / "examples" / "recipe" / "train.yaml").read_text()
    assert "              - |-\n                import os, pathlib\n" in text
    [jobset] = yaml.safe_load_all(text)
    [container] = pod_specs(jobset)[0]["containers"]
    assert container["command"] == ["python", "-c", examples.TRAINING]
    compile(container["command"][2], "training", "exec")


def test_a_plain_job_is_for_one_host() -> None:
    recipe, provisioner = platform("recipe"), platform("provisioner")
    with pytest.raises(WorkloadError, match="are more: use a JobSet"):
        plain_job(recipe, plan_named(recipe, "pair"), Job("j", "research", 1, "research"))
    with pytest.raises(WorkloadError, match="more: use a JobSet"):
        plain_job(provisioner, plan_named(provisioner, "train"), Job("j", "team-a", 1, "research"))
    team = platform("team")
    made = plain_job(team, plan_named(team, "serve"), Job("j", "research", 1, "research", restarts=2, keep_seconds=5))
    validate(made)
    assert (made["spec"]["backoffLimit"], made["spec"]["ttlSecondsAfterFinished"]) == (2, 5)
    assert "MEGASCALE" not in str(made), "labels of JobSet, which a plain Job's pods lack"
