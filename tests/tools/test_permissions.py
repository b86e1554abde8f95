"""`python -m tools permissions`: every registered type has a row, and the list is made of what is registered."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from rules.load import load_platform, load_stack_file
from tests.graph.recording import STACK_FILES
from tests.platforms import EXISTING_NETWORK, PROJECT, SELF_MANAGED, raw
from tools.__main__ import app
from tools.permission_table import BILLING_ACCOUNT, GOOGLE, KUBERNETES, OTHER_CLUSTER, VERBS, kubernetes_row
from tools.permissions import UnknownTypesError, needed
from tools.registrations import Registration, registrations

CLUSTER = Registration("gcp:container/cluster:Cluster", {})
INSTANCE = "gcp:compute/instance:Instance"


def permissions(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["permissions", *map(str, arguments)])


def registered(**platform: Any) -> list[Registration]:
    return registrations(load_platform(raw(**platform), project=PROJECT), stack="test")


@pytest.mark.parametrize("path", STACK_FILES, ids=lambda path: path.name)
def test_every_type_of_the_stacks_has_a_row(path: Path) -> None:
    stack = path.name.split(".")[1]
    found = registrations(load_stack_file(path), stack=stack)
    of_google = {each.type for each in found if each.type.startswith("gcp:")}
    assert of_google
    assert of_google <= GOOGLE.keys()
    assert all(kubernetes_row(each.type) for each in found if each.type.startswith("kubernetes:"))


def test_permissions_have_the_form_of_permissions() -> None:
    """Service, kind, verb; a verb without its service, or two run together, would make Google refuse the whole role."""
    rows = [*GOOGLE.values(), *BILLING_ACCOUNT.values(), *KUBERNETES.values(), *OTHER_CLUSTER.values()]
    names = {name for row in rows for verb in VERBS for name in getattr(row, verb)}
    names |= {name for row in rows for _, given in row.having for name in given}
    assert len(names) > 100
    assert [name for name in names if not re.fullmatch(r"[a-z]+\.[a-zA-Z]+\.[a-zA-Z]+", name)] == []


def test_types_without_a_row_are_named() -> None:
    stranger = Registration("gcp:pubsub/topic:Topic", {})
    with pytest.raises(UnknownTypesError, match="gcp:pubsub/topic:Topic"):
        needed([CLUSTER, stranger], "deployer")


def test_a_viewer_may_only_read() -> None:
    found = registered()
    viewer, auditor, deployer = (needed(found, identity) for identity in ("viewer", "auditor", "deployer"))
    assert set(viewer.names) < set(auditor.names) < set(deployer.names)
    assert {name.rpartition(".")[2] for name in viewer.names} == {"get", "getIamPolicy", "list"}
    assert {name.rpartition(".")[2] for name in auditor.names} == {"connect", "get", "getIamPolicy", "list"}


@pytest.mark.parametrize("platform", [{}, {"cluster": SELF_MANAGED}], ids=["gke", "self-managed"])
def test_a_viewer_opens_no_secret_and_no_cluster(platform: dict[str, Any]) -> None:
    """C2 of security.md: with the right to read every secret of the project a previewer administered the cluster."""
    found = registered(**platform)
    viewer, auditor = needed(found, "viewer"), needed(found, "auditor")
    assert not viewer.kubernetes
    assert "container.clusters.connect" not in viewer.names
    for identity in (viewer, auditor):
        assert "secretmanager.versions.access" not in identity.names


def test_the_list_follows_what_is_registered() -> None:
    """A network that exists is referenced: nobody needs rights to make one."""
    existing = EXISTING_NETWORK | {"services_range": "r"}
    own, referenced = needed(registered(), "deployer"), needed(registered(network=existing), "deployer")
    assert "compute.networks.create" in own.google
    assert not [name for name in referenced.google if name.startswith(("compute.networks", "compute.routers"))]
    assert own.kubernetes == referenced.kubernetes


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        ({}, set()),
        ({"attachedDisks": [{"source": "d"}]}, {"compute.disks.use"}),
        ({"attachedDisks": []}, set()),
        ({"networkInterfaces": [{"subnetwork": "s"}]}, set()),
        ({"networkInterfaces": [{"networkIp": "10.0.0.2"}]}, {"compute.addresses.useInternal"}),
        ({"serviceAccount": {"email": "e"}}, {"compute.instances.setServiceAccount", "iam.serviceAccounts.actAs"}),
    ],
)
def test_some_permissions_depend_on_inputs(inputs: dict[str, Any], more: set[str]) -> None:
    least = needed([Registration(INSTANCE, {})], "deployer").google
    assert needed([Registration(INSTANCE, inputs)], "deployer").google.keys() - least.keys() == more


def test_inside_a_cluster_of_ones_own_iam_has_no_say() -> None:
    release = Registration("kubernetes:helm.sh/v3:Release", {})
    assert needed([release], "deployer").kubernetes == {}
    assert "container.clusterRoles.escalate" in needed([CLUSTER, release], "deployer").kubernetes


def test_slices_with_a_template_of_their_own_are_listed_without_asking_google() -> None:
    slices = {
        "train": {
            "machine_type": "ct6e-standard-4t",
            "topology": "4x4",
            "instance_template": f"projects/{PROJECT}/global/instanceTemplates/own",
        }
    }
    found = needed(registered(cluster={"kind": "self-managed"}, slices=slices), "deployer")
    assert "compute.instanceTemplates.get" in found.google


def test_lines_json_and_role_say_the_same() -> None:
    lines = permissions("-s", "dev").output.split()
    assert lines == sorted(set(lines))
    document = json.loads(permissions("-s", "dev", "--json").output)
    assert sorted({**document["google"], **document["kubernetes"]}) == lines
    assert document["google"]["compute.firewalls.create"] == ["gcp:compute/firewall:Firewall"]
    role = yaml.safe_load(permissions("-s", "dev", "--role").output)
    assert role["includedPermissions"] == lines
    assert set(role) == {"title", "description", "stage", "includedPermissions"}
    assert len(role["title"]) <= 100


def test_a_budget_has_a_set_of_its_own(stack_file: Any) -> None:
    """A role of the project that names permissions of a billing account is refused by Google."""
    path = stack_file(monitoring={"budget": {"billing_account": "01ABCD-23EF45-678901", "amount": 20_000}})
    ours = permissions("-f", path, "--billing").output.split()
    assert ours == [f"billing.budgets.{verb}" for verb in ("create", "delete", "get", "update")]
    assert permissions("-f", path, "--billing", "--viewer").output.split() == ["billing.budgets.get"]
    assert not set(ours) & set(permissions("-f", path).output.split())
    role = yaml.safe_load(permissions("-f", path, "--billing", "--role").output)
    assert role["includedPermissions"] == ours
    assert role["title"].endswith(" deployer billing")


def test_without_a_budget_nothing_is_needed_on_a_billing_account() -> None:
    refused = permissions("-s", "dev", "--billing", "--role")
    assert refused.exit_code == 1
    assert "there is no monitoring.budget" in refused.output


def test_bad_input_is_named(stack_file: Any) -> None:
    assert permissions("-s", "nowhere").exit_code == 2
    assert permissions("-s", "dev", "--role", "--json").exit_code == 2
    refused = permissions("-f", stack_file(zone="x"))
    assert refused.exit_code == 1
    assert "tpu-platform:platform.zone" in refused.output
    assert "Traceback" not in refused.output
