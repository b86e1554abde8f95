"""Pods of a self-managed cluster in Google Cloud, through the real engine: their pool comes again under a new id."""

from __future__ import annotations

import yaml

from tests.sandbox.conftest import PLATFORM, Project


def test_a_pool_of_identities_survives_destroy_and_up(project: Project) -> None:
    """Google keeps the id of a deleted pool for 30 days, so the next life of the platform needs another one."""
    file = project.copy_stack("gce")
    content = yaml.safe_load(file.read_text())
    content["config"][PLATFORM]["teams"] = {"research": {"storage": {"scratch": {"keep": False}}}}
    file.write_text(yaml.safe_dump(content))

    def pool() -> str:
        rows = project.state("gce")["resources"]
        (found,) = (each for each in rows if each["type"].endswith(":WorkloadIdentityPool"))
        return str(found["outputs"]["workloadIdentityPoolId"])

    project.up("gce")
    project.assert_clean("gce")
    first = pool()
    client = project.cluster_client()
    assert client
    with client:
        config = client.get("v1", "ConfigMap", "google-identity", "research") or {}
    assert f"/workloadIdentityPools/{first}/providers/cluster" in config["data"]["credential.json"]
    project.succeed("destroy", "-s", "gce", "--yes", "--skip-preview")
    assert not project.state("gce").get("resources")

    project.up("gce")
    project.assert_clean("gce")
    assert pool() != first
    project.succeed("destroy", "-s", "gce", "--yes", "--skip-preview")
