"""Stacks from their files to their end through the real engine: mistakes, up, clean previews, another cluster, jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from sandbox.kubernetes.api import ApiClient, Object, UnknownKindError
from sandbox.workload import QUEUE_API
from tests.sandbox.conftest import PLATFORM, Project
from tests.sandbox.workloads import eventually, has_release, jobs_of

TRIES = 2  # of the gate, which comes back every 5 seconds
NOBODY = "nobody"


def test_a_bad_stack_file_ends_in_one_list_of_errors(project: Project) -> None:
    """All mistakes at once, each with its place, and what to write instead."""
    slices = {
        "train": {"machine_type": "ct6e-standard-4t", "topology": "2*4", "count": 0},
        "odd": {"machine_type": "ct6e-standard-4t", "topology": "3x3"},
    }
    project.write_stack("mistakes", slices=slices, zon="us-east5-b")
    output = project.fail("preview", "-s", "mistakes")
    places = ("slices.train.topology", "slices.train.count", "slices.odd.topology", "zon")
    instead = ("2x4", "zone")
    for word in (*places, *instead):
        assert word in output
    assert "Traceback" not in output
    assert "gcp:" not in output.replace("gcp:project", ""), "nothing registers"
    assert project.requests() == []


def test_a_missing_project_is_named(project: Project) -> None:
    project.write_stack("homeless")
    path = project.folder / "Pulumi.homeless.yaml"
    content = yaml.safe_load(path.read_text())
    del content["config"]["gcp:project"]
    path.write_text(yaml.safe_dump(content))
    output = project.fail("up", "-s", "homeless", "--yes", "--skip-preview")
    assert "gcp:project" in output
    assert "Traceback" not in output
    assert project.session.inventory() == {}


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def take_kueue_away(client: ApiClient) -> Object:
    """From the moment its Service exists no pod stands behind it: the API server answers 500 to what Kueue admits."""
    service: Object = eventually(
        "Kueue's Service", lambda: client.get("v1", "Service", "kueue-webhook-service", "kueue-system") or {}
    )
    client.patch(service, {"spec": {"selector": {NOBODY: "here"}}})
    return service


def refusals(client: ApiClient) -> float:
    """How often the API server has refused a flavor because it could not reach Kueue's webhook."""
    name = 'apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="'
    metrics = client.request("GET", "/metrics")["text"].splitlines()
    ours = [each for each in metrics if each.startswith(name) and "resourceflavor" in each]
    return sum(float(each.rpartition(" ")[2]) for each in ours)


def flavors(client: ApiClient) -> list[Object]:
    try:
        return client.list_all(QUEUE_API, "ResourceFlavor")
    except UnknownKindError:
        return []


def up_while_webhooks_fail(project: Project, stack: str) -> dict[str, int]:
    """Bring the stack up; its webhooks cannot be reached for a while after Kueue is installed."""
    with ThreadPoolExecutor() as pool:
        update = pool.submit(project.up, stack)
        client = eventually("a cluster", project.cluster_client)
        assert client
        with client:
            service = take_kueue_away(client)
            eventually("Kueue installed", lambda: has_release(client, "kueue", "deployed") or update.done())
            refused = {refusals(client)}

            def comes_back() -> bool:
                refused.add(refusals(client))
                return len(refused) > TRIES

            eventually("the gate comes back", lambda: comes_back() or update.done())
            assert not update.done()
            assert not flavors(client), "nothing that Kueue admits gets past its webhooks"
            client.patch(service, {"spec": {"selector": {NOBODY: None}}})
        return update.result()


def uids(project: Project, stack: str) -> dict[str, Any]:
    """What the server calls the objects that the stack has in its cluster, by URN."""
    return {
        each["urn"]: each["outputs"]["metadata"]["uid"]
        for each in project.state(stack)["resources"]
        if each["type"].startswith("kubernetes:") and "metadata" in each["outputs"]
    }


def urn_of(project: Project, stack: str, name: str) -> str:
    [urn] = [each["urn"] for each in project.state(stack)["resources"] if each["urn"].endswith(f"::{name}")]
    return str(urn)


def test_the_dev_stack_comes_up_in_a_cluster_made_anew_runs_jobs_and_goes_away(project: Project) -> None:
    project.copy_stack("dev")
    before = files(project.folder)
    assert up_while_webhooks_fail(project, "dev").keys() == {"create"}
    project.assert_clean("dev")
    project.succeed("refresh", "-s", "dev", "--yes", "--skip-preview", "--expect-no-changes")
    assert files(project.folder) == before, "running a stack writes nothing beside the program"

    old = uids(project, "dev")
    project.succeed(
        *("state", "delete", urn_of(project, "dev", "access-provider"), "--target-dependents", "--yes", "-s", "dev")
    )
    changes = project.up("dev", "--replace", urn_of(project, "dev", "cluster-gke"))
    assert changes["create"] > len(old), "everything inside the new cluster"
    new = uids(project, "dev")
    assert new.keys() == old.keys()
    assert not new.items() & old.items(), "no object of the old cluster is taken for one of the new"
    project.assert_clean("dev")

    with jobs_of(project, "dev") as jobs:
        first, second = jobs.submit("first"), jobs.submit("second")
        jobs.assert_whole_slices(first, jobs.running(first))
        eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
        jobs.finish_in_order(first, second)

        # Its users rename a queue while a job of it runs: that hung for minutes without a word.
        lasting = jobs.submit("lasting")
        jobs.running(lasting)
        rename_queue(project, "dev", "team", "crew")
        output = project.fail("up", "-s", "dev", "--yes", "--skip-preview")
        assert "queues-clusterqueue-team is not gone yet" in output, output
        assert jobs.running(lasting), "the job runs on"
        jobs.client.delete(lasting)
    project.up("dev")
    project.assert_clean("dev")
    project.destroy("dev")


def rename_queue(project: Project, stack: str, old: str, new: str) -> None:
    path = project.folder / f"Pulumi.{stack}.yaml"
    content = yaml.safe_load(path.read_text())
    queues = content["config"][PLATFORM]["queues"]
    queues[new] = queues.pop(old)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
