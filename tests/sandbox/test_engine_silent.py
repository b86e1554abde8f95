"""A control plane that does not come up: nobody has to wait for it, neither to take it down nor to mend it."""

from __future__ import annotations

import signal
from typing import Any

import httpx

from tests.sandbox.conftest import Project
from tests.sandbox.recovery import UP, during, end
from tests.sandbox.workloads import PATIENCE_SECONDS, eventually

Json = dict[str, Any]

STACK = "silent"
HOST = "tpu-dev-serve-w-0001"
NETWORK: Json = {
    "kind": "existing",
    "network": "office",
    "subnetwork": "office",
    "pods_range": "pods",
    "nodes_cidr": "10.0.0.0/20",
    "pods_cidr": "10.4.0.0/14",
}
CREATE_GROUP = {"method": "POST", "path": "/instanceGroupManagers$"}
VPC = "projects/my-project/global/networks/office"
SUBNET = {
    "name": "office",
    "network": VPC,
    "ipCidrRange": NETWORK["nodes_cidr"],
    "secondaryIpRanges": [{"rangeName": "pods", "ipCidrRange": NETWORK["pods_cidr"]}],
}
GIVEN = {"compute.networks": ["office"], "compute.subnetworks": ["office"]}
NAT = {
    "name": "nat",
    "natIpAllocateOption": "AUTO_ONLY",
    "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
}
SERVE: Json = {
    "machine_type": "ct6e-standard-1t",
    "topology": "1x1",
    "capacity": "spot",
    "node_drain": {"grace": "1s", "pdb_timeout": "5s"},
}


def make(project: Project, path: str, body: Json) -> None:
    """Create something of Compute Engine in the project, as somebody else would."""
    url = f"{project.session.emulator_url}/compute/v1/projects/my-project/{path}"
    headers = {"Authorization": "Bearer somebody"}
    httpx.post(url, json=body, headers=headers, timeout=30, trust_env=False).raise_for_status()


def is_asked_for(project: Project, since: int) -> bool:
    """Whether the program has looked for what the control plane writes."""
    wanted = "secrets/tpu-dev-endpoint/versions/latest"
    return any(wanted in request["path"] and request["seq"] > since for request in project.requests())


def give_up(project: Project) -> str:
    """Start an update, and end it by Ctrl-C while it waits for the control plane; returns what it said."""
    since = project.requests()[-1]["seq"]
    engine = project.session.start_pulumi("up", "-s", STACK, "--yes", "--skip-preview", capture=True)
    try:
        eventually("the update waits for the control plane", lambda: is_asked_for(project, since))
        eventually("hosts are there", lambda: HOST in project.session.inventory().get("compute.instances", []))
        engine.send_signal(signal.SIGINT)
        said, errors = engine.communicate(timeout=PATIENCE_SECONDS)
    finally:
        engine.kill()
        engine.wait()
    assert engine.returncode != 0
    return said + errors


def unfinished(project: Project) -> set[str]:
    """Names of resources whose creation did not come to its end."""
    resources = project.state(STACK)["resources"]
    return {each["urn"].rpartition("::")[2] for each in resources if each.get("initErrors")}


def test_a_control_plane_that_never_came_up_is_taken_down_or_mended(project: Project) -> None:
    make(project, "global/networks", {"name": "office", "autoCreateSubnetworks": False})
    make(project, "regions/us-east5/subnetworks", SUBNET)
    # Without a NAT machines find nothing to install.
    project.write_stack(STACK, cluster={"kind": "self-managed"}, network=NETWORK, slices={"serve": SERVE}, queues={})
    # A group of hosts that was being made stands in the state without anything that Google says about it, which an
    # early version of the program stumbled over when it was to take it down.
    end(project, STACK, UP, during(CREATE_GROUP), signal.SIGINT)
    assert unfinished(project) & {"cpu-pools-system", "slices-serve-0"}
    project.succeed("destroy", "-s", STACK, "--yes", "--skip-preview", "--run-program")
    assert project.session.inventory() == GIVEN

    assert "waiting for the control plane to come up" in give_up(project)
    made = {each["urn"].rpartition("::")[2] for each in project.state(STACK)["resources"]}
    assert {"control-plane-machine-0", "slices-serve-0"} <= made
    assert made.isdisjoint({"endpoint-published", "access-provider"})

    # Hosts that want to be drained are there already, and nobody can drain them.
    said = project.succeed("destroy", "-s", STACK, "--yes", "--skip-preview", "--run-program")
    assert "tpu-dev-serve is deleted without a drain" in said
    assert not project.state(STACK).get("resources")
    assert project.session.inventory() == GIVEN

    give_up(project)
    make(project, "regions/us-east5/routers", {"name": "router", "network": VPC, "nats": [NAT]})
    project.up(STACK)
    project.assert_clean(STACK)
