"""What docs/operations.md tells people to type, typed: a lost state adopted anew.

A broken slice is replaced in test_engine_slices.py, among slices of every kind.
"""

from __future__ import annotations

import json
from typing import Any

from tests.sandbox.conftest import Project

STACK = "ops"
INSIDE = ("kubernetes:", "tpu:kubernetes:", "pulumi:")
Json = dict[str, Any]


def by_name(project: Project) -> dict[str, Json]:
    return {each["urn"].rpartition("::")[2]: each for each in project.state(STACK)["resources"]}


def adopt(project: Project, known: dict[str, str], *, inside: bool) -> None:
    """Import what exists of either half: the cloud's own resources, or those inside the cluster."""
    file = project.folder / "import.json"
    project.succeed("preview", "-s", STACK, "--import-file", str(file))
    proposal = json.loads(file.read_text())
    wanted = [each for each in proposal["resources"] if each["type"].startswith(INSIDE) == inside]
    for each in wanted:
        if not each.get("component"):
            each["id"] = known[each["name"]]
    names = {"access-provider": by_name(project)["access-provider"]["urn"]} if inside else {}
    table = {**proposal.get("nameTable", {}), **names}
    file.write_text(json.dumps({**proposal, "resources": wanted, "nameTable": table}))
    flags = ("--yes", "--skip-preview", "--generate-code=false", "--protect=false")
    project.succeed("import", "-s", STACK, "-f", str(file), *flags)


def import_id(resource: Json) -> str:
    """What the provider wants as id where that is not the id that it keeps."""
    if resource["type"] == "gcp:projects/iAMMember:IAMMember":
        return " ".join(resource["inputs"][key] for key in ("project", "role", "member"))
    return str(resource["id"])


def test_a_lost_state_is_adopted_without_replacing_anything(project: Project) -> None:
    project.write_stack(STACK)
    project.up(STACK)
    known = {name: import_id(each) for name, each in by_name(project).items() if each.get("custom")}
    project.succeed("stack", "rm", STACK, "--force", "--preserve-config", "--yes")
    project.succeed("stack", "init", STACK)
    adopt(project, known, inside=False)
    project.succeed("up", "-s", STACK, "--yes", "--skip-preview", "--target", "**::access", "--target", "**::access-*")
    adopt(project, known, inside=True)
    changes = project.up(STACK)
    assert set(changes) <= {"same", "update"}, changes
    project.assert_clean(STACK)
    project.destroy(STACK)
