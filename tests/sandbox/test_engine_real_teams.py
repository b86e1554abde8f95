"""A member of a team at work, in real containers: a job with the team's bucket and secret, and what is closed to it.

Everything is done with the member's own rights (impersonated); the administrator only makes the stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from sandbox import workload
from sandbox.hosts.choice import Choice
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.run_directory import RunDirectory
from sandbox.session import Plan, running
from sandbox.tests.isolation import short_directory
from tests.sandbox.conftest import ROOT, Project, link_checkout
from tests.sandbox.warm_python import warm_up
from tests.sandbox.workloads import eventually

pytestmark = pytest.mark.real_pods

STACK, MINE, OTHERS = "teams", "research", "product"
OWN, READ_ONLY, FOREIGN = "my-project_tpu-dev_research_runs", "acme-c4", "my-project_tpu-dev_product_runs"
KUEUE, QUEUE_LABEL = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/queue-name"
SLICES = {"serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot"}}
TEAMS: dict[str, Any] = {
    MINE: {
        "members": ["user:eva@example.com"],
        "storage": {"runs": {"keep": False, "mount": "/runs"}, "data": {"bucket": READ_ONLY, "mount": "/data"}},
        "secrets": {"HF_TOKEN": "hf-token"},
    },
    OTHERS: {"members": ["user:max@example.com"], "storage": {"runs": {"keep": False, "mount": "/runs"}}},
}
QUEUES = {
    MINE: {"namespaces": [MINE], "slices": {"serve": 1}},
    OTHERS: {"namespaces": [OTHERS], "slices": {"serve": 0}},
}
CODE = """
import os
print("reads", open("/data/input").read(), os.environ["HF_TOKEN"], os.environ["STORAGE_RUNS"], flush=True)
try:
    open("/data/output", "w")
except OSError as error:
    print("refused:", error.strerror, flush=True)
open("/runs/result", "w").write("42")
"""


@dataclass(frozen=True)
class Lab:
    """The stack that is up; `eva` is a member of one of its teams."""

    project: Project
    eva: ApiClient

    def manifest(self, *command: str) -> Object:
        """The tool's job for the team, with a command of its own."""
        tool = ("-m", "tools", "workload", "train", "serve", "--queue", MINE, "-f", f"Pulumi.{STACK}.yaml")
        return workload.manifest((*tool, "--", *command), self.project.folder, seconds=1)

    def storage(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        url = f"{self.project.session.emulator_url}{path}"
        headers = {"Authorization": "Bearer token"}
        return httpx.request(method, url, content=content, headers=headers, timeout=30, trust_env=False)

    def finished(self, job: Object) -> bool:
        metadata = job["metadata"]
        found = self.eva.get(job["apiVersion"], job["kind"], metadata["name"], metadata["namespace"]) or {}
        assert not is_true(found, "Failed"), found.get("status")
        return is_true(found, "Completed")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    plan = Plan(pods=Choice(1, "real"))
    with short_directory() as scratch, running(RunDirectory(scratch / "run"), plan, ROOT) as session:
        warm_up(session.run)
        folder = link_checkout(tmp_path_factory.mktemp("real") / "project")
        made = Project(replace(session, program_dir=folder))
        made.succeed("stack", "init", STACK)
        made.write_stack(STACK, slices=SLICES, queues=QUEUES, teams=TEAMS)
        made.up(STACK)
        client = made.cluster_client()
        assert client
        with client, client.impersonate("eva@example.com", ("system:authenticated",), {}) as eva:
            yield Lab(made, eva)
        made.destroy(STACK)


def test_a_job_has_the_teams_buckets_and_secret_and_its_member_sees_it(lab: Lab) -> None:
    lab.storage(
        "POST", f"/upload/storage/v1/b/{READ_ONLY}/o?uploadType=media&name=input", b"numbers"
    ).raise_for_status()
    eventually("the team's Secret", lambda: lab.eva.get("v1", "Secret", "secrets", MINE))
    job = lab.eva.create(lab.manifest("python", "-c", CODE))
    eventually("a pod", lambda: lab.eva.list_all("v1", "Pod", MINE))
    [entry] = eventually("its place in the queue", lambda: lab.eva.list_all(KUEUE, "Workload", MINE))
    eventually(
        "it is admitted",
        lambda: is_true(lab.eva.get(KUEUE, "Workload", entry["metadata"]["name"], MINE) or {}, "Admitted"),
    )
    eventually("it has run", lambda: lab.finished(job))
    [pod] = lab.eva.list_all("v1", "Pod", MINE)
    path = lab.eva.path("v1", "Pod", pod["metadata"]["name"], MINE)
    said = lab.eva.request("GET", f"{path}/log", container=pod["spec"]["containers"][0]["name"])["text"].splitlines()
    assert said == [f"reads numbers hf_sandbox gs://{OWN}", "refused: Read-only file system"]
    eventually("the result", lambda: lab.storage("GET", f"/storage/v1/b/{OWN}/o/result?alt=media").text == "42")
    assert lab.storage("GET", f"/storage/v1/b/{READ_ONLY}/o/output").status_code == 404
    lab.eva.delete(job)


def test_a_job_without_a_queues_name_is_queued_all_the_same(lab: Lab) -> None:
    """It asks for two slices, and the queue has one: it waits."""
    wanted = lab.manifest("python", "-c", "pass")
    wanted["metadata"]["name"] = "greedy"
    del wanted["metadata"]["labels"][QUEUE_LABEL]
    wanted["spec"]["replicatedJobs"][0]["replicas"] = 2
    wanted["spec"]["network"] = {"subdomain": "greedy"}
    job = lab.eva.create(wanted)
    assert job["metadata"]["labels"][QUEUE_LABEL] == "default"
    assert job["spec"]["suspend"] is True

    def waits() -> bool:
        entries = lab.eva.list_all(KUEUE, "Workload", MINE)
        mine = [each for each in entries if each["metadata"]["ownerReferences"][0]["name"] == "greedy"]
        return any(not is_true(each, "Admitted") and each.get("status", {}).get("conditions") for each in mine)

    eventually("it waits in the queue", waits)
    assert not [each for each in lab.eva.list_all("v1", "Pod", MINE) if each["metadata"]["name"].startswith("greedy")]
    lab.eva.delete(job)


def test_the_other_teams_namespace_is_closed(lab: Lab) -> None:
    job = lab.manifest("python", "-c", "pass")
    job["metadata"]["namespace"] = OTHERS
    with pytest.raises(ApiError, match="forbidden"):
        lab.eva.create(job)
    for kind in ("Pod", "Secret"):
        with pytest.raises(ApiError, match="forbidden"):
            lab.eva.list_all("v1", kind, OTHERS)


def test_a_pod_does_not_mount_the_other_teams_bucket(lab: Lab) -> None:
    """Whoever may make pods may name any bucket in them: the grant decides."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief", "namespace": MINE, "annotations": {"gke-gcsfuse/volumes": "true"}},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "sandbox/python:1",
                    "command": ["python", "-c", "pass"],
                    "volumeMounts": [{"name": "loot", "mountPath": "/loot"}],
                }
            ],
            "volumes": [
                {
                    "name": "loot",
                    "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": {"bucketName": FOREIGN}},
                }
            ],
            "nodeSelector": {"cloud.google.com/gke-tpu-topology": "1x1"},
            "tolerations": [{"operator": "Exists"}],
        },
    }
    made = lab.eva.create(pod)

    def refused() -> bool:
        events = [each for each in lab.eva.list_all("v1", "Event", MINE) if each["involvedObject"]["name"] == "thief"]
        expected = f'code = PermissionDenied desc = failed to get GCS bucket "{FOREIGN}"'
        return any(expected in each["message"] for each in events)

    eventually("the driver's event", refused)
    found = lab.eva.get("v1", "Pod", "thief", MINE)
    assert found
    assert found["status"]["phase"] == "Pending"
    lab.eva.delete(made, grace_seconds=0)
