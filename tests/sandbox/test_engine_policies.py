"""The policy pack as the engine runs it: a plan that breaks a mandatory rule ends before anything is created.

That it lets the dev stack pass is in test_engine_permissions.py, where the stack lives with it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.sandbox.conftest import PACK, ROOT, SLIM, Project

UP = ("up", "--yes", *PACK)


def configure(project: Project, **settings: object) -> tuple[str, str]:
    """The flag that gives policies these settings."""
    file = project.folder / "policies.json"
    file.write_text(json.dumps(settings))
    return "--policy-pack-config", str(file)


def test_a_broken_resource_rule_ends_the_update_before_anything_is_created(guarded: Project) -> None:
    """What the program itself would never plan: here by an edit of its code."""
    edited(guarded, "gcp/network.py", "auto_create_subnetworks=False", "auto_create_subnetworks=True")
    guarded.write_stack("open", **SLIM)
    output = guarded.fail(*UP, "-s", "open")
    assert "automatic-subnets" in output
    assert "autoCreateSubnetworks is true, and has to be false" in output
    assert guarded.session.inventory() == {}
    assert not guarded.state("open").get("resources")


def test_a_broken_stack_rule_ends_the_preview_of_an_update(guarded: Project) -> None:
    """Limits are about all resources together, which the engine shows at the end: so a preview has to come first."""
    guarded.write_stack("large", **SLIM)
    settings = configure(guarded, **{"chips-limit": {"maxChips": 0}})
    output = guarded.fail(*UP, *settings, "-s", "large")
    assert "the stack has 1 chip when all run; 0 are allowed" in output
    assert guarded.session.inventory() == {}
    settings = configure(guarded, **{"chips-limit": {"maxChips": "one"}})
    assert "chips-limit" in guarded.fail("preview", *PACK, *settings, "-s", "large")
    settings = configure(guarded, **{"chips-limit": {"maxChips": 1}})
    guarded.succeed("preview", *PACK, *settings, "-s", "large")


def edited(project: Project, file: str, old: str, new: str) -> None:
    """The project with its own copy of the components, one of them changed."""
    link = project.folder / "components"
    link.unlink()
    shutil.copytree(ROOT / "components", link, ignore=shutil.ignore_patterns("__pycache__"))
    component: Path = link / file
    text = component.read_text()
    assert old in text
    component.write_text(text.replace(old, new))
