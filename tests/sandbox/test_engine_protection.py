"""A protected platform stays whole: the real engine refuses `destroy`, and edits that would take parts away."""

from __future__ import annotations

from typing import Any

from tests.sandbox.conftest import SLIM, Project

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


def refuses_to_go(project: Project, stack: str) -> None:
    """`destroy` fails, with and without a preview, and afterwards all is as it was."""
    before, resources = project.session.inventory(), project.recorded(stack)
    for flags in ((), ("--skip-preview",)):
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
    refuses_to_go(project, "kept")

    # What teams edit goes all the same.
    platform["queues"] = {"team": TEAM}
    project.write_stack("kept", **platform)
    assert project.up("kept")["delete"] == 4, "a cluster queue, its local queue, the default one, their namespace"
    refuses_to_go(project, "kept")

    before = project.session.inventory()
    for edit, name in REFUSED:
        project.write_stack("kept", **{**platform, **edit})
        output = project.fail("up", "-s", "kept", "--yes")
        assert name in output
        assert "protect" in output
        assert project.session.inventory() == before
    # A slice that is given out of protection takes the same edit in one step, and the next plan is empty.
    project.write_stack(
        "kept", **{**platform, "slices": {"serve": {**REFUSED[1][0]["slices"]["serve"], "protect": False}}}
    )
    assert project.up("kept")["update"] == 1
    project.assert_clean("kept")

    project.write_stack("kept", **{**platform, "protect": False})
    project.up("kept")
    project.destroy("kept")


def test_a_protected_platform_without_gke_is_not_destroyed(project: Project) -> None:
    platform: Json = {**SLIM, "cluster": {"kind": "self-managed"}, "slices": {"serve": SERVE}}
    project.write_stack("kept-machines", **platform, protect=True)
    project.up("kept-machines")
    refuses_to_go(project, "kept-machines")
    project.write_stack("kept-machines", **platform, protect=False)
    project.up("kept-machines")
    project.destroy("kept-machines")


def test_one_protected_slice_keeps_the_platform_around_it(project: Project) -> None:
    platform: Json = {**SLIM, "protect": False}
    project.write_stack("kept-slice", **{**platform, "slices": {"serve": {**SERVE, "protect": True}}})
    project.up("kept-slice")
    refuses_to_go(project, "kept-slice")
    project.write_stack("kept-slice", **{**platform, "slices": {"serve": SERVE}})
    assert set(project.up("kept-slice")) == {"same"}, "protection is a matter of the state alone"
    project.destroy("kept-slice")
