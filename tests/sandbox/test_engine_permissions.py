"""The engine with the permissions that the program lists for a stack, and no others."""

from __future__ import annotations

import pytest

from sandbox.run_directory import CHECKOUT
from spec.load import load_stack_file
from tests.sandbox.conftest import SLIM, Project
from tools.permissions import Identity, needed
from tools.registrations import registrations

pytestmark = pytest.mark.sandbox
TAKEN = "container.clusters.create"


def listed(identity: Identity) -> list[str]:
    """What an identity needs for the dev stack."""
    return needed(registrations(load_stack_file(CHECKOUT / "Pulumi.dev.yaml"), stack="dev"), identity).names


def test_the_listed_permissions_carry_a_stack_through_its_life(project: Project) -> None:
    """A deployer brings it up and destroys it; a viewer refreshes and previews it, and can do no more."""
    project.copy_stack("dev")
    deployer = listed("deployer")
    project.call("POST", "permissions", {"granted": deployer})
    project.succeed("up", "-s", "dev", "--yes")
    project.call("POST", "permissions", {"granted": listed("viewer")})
    project.succeed("preview", "-s", "dev", "--refresh", "--expect-no-changes")
    project.write_stack("dev", labels={"team": "a"})
    refused = project.fail("up", "-s", "dev", "--yes", "--skip-preview")
    assert 'Required "container.clusters.update" permission(s)' in refused
    project.copy_stack("dev")
    project.call("POST", "permissions", {"granted": deployer})
    project.assert_clean("dev")
    project.destroy("dev")


def test_an_update_without_one_of_them_names_it(project: Project) -> None:
    project.write_stack("refused", **SLIM)
    project.call("POST", "permissions", {"granted": [name for name in listed("deployer") if name != TAKEN]})
    refused = project.fail("up", "-s", "refused", "--yes", "--skip-preview")
    assert f'Required "{TAKEN}" permission(s) for "projects/my-project"' in refused
    project.call("POST", "permissions", {"granted": None})
    project.destroy("refused")
