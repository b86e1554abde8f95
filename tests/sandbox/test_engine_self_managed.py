"""A platform without GKE through the real engine: up, edited, drained, a control plane and a cluster replaced, gone."""

from __future__ import annotations

import json
import signal
from typing import Any

from sandbox.kubernetes.api import ApiClient, is_true
from tests.sandbox.conftest import Project
from tests.sandbox.recovery import UP, actions, during, end, recover
from tests.sandbox.workloads import place_pod

STACK = "compute"
Json = dict[str, Any]

# Pods are not waited for longer than this; the test has one that never goes.
DRAIN = {"grace": "1s", "pdb_timeout": "4s"}
TRAIN: Json = {
    "machine_type": "ct6e-standard-4t",
    "topology": "4x4",
    "capacity": {"model": "reservation", "name": "train"},
    "node_drain": DRAIN,
}
SERVE: Json = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 2}
OTHER_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
CREATE_GROUP = {"method": "POST", "path": "/instanceGroupManagers$"}
GROUPS = {"cpu-pools-system", "slices-train-0", "slices-serve-0"}
MADE_BY_UP = "`up` makes it"
HOSTS = {f"tpu-dev-train-0-w-000{number}" for number in (1, 2, 3, 4)}


def write(project: Project, train: Json, serve: Json, **cluster: Any) -> None:
    slices = {"train": train, "serve": serve}
    # In another zone than the hosts: a finding was that these then stay uninitialised, and nothing runs on them.
    own = {"kind": "self-managed", "control_plane": {"zones": ["us-east5-a"]}, **cluster}
    project.write_stack(STACK, cluster=own, queues={}, slices=slices)


def planned(project: Project, *flags: str) -> dict[str, list[str]]:
    """What a preview is going to do with Google's resources, by logical name, without what stays."""
    preview = project.succeed("preview", "-s", STACK, "--json", "--show-replacement-steps", *flags)
    steps = json.loads(preview)["steps"]
    found: dict[str, list[str]] = {}
    for step in steps:
        if step["op"] != "same" and "$gcp:" in step["urn"]:
            found.setdefault(step["urn"].rpartition("::")[2], []).append(step["op"])
    return found


def inside(project: Project) -> dict[str, str]:
    """The uid of every namespace that the program made."""
    client = client_of(project)
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in client.list_all("v1", "Namespace")}


def client_of(project: Project) -> ApiClient:
    client = project.cluster_client()
    assert client is not None
    return client


def initialised(project: Project) -> set[str]:
    """The nodes that the cloud-controller-manager has seen to."""
    nodes = client_of(project).list_all("v1", "Node")
    return {item["metadata"]["name"] for item in nodes if "providerID" in item["spec"]}


MADE_FIRST, DELETED_FIRST = (
    ["create-replacement", "replace", "delete-replaced"],
    ["delete-replaced", "replace", "create-replacement"],
)


def test_the_life_of_a_platform_without_gke(project: Project) -> None:
    zone = "us-east5-b"
    reservation = {"zone": zone, "name": "train", "machine_type": "ct6e-standard-4t", "count": 100}
    project.call("POST", "reservations", {**reservation, "project": "my-project"})
    project.succeed("stack", "init", STACK)

    # A killed engine leaves a group whose hosts come without it.
    write(project, TRAIN, SERVE)
    end(project, STACK, UP, during(CREATE_GROUP), signal.SIGKILL)
    found = actions(recover(project, STACK))
    assert set(found.values()) <= {"adopt", MADE_BY_UP}
    assert "adopt" in {action for name, action in found.items() if name in GROUPS}
    project.up(STACK)
    project.assert_clean(STACK)
    project.succeed("refresh", "-s", STACK, "--yes", "--skip-preview", "--expect-no-changes")
    assert initialised(project) >= HOSTS

    # Single hosts are remade one by one, and the control plane's machine at once: the cluster stays what it is.
    before = inside(project)
    write(project, TRAIN, {**SERVE, "labels": {"a": "b"}}, image=OTHER_IMAGE)
    steps = planned(project)
    assert steps["slices-serve-0"] == ["update"]
    assert steps["control-plane-machine-0"] == DELETED_FIRST
    assert steps["control-plane-balancer-0"] == MADE_FIRST
    assert steps.keys().isdisjoint({"slices-train-0", "control-plane-disk-0"})
    project.up(STACK)
    project.assert_clean(STACK)
    assert inside(project) == before

    # Another topology is another slice, whose hosts are drained before they go; in bounded time, whoever stays.
    place_pod(client_of(project), min(HOSTS))
    write(project, {**TRAIN, "topology": "4x8"}, {**SERVE, "labels": {"a": "b"}}, image=OTHER_IMAGE)
    assert planned(project)["slices-train-0"] == DELETED_FIRST
    said = project.succeed("up", "-s", STACK, "--yes", "--skip-preview")
    warning = next(line for line in said.splitlines() if "without a drain" in line)
    assert "tpu-dev-train-0 is deleted" in warning
    assert 'pod "training"' in warning
    project.assert_clean(STACK)

    assert "--run-program" in project.fail("destroy", "-s", STACK, "--yes", "--skip-preview")
    project.succeed("destroy", "-s", STACK, "--yes", "--skip-preview", "--run-program")
    assert not project.state(STACK).get("resources")
    assert project.session.inventory() == {}


ANOTHER = {"services_cidr": "10.0.48.0/20"}
SMALL: Json = {"queues": {}, "cluster": {"kind": "self-managed"}, "slices": {"serve": {**SERVE, "node_drain": DRAIN}}}


def ready_nodes(project: Project) -> dict[str, str]:
    """The uid of every node that is Ready."""
    return {
        node["metadata"]["name"]: node["metadata"]["uid"]
        for node in client_of(project).list_all("v1", "Node")
        if is_true(node, "Ready")
    }


def deleted(project: Project, since: int) -> list[str]:
    """Short names of what has been deleted after that many requests, in this order."""
    rows = project.requests()[since:]
    return [row["path"].rpartition("/")[2] for row in rows if row["method"] == "DELETE"]


def urn_of(project: Project, name: str) -> str:
    (urn,) = (row["urn"] for row in project.state(STACK)["resources"] if row["urn"].endswith(f"::{name}"))
    return str(urn)


def refuse(project: Project, protected: str, **platform: Any) -> None:
    """An update that would make the cluster anew changes nothing in the cloud, even without a preview."""
    project.write_stack(STACK, **{**SMALL, **platform})
    project.succeed("state", "protect", urn_of(project, protected), "-s", STACK, "--yes")
    since = len(project.requests())
    anew = ("--replace", urn_of(project, "control-plane-disk-0"))
    assert "marked for protection" in project.fail("up", "-s", STACK, "--yes", "--skip-preview", *anew)
    assert {row["method"] for row in project.requests()[since:]} <= {"GET"}
    project.succeed("state", "unprotect", urn_of(project, protected), "-s", STACK, "--yes")


def test_another_cluster_is_refused_and_the_same_one_is_made_anew(project: Project) -> None:
    """Machines, hosts, secrets and all objects inside go with the cluster, in an order that the API takes."""
    project.write_stack(STACK, **SMALL)
    project.up(STACK)
    nodes, before = ready_nodes(project), inside(project)

    refuse(project, "control-plane-disk-0", protect=True)
    refuse(project, "slices-serve-0", slices={"serve": {**SERVE, "node_drain": DRAIN, "protect": True}})

    project.write_stack(STACK, **SMALL, network=ANOTHER)
    for command in (("preview",), ("up", "--yes", "--skip-preview")):
        assert "was 10.0.32.0/20 and would be 10.0.48.0/20" in project.fail(*command, "-s", STACK)

    project.write_stack(STACK, **SMALL)
    forget = ("state", "delete", urn_of(project, "access-provider"), "--target-dependents", "--yes")
    project.succeed(*forget, "-s", STACK)
    anew = ("--replace", urn_of(project, "control-plane-disk-0"))
    steps = planned(project, *anew)
    hosts = {"cpu-pools-system", "slices-serve-0"}
    secrets = {f"bootstrap-secrets-{part}" for part in ("join", "endpoint", "access")}
    replaced = {name for name, found in steps.items() if found == DELETED_FIRST}
    assert replaced >= {"control-plane-disk-0", "control-plane-machine-0", *hosts, *secrets}
    since = len(project.requests())
    said = project.succeed("up", "-s", STACK, "--yes", "--skip-preview", *anew)
    # Hosts go while there still is an API server to drain them by, and the disk when no machine has it any more.
    assert "without a drain" not in said
    gone = deleted(project, since)
    machine = gone.index("tpu-dev-control-plane-0")
    assert max(gone.index("tpu-dev-serve"), gone.index("tpu-dev-system")) < machine
    assert machine < gone.index("tpu-dev-control-plane-data-0")
    project.assert_clean(STACK)

    found = ready_nodes(project)
    assert found.keys() == nodes.keys()
    assert set(found.values()).isdisjoint(nodes.values())
    namespaces = inside(project)
    assert namespaces.keys() == before.keys()
    assert set(namespaces.values()).isdisjoint(before.values())

    project.succeed("destroy", "-s", STACK, "--yes", "--skip-preview", "--run-program")
    assert project.session.inventory() == {}
