"""Each check of `python -m tools preflight` on answers in Google's form, and what the command does without Google."""

import io
import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from plan.google_apis import google_apis
from tests.platforms import EXISTING as EXISTING_CLUSTER
from tests.platforms import EXISTING_NETWORK, PROJECT, load
from tools.__main__ import app
from tools.preflight import checks
from tools.preflight.checks import CHECKS, Check
from tools.preflight.cloud import APIS, NoConnectionError, RefusedError
from tools.preflight.findings import Finding, Level, Row, as_table, summary
from tools.preflight.quota import chip_quota, cpu_quota
from tools.preflight.reservations import reservations
from tools.preflight.run import preflight
from tools.preflight.scene import Scene

Json = dict[str, Any]
UNUSED = {
    "budget",
    "network",
    "images",
    "secrets",
    "buckets",
    "shared grants",
    "team disks",
    "team secrets",
    "registries",
    "reservations",
}
"""Checks that find nothing to look at on a platform of the least."""
RESERVED = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": {"model": "reservation", "name": "res"}}
SPOT = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot", "count": 3}
EXISTING = {
    "kind": "existing",
    "network": "net",
    "subnetwork": "sub",
    "pods_range": "pods",
    "services_range": "services",
}
SUBNET = {
    "network": "https://www.googleapis.com/compute/v1/projects/my-project/global/networks/net",
    "ipCidrRange": "10.0.0.0/24",
    "privateIpGoogleAccess": True,
    "secondaryIpRanges": [
        {"rangeName": "pods", "ipCidrRange": "10.4.0.0/16"},
        {"rangeName": "services", "ipCidrRange": "10.8.0.0/20"},
    ],
}
RESERVATION = {
    "status": "READY",
    "specificReservationRequired": True,
    "specificReservation": {
        "count": "8",
        "inUseCount": "2",
        "instanceProperties": {"machineType": "ct6e-standard-4t"},
    },
    "shareSettings": {"shareType": "LOCAL"},
}


class Answers:
    """Stands for Google's APIs: the answers a test gives, by method; what has no answer does not exist.

    An answer may be a function of the parameters, and an exception is raised. It differs from the real thing in that
    nothing is checked. `asked` are the calls.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers = {name.replace("__", "."): answer for name, answer in answers.items()}
        self.asked: list[tuple[str, Json]] = []

    def find(self, api: str, method: str, **parameters: Any) -> Any:
        self.asked.append((method, parameters))
        answer = self.answers.get(f"{api}.{method}")
        answer = answer(**parameters) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get(self, api: str, method: str, **parameters: Any) -> Any:
        found = self.find(api, method, **parameters)
        if found is None:
            raise RefusedError(404, "", "not found", "")
        return found

    def pages(self, api: str, method: str, items: str, **parameters: Any) -> Any:
        return (self.find(api, method, **parameters) or {}).get(items, [])


def found(
    check: Check, slices: Json | None = None, /, *, platform: Json | None = None, **answers: Any
) -> list[Finding]:
    """What a check finds on a platform, given answers such as `compute__zones__get`."""
    scene = Scene(load(slices, **(platform or {})), "test", Answers(**answers))  # type: ignore[arg-type]
    return list(check(scene))


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def refused(status: int, reason: str = "") -> RefusedError:
    return RefusedError(status, reason, "refused", "compute.googleapis.com")


# Project, APIs, permissions


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ({"state": "ACTIVE"}, "ok"),
        ({"state": "DELETE_REQUESTED"}, "blocks"),
        (None, "blocks"),
        (refused(403), "blocks"),
    ],
)
def test_project(answer: Any, level: str) -> None:
    finding = only(found(checks.project, projects__projects__get=answer))
    assert finding.level == level
    assert PROJECT in finding.what


def test_services() -> None:
    off = ("cloudresourcemanager.googleapis.com", "monitoring.googleapis.com")
    on = [{"config": {"name": name}} for name in google_apis(load()) if name not in off]
    finding = only(found(checks.services, services__services__list={"services": on}))
    assert finding.level == "warning"
    assert finding.what == "2 APIs are off: cloudresourcemanager.googleapis.com, monitoring.googleapis.com"
    assert "gcloud services enable cloudresourcemanager.googleapis.com" in finding.next_step


def test_services_that_are_all_on() -> None:
    on = [{"config": {"name": name}} for name in google_apis(load())]
    assert only(found(checks.services, services__services__list={"services": on})).level == "ok"


def held_but(*missing: str) -> Any:
    return lambda resource, body: {"permissions": [p for p in body["permissions"] if p not in missing]}


def test_missing_permissions_are_named() -> None:
    answer = held_but("container.clusters.create", "iam.serviceAccounts.actAs")
    finding = only(found(checks.permissions, projects__projects__testIamPermissions=answer))
    assert finding.level == "blocks"
    assert "container.clusters.create, iam.serviceAccounts.actAs" in finding.what
    assert "--role" in finding.next_step


def test_permissions_that_a_project_cannot_test_do_not_hide_the_others() -> None:
    odd = "container.thirdPartyObjects.list"

    def answer(resource: str, body: Json) -> Any:
        names = body["permissions"]
        assert len(names) <= checks.PERMISSIONS_A_CALL
        held: Json = held_but("compute.networks.create")(resource, body)
        return refused(400) if odd in names else held

    unknown, missing = found(checks.permissions, projects__projects__testIamPermissions=answer)
    assert unknown.level == "not checked"
    assert odd in unknown.what
    assert missing.level == "blocks"
    assert missing.what.endswith("are missing: compute.networks.create")


# Places and versions


def machine_types(*offered: str) -> Any:
    return lambda project, zone, machineType: {"guestCpus": 4} if machineType in offered else None  # noqa: N803


def test_zone() -> None:
    offered = machine_types("ct6e-standard-4t", "e2-standard-4")
    up = {"compute__zones__get": {"status": "UP"}}
    finding = only(found(checks.zone, compute__machineTypes__get=offered, **up))
    assert finding == Finding("ok", "us-east5-b offers ct6e-standard-4t, e2-standard-4")
    missing, rest = found(checks.zone, compute__machineTypes__get=machine_types("e2-standard-4"), **up)
    assert (missing.level, rest.level) == ("blocks", "ok")
    assert missing.what == "us-east5-b does not offer ct6e-standard-4t"
    assert "us-east5-a" in missing.next_step


@pytest.mark.parametrize(("answer", "what"), [(None, "there is no zone"), ({"status": "DOWN"}, "is DOWN")])
def test_a_zone_that_is_not_there(answer: Any, what: str) -> None:
    finding = only(found(checks.zone, compute__zones__get=answer))
    assert finding.level == "blocks"
    assert what in finding.what


def test_disks() -> None:
    def answer(project: str, zone: str, diskType: str) -> Json | None:  # noqa: N803
        return None if diskType == "hyperdisk-balanced" else {}

    finding = only(found(checks.disks, compute__diskTypes__get=answer))
    assert finding.level == "blocks"
    assert finding.what == "us-east5-b has no disks of type hyperdisk-balanced"
    assert only(found(checks.disks, compute__diskTypes__get={"name": "x"})).level == "ok"


DRA = {"s": SPOT | {"devices": "dra"}}
SERVER = {
    "channels": [
        {"channel": "REGULAR", "defaultVersion": "1.33.4-gke.1", "validVersions": ["1.33.4-gke.1", "1.34.2-gke.7"]}
    ]
}


@pytest.mark.parametrize(
    ("cluster", "level", "what", "next_step"),
    [
        ({}, "blocks", "devices: dra needs GKE 1.34.1-gke.1127000; REGULAR's default is 1.33.4-gke.1", "1.34.2-gke.7"),
        ({"version": "1.34"}, "ok", "REGULAR offers 1.34.2-gke.7", ""),
        ({"version": "1.34.2-gke.7"}, "ok", "REGULAR offers 1.34.2-gke.7", ""),
        ({"version": "1.35.1-gke.5"}, "blocks", "REGULAR does not offer 1.35.1-gke.5 in us-east5", "1.34.2-gke.7"),
        (
            {"release_channel": "RAPID", "version": "1.35"},
            "blocks",
            "RAPID does not offer 1.35",
            "another release channel",
        ),
    ],
)
def test_version(cluster: Json, level: str, what: str, next_step: str) -> None:
    answers = {"container__projects__locations__getServerConfig": SERVER}
    finding = found(checks.version, DRA, platform={"cluster": cluster}, **answers)[0]
    assert finding.level == level
    assert finding.what.startswith(what)
    assert next_step in finding.next_step


def test_of_a_cluster_that_stands_its_own_version_counts() -> None:
    standing = {"container__projects__locations__clusters__get": {"currentMasterVersion": "1.32.1-gke.1"}}
    finding = only(found(checks.version, DRA, **standing))
    assert finding.level == "blocks"
    assert finding.what.endswith("the cluster runs 1.32.1-gke.1")


# Network


def test_a_network_that_fits() -> None:
    answers = {"compute__networks__get": {"name": "net"}, "compute__subnetworks__get": SUBNET}
    assert only(found(checks.network, platform={"network": EXISTING}, **answers)).level == "ok"
    assert found(checks.network) == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"ipCidrRange": "10.0.0.0/29"}, "10.0.0.0/29 has 8 addresses; 14 nodes need 18"),
        ({"secondaryIpRanges": SUBNET["secondaryIpRanges"][:1]}, "sub has no secondary range services"),
        ({"secondaryIpRanges": []}, "sub has no secondary range pods"),
        ({"network": "x/networks/other"}, "sub belongs to other"),
        ({"privateIpGoogleAccess": False}, "sub has no Private Google Access"),
    ],
)
def test_a_subnet_that_does_not_fit(changed: Json, what: str) -> None:
    answers = {"compute__networks__get": {"name": "net"}, "compute__subnetworks__get": {**SUBNET, **changed}}
    assert what in [finding.what for finding in found(checks.network, platform={"network": EXISTING}, **answers)]


def test_a_network_that_is_not_there() -> None:
    network, subnet = found(checks.network, platform={"network": {**EXISTING, "project": "host"}})
    assert (network.level, subnet.level) == ("blocks", "blocks")
    assert network.what == "there is no network net in host"
    assert subnet.what == "there is no subnet sub in us-east5 of host"


# Hosts that are not GKE's

OWN = {"zone": "us-central1-c", "cluster": {"kind": "self-managed"}}
IRON = {"s": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}}
TPU_IMAGE = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accel-2404-amd64-tpu-tpu7x"


@pytest.mark.parametrize(
    ("answer", "level", "what"),
    [
        ({"name": "i"}, "ok", "is there"),
        ({"name": "i", "deprecated": {"state": "DEPRECATED"}}, "warning", "is deprecated"),
        (None, "blocks", "there is no image"),
        (refused(403), "not checked", "you may not see"),
    ],
)
def test_images(answer: Any, level: str, what: str) -> None:
    findings = found(checks.images, IRON, platform=OWN, compute__images__getFromFamily=answer)
    assert {finding.level for finding in findings} == {level}
    [tpu] = [finding.what for finding in findings if TPU_IMAGE in finding.what]
    assert what in tpu


def test_an_image_by_its_own_name_is_looked_up_as_such() -> None:
    image = "projects/p/global/images/mine"
    answers = {
        "compute__images__get": lambda project, image: {"name": image} if (project, image) == ("p", "mine") else None
    }
    findings = found(checks.images, {"s": {**IRON["s"], "image": image}}, platform=OWN, **answers)
    assert Finding("ok", f"{image} is there") in findings
    assert found(checks.images) == [], "GKE brings its own"


def test_machines_of_a_control_plane_are_looked_up_in_its_zones() -> None:
    cluster = {"kind": "self-managed", "control_plane": {"replicas": 3, "zones": ["us-central1-a", "us-central1-b"]}}
    answers = {"compute__zones__get": {"status": "UP"}, "compute__machineTypes__get": {"guestCpus": 4}}
    findings = found(checks.zone, IRON, platform={**OWN, "cluster": cluster}, **answers)
    assert [finding.what for finding in findings] == [
        "us-central1-a offers e2-standard-4",
        "us-central1-b offers e2-standard-4",
        "us-central1-c offers e2-standard-4, tpu7x-standard-4t",
    ]
    # three replicas and two machines for system pods
    region = {"quotas": [{"metric": "CPUS", "limit": 23.0, "usage": 0.0}]}
    finding = only(
        found(cpu_quota, IRON, platform={**OWN, "cluster": cluster}, compute__regions__get=region, **answers)
    )
    assert finding.level == "ok"
    assert finding.what.startswith("CPUS in us-central1: 20 vCPUs needed")


def test_secrets_of_an_existing_cluster() -> None:
    def answer(name: str) -> Json | None:
        return {"state": "ENABLED"} if name == "projects/my-project/secrets/join/versions/latest" else None

    platform = {**OWN, "cluster": EXISTING_CLUSTER, "network": EXISTING_NETWORK}
    join, access = found(checks.secrets, IRON, platform=platform, secrets__projects__secrets__versions__get=answer)
    assert join == Finding("ok", "projects/my-project/secrets/join has a version")
    assert access.level == "blocks"
    assert access.what == "projects/my-project/secrets/access is not there, or has no version"
    destroyed = {"state": "DESTROYED"}
    for finding in found(checks.secrets, IRON, platform=platform, secrets__projects__secrets__versions__get=destroyed):
        assert finding.level == "blocks"


# Quota


def buckets(metric: str, *pairs: tuple[int, Json]) -> Json:
    limits = [{"quotaBuckets": [{"effectiveLimit": str(n), "dimensions": dims} for n, dims in pairs]}]
    return {"metrics": [{"metric": f"compute.googleapis.com/{metric}", "consumerQuotaLimits": limits}]}


CT6E = {"tpu_family": "CT6E"}
V6E = {"train": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}}


@pytest.mark.parametrize(
    ("pairs", "level", "limit"),
    [
        ([(0, {}), (32, {**CT6E, "region": "us-east5"})], "ok", "limit 32"),
        ([(0, {}), (64, CT6E), (31, {**CT6E, "region": "us-east5"})], "blocks", "limit 31"),
        ([(0, {}), (64, {"tpu_family": "TPU7X"}), (64, {**CT6E, "region": "us-east1"})], "blocks", "limit 0"),
        ([(-1, {})], "ok", "no limit"),
    ],
)
def test_the_most_specific_limit_counts(pairs: Any, level: str, limit: str) -> None:
    answers = {"quotas__services__consumerQuotaMetrics__list": buckets("tpus_per_tpu_family", *pairs)}
    finding = only(found(chip_quota, V6E, **answers))
    assert finding.level == level
    assert finding.what == f"TPUS_PER_TPU_FAMILY of family CT6E in us-east5: 32 chips needed, {limit}"


def test_a_quota_of_the_region_is_shown_with_its_use() -> None:
    slices = {"s": {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}}
    region = {"quotas": [{"metric": "TPU_LITE_PODSLICE_V5", "limit": 40.0, "usage": 32.0}]}
    place = {"zone": "us-west4-a"}
    finding = only(found(chip_quota, slices, platform=place, compute__regions__get=region))
    assert finding.level == "blocks"
    assert finding.what == "TPU_LITE_PODSLICE_V5 in us-west4: 16 chips needed, limit 40, 32 in use"
    assert finding.next_step.startswith("free 8")
    standing = {"container__projects__locations__clusters__get": {"nodePools": [{"name": "s-0"}]}}
    finding = only(found(chip_quota, slices, platform=place, compute__regions__get=region, **standing))
    assert finding.level == "ok", "what is in use is the platform's own"


def test_alternatives_count_once_for_a_metric() -> None:
    """Spot and flex-start take from one quota, on-demand from another; a slice has one of them at a time."""
    slices = {
        "s": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": ["spot", "flex-start", "on-demand"]}
    }
    metrics = buckets("tpus_per_tpu_family", (8, CT6E))["metrics"] + buckets("preemptible_tpu_v6e", (8, {}))["metrics"]
    answers = {"quotas__services__consumerQuotaMetrics__list": {"metrics": metrics}}
    assert [finding.what for finding in found(chip_quota, slices, **answers)] == [
        "PREEMPTIBLE_TPU_V6E in us-east5: 1 chip needed, limit 8",
        "TPUS_PER_TPU_FAMILY of family CT6E in us-east5: 1 chip needed, limit 8",
    ]


def test_quotas_nobody_knows_are_said_to_be_so() -> None:
    assert only(found(chip_quota, V6E)).level == "warning"
    v5p = {"s": {"machine_type": "ct5p-hightpu-4t", "topology": "2x2x2"}}
    unnamed = only(found(chip_quota, v5p, platform={"zone": "us-east5-a"}))
    assert unnamed == Finding("not checked", "the quota names of v5p are in no public source", unnamed.next_step)
    assert only(found(chip_quota, {"s": RESERVED})).level == "ok"


@pytest.mark.parametrize(("limit", "levels"), [(7, ["blocks"]), (8, ["ok", "warning"]), (40, ["ok"])])
def test_cpu_quota(limit: int, levels: list[str]) -> None:
    """The system pool has 2 to 10 machines of 4 vCPUs."""
    region = {"quotas": [{"metric": "CPUS", "limit": float(limit), "usage": 0.0}]}
    types = machine_types("ct6e-standard-4t", "e2-standard-4")
    findings = found(cpu_quota, compute__regions__get=region, compute__machineTypes__get=types)
    assert [finding.level for finding in findings] == levels
    assert findings[0].what.startswith("CPUS in us-east5: 8 vCPUs needed")


# Reservations


def test_a_reservation_that_fits() -> None:
    finding = only(found(reservations, {"s": RESERVED}, compute__reservations__get=RESERVATION))
    assert finding == Finding("ok", "my-project/res is ready, 6 of 8 hosts free; 4 needed")


def test_hosts_that_gke_has_created_for_a_class_are_not_needed_again() -> None:
    """Their pools are in no plan. They are known by the label of their flavor."""
    spec = RESERVED | {"count": 2, "provisioning": "compute-class"}
    labels = {"labels": {"tpu-platform/flavor": "tpu-s"}}
    reserved = {**labels, "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}
    other = [{"name": "nap-2", "config": labels}, {"name": "nap-3", "config": reserved, "status": "ERROR"}]
    made = {"nodePools": [{"name": "nap-1", "config": reserved}, *other]}
    for cluster, needed in ((None, 8), (made, 4)):
        answers = {"compute__reservations__get": RESERVATION, "container__projects__locations__clusters__get": cluster}
        (finding,) = [each for each in found(reservations, {"s": spec}, **answers) if "needed" in each.what]
        assert f"{needed}" in finding.what


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"status": "CREATING"}, "my-project/res is CREATING, not READY"),
        (
            {"specificReservationRequired": False},
            "my-project/res is for anyone's hosts, not only for those that name it",
        ),
        (
            {"specificReservation": {"count": "4", "instanceProperties": {"machineType": "ct5p-hightpu-4t"}}},
            "my-project/res is for ct5p-hightpu-4t; slices.s is of ct6e-standard-4t",
        ),
        (
            {"specificReservation": {"count": "8", "inUseCount": "5"}},
            "my-project/res has 3 free hosts; 4 needed",
        ),
        (
            {"specificReservation": None, "aggregateReservation": {"workloadType": "SERVING"}},
            "my-project/res is for single hosts (SERVING), which slices.s is not",
        ),
    ],
)
def test_a_reservation_that_does_not_fit(changed: Json, what: str) -> None:
    answer = {key: value for key, value in {**RESERVATION, **changed}.items() if value is not None}
    finding = only(found(reservations, {"s": RESERVED}, compute__reservations__get=answer))
    assert (finding.level, finding.what) == ("blocks", what)


def test_a_reservation_that_is_not_there() -> None:
    finding = only(found(reservations, {"s": RESERVED}))
    assert finding.level == "blocks"
    assert finding.what == "there is no reservation res in us-east5-b of my-project"


@pytest.mark.parametrize("answer", [None, {**RESERVATION, "status": "CREATING"}])
def test_a_reservation_that_has_not_begun_need_not_be_ready(answer: Json | None) -> None:
    capacity = {"model": "reservation", "name": "res", "active": False}
    finding = only(found(reservations, {"s": {**RESERVED, "capacity": capacity}}, compute__reservations__get=answer))
    assert finding.level == "warning"


def test_slices_share_a_reservation() -> None:
    slices = {"a": RESERVED, "b": RESERVED}
    finding = only(found(reservations, slices, compute__reservations__get=RESERVATION))
    assert finding.what == "my-project/res has 6 free hosts; 8 needed"
    standing = {"container__projects__locations__clusters__get": {"nodePools": [{"name": "a-0"}]}}
    assert only(found(reservations, slices, compute__reservations__get=RESERVATION, **standing)).level == "ok"


def owned_by(other: str) -> Json:
    return {"s": RESERVED | {"capacity": {"model": "reservation", "name": "res", "project": other}}}


@pytest.mark.parametrize(
    ("sharing", "level"),
    [
        ({"shareType": "LOCAL"}, "blocks"),
        ({"shareType": "SPECIFIC_PROJECTS", "projectMap": {"somebody": {}}}, "blocks"),
        ({"shareType": "SPECIFIC_PROJECTS", "projectMap": {PROJECT: {}}}, "ok"),
        ({"shareType": "ORGANIZATION"}, "ok"),
    ],
)
def test_a_shared_reservation(sharing: Json, level: str) -> None:
    answer = {**RESERVATION, "shareSettings": sharing}
    finding = only(found(reservations, owned_by("lender"), compute__reservations__get=answer))
    assert finding.level == level
    if level == "blocks":
        assert finding.what == "lender/res is not shared with my-project"


def test_a_reservation_one_may_not_see() -> None:
    finding = only(found(reservations, owned_by("lender"), compute__reservations__get=refused(403)))
    assert (finding.level, finding.what) == ("not checked", "you may not read res of lender")


def test_parts_of_a_reservation() -> None:
    capacity = {"model": "reservation", "name": "res", "block": "b1", "sub_block": ["s1", "s2"]}
    slices = {"s": {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2", "count": 2, "capacity": capacity}}

    def sub_block(parentName: str, reservationSubBlock: str, **_: str) -> Json | None:  # noqa: N803
        assert parentName == "reservations/res/reservationBlocks/b1"
        return {"resource": {"count": 16, "inUseCount": 15}} if reservationSubBlock == "s1" else None

    answer = {**RESERVATION, "specificReservation": {"count": "32", "inUseCount": "0"}}
    answers = {"compute__reservations__get": answer, "compute__reservationSubBlocks__get": sub_block}
    findings = found(reservations, slices, platform={"zone": "us-central1-c"}, **answers)
    assert [finding.what for finding in findings] == [
        "my-project/res/b1/s1 has 1 free host; 2 needed",
        "my-project/res/b1/s2 is not there",
    ]


# All together


def test_every_check_is_asked_and_only_reads() -> None:
    answers = Answers(projects__projects__get={"state": "ACTIVE"}, compute__machineTypes__get={"guestCpus": 4})
    result = preflight(load(), "test", answers)  # type: ignore[arg-type]
    verbs = {method.rpartition(".")[2] for method, _ in answers.asked}
    assert verbs <= {"get", "list", "getServerConfig", "testIamPermissions", "getFromFamily"}
    assert result.connected
    assert {row.check for row in result.rows} >= CHECKS.keys() - UNUSED


@pytest.mark.parametrize("answered", [True, False])
def test_nobody_is_warned_of_a_version_that_google_has_told(answered: bool) -> None:
    off = refused(403, "SERVICE_DISABLED")
    config = SERVER if answered else off
    answers = Answers(
        projects__projects__get={"state": "ACTIVE"}, container__projects__locations__getServerConfig=config
    )
    result = preflight(load(DRA), "test", answers)  # type: ignore[arg-type]
    warned = [
        row for row in result.rows if row.check == "plan" and "is left to the release channel" in row.finding.what
    ]
    assert [row.finding.level for row in result.rows if row.check == "version"] == [
        "blocks" if answered else "not checked"
    ]
    assert bool(warned) is not answered


def test_the_last_line_counts_in_words() -> None:
    levels: list[Level] = ["ok", "warning", "blocks", "blocks", "not checked"]
    assert summary([Row("x", Finding(level, "")) for level in levels]) == (
        "1 ok, 1 warning, 2 block an update, 1 not checked"
    )
    assert summary([Row("x", Finding("blocks", ""))]) == "1 blocks an update"


def test_without_a_project_nothing_else_is_asked() -> None:
    answers = Answers()
    result = preflight(load(), "test", answers)  # type: ignore[arg-type]
    assert [method for method, _ in answers.asked] == ["projects.get"]
    assert result.blocked


def test_an_api_that_is_off_does_not_stop_the_other_checks() -> None:
    off = refused(403, "SERVICE_DISABLED")
    answers = Answers(projects__projects__get={"state": "ACTIVE"}, compute__zones__get=off)
    result = preflight(load(), "test", answers)  # type: ignore[arg-type]
    zone = [row.finding for row in result.rows if row.check == "zone"]
    assert [finding.level for finding in zone] == ["not checked"]
    assert "gcloud services enable compute.googleapis.com" in zone[0].next_step
    assert result.rows[-1].check != "zone"


def test_a_connection_that_breaks_keeps_what_was_found() -> None:
    lost = NoConnectionError("no connection to Google: gone", "check network")
    answers = Answers(projects__projects__get={"state": "ACTIVE"}, services__services__list=lost)
    slices = {"s": {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": "on-demand"}}
    result = preflight(load(slices), "test", answers)  # type: ignore[arg-type]
    assert not result.connected
    assert [row.check for row in result.rows] == ["plan", "network", "project", "cloud"]


def command(*arguments: str | Path, **env: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", **env}).invoke(app, ["preflight", *map(str, arguments)])


@pytest.fixture
def closed_port() -> Iterator[dict[str, str]]:
    """Endpoints at which nobody listens, in the provider's variables."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        yield {api.variable: url for api in APIS.values()} | {"GOOGLE_OAUTH_ACCESS_TOKEN": "token"}


def test_without_a_network_the_rest_is_shown(closed_port: dict[str, str]) -> None:
    result = command("-s", "dev", "--json", **closed_port)
    assert result.exit_code == 2
    findings = json.loads(result.output)["findings"]
    assert findings[0]["check"] == "plan"
    assert findings[-1]["what"].startswith("no connection to Google")
    assert findings[-1]["next_step"]


class Portal(BaseHTTPRequestHandler):
    """Stands for a proxy's login page: whatever is asked for, an answer that is not the API's."""

    def do_GET(self) -> None:
        page = b"<html>please log in [/somewhere]</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: Any) -> None:
        pass


def test_an_answer_that_is_not_googles_is_no_traceback() -> None:
    with HTTPServer(("127.0.0.1", 0), Portal) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/"
            result = command("-s", "dev", GOOGLE_OAUTH_ACCESS_TOKEN="t", **{api.variable: url for api in APIS.values()})
        finally:
            server.shutdown()
            thread.join()
    assert result.exit_code == 2
    assert "what answers is not Google's API" in result.output


def test_what_google_says_is_no_markup() -> None:
    finding = Finding("blocks", "there is no [/zone] here", "see [bold]")
    console = Console(width=100, file=io.StringIO())
    console.print(as_table([Row("zone", finding)]))
    assert isinstance(console.file, io.StringIO)
    assert "there is no [/zone] here" in console.file.getvalue()


def test_a_line_to_copy_is_whole_on_a_narrow_screen() -> None:
    """It was cut off after what fitted."""
    long = "my-project-tpu-team-research-checkpoints-of-a-long-name"
    console = Console(width=80, file=io.StringIO())
    console.print(as_table([Row("bucket", Finding("blocks", "there is one already", f"write `bucket: {long}`"))]))
    assert isinstance(console.file, io.StringIO)
    assert "…" not in console.file.getvalue()


def test_without_credentials_the_rest_is_shown(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    result = command("-s", "dev", GOOGLE_APPLICATION_CREDENTIALS=missing)
    assert result.exit_code == 2
    assert "no usable credentials" in result.output
    assert "gcloud auth application-default login" in result.output
    assert "Traceback" not in result.output


def test_offline() -> None:
    result = command("-s", "dev", "--offline")
    assert result.exit_code == 0
    assert "every rule holds; 1 slice, 1 host, 1 chip" in result.output
    assert "run it without --offline" in result.output


def test_bad_input_is_named(stack_file: Any) -> None:
    assert command("-s", "nowhere").exit_code == 2
    refused_file = command("-f", stack_file(zone="x"))
    assert refused_file.exit_code == 1
    assert "tpu-platform:platform.zone" in refused_file.output


# Teams

FITS = {
    "location": "US-EAST5",
    "locationType": "region",
    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
    "hierarchicalNamespace": {"enabled": True},
}
NAMED = {"teams": {"a": {"storage": {"d": {"bucket": "acme", "mode": "write"}}}}}
MADE = {"teams": {"a": {"storage": {"d": {}}}}}
OWN_BUCKET = "my-project_tpu_a_d"
PROJECT_7 = {"name": "projects/7", "state": "ACTIVE"}
OURS = FITS | {"projectNumber": "7", "labels": {"tpu-platform": "tpu", "tpu-team": "a", "tpu-store": "d"}}
"""A bucket that the platform made."""


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        (FITS, ["ok: acme is there"]),
        (FITS | {"location": "US", "locationType": "multi-region"}, ["ok: acme is there"]),
        (None, ["blocks: there is no bucket acme"]),
        (refused(403), ["not checked: you may not see the bucket acme"]),
        (FITS | {"iamConfiguration": {}}, ["blocks: acme has access control lists: pods cannot write to it"]),
        (
            FITS | {"location": "EUROPE-WEST4"},
            [
                "warning: acme is in europe-west4, the hosts in us-east5: reading costs time and traffic",
                "ok: acme is there",
            ],
        ),
        (
            FITS | {"retentionPolicy": {"retentionPeriod": "86400"}},
            [
                "warning: acme has a retention policy: a job cannot write a file of the same name again",
                "ok: acme is there",
            ],
        ),
        (
            FITS | {"hierarchicalNamespace": {}},
            [
                "warning: acme has no hierarchical namespace: it takes fewer requests at first, and renames file by"
                " file",
                "ok: acme is there",
            ],
        ),
    ],
)
def test_a_bucket_that_exists(answer: Any, lines: list[str]) -> None:
    findings = found(CHECKS["buckets"], platform=NAMED, storage__buckets__get=answer)
    assert [f"{each.level}: {each.what}" for each in findings] == lines


CLUSTERS = [{"name": "tpu", "location": "us-east5"}, {"name": "other", "location": "us-east5"}]


def test_another_cluster_of_the_project_shares_the_grants_of_teams() -> None:
    answers = {"container__projects__locations__clusters__list": {"clusters": CLUSTERS}}
    shared = only(found(CHECKS["shared grants"], platform=MADE, **answers))
    assert shared.level == "warning"
    assert "has other clusters: other." in shared.what
    assert "(a) have that team's rights" in shared.what
    assert "pulumi up --refresh" in (shared.next_step or "")
    elsewhere = [CLUSTERS[0] | {"location": "us-west1"}]
    answers = {"container__projects__locations__clusters__list": {"clusters": elsewhere}}
    assert only(found(CHECKS["shared grants"], platform=MADE, **answers)).level == "warning", "the same name elsewhere"
    alone = {"container__projects__locations__clusters__list": {"clusters": CLUSTERS[:1]}}
    assert only(found(CHECKS["shared grants"], platform=MADE, **alone)).level == "ok"
    assert not found(CHECKS["shared grants"], **answers), "without teams nothing is shared"


DISK = {"teams": {"a": {"storage": {"d": {"disk": "w", "mount": "/weights"}}}}}
HYPERDISK = {"type": "https://c/projects/p/zones/z/diskTypes/hyperdisk-ml", "accessMode": "READ_ONLY_MANY"}


@pytest.mark.parametrize(
    ("answer", "level", "what", "next_step"),
    [
        (HYPERDISK | {"users": ["i/a", "i/b"]}, "ok", "w is there, for reading", ""),
        (None, "blocks", "there is no disk w in us-east5-b", "docs/storage.md"),
        (HYPERDISK | {"type": "t/pd-ssd"}, "blocks", "w is of type pd-ssd", "--type=hyperdisk-ml"),
        (
            HYPERDISK | {"accessMode": "READ_WRITE_SINGLE"},
            "warning",
            "can still be written to",
            "--access-mode=READ_ONLY_MANY",
        ),
        (
            HYPERDISK | {"accessMode": "READ_WRITE_SINGLE", "users": ["z/instances/filler"]},
            "blocks",
            "w is attached to filler",
            "detach it",
        ),
    ],
)
def test_a_disk_that_exists(answer: Any, level: str, what: str, next_step: str) -> None:
    finding = only(found(CHECKS["team disks"], platform=DISK, compute__disks__get=answer))
    assert finding.level == level
    assert what in finding.what
    assert next_step in (finding.next_step or "")


def test_a_name_of_a_new_bucket_that_is_free_or_somebody_elses() -> None:
    free = only(found(CHECKS["buckets"], platform=MADE))
    assert (free.level, free.what) == ("ok", f"the name {OWN_BUCKET} is free")
    taken = only(found(CHECKS["buckets"], platform=MADE, storage__buckets__get=refused(403)))
    assert (taken.level, taken.what) == ("blocks", f"somebody else has a bucket {OWN_BUCKET}")


def test_a_bucket_that_an_earlier_platform_left_behind_is_taken_over_by_name() -> None:
    left = only(found(CHECKS["buckets"], platform=MADE, storage__buckets__get=OURS, projects__projects__get=PROJECT_7))
    assert left.level == "blocks"
    assert (
        f"write `bucket: {OWN_BUCKET}` and `mode: write` in tpu-platform:platform.teams.a.storage.d" in left.next_step
    )


@pytest.mark.parametrize(
    "standing", [{"container__projects__locations__clusters__get": {}}, {"compute__subnetworks__get": {}}]
)
def test_of_the_bucket_of_a_platform_that_stands_only_the_state_knows_more(standing: Json) -> None:
    """It may have been left behind all the same, and then `up` ends in 409."""
    answers = {"storage__buckets__get": OURS, "projects__projects__get": PROJECT_7, **standing}
    finding = only(found(CHECKS["buckets"], platform=MADE, **answers))
    assert finding.level == "not checked"
    assert f"If it does not, write `bucket: {OWN_BUCKET}` and `mode: write` in" in finding.next_step


@pytest.mark.parametrize(
    "standing", [{}, {"container__projects__locations__clusters__get": {}}, {"compute__subnetworks__get": {}}]
)
@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"projectNumber": "8"}, "it is in project 8"),
        ({"labels": {}}, "it has no label tpu-platform=tpu, tpu-team=a, tpu-store=d"),
        ({"labels": {"tpu-platform": "tpu", "tpu-team": "b", "tpu-store": "d"}}, "it has no label tpu-team=a"),
    ],
)
def test_nobody_is_told_to_take_over_a_bucket_of_others(standing: Json, other: Json, words: str) -> None:
    """Names are global and can be guessed: checkpoints would go to whoever was first."""
    answers = {"storage__buckets__get": OURS | other, "projects__projects__get": PROJECT_7, **standing}
    finding = only(found(CHECKS["buckets"], platform=MADE, **answers))
    assert (finding.level, finding.what.endswith(words)) == ("blocks", True), finding.what
    assert finding.next_step == "give the store another name in tpu-platform:platform.teams.a.storage"


@pytest.mark.parametrize(("keep", "first"), [(True, ""), (False, "first set keep: true and run `pulumi up`")])
def test_a_bucket_does_not_move_with_its_platform(keep: bool, first: str) -> None:
    """Its grants would go first, and then the new one would end in 409."""
    answers = {"storage__buckets__get": OURS | {"location": "US-CENTRAL1"}, "projects__projects__get": PROJECT_7}
    finding = only(found(CHECKS["buckets"], platform={"teams": {"a": {"storage": {"d": {"keep": keep}}}}}, **answers))
    assert finding.level == "blocks"
    assert f"write `bucket: {OWN_BUCKET}` and `mode: write` in" in finding.next_step
    assert (first in finding.next_step) if first else ("keep: true" not in finding.next_step)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"state": "ENABLED"}, "ok: hf has a version"),
        ({"state": "DESTROYED"}, "blocks: the latest version of hf is DESTROYED"),
        (None, "blocks: hf is not there in other, or has no version"),
    ],
)
def test_secrets_of_teams(answer: Any, line: str) -> None:
    teams = {"teams": {"a": {"secrets": {"HF_TOKEN": "projects/other/secrets/hf"}}}}
    finding = only(found(CHECKS["team secrets"], platform=teams, secrets__projects__secrets__versions__get=answer))
    assert f"{finding.level}: {finding.what}" == line


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ({"format": "DOCKER"}, "ok: {name} is there"),
        ({"format": "PYTHON"}, "blocks: {name} holds PYTHON, and no images"),
        (None, "blocks: there is no repository {name}"),
    ],
)
def test_registries_that_exist(answer: Any, line: str) -> None:
    name = "projects/other/locations/us/repositories/base"
    platform = {"images": {"base": {"repository": name}, "own": {}}}
    method = "registries__projects__locations__repositories__get"
    finding = only(found(CHECKS["registries"], platform=platform, **{method: answer}))
    assert f"{finding.level}: {finding.what}" == line.format(name=name)


def test_secrets_of_teams_need_a_version_of_gke() -> None:
    teams = {"teams": {"a": {"secrets": {"HF_TOKEN": "hf"}}}}
    cluster = {"currentMasterVersion": "1.33.5-gke.100"}
    finding = only(found(checks.version, platform=teams, container__projects__locations__clusters__get=cluster))
    assert finding.what == "secrets of teams needs GKE 1.34.0-gke.0; the cluster runs 1.33.5-gke.100"
