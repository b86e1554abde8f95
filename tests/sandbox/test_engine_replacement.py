"""Clusters that are zonal, lost, or made anew: what docs/operations.md has people type, typed (findings 9 to 12).

The kubernetes stand-in fails as the real plugin does: a chart that is not there cannot be uninstalled, and nothing can
be deleted in a cluster that cannot be reached.
"""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import httpx

from tests.sandbox.conftest import ROOT, SLIM, Project

STACK = "place"
LOST = "When a cluster was lost, or replaced and the update stopped half-way"
ANSWERED = {"up": "--yes --skip-preview", "refresh": "--yes --skip-preview", "state delete": "--yes"}
CREATE_CLUSTER = {"method": "POST", "path": "/clusters$"}


def documented(section: str, after: str = "") -> list[str]:
    """The commands of the first block of a section of docs/operations.md, or of the first one after some words."""
    text = (ROOT / "docs" / "operations.md").read_text().partition(f"### {section}\n")[2]
    block = text[text.index(after) :].partition("```console\n")[2].partition("```")[0]
    return [line.removeprefix("$ ") for line in block.splitlines()]


def type_in(project: Project, command: str) -> subprocess.CompletedProcess[str]:
    """Run a documented command as a person would who always answers yes."""
    own = command.replace("-s prod", f"-s {STACK}").replace("urn:pulumi:prod:", f"urn:pulumi:{STACK}:")
    for name, flags in ANSWERED.items():
        own = re.sub(rf"pulumi {name}\b", f"pulumi {name} {flags}", own)
    return subprocess.run(
        ["bash", "-c", own],
        cwd=project.folder,
        env=project.session.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(project: Project, command: str) -> None:
    done = type_in(project, command)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def fail(project: Project, command: str) -> str:
    done = type_in(project, command)
    assert done.returncode != 0, f"{command}\n{done.stdout}"
    return done.stdout + done.stderr


def in_state(project: Project, name: str) -> dict[str, Any]:
    [found] = [each for each in project.state(STACK)["resources"] if each["urn"].endswith(f"::{name}")]
    return dict(found)


def take_cluster_away(project: Project) -> None:
    """Delete the cluster behind the engine's back."""
    address = f"{project.session.emulator_url}/container/v1/{in_state(project, 'cluster-gke')['id']}"
    token = {"Authorization": f"Bearer {project.session.run.token_file.read_text()}"}
    httpx.delete(address, headers=token, timeout=60, trust_env=False).raise_for_status()


def init_without_state(project: Project) -> None:
    """A new stack as older releases of the CLI make it: without any state, which the engine cannot be asked for."""
    project.succeed("stack", "init", STACK)
    [file] = project.session.run.backend.rglob(f"{STACK}.json")
    content = json.loads(file.read_text())
    del content["checkpoint"]["latest"]
    file.write_text(json.dumps(content))
    assert json.loads(project.succeed("stack", "export", "-s", STACK))["deployment"] is None


def test_a_zonal_cluster_lives_and_is_made_anew_by_the_documented_commands(project: Project) -> None:
    project.write_stack(STACK, **SLIM, cluster={"regional": False})
    project.up(STACK)
    assert in_state(project, "cluster-gke")["outputs"]["location"] == "us-east5-b"
    project.assert_clean(STACK)

    [forget, replace] = documented("The same cluster, made anew")
    succeed(project, forget)
    project.inject(kind="operation", code="INTERNAL_ERROR", **CREATE_CLUSTER)
    fail(project, replace)
    succeed(project, replace)
    project.assert_clean(STACK)

    [_, refresh, up] = documented(LOST, after="**The old cluster was deleted, and the new one could not be created.**")
    project.inject(kind="status", status=403, **CREATE_CLUSTER)
    fail(project, replace)
    output = fail(project, up)
    # Whichever release the engine comes to first.
    assert re.search(r"Release not loaded: \S+: release: not found", output), output
    succeed(project, refresh)
    succeed(project, up)
    project.assert_clean(STACK)
    project.destroy(STACK)


def test_a_cluster_that_was_never_finished_is_named_and_replaced_and_a_lost_one_is_made_anew(project: Project) -> None:
    project.write_stack(STACK, **SLIM)
    init_without_state(project)
    never_finished(project)
    other_refused(project)
    lost(project)

    # A destroy needs no configuration at all, and an empty stack may become another cluster.
    project.write_stack(STACK, **SLIM, name="other")
    project.destroy(STACK)
    project.succeed("preview", "-s", STACK)

    project.write_stack(STACK, **SLIM)
    project.inject(kind="operation", code="INTERNAL_ERROR", **CREATE_CLUSTER)
    project.fail("up", "-s", STACK, "--yes", "--skip-preview")
    project.destroy(STACK)


def never_finished(project: Project) -> None:
    """The engine once panicked: a provider whose kubeconfig is unknown cannot create anything."""
    project.inject(kind="operation", code="INTERNAL_ERROR", **CREATE_CLUSTER)
    project.fail("up", "-s", STACK, "--yes", "--skip-preview")
    for _ in range(2):
        output = project.fail("up", "-s", STACK, "--yes", "--skip-preview")
        assert "cluster tpu-dev has no endpoint" in output, output
        assert "panic" not in output
    project.succeed("preview", "-s", STACK)
    project.succeed("up", "-s", STACK, "--yes", "--skip-preview", "--replace", "**::cluster-gke")
    project.assert_clean(STACK)


def other_refused(project: Project) -> None:
    """By preview and by update, without a request to Google."""
    before = project.recorded(STACK)
    asked = len(project.requests())
    project.write_stack(STACK, **SLIM, name="other", zone="us-east5-a", cluster={"regional": False})
    for command in (("preview",), ("up", "--yes", "--skip-preview"), ("destroy", "--yes", "--run-program")):
        output = project.fail(*command, "-s", STACK)
        assert "was tpu-dev and would be other" in output, output
        assert "was true and would be false" in output
        assert "to delete this one, `pulumi destroy` before the edit" in output
        assert "Traceback" not in output
    assert len(project.requests()) == asked
    assert project.recorded(STACK) == before


def lost(project: Project) -> None:
    """Made anew by the documented commands."""
    project.write_stack(STACK, **SLIM)
    take_cluster_away(project)
    [refresh, up] = documented(LOST)
    forgetful = refresh.partition(" ")[2]
    assert "failed to read resource state due to unreachable cluster" in fail(project, forgetful)
    succeed(project, refresh)
    succeed(project, up)
    project.assert_clean(STACK)
