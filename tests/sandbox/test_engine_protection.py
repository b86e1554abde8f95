"""A protected platform stays whole: the real engine refuses `destroy`, and edits that would take parts away."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.sandbox.conftest import Project

Json = dict[str, Any]
SERVE: Json = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot"}
TEAM: Json = {"namespaces": ["team"], "slices": {"serve": 1}}
GUEST: Json = {"namespaces": ["guest"], "slices": {"serve": 0}}


# What the platform cannot live without, by the edit that would take it away, and hosts that an update would make anew.
REFUSED = [
    ({"queues": {}}, "kueue-release"),
    ({"slices": {"serve": {**SERVE, "boot_disk": {"size_gb": 200}}}}, "slices-serve-0"),
    ({"slices": {"serve": {**SERVE, "image_streaming": False}}}, "slices-serve-0"),
]


PREVIEWED: tuple[tuple[str, ...], ...] = ((), ("--skip-preview",))
AT_ONCE = PREVIEWED[1:]


def refuses_to_go(project: Project, stack: str, ways: Sequence[Sequence[str]]) -> None:
    """`destroy` fails in each of these ways, and afterwards all is as it was."""
    before, resources = project.session.inventory(), project.recorded(stack)
    for flags in ways:
        assert "protection" in project.fail("destroy", "-s", stack, "--yes", *flags)
        assert project.session.inventory() == before
        assert project.recorded(stack) == resources
    project.assert_clean(stack)


def test_a_protected_platform_is_not_destroyed_and_loses_nothing_that_it_needs(project: Project) -> None:
    """B1 of users.md: without a preview queues, namespaces, the firewall and the system pool went first. H2 of
    security.md: edits that make the hosts of a protected slice anew passed as updates."""
    platform: Json = {"protect": True, "slices": {"serve": SERVE}, "queues": {"team": TEAM, "guest": GUEST}}
    project.write_stack("kept", **platform)
    project.up("kept")
    refuses_to_go(project, "kept", PREVIEWED)

    # What teams edit goes all the same.
    platform["queues"] = {"team": TEAM}
    project.write_stack("kept", **platform)
    assert project.up("kept")["delete"] == 4, "a cluster queue, its local queue, the default one, their namespace"
    refuses_to_go(project, "kept", AT_ONCE)

    before = project.session.inventory()
    for edit, name in REFUSED:
        project.write_stack("kept", **{**platform, **edit})
        output = project.fail("up", "-s", "kept", "--yes")
        assert name in output
        assert "protect" in output
        assert project.session.inventory() == before
    # A slice that is given out of protection takes the same edit in one step, and the next plan is empty.
    edited: Json = REFUSED[1][0]["slices"]["serve"]
    project.write_stack("kept", **{**platform, "slices": {"serve": {**edited, "protect": False}}})
    assert project.up("kept")["update"] == 1
    project.assert_clean("kept")

    # One protected slice keeps the platform around it.
    platform["protect"] = False
    project.write_stack("kept", **{**platform, "slices": {"serve": {**edited, "protect": True}}})
    project.up("kept")
    refuses_to_go(project, "kept", PREVIEWED)
    project.write_stack("kept", **{**platform, "slices": {"serve": edited}})
    assert set(project.up("kept")) == {"same"}, "protection is a matter of the state alone"
    project.destroy("kept")


def test_a_platform_without_gke_as_init_writes_it_is_protected_until_it_is_told_otherwise(project: Project) -> None:
    """Its counterpart on GKE is the platform of test_engine_pages.py."""
    answers = {
        "project": "my-project",
        "kind": "self-managed",
        "zone": "us-east5-b",
        "machine": "ct6e-standard-1t",
        "size": "1",
        "count": "2",
        "capacity": "flex-start",
        "teams": "research, product",
    }
    options = [part for key, answer in answers.items() for part in (f"--{key}", answer)]
    command = [sys.executable, "-m", "tools", "init", "own", *options]
    subprocess.run(command, cwd=project.folder, check=True, capture_output=True)
    file = project.folder / "Pulumi.own.yaml"
    written = file.read_text()
    project.up("own")
    # With a preview it is refused by the preview, as on GKE.
    refuses_to_go(project, "own", AT_ONCE)
    file.write_text(written.replace("protect: true", "protect: false"))
    assert file.read_text() != written
    project.up("own")
    project.destroy("own")
