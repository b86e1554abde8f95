"""What docs/operations.md tells people to type, typed: a lost state adopted anew.

A broken slice is replaced in test_engine_slices.py, among slices of every kind.
"""

from __future__ import annotations

import time

from tests.sandbox.conftest import Project
from tests.sandbox.recovery import recover

STACK = "ops"
AGAIN = ("gcp:projects/service:Service", "gcp:projects/iAMMember:IAMMember")
"""What nobody adopts: making it again changes nothing that is there."""


def identities(project: Project) -> dict[str, str]:
    """Ids of what exists outside the engine, by name; without what Google would not notice being made again."""
    rows = project.state(STACK)["resources"]
    custom = (each for each in rows if each.get("custom") and not each["type"].startswith("pulumi:"))
    return {each["urn"].rpartition("::")[2]: each["id"] for each in custom if each["type"] not in AGAIN}


def test_a_lost_state_is_adopted_without_replacing_anything(project: Project) -> None:
    project.write_stack(STACK)
    project.up(STACK)
    known, inventory = identities(project), project.session.inventory()
    project.succeed("stack", "rm", STACK, "--force", "--preserve-config", "--yes")
    project.succeed("stack", "init", STACK)
    begun = time.monotonic()
    report = recover(project, STACK, "--lost-state")
    print(f"{len(known)} resources of a lost state adopted in {time.monotonic() - begun:.0f} s")  # shown with -s
    assert not {"replace", "delete"} & report["up"]["counts"].keys(), report["up"]
    assert identities(project) == known
    project.up(STACK)
    assert identities(project) == known
    assert project.session.inventory() == inventory
    project.assert_clean(STACK)
    project.destroy(STACK)
