"""Teams through the real engine: a second preview finds nothing, and what destroy keeps can be taken over."""

from __future__ import annotations

import json
import shlex
from typing import Any

import httpx
import yaml

from tests.sandbox.conftest import PLATFORM, Project

KEPT = "my-project_tpu-team_research_checkpoints"
GOING = "my-project_tpu-team_product_models"
EXISTING = "acme-c4"


def ask(project: Project, method: str, path: str, body: Any = None) -> httpx.Response:
    """A call that somebody else makes of Google's APIs."""
    return httpx.request(
        method,
        f"{project.session.emulator_url}{path}",
        json=body,
        headers={"Authorization": "Bearer token"},
        trust_env=False,
    )


def put(project: Project, bucket: str) -> None:
    """Somebody writes an object."""
    answer = httpx.post(
        f"{project.session.emulator_url}/upload/storage/v1/b/{bucket}/o",
        params={"name": "step-1/state", "uploadType": "media"},
        content=b"weights",
        headers={"Authorization": "Bearer token", "Content-Type": "application/octet-stream"},
        trust_env=False,
    )
    answer.raise_for_status()


def objects(project: Project, bucket: str) -> list[str] | None:
    """Names of a bucket's objects; None where there is no such bucket."""
    answer = ask(project, "GET", f"/storage/v1/b/{bucket}/o")
    return [each["name"] for each in answer.json().get("items", [])] if answer.status_code == 200 else None


def write(project: Project, **research: Any) -> None:
    """The stack file of the checkout; `research` are stores of that team, in place of its own."""
    file = project.copy_stack("team")
    content = yaml.safe_load(file.read_text())
    teams = content["config"][PLATFORM]["teams"]
    teams["research"]["storage"] |= research
    teams["product"]["storage"]["models"]["keep"] = False
    file.write_text(yaml.safe_dump(content))


def test_a_project_has_no_stacks_of_the_test_before(project: Project) -> None:
    """A stack of this name, left by the tests of another file, was updated in a cloud that did not have its bucket."""
    write(project)
    project.succeed("stack", "init", "team")
    project.start_over()
    assert json.loads(project.succeed("stack", "ls", "--json")) == []


def made_by(bucket: Any) -> dict[str, Any]:
    """What a platform sets of a bucket."""
    keys = ("name", "location", "labels", "iamConfiguration", "softDeletePolicy", "lifecycle", "hierarchicalNamespace")
    return {key: bucket[key] for key in keys}


def test_a_bucket_outlives_its_platform_and_is_imported_or_taken_over_by_name(project: Project) -> None:
    """The import is also what mends an update that ended between Google's answer and the state: the bucket is there as
    the platform makes it, and the state does not know it."""
    put(project, EXISTING)  # the bucket is there, as sandbox_adapter.py says
    write(project)
    project.up("team")
    project.assert_clean("team")
    kept = {name: store["kept_on_destroy"] for name, store in project.outputs("team")["storage"].items()}
    assert kept == {"product.models": False, "research.checkpoints": True, "research.data": True}
    made = ask(project, "GET", f"/storage/v1/b/{KEPT}").json()

    # An edit of a volume: Kubernetes keeps one that has a claim, so the claim has to go first.
    data = {"bucket": EXISTING, "mode": "write", "mount": "/data"}
    write(project, data=data)
    project.up("team")
    project.assert_clean("team")

    for bucket in (KEPT, GOING):
        put(project, bucket)
    project.succeed("destroy", "-s", "team", "--yes", "--skip-preview")
    assert not project.state("team").get("resources")
    assert objects(project, KEPT) == ["step-1/state"]
    assert objects(project, EXISTING) == ["step-1/state"]
    assert objects(project, GOING) is None

    output = project.fail("up", "-s", "team", "--yes", "--skip-preview")
    assert f"write `bucket: {KEPT}` and `mode: write` in {PLATFORM}.teams.research.storage.checkpoints" in output
    (command,) = {line.strip() for line in output.splitlines() if line.strip().startswith("pulumi import ")}
    project.succeed(*shlex.split(command)[1:], "-s", "team", "--yes", "--skip-preview")
    project.up("team")
    project.assert_clean("team")
    found = ask(project, "GET", f"/storage/v1/b/{KEPT}").json()
    assert made_by(found) == made_by(made)
    assert found["timeCreated"] == made["timeCreated"]
    assert objects(project, KEPT) == ["step-1/state"]
    assert project.outputs("team")["storage"]["research.checkpoints"]["kept_on_destroy"]
    project.succeed("destroy", "-s", "team", "--yes", "--skip-preview")
    assert objects(project, KEPT) == ["step-1/state"]

    write(project, checkpoints={"bucket": KEPT, "mode": "write", "mount": "/checkpoints"})
    project.up("team")
    project.assert_clean("team")
    project.succeed("destroy", "-s", "team", "--yes", "--skip-preview")
    assert objects(project, KEPT) == ["step-1/state"]
    assert objects(project, EXISTING) == ["step-1/state"]
