"""The engine with the permissions that the program lists for a stack, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from rules.load import load_stack_file
from tests.sandbox.conftest import PACK, ROOT, SLIM, Project
from tools.permissions import Identity, needed
from tools.registrations import registrations

pytestmark = pytest.mark.sandbox
TAKEN = "container.clusters.create"


def listed(identity: Identity) -> list[str]:
    """What an identity needs for the dev stack."""
    return needed(registrations(load_stack_file(ROOT / "Pulumi.dev.yaml"), stack="dev"), identity).names


def grant(project: Project, names: list[str]) -> None:
    project.call("POST", "permissions", {"granted": names})


def test_a_stack_lives_with_the_listed_permissions_and_the_policy_pack(guarded: Project) -> None:
    """As a pipeline runs it: a deployer brings it up, past the pack, and destroys it; an auditor refreshes it, a viewer
    previews it, and both can do no more. An update that lacks a permission names it, and the next one goes on."""
    guarded.copy_stack("dev")
    deployer = listed("deployer")
    grant(guarded, [name for name in deployer if name != TAKEN])
    refused = guarded.fail("up", "-s", "dev", "--yes", "--skip-preview")
    assert f'Required "{TAKEN}" permission(s) for "projects/my-project"' in refused

    grant(guarded, deployer)
    brought_up = guarded.succeed("up", "-s", "dev", "--yes", *PACK)
    assert brought_up.count("tpu-platform@v1.0.0") == 2, "the pack ran in the preview and in the update"
    assert "[mandatory]" not in brought_up

    grant(guarded, listed("auditor"))
    guarded.succeed("preview", "-s", "dev", "--refresh", "--expect-no-changes")
    grant(guarded, listed("viewer"))
    guarded.assert_clean("dev")
    guarded.write_stack("dev", labels={"team": "a"})
    refused = guarded.fail("up", "-s", "dev", "--yes", "--skip-preview")
    assert 'Required "container.clusters.update" permission(s)' in refused

    guarded.copy_stack("dev")
    grant(guarded, deployer)
    guarded.assert_clean("dev")
    guarded.destroy("dev")


def test_a_previewer_plans_without_a_way_into_the_cluster(project: Project) -> None:
    """C2 of security.md: previews of unreviewed branches held the cluster administrator's credential."""
    without_gke: dict[str, Any] = {**SLIM, "cluster": {"kind": "self-managed"}}
    project.write_stack("outside", **without_gke)
    project.up("outside")
    project.inject(kind="status", status=403, path="/secrets/[^/]*-access/versions/.*:access$", times=1000)
    project.assert_clean("outside")
    project.write_stack("outside", **without_gke, namespaces=["tpu-workloads", "another"], labels={"team": "a"})
    planned = project.succeed("preview", "-s", "outside")
    assert "namespaces-another" in planned
    assert "unreachable" in project.fail("preview", "-s", "outside", "--refresh"), "the credential is not there"
    project.call("DELETE", "faults")
    project.write_stack("outside", **without_gke)
    project.destroy("outside")
