"""`python -m tools status` with Google's client against the emulator: pools, groups, reservations, interruptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plan.platform import Platform
from sandbox.google.operations import Operation
from sandbox.stacks import endpoints
from sandbox.tests.emulated_google import Cloud, connected
from tests.graph.emulated import EmulatedCloud, recorded
from tests.platforms import SELF_MANAGED, ZONES, load, raw
from tests.sandbox.conftest import ROOT
from tools.preflight import cloud as client
from tools.status.google import LOAD_METRIC, gke_cluster, read_google
from tools.status.judgement import judge
from tools.status.readings import ClusterReadings, GoogleReadings, Readings
from tools.status.report import Report

Json = dict[str, Any]
PROJECT = "my-project"
ZONE, REGION = "us-east5-b", "us-east5"
TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
RESERVED = {**TRAIN, "capacity": {"model": "reservation", "name": "res"}}
RESERVATION = {"project": PROJECT, "zone": ZONE, "name": "res", "machine_type": "ct6e-standard-4t", "count": 8}
TPU7X = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with connected() as made:
        yield made


def make(cloud: Cloud, slices: Json, **platform: Any) -> Platform:
    """A platform, and its resources in the cloud."""
    with closing(EmulatedCloud(cloud.emulator.url)) as made:
        made.make(recorded(raw(slices, **platform)))
    return load(slices, **platform)


def read(cloud: Cloud, platform: Platform) -> GoogleReadings:
    """What Google says of a platform. Nothing but reading may reach the cloud."""
    settings = {key.removeprefix("gcp:"): value for key, value in endpoints(cloud.emulator.url, "token").items()}
    before = len(cloud.emulator.world.traffic)
    reader = client.Cloud(settings)
    found = read_google(platform, reader, gke_cluster(platform, reader), datetime.now(UTC))
    assert all(call["method"] == "GET" for call in list(cloud.emulator.world.traffic)[before:])
    return found


def judged(platform: Platform, google: GoogleReadings) -> Report:
    """The report where the cluster could not be read."""
    return judge(platform, "test", Readings(datetime.now(UTC), ClusterReadings(), google))


def kinds(report: Report) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.level, each.kind, each.names) for each in report.findings]


def test_all_well_on_gke(cloud: Cloud) -> None:
    cloud.control("reservations", RESERVATION)
    platform = make(cloud, {"train": RESERVED})
    found = read(cloud, platform)
    assert found.pools is not None
    assert found.pools.keys() >= {"train-0", "train-1", "system"}
    pool = found.pools["train-0"]
    assert (pool.status, pool.error, pool.target, pool.coming, pool.reserved) == ("RUNNING", "", 4, 0, True)
    assert pool.labels["tpu-platform/slice"] == "train"
    assert [(each.name, each.used, each.count, each.status) for each in found.reservations] == [("res", 8, 8, "READY")]
    assert found.interruptions == ()
    assert found.unread == ()
    report = judged(platform, found)
    assert report.findings == ()
    assert report.slices[0].hosts == 8


def test_a_pool_for_which_there_is_no_capacity(cloud: Cloud) -> None:
    """GKE leaves a pool in ERROR; in the emulator only the operation says why."""
    fault = {"kind": "operation", "method": "POST", "path": "nodePools$", "body": "train-1", "times": 1}
    cloud.control("faults", {**fault, "code": "ZONE_RESOURCE_POOL_EXHAUSTED"})
    with pytest.raises(Exception, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
        make(cloud, {"train": TRAIN})
    platform = load({"train": TRAIN})
    report = judged(platform, read(cloud, platform))
    assert kinds(report) == [("act", "stockout", ("train-1",))]
    assert "sufficient capacity" in report.findings[0].what


def test_a_pool_in_error(cloud: Cloud) -> None:
    fault = {"kind": "operation", "method": "POST", "path": "nodePools$", "body": "train-1", "times": 1}
    cloud.control("faults", fault)
    with pytest.raises(Exception, match="Internal error"):
        make(cloud, {"train": TRAIN})
    platform = load({"train": TRAIN})
    report = judged(platform, read(cloud, platform))
    assert kinds(report) == [("act", "pool-error", ("train-1",))]


def test_a_cluster_that_is_not_there(cloud: Cloud) -> None:
    platform = load({"train": TRAIN})
    assert kinds(judged(platform, read(cloud, platform))) == [("act", "pool-missing", ("train-0", "train-1"))]


def test_a_group_without_gke_whose_reservation_is_used_up(cloud: Cloud) -> None:
    place = {"zone": ZONES["tpu7x"], "machine_type": "tpu7x-standard-4t"}
    cloud.control("reservations", {**RESERVATION, **place, "count": 2})
    slices = {"train": {**TPU7X, "capacity": RESERVED["capacity"]}}
    platform = make(cloud, slices, zone=ZONES["tpu7x"], cluster=SELF_MANAGED)
    found = read(cloud, platform)
    assert found.unread == ()
    assert found.pools is not None
    assert (found.pools["tpu-train-0"].status, found.pools["tpu-train-0"].target) == ("RUNNING", 2)
    assert judged(platform, found).findings == ()
    assert [(each.used, each.count) for each in found.reservations] == [(2, 2)]

    # Another slice of two hosts, for which the reservation has none left.
    slices["train"]["count"] = 2
    larger = load(slices, zone=ZONES["tpu7x"], cluster=SELF_MANAGED)
    present = ClusterReadings(hosts=())
    google = replace(
        found, pools={**found.pools, "tpu-train-1": replace(found.pools["tpu-train-0"], name="tpu-train-1")}
    )
    report = judge(larger, "test", Readings(datetime.now(UTC), present, google))
    assert {each.kind for each in report.findings} == {"reservation-exhausted"}


def test_a_group_without_gke_that_finds_no_capacity(cloud: Cloud) -> None:
    """Compute Engine asks again for flex-start, and `up` does not wait for it."""
    cloud.control("stock", {"zone": ZONES["tpu7x"], "machine_type": "tpu7x-standard-4t", "machines": 0})
    flex = {**TPU7X, "capacity": "flex-start"}
    platform = make(cloud, {"train": flex}, zone=ZONES["tpu7x"], cluster=SELF_MANAGED)
    found = read(cloud, platform)
    assert found.pools is not None
    pool = found.pools["tpu-train-0"]
    assert (pool.status, pool.target, pool.coming) == ("PROVISIONING", 2, 2)
    assert pool.error.startswith("ZONE_RESOURCE_POOL_EXHAUSTED: ")
    assert kinds(judged(platform, found)) == [("note", "stockout", ("tpu-train-0",))]


def test_interruptions_of_the_platforms_own_hosts(cloud: Cloud) -> None:
    platform = make(cloud, {"train": TPU7X}, zone=ZONES["tpu7x"], cluster=SELF_MANAGED)

    def happened(kind: str, host: str, ago: timedelta) -> None:
        target = f"projects/{PROJECT}/zones/{ZONES['tpu7x']}/instances/{host}"
        operation = Operation(
            kind, PROJECT, ZONES["tpu7x"], kind, target, started=(datetime.now(UTC) - ago).timestamp()
        )
        operation.ended = operation.started
        operation.name = f"op-{kind}-{host}"
        cloud.emulator.world.operations._save(operation)

    happened("compute.instances.preempted", "tpu-train-0-w-0001", timedelta(hours=2))
    happened("compute.instances.hostError", "tpu-train-0-w-0002", timedelta(hours=1))
    happened("compute.instances.preempted", "somebody-elses", timedelta(hours=1))
    happened("compute.instances.preempted", "tpu-train-0-w-0002", timedelta(days=30))
    report = judged(platform, read(cloud, platform))
    assert [(each.what, each.why) for each in report.interruptions] == [
        ("host tpu-train-0-w-0002", "the machine failed"),
        ("host tpu-train-0-w-0001", "Google took the spot host back"),
    ]


def test_the_load_of_a_host_is_that_of_its_busiest_chip(cloud: Cloud) -> None:
    """Of the last ten minutes, of this cluster alone."""
    platform = make(cloud, {"train": TRAIN})

    def chip(node: str, number: int, cluster: str = platform.cluster_name, **ago: float) -> Json:
        where = {"cluster_name": cluster, "location": platform.location, "node_name": node}
        times = {f"{datetime.now(UTC) - timedelta(minutes=int(time[1:])):%FT%TZ}": ago[time] for time in ago}
        shown = [{"interval": {"endTime": time}, "value": {"doubleValue": value}} for time, value in times.items()]
        metric = {"type": LOAD_METRIC, "labels": {"accelerator_id": str(number)}}
        return {"metric": metric, "resource": {"type": "k8s_node", "labels": where}, "points": shown}

    rows = [
        chip("idle", 0, m1=0, m20=90),
        chip("idle", 1, m2=0),
        chip("busy", 0, m1=0),
        chip("busy", 1, m1=3, m5=80),
        chip("gone", 0, m20=50),
        chip("elsewhere", 0, "other", m1=50),
    ]
    cloud.ok("POST", f"/monitoring/v3/projects/{PROJECT}/timeSeries", {"timeSeries": rows})
    assert read(cloud, platform).load == {"idle": 0, "busy": 80}


def test_what_google_refuses_is_said_once_each(cloud: Cloud) -> None:
    platform = make(cloud, {"train": TRAIN})
    cloud.control("permissions", {"granted": ["container.clusters.get"]})
    found = read(cloud, platform)
    assert [each.what for each in found.unread] == ["groups of hosts", "interruptions", "load of chips"]
    assert "403" in found.unread[0].why
    assert found.pools is not None
    assert judged(platform, found).findings == ()


@pytest.mark.parametrize("cluster", [{}, SELF_MANAGED], ids=["gke", "self-managed"])
def test_what_the_page_says_it_needs_to_read_is_enough(cloud: Cloud, cluster: Json) -> None:
    section = (ROOT / "docs" / "status.md").read_text().partition("## What it needs to read")[2]
    named = re.findall(r"`([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)`", section)
    assert "container.clusters.get" in named
    place = {"zone": ZONES["tpu7x"], "machine_type": "tpu7x-standard-4t"}
    cloud.control("reservations", {**RESERVATION, **place})
    platform = make(cloud, {"train": {**TPU7X, "capacity": RESERVED["capacity"]}}, zone=ZONES["tpu7x"], cluster=cluster)
    cloud.control("permissions", {"granted": named})
    found = read(cloud, platform)
    assert [each.what for each in found.unread if "403" in each.why] == []
    assert [each.used for each in found.reservations] == [2]
