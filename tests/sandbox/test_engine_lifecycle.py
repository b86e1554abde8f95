"""The whole life of the dev stack through the real engine: up, clean previews, another cluster, jobs, destroy."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sandbox.kubernetes.api import ApiClient, Object, UnknownKindError
from sandbox.workload import QUEUE_API
from tests.sandbox.conftest import Project
from tests.sandbox.workloads import eventually, jobs_of

CLUSTER = "gcp:container/cluster:Cluster"
OUTAGE_SECONDS = 30
NOBODY = "nobody"


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def current_client(project: Project) -> ApiClient | None:
    """A client for the cluster that kubectl would talk to; None while there is no cluster."""
    content = json.loads(project.session.run.kubeconfig.read_text())
    servers = {each["name"]: each["cluster"]["server"] for each in content["clusters"]}
    server = servers.get(content["current-context"], "")
    return project.session.cluster_client(server.removeprefix("https://")) if server else None


def is_installed(client: ApiClient, release: str, namespace: str) -> bool:
    label = f"owner=helm,name={release},status=deployed"
    return bool(client.list_all("v1", "Secret", namespace, labelSelector=label))


def take_kueue_away(client: ApiClient) -> Object:
    """From the moment its Service exists no pod stands behind it: the API server answers 500 to what Kueue admits."""
    service: Object = eventually(
        "Kueue's Service", lambda: client.get("v1", "Service", "kueue-webhook-service", "kueue-system") or {}
    )
    client.patch(service, {"spec": {"selector": {NOBODY: "here"}}})
    return service


def flavors(client: ApiClient) -> list[Object]:
    try:
        return client.list_all(QUEUE_API, "ResourceFlavor")
    except UnknownKindError:
        return []


def up_while_webhooks_fail(project: Project, stack: str) -> dict[str, int]:
    """Bring the stack up; its webhooks cannot be reached until 30 s after Kueue is installed."""
    with ThreadPoolExecutor() as pool:
        update = pool.submit(project.up, stack)
        client = eventually("a cluster", lambda: current_client(project))
        assert client
        with client:
            service = take_kueue_away(client)
            eventually("Kueue installed", lambda: is_installed(client, "kueue", "kueue-system") or update.done())
            time.sleep(OUTAGE_SECONDS)
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


def test_the_dev_stack_comes_up_moves_to_another_cluster_runs_jobs_and_goes_away(project: Project) -> None:
    project.copy_stack("dev")
    before = files(project.folder)
    assert up_while_webhooks_fail(project, "dev").keys() == {"create"}
    project.assert_clean("dev")
    project.succeed("refresh", "-s", "dev", "--yes", "--skip-preview", "--expect-no-changes")
    assert files(project.folder) == before, "running a stack writes nothing beside the program"

    old = uids(project, "dev")
    [cluster] = [each["urn"] for each in project.state("dev")["resources"] if each["type"] == CLUSTER]
    changes = project.up("dev", "--replace", cluster)
    assert changes["replace"] > len(old), "the cluster, and everything inside it"
    new = uids(project, "dev")
    assert new.keys() == old.keys()
    assert not new.items() & old.items(), "no object of the old cluster is taken for one of the new"
    project.assert_clean("dev")

    with jobs_of(project, "dev") as jobs:
        first, second = jobs.submit("first", 6), jobs.submit("second", 1)
        jobs.assert_whole_slices(first, jobs.running(first))
        eventually("the second job waits for quota", lambda: jobs.waits_for_quota(second))
        jobs.finish_in_order(first, second)
    project.destroy("dev")
