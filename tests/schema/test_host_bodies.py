"""The bodies that reach Google's APIs for platforms without GKE: hosts of every shape and capacity model, and control
planes of every kind. As test_request_bodies.py, which says how; UPDATE_GOLDENS=1 rewrites the goldens.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from typing import Any

import pytest

from catalogue.generations import GENERATIONS, TPU7X, HostImage
from plan.capacity import CAPACITY_MODELS, OnCompute
from tests.graph.conftest import recorded as recorded_stack
from tests.graph.emulated import FOREIGN_NETWORK, PROJECT, emulated_cloud, lay_foreign, recorded
from tests.graph.recording import ROOT
from tests.platforms import EXISTING, EXISTING_NETWORK, ZONES
from tests.schema.test_request_bodies import (
    CREATED_BY,
    SHAPES,
    WITHOUT_BODY,
    Json,
    beyond,
    capacities,
    check,
    check_golden,
    factored,
    renamed,
    route_of,
    sent,
    shared,
    unnoticed,
)

FAMILIES = tuple(name for name, each in GENERATIONS.items() if isinstance(each.without_gke, HostImage))
KEY = f"projects/{PROJECT}/locations/us-east5/keyRings/r/cryptoKeys/k"
SINGLE = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
V6E: Json = {"zone": ZONES["v6e"], "protect": False, "slices": {"serve": SINGLE}}

# What a platform may look like around its slices.
CLUSTERS: dict[str, Json] = {
    "external": {
        "cluster": {
            "kind": "self-managed",
            "kms_key": KEY,
            "control_plane": {
                "replicas": 3,
                "zones": ["us-east5-a", "us-east5-b"],
                "access": "external",
                "authorized_networks": [{"cidr": "192.0.2.0/24", "name": "office"}],
                "backups": True,
            },
            "cpu_pools": {"head": {"machine_type": "n2-standard-8", "min": 1, "taints": [{"key": "head"}]}},
        },
    },
    "existing-network": {
        "cluster": {"kind": "self-managed"},
        "network": FOREIGN_NETWORK,
    },
    "existing-cluster": {"cluster": EXISTING, "network": EXISTING_NETWORK},
}


def platform(family: str) -> Json:
    """One platform with a group of slices for each shape and capacity model of a family."""
    return {
        "zone": ZONES[family],
        "allow_unlisted_zone": True,
        "protect": False,
        "cluster": {"kind": "self-managed"},
        "slices": {
            f"{shape}-{name}": {
                "machine_type": machine,
                "topology": topology,
                "capacity": renamed(capacity, "SHAPE", shape),
            }
            for shape, (machine, topology) in SHAPES[family].items()
            for name, capacity in models().items()
        },
    }


def models() -> Json:
    """The capacity models that there are without GKE, by the name of their section."""
    return {
        name: model
        for name, model in capacities("SHAPE").items()
        if isinstance(model, str | dict)
        and isinstance(CAPACITY_MODELS[model if isinstance(model, str) else model["model"]].compute, OnCompute)
    }


@cache
def sent_by_family(family: str) -> list[Json]:
    """The requests with a body that creating a family's platform sends."""
    return sent(family, platform(family))


@cache
def sent_by_cluster(name: str) -> list[Json]:
    """The same of a platform of another make."""
    with emulated_cloud() as cloud:
        lay_foreign(cloud, "us-east5")
        before = len(cloud.writes())
        cloud.make(recorded({**V6E, **CLUSTERS[name]}))
        return cloud.writes()[before:]


SOURCES = [pytest.param(sent_by_family, family, id=family) for family in FAMILIES] + [
    pytest.param(sent_by_cluster, name, id=name) for name in CLUSTERS
]


def bodies(requests: list[Json], method: str) -> list[Json]:
    """The bodies of a method's calls. Metadata as a mapping, without the boot script; groups without the number that
    the cloud gave to their template."""
    found = copy.deepcopy([request["body"] for request in requests if route_of(request).method.id == method])
    for body in found:
        body.pop("versions", None)
        if "metadata" in body.get("properties", {}):
            items = body["properties"]["metadata"]["items"]
            metadata = {item["key"]: item["value"] for item in items}
            assert metadata.pop("startup-script").startswith("#!/usr/bin/env bash\n")
            body["properties"]["metadata"] = metadata
    return found


def by_section(found: list[Json]) -> dict[str, Json]:
    """Bodies of slices, by shape and capacity model, with the group's name as NAME; names' random endings cut off."""
    sections = {}
    for body in found:
        shape, _, rest = body["name"].removeprefix("tpu-").partition("-")
        section = next((name for name in sorted(models(), key=len, reverse=True) if rest.startswith(name)), None)
        if section is not None and shape in ("single", "multi"):
            name = f"{shape}-{section}"
            named = {**body, "name": body["name"][: len(f"tpu-{name}")]}
            sections[name] = renamed(named, name, "NAME")
    return sections


def picture(requests: list[Json]) -> Json:
    """A golden's content: templates and groups, each factored by shape."""
    drawn: Json = {}
    for kind in ("instanceTemplates", "instanceGroupManagers"):
        found = by_section(bodies(requests, f"compute.{kind}.insert"))
        common = shared(list(found.values()))
        drawn[kind] = {
            "all": common,
            **{
                shape: factored(
                    {
                        name.removeprefix(f"{shape}-"): beyond(body, common)
                        for name, body in found.items()
                        if name.startswith(shape)
                    }
                )
                for shape in ("single", "multi")
            },
        }
    drawn["resourcePolicies"] = bodies(requests, "compute.resourcePolicies.insert")
    # The cluster's disk has another id in every emulated cloud.
    without_ids: Json = json.loads(re.sub(r"of disk \d+", "of disk ID", json.dumps(drawn)))
    return without_ids


@pytest.mark.parametrize("family", FAMILIES)
def test_hosts_of_every_capacity_model_are_requested_as_in_the_golden(family: str) -> None:
    check_golden(f"hosts-{family}", picture(sent_by_family(family)))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_capacity_model_has_its_section(family: str) -> None:
    wanted = set(platform(family)["slices"])
    for kind in ("instanceTemplates", "instanceGroupManagers"):
        assert by_section(bodies(sent_by_family(family), f"compute.{kind}.insert")).keys() == wanted


@pytest.mark.parametrize(("requests_of", "source"), SOURCES)
def test_every_body_is_what_google_documents(requests_of: Any, source: Any) -> None:
    for request in requests_of(source):
        assert request["status"] == 200
        check(request)


@pytest.mark.parametrize(("requests_of", "source"), SOURCES)
def test_any_broken_field_is_refused(requests_of: Any, source: Any) -> None:
    assert unnoticed(requests_of(source)) == []


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_type_is_among_the_bodies(name: str) -> None:
    graph = recorded({**V6E, **CLUSTERS[name]})
    types = {request.type for request in graph.requests.values() if request.type.startswith("gcp:")}
    methods = {route_of(request).method.id for request in sent_by_cluster(name)}
    assert {method for kind in types - WITHOUT_BODY for method in CREATED_BY[kind].split()} <= methods


class TestTpuOperatorsExample:
    """The gce stack sends what gke-labs/tpu-operator sends for its example (`internal/converter`, `internal/gce`).

    It also says what the operator leaves to Google: names of hosts, labels of disks, how a group is updated."""

    sent: list[Json]

    @pytest.fixture(autouse=True)
    def _send(self) -> None:
        with emulated_cloud() as cloud:
            cloud.make(recorded_stack(ROOT / "Pulumi.gce.yaml", preview=False))
            self.sent = cloud.writes()

    def one(self, method: str, name: str) -> Json:
        (body,) = (body for body in bodies(self.sent, method) if body["name"].startswith(name))
        return body

    def test_policy(self) -> None:
        body = self.one("compute.resourcePolicies.insert", "tpu-gce-2x2x2")
        assert body["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}

    def test_template(self) -> None:
        properties = self.one("compute.instanceTemplates.insert", "tpu-gce-train")["properties"]
        assert properties["machineType"] == "tpu7x-standard-4t"
        (disk,) = properties["disks"]
        assert (disk["boot"], disk["autoDelete"]) == (True, True)
        assert disk["initializeParams"] | {"labels": None} == {
            "sourceImage": TPU7X.host_image,
            "diskSizeGb": "250",
            "diskType": "hyperdisk-balanced",
            "labels": None,
        }
        scheduling = properties["scheduling"]
        assert scheduling["onHostMaintenance"] == "TERMINATE"
        assert scheduling["provisioningModel"] == "RESERVATION_BOUND"
        assert scheduling["instanceTerminationAction"] == "DELETE"
        assert properties["reservationAffinity"] == {
            "consumeReservationType": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": ["res-a"],
        }
        (interface,) = properties["networkInterfaces"]
        assert not interface.get("accessConfigs")
        assert properties["metadata"]["kube-labels"] == (
            "cloud.google.com/gke-accelerator-count=4,cloud.google.com/gke-tpu-accelerator=tpu7x,"
            "cloud.google.com/gke-tpu-topology=2x2x2"
        )

    def test_group(self) -> None:
        body = self.one("compute.instanceGroupManagers.insert", "tpu-gce-train-0")
        assert body["targetSize"] == 2
        assert body["targetSizePolicy"] == {"mode": "BULK"}
        assert body["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "DO_NOTHING"
        assert body["resourcePolicies"]["workloadPolicy"].endswith("/resourcePolicies/tpu-gce-2x2x2")
