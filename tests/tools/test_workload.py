"""`python -m tools workload`: manifests that fit the platform's slices, and clear refusals where none would."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from catalogue.labels import FLAVOR_LABEL
from plan.workloads.job import JAX_IMAGE
from plan.workloads.server import VLLM_IMAGE
from rules.load import load_stack_file
from tests.graph.recording import ROOT
from tests.platforms import SELF_MANAGED
from tests.schema.test_kubernetes_objects import validate
from tools.__main__ import app

RECIPE = ROOT / "Pulumi.recipe.yaml"
TEAM = ROOT / "Pulumi.team.yaml"
BLUEPRINT = ROOT / "Pulumi.blueprint.yaml"
DEV = ROOT / "Pulumi.dev.yaml"


def train(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["workload", "train", "-f", str(file), *arguments])


def printed(file: Path, *arguments: str) -> list[Any]:
    """Objects of a job."""
    return documents(train(file, *arguments))


def documents(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def job_template(jobset: Any) -> Any:
    (job,) = jobset["spec"]["replicatedJobs"]
    return job["template"]["spec"]


def pod_spec(jobset: Any) -> Any:
    return job_template(jobset)["template"]["spec"]


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        (RECIPE, ["pair", "--queue", "research"]),
        (RECIPE, ["pair", "--queue", "research", "--slices", "2"]),
        (RECIPE, ["large", "--queue", "research"]),
        (BLUEPRINT, ["train", "--queue", "training", "--slices", "3", "--priority", "high"]),
        (DEV, ["serve", "--queue", "team"]),
    ],
)
def test_manifests_are_valid(file: Path, arguments: list[str]) -> None:
    for manifest in printed(file, *arguments):
        validate(manifest)


def test_a_pod_for_each_host_and_a_job_for_each_slice() -> None:
    (jobset,) = printed(RECIPE, "pair", "--queue", "research", "--slices", "2")
    assert jobset["spec"]["replicatedJobs"][0]["replicas"] == 2
    template = job_template(jobset)
    assert (template["parallelism"], template["completions"], template["completionMode"]) == (2, 2, "Indexed")
    exclusive = jobset["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
    assert exclusive == "cloud.google.com/gke-nodepool"


def test_claims_take_all_chips_and_say_who_the_workers_are() -> None:
    (jobset,) = printed(RECIPE, "pair", "--queue", "research", "--slices", "2", "--name", "run")
    pod = pod_spec(jobset)
    (container,) = pod["containers"]
    assert pod["resourceClaims"] == [{"name": "tpu", "resourceClaimTemplateName": "tpu-v5e-4"}]
    assert "google.com/tpu" not in str(container["resources"])
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK", "SYS_RESOURCE"]
    names = [variable["name"] for variable in container["env"]]
    # A variable may only refer to those before it.
    assert names.index("MEGASCALE_SLICE_ID") < names.index("TPU_WORKER_HOSTNAMES")
    hosts = container["env"][names.index("TPU_WORKER_HOSTNAMES")]["value"].split(",")
    assert hosts == ["run-slice-$(MEGASCALE_SLICE_ID)-0.run", "run-slice-$(MEGASCALE_SLICE_ID)-1.run"]


def test_device_plugin_pods_of_gke_leave_their_environment_to_gke() -> None:
    (jobset,) = printed(BLUEPRINT, "train", "--queue", "training", "--slices", "3")
    pod = pod_spec(jobset)
    (container,) = pod["containers"]
    assert "env" not in container
    assert "resourceClaims" not in pod
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    assert jobset["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "86400"
    assert {"key": "cloud.google.com/gke-queued", "operator": "Equal", "value": "true", "effect": "NoSchedule"} in (
        pod["tolerations"]
    )


@pytest.fixture
def without_gke(stack_file: Any) -> Any:
    """A stack file of slices as managed instance groups: one of two hosts, and single hosts."""
    slices = {
        "iron": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2", "count": 2, "capacity": "flex-start"},
        "single": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x1"},
    }
    return stack_file(slices, zone="us-central1-c", cluster=SELF_MANAGED)


def test_without_gke_workers_are_told_who_they_are(without_gke: Path) -> None:
    (jobset,) = printed(without_gke, "iron", "--slices", "2", "--name", "run")
    validate(jobset)
    (container,) = pod_spec(jobset)["containers"]
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    by_name = {variable["name"]: variable for variable in container["env"]}
    assert by_name["TPU_WORKER_ID"]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.labels['batch.kubernetes.io/job-completion-index']"
    )
    assert by_name["TPU_WORKER_HOSTNAMES"]["value"] == (
        "run-slice-$(MEGASCALE_SLICE_ID)-0.run,run-slice-$(MEGASCALE_SLICE_ID)-1.run"
    )
    exclusive = jobset["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
    assert exclusive == "cloud.google.com/gke-nodepool", "the node's group, which is one slice"


def test_a_pod_asks_for_more_than_half_a_host() -> None:
    for plan in load_stack_file(RECIPE).slice_plans:
        (jobset,) = printed(RECIPE, plan.name, "--queue", "research")
        requests = pod_spec(jobset)["containers"][0]["resources"]["requests"]
        assert plan.machine.vcpus / 2 < int(requests["cpu"]) < plan.machine.vcpus
        assert plan.machine.memory_gb / 2 < int(requests["memory"].removesuffix("Gi")) < plan.machine.memory_gb


def test_pods_select_the_labels_their_pools_declare() -> None:
    for file, name in ((RECIPE, "pair"), (BLUEPRINT, "train"), (DEV, "serve")):
        (plan,) = (plan for plan in load_stack_file(file).slice_plans if plan.name == name)
        (jobset,) = printed(file, name)
        assert pod_spec(jobset)["nodeSelector"][FLAVOR_LABEL] == plan.labels[FLAVOR_LABEL]


def test_the_command_after_two_dashes_is_the_containers() -> None:
    options = ["--queue", "research", "--image", "example.com/train@sha256:0"]
    (jobset,) = printed(RECIPE, "large", *options, "--", "python", "train.py", "--steps=5")
    (container,) = pod_spec(jobset)["containers"]
    assert container["image"] == "example.com/train@sha256:0"
    assert container["command"] == ["python", "train.py", "--steps=5"]


def test_the_default_images_pass_the_policy_pack() -> None:
    """The job's default image was `:latest`, which the policy image-pinned refuses."""
    for images in (JAX_IMAGE, VLLM_IMAGE):
        tag = images.rpartition("/")[2].partition(":")[2]
        assert "@sha256:" in images or tag not in ("", "latest")


@pytest.mark.parametrize(
    ("file", "arguments", "said"),
    [
        (RECIPE, ["pear"], "no slices called pear: it has"),
        (RECIPE, ["pair", "--slices", "3"], "3 slices of pair asked for, the platform has 2"),
        (RECIPE, ["pair", "--queue", "nobody"], "no queue nobody: it has"),
        (RECIPE, ["pair", "--queue", "production"], "queue production has no slices of pair: it has large"),
        (RECIPE, ["pair", "--queue", "research", "-n", "production"], "takes no work from production"),
        (RECIPE, ["pair", "-n", "elsewhere"], "no namespace elsewhere"),
        (RECIPE, ["pair", "--priority", "high"], "it has none; add priorities: {high: 1000} to the stack file"),
        (BLUEPRINT, ["train", "--priority", "top"], "no priority top: it has high, low"),
        (RECIPE, ["pair", "--slices", "3"], "ask for fewer (--slices), or raise slices.pair.count"),
        (RECIPE, ["pair", "--image", ""], "--image is empty: is a variable unset?"),
        (RECIPE, ["pair", "--queue", "", "--priority", " "], "--queue is empty: is a variable unset?; --priority is"),
        (RECIPE, ["pair", "--namespace", ""], "--namespace is empty"),
        (RECIPE, ["pair", "--name", ""], "--name is empty"),
        (RECIPE, ["pair", "--image", "foo bar"], "--image 'foo bar' is no image: for example"),
        (RECIPE, ["pair", "--name", "x" * 60], "characters too long"),
        (TEAM, ["train"], "belong to queues research, product: write --queue research or product"),
    ],
)
def test_what_does_not_fit_is_refused(file: Path, arguments: list[str], said: str) -> None:
    refused(train(file, *arguments), said)


def refused(result: Result, said: str) -> None:
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pair", "--queue", "research", "--", "python"], "pair is neither train nor serve"),
        (["-f", str(RECIPE), "pair"], "-f is neither train nor serve"),
        (["serve", "--serve=m", "-f", str(DEV)], "--serve is no more"),
        (["train", "--queue", "research", "-s", "team", "--", "python", "a.py"], "Missing argument 'SLICES'"),
    ],
)
def test_who_writes_the_former_commands_reads_the_new_ones(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["workload", *arguments], env={"COLUMNS": "300", "TERM": "dumb"})
    assert result.exit_code == 2
    assert said in result.stderr
    assert "SLICES [OPTIONS] -- COMMAND" in result.stderr or "[OPTIONS] {SLICES} [-- COMMAND]" in result.stderr


LONELY = {"namespaces": ["lonely"], "slices": {"train": 0}}
OWNER = {"namespaces": ["owner"], "slices": {"train": 3}, "lend": {"train": 2}}


@pytest.mark.parametrize(
    ("lonely", "owner", "most"),
    [
        ({}, {}, 0),
        ({"borrow": True}, {}, 2),
        ({"borrow": True}, {"lend": True}, 3),
        ({"borrow": True}, {"lend": False}, 0),
        ({"borrow": {"train": 1}}, {}, 1),
        ({"borrow": True, "slices": {"train": 1}}, {}, 3),
        ({"borrow": True, "cohort": "elsewhere"}, {}, 0),
        ({"borrow": True, "cohort": "below"}, {"cohort": "top"}, 2),
    ],
)
def test_a_job_that_its_queue_can_never_have_the_slices_for_is_refused(
    stack_file: Any, lonely: Any, owner: Any, most: int
) -> None:
    """B3 of users.md: the job was printed, and waited in its queue without end."""
    slices = {"train": {"machine_type": "ct6e-standard-4t", "topology": "2x4", "count": 4}}
    queues = {"lonely": {**LONELY, **lonely}, "owner": {**OWNER, **owner}}
    file = stack_file(slices, queues=queues, cohorts={"top": {}, "below": {"parent": "top"}})
    for count in range(1, 5):
        result = train(file, "train", "--queue", "lonely", "--slices", str(count))
        assert result.exit_code == (0 if count <= most else 1), result.output
        if count > most:
            assert f"queue lonely can never have {count} slices of train" in result.stderr


MOUNTS = [
    {"name": "storage-checkpoints", "mountPath": "/checkpoints"},
    {"name": "storage-data", "mountPath": "/data", "readOnly": True},
]


def test_a_job_of_a_team_has_its_buckets_and_secrets() -> None:
    (jobset,) = printed(TEAM, "train", "--queue", "research")
    validate(jobset)
    template = job_template(jobset)["template"]
    (container,) = template["spec"]["containers"]
    assert container["volumeMounts"] == MOUNTS
    assert template["spec"]["volumes"] == [
        {"name": "storage-checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
        {"name": "storage-data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
    ]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["STORAGE_CHECKPOINTS"] == "gs://my-project_tpu-team_research_checkpoints"
    assert values["STORAGE_DATA"] == "gs://acme-c4"
    assert container["envFrom"] == [{"secretRef": {"name": "secrets"}}]
    # A fifth of the 720 GB of a ct6e-standard-4t; the driver reads these from pods, not from jobs.
    assert template["metadata"]["annotations"] == {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
        "gke-gcsfuse/memory-limit": "144Gi",
    }
    assert "annotations" not in jobset["metadata"] or not any(
        "fuse" in key for key in jobset["metadata"]["annotations"]
    )
    assert "serviceAccountName" not in template["spec"]


def test_a_job_of_a_namespace_that_is_no_team_gets_nothing_of_teams() -> None:
    (jobset,) = printed(DEV, "serve", "--queue", "team")
    text = yaml.safe_dump(jobset)
    assert not [word for word in ("gcsfuse", "STORAGE_", "envFrom") if word in text]


def test_a_job_of_a_team_reads_a_disk_without_the_bucket_drivers_sidecar(stack_file: Any) -> None:
    file = stack_file(
        {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4"}},
        teams={"a": {"storage": {"weights": {"disk": "gemma", "mount": "/weights"}}}},
        queues={"q": {"namespaces": ["a"], "slices": {"train": 1}}},
    )
    (jobset,) = printed(file, "train")
    validate(jobset)
    template = job_template(jobset)["template"]
    (container,) = template["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "storage-weights", "mountPath": "/weights", "readOnly": True}]
    assert template["spec"]["volumes"] == [
        {"name": "storage-weights", "persistentVolumeClaim": {"claimName": "weights", "readOnly": True}}
    ]
    assert not any("fuse" in key for key in template.get("metadata", {}).get("annotations", {}))


def test_a_job_of_a_self_managed_cluster_has_a_token_for_google(stack_file: Any) -> None:
    file = stack_file(
        {"train": {"machine_type": "ct6e-standard-8t", "topology": "2x4"}},
        cluster=SELF_MANAGED,
        teams={"a": {"storage": {"d": {}}}, "b": {}},
    )
    (jobset,) = printed(file, "train", "-n", "a")
    validate(jobset)
    spec = pod_spec(jobset)
    (container,) = spec["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["STORAGE_D"] == "gs://my-project_tpu_a_d"
    assert values["GOOGLE_APPLICATION_CREDENTIALS"] == "/var/run/google-identity/credential.json"
    token, credential = spec["volumes"][0]["projected"]["sources"]
    assert token["serviceAccountToken"] == {"audience": "my-project/tpu", "expirationSeconds": 3600, "path": "token"}
    assert credential["configMap"]["name"] == "google-identity"
    (other,) = printed(file, "train", "-n", "b")
    assert "volumes" not in pod_spec(other)
