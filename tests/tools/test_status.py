"""`python -m tools status`: what it makes of objects put together by hand, in ten situations and more."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.platforms import SELF_MANAGED, ZONES, load
from tests.tools.status_worlds import (
    LONG,
    NOW,
    World,
    ago,
    cluster_queue,
    condition,
    findings,
    jobset,
    local_queue,
    named,
    node,
    pod,
    refused,
    workload,
)
from tools.__main__ import app
from tools.cluster_api import ClusterAwayError
from tools.preflight.cloud import NoConnectionError
from tools.status import run as running
from tools.status.google import read_google
from tools.status.readings import GoogleReadings, Interruption, PoolReading, ReservationReading, Unread
from tools.status.report import as_json
from tools.status.screen import as_text, duration

TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3}
QUEUES = {
    "research": {"namespaces": ["team-a"], "slices": {"train": 1}, "borrow": True},
    "prod": {"namespaces": ["team-b"], "slices": {"train": 1}},
}
RESERVED = {**TRAIN, "capacity": {"model": "reservation", "name": "res"}}


def world(slices: dict[str, Any] | None = None, **platform: Any) -> World:
    """A platform whose hosts all stand and whose queues are empty."""
    made = World(load(slices or {"train": TRAIN, "serve": SERVE}, **{"queues": QUEUES, **platform}))
    made.stand()
    made.add("clusterqueues", cluster_queue("prod", 16), cluster_queue("research", 16))
    made.add("localqueues", local_queue("research"), local_queue("prod"))
    return made


def plan_of(made: World, name: str) -> Any:
    return next(plan for plan in made.platform.slice_plans if plan.name == name)


def occupy(made: World, pool: str, job: str) -> None:
    made.add("pods", *(pod(f"{job}-{number}", f"{pool}-h{number}", jobset=job) for number in range(4)))


# The ten situations


def test_all_well() -> None:
    made = world()
    occupy(made, "train-0", "big")
    report = made.report()
    assert report.findings == ()
    assert not report.needs_a_person
    assert report.known
    assert report.unread == ()
    train, serve = named(report.slices)["train"], named(report.slices)["serve"]
    assert (train.whole, train.wanted, train.hosts_ready, train.hosts_wanted) == (2, 2, 8, 8)
    assert (train.chips_used, train.chips_idle) == (16, 16)
    assert (serve.whole, serve.wanted, serve.chips_used, serve.chips_idle) == (3, 3, 0, 3)
    price = plan_of(made, "train").price_per_chip_hour.amount
    assert train.cost == pytest.approx(32 * price)
    assert train.idle_cost == pytest.approx(16 * price)


def test_a_job_waits_in_its_queue() -> None:
    made = world()
    message = "couldn't assign flavors to pod set main: insufficient unused quota for google.com/tpu in flavor f"
    made.add(
        "workloads",
        workload("a", "research", 16, condition("QuotaReserved", False, reason="Pending", message=message)),
        workload("b", "research", 32, made=ago(minutes=12)),
        workload("done", "research", 32, condition("Finished")),
    )
    report = made.report()
    assert report.findings == ()
    assert report.queues
    research, prod = named(report.queues)["research"], named(report.queues)["prod"]
    assert (research.waiting, research.waiting_chips, research.longest_wait) == (2, 48, 5 * 3600)
    assert (prod.waiting, prod.waiting_chips, prod.longest_wait) == (0, 0, None)


def test_a_queue_borrows() -> None:
    made = world()
    made.objects["clusterqueues"] = [cluster_queue("prod", 16), cluster_queue("research", 16, used=32, borrowed=16)]
    report = made.report()
    assert report.findings == ()
    assert report.queues
    research = named(report.queues)["research"]
    assert (research.owned, research.used, research.borrowed) == (16, 32, 16)


def out_of_stock(made: World, pool: str, status: str = "ERROR") -> None:
    made.objects["nodes"] = [each for each in made.objects["nodes"] if not each["metadata"]["name"].startswith(pool)]
    message = "GCE_STOCKOUT: The zone does not have enough resources available to fulfill the request."
    broken = PoolReading(pool, status, message, 4, 0, {})
    made.google = replace(made.google, pools={**(made.google.pools or {}), pool: broken})


def test_a_stockout() -> None:
    made = world()
    out_of_stock(made, "train-1")
    report = made.report()
    assert findings(report) == [("act", "stockout", "slices train")]
    assert report.findings[0].names == ("train-1",)
    assert "docs/capacity.md" in report.findings[0].next_step
    assert "replace the pool" in report.findings[0].next_step, "GKE refuses to update a pool in ERROR"
    train = named(report.slices)["train"]
    assert (train.whole, train.wanted) == (1, 2)
    assert train.cost == pytest.approx(16 * plan_of(made, "train").price_per_chip_hour.amount), "of hosts that exist"


def test_a_stockout_of_slices_that_come_on_demand_needs_nobody() -> None:
    """GKE's autoscaler tries again; what it says about the pods is all there is."""
    spot = {**TRAIN, "capacity": "spot", "provisioning": "autoscaled"}
    made = world({"train": spot})
    message = "Node scale up in zones us-east5-b associated with this pod failed: GCE out of resources."
    about = {"kind": "Pod", "namespace": "team-a", "name": "big-0"}
    made.add("pods", pod("big-0", "", jobset="big"))
    event = {"metadata": {}, "involvedObject": about, "lastTimestamp": ago(minutes=2), "message": message}
    made.add("events", event, event | {"involvedObject": about | {"name": "gone"}})
    report = made.report()
    assert findings(report) == [("note", "stockout", "JobSet team-a/big")]
    assert named(report.slices)["train"].wanted == 0
    assert not report.needs_a_person


def test_a_pool_in_error() -> None:
    made = world()
    assert made.google.pools
    broken = PoolReading("train-0", "ERROR", "Internal error", 4, 0, {})
    made.google = replace(made.google, pools={**made.google.pools, "train-0": broken})
    report = made.report()
    assert findings(report) == [("act", "pool-error", "slices train")]
    assert "Internal error" in report.findings[0].what


def test_a_pool_with_all_its_hosts_on_which_something_failed() -> None:
    made = world()
    assert made.google.pools
    broken = PoolReading("train-0", "RUNNING_WITH_ERROR", "the upgrade failed", 4, 0, {})
    made.google = replace(made.google, pools={**made.google.pools, "train-0": broken})
    [finding] = made.report().findings
    assert (finding.level, finding.what) == ("act", "something failed on it: the upgrade failed")


def test_a_host_is_missing() -> None:
    made = world()
    made.objects["nodes"] = [each for each in made.objects["nodes"] if each["metadata"]["name"] != "train-1-h3"]
    report = made.report()
    assert findings(report) == [("act", "host-missing", "slices train")]
    assert report.findings[0].what == "1 of 4 hosts not in the cluster (Google has it)"
    assert "node-pools describe train-1" in report.findings[0].next_step
    train = named(report.slices)["train"]
    assert (train.whole, train.hosts_ready, train.hosts_wanted) == (1, 7, 8)


def test_a_host_that_google_is_making_needs_nobody() -> None:
    made = world()
    made.objects["nodes"] = [each for each in made.objects["nodes"] if each["metadata"]["name"] != "train-1-h3"]
    assert made.google.pools
    coming = PoolReading("train-1", "RUNNING", "", 4, 1, {})
    made.google = replace(made.google, pools={**made.google.pools, "train-1": coming})
    assert findings(made.report()) == [("note", "hosts-coming", "slices train")]


@pytest.mark.parametrize(("since", "level"), [(ago(minutes=3), "note"), (ago(minutes=30), "act")])
def test_a_host_is_not_ready(since: str, level: str) -> None:
    """GKE repairs it after ten minutes; then a person is needed."""
    made = world()
    plan = plan_of(made, "train")
    made.objects["nodes"][-1] = node(plan, "train-1", 3, ready=False, since=since)
    report = made.report()
    assert findings(report) == [(level, "host-not-ready", "slices train")]
    assert "kubelet stopped posting status" in report.findings[0].what
    assert report.findings[0].names == ("train-1-h3",)
    train = named(report.slices)["train"]
    assert (train.whole, train.hosts_ready, train.chips_idle) == (1, 7, 28)


def test_a_reservation_is_used_up() -> None:
    made = world({"train": RESERVED})
    made.objects["nodes"] = [
        each for each in made.objects["nodes"] if not each["metadata"]["name"].startswith("train-1")
    ]
    reservation = ReservationReading("my-project", "res", "READY", 8, 8)
    made.google = replace(made.google, reservations=(reservation,))
    report = made.report()
    assert findings(report) == [("act", "reservation-exhausted", "slices train")]
    assert report.findings[0].what == "reservation res is used up: 8 of 8 hosts in use"
    assert named(report.slices)["train"].cost == pytest.approx(
        32 * plan_of(made, "train").price_per_chip_hour.amount
    ), "what is reserved is paid for"


def test_a_reservation_with_too_few_free_hosts() -> None:
    made = world({"train": RESERVED})
    made.objects["nodes"] = []
    made.google = replace(made.google, reservations=(ReservationReading("my-project", "res", "READY", 1, 2),))
    [finding] = made.report().findings
    assert finding.what == "reservation res has 1 free host, and 8 are missing: 1 of 2 hosts in use"
    assert finding.names == ("train-0", "train-1")


def test_a_reservation_that_our_hosts_fill_is_well() -> None:
    made = world({"train": RESERVED})
    made.google = replace(made.google, reservations=(ReservationReading("my-project", "res", "READY", 8, 8),))
    assert made.report().findings == ()


@pytest.mark.parametrize(
    ("restarts", "ready", "found", "words"),
    [
        (0, 0, [], ""),
        (1, 0, [("note", "job-restarting", "JobSet team-a/big")], "is starting again after 1 restart, 2 left"),
        (2, 1, [("note", "job-restarting", "JobSet team-a/big")], "runs again after 2 restarts, 1 left"),
        (3, 0, [("act", "job-restarting", "JobSet team-a/big")], "is starting again after 3 restarts, 0 left"),
        (3, 1, [("note", "job-restarting", "JobSet team-a/big")], "runs again after 3 restarts, 0 left"),
    ],
)
def test_a_job_restarts(restarts: int, ready: int, found: list[Any], words: str) -> None:
    made = world()
    made.add("jobsets", jobset("big", restarts, ready=ready))
    report = made.report()
    assert findings(report) == found
    assert [each.what for each in report.findings] == ([words] if words else [])


def test_a_job_whose_first_jobs_have_succeeded_is_not_starting_again() -> None:
    made = world()
    big = jobset("big", 3, ready=0)
    big["status"]["replicatedJobsStatus"][0]["succeeded"] = 1
    made.add("jobsets", big)
    assert findings(made.report()) == [("note", "job-restarting", "JobSet team-a/big")]


def test_chips_outside_queues_are_noted() -> None:
    made = world()
    occupy(made, "train-0", "big")
    made.add("pods", pod("stray", "train-1-h0"), pod("waits", ""))
    for each in made.objects["pods"][-2:]:
        each["metadata"]["namespace"] = "elsewhere"
    [finding] = made.report().findings
    assert (finding.level, finding.kind) == ("note", "chips-unqueued")
    assert finding.what == "4 chips held outside queues"
    assert finding.names == ("Job elsewhere/stray",)


@pytest.mark.parametrize(
    ("known", "found"), [(True, []), (False, [("note", "chips-unqueued", "queues")])], ids=["queued", "not queued"]
)
def test_chips_in_namespaces_where_nothing_is_refused(known: bool, found: list[Any]) -> None:
    """There a pod is in a queue if Kueue has a workload of its job."""
    made = world(software={"kueue": {"refuse_unqueued": False}})
    occupy(made, "train-0", "big")
    if known:
        made.add("workloads", workload("big", "research", 16, condition("Admitted")))
    assert findings(made.report()) == found


def test_without_queues_no_chips_are_outside_of_them() -> None:
    made = world(queues={})
    occupy(made, "train-0", "big")
    assert made.report().findings == ()


def serving(made: World, load: dict[str, float] | None) -> None:
    made.add("pods", *(pod(f"server-{number}", f"serve-h{number}", 1, server=True) for number in range(2)))
    for each in made.objects["pods"]:
        each["metadata"]["ownerReferences"][0]["name"] = "server"
    made.google = replace(made.google, load=load)


@pytest.mark.parametrize(
    ("load", "idle"),
    [
        ({"serve-h0": 0.0, "serve-h1": 0.0}, True),
        ({"serve-h0": 0.0, "serve-h1": 3.0}, False),
        ({"serve-h0": 0.0}, False),
        (None, False),
    ],
    ids=["idle", "one works", "one is not measured", "nothing is measured"],
)
def test_a_server_is_idle(load: dict[str, float] | None, idle: bool) -> None:
    made = world()
    serving(made, load)
    report = made.report()
    assert findings(report) == ([("note", "server-idle", "Job team-a/server")] if idle else [])
    assert named(report.slices)["serve"].chips_used == 2
    if idle:
        price = plan_of(made, "serve").price_per_chip_hour.amount
        assert report.findings[0].what == f"2 chips did nothing for 10 minutes, {2 * price:,.2f} USD/h"


def test_a_server_that_has_just_started_is_not_idle() -> None:
    made = world()
    made.add("pods", pod("server-0", "serve-h0", 1, server=True, ready=ago(minutes=5)))
    made.google = replace(made.google, load={"serve-h0": 0.0})
    assert made.report().findings == ()


# Others


def test_work_that_never_starts() -> None:
    made = world()
    message = "couldn't assign flavors to pod set main: insufficient quota, request > maximum capacity (64 > 32)"
    other = f"{message}, insufficient unused quota for google.com/tpu in flavor g, 16 more needed"
    made.add(
        "workloads",
        workload("huge", "research", 64, condition("QuotaReserved", False, message=message)),
        workload("of-another-flavor", "research", 64, condition("QuotaReserved", False, message=other)),
        workload("lost", "nowhere", 16),
    )
    report = made.report()
    assert findings(report) == [
        ("act", "never-admitted", "JobSet team-a/huge"),
        ("act", "never-admitted", "JobSet team-a/lost"),
    ]


def test_work_with_its_quota_waits_for_hosts() -> None:
    made = world()
    check = {"name": "queued-4x4", "state": "Pending", "message": "Provisioning Request wasn't provisioned yet"}
    admission = {
        "clusterQueue": "research",
        "podSetAssignments": [{"name": "main", "resourceUsage": {"google.com/tpu": "16"}}],
    }
    made.add(
        "workloads",
        workload("a", "research", 1, condition("QuotaReserved"), admission=admission, admissionChecks=[check]),
    )
    [row] = [each for each in made.report().queues or () if each.name == "research"]
    assert (row.waiting, row.waiting_chips) == (1, 16)


def test_a_queue_that_admits_nothing_and_work_that_kueue_gave_up() -> None:
    made = world()
    made.objects["clusterqueues"].append(cluster_queue("sick", 8, why_inactive="references missing ResourceFlavor(s)"))
    evicted = condition("Evicted", reason="DeactivatedDueToRequeuingLimitExceeded", message="exceeded the limit of 10")
    given_up = workload("b", "research", 8, evicted)
    given_up["spec"]["active"] = False
    made.add("workloads", given_up)
    report = made.report()
    assert findings(report) == [("act", "job-stopped", "JobSet team-a/b"), ("act", "queue-inactive", "queue sick")]
    assert [each.what for each in report.interruptions] == ["JobSet team-a/b"]


def test_a_host_without_its_chips_one_that_leaves_and_one_that_is_cordoned() -> None:
    made = world()
    nodes = {each["metadata"]["name"]: each for each in made.objects["nodes"]}
    nodes["train-0-h0"]["status"]["allocatable"]["google.com/tpu"] = "0"
    nodes["train-0-h1"]["spec"]["taints"] = [{"key": "cloud.google.com/impending-node-termination"}]
    nodes["serve-h0"]["spec"]["unschedulable"] = True
    report = made.report()
    assert findings(report) == [
        ("act", "chips-missing", "slices train"),
        ("note", "host-cordoned", "slices serve"),
        ("note", "host-leaving", "slices train"),
    ]
    assert named(report.slices)["train"].whole == 1


def test_claimed_chips_are_counted() -> None:
    """DRA: the driver shows chips in ResourceSlices, and pods hold them by claims."""
    made = world({"train": {**TRAIN, "devices": "dra"}}, queues={})
    for each in made.objects["nodes"]:
        name = each["metadata"]["name"]
        each["status"]["allocatable"] = {"cpu": "100"}
        devices = [{"name": str(number)} for number in range(3 if name == "train-1-h0" else 4)]
        made.add("resourceslices", {"spec": {"driver": "tpu.google.com", "nodeName": name, "devices": devices}})
    results = [{"driver": "tpu.google.com", "pool": "train-0-h0", "device": str(number)} for number in range(4)]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": "a"}]}
    made.add("resourceclaims", {"metadata": {"namespace": "team-a", "name": "a-tpu"}, "status": status})
    made.add("pods", pod("a", "train-0-h0", 0, jobset="a"))
    report = made.report()
    train = named(report.slices)["train"]
    assert (train.chips_used, train.chips_idle, train.whole) == (4, 24, 1)
    assert findings(report) == [("act", "chips-missing", "slices train")]


def test_what_tpu_provisioner_created_is_shown_under_its_slices() -> None:
    spec = {**TRAIN, "capacity": "spot", "provisioning": "tpu-provisioner"}
    image = f"example.com/images/tpu-provisioner@sha256:{'0' * 64}"
    cluster = {"release_channel": "UNSPECIFIED"}
    made = world({"train": spec}, cluster=cluster, software={"tpu_provisioner": {"image": image}})
    plan = plan_of(made, "train")
    made.add("nodes", *(node(plan, "big-slice-0-abc", number) for number in range(4)))
    labels = dict(plan.labels)
    pools = {
        "system": PoolReading("system", "RUNNING", "", 1, 0, {}),
        "big-slice-0-abc": PoolReading("big-slice-0-abc", "RUNNING", "", 4, 0, labels, spot=True),
        "old-slice-0-def": PoolReading("old-slice-0-def", "ERROR", "GCE_STOCKOUT: none", 0, 0, labels, spot=True),
    }
    made.google = GoogleReadings(pools=pools)
    report = made.report()
    train = named(report.slices)["train"]
    assert (train.whole, train.wanted, train.most, train.hosts_ready) == (1, 1, 2, 4)
    assert findings(report) == [("act", "stockout", "slices train")], "TPU Provisioner does not try again"
    assert "node-pools delete old-slice-0-def" in report.findings[0].next_step


def test_a_group_without_gke_says_why_its_hosts_do_not_come() -> None:
    tpu7x = {"machine_type": "tpu7x-standard-4t", "topology": "2x2x2"}
    made = World(load({"train": tpu7x}, zone=ZONES["tpu7x"], cluster=SELF_MANAGED))
    error = "ZONE_RESOURCE_POOL_EXHAUSTED: The zone does not currently have sufficient capacity"
    made.google = GoogleReadings(pools={"tpu-train-0": PoolReading("tpu-train-0", "PROVISIONING", error, 2, 2, {})})
    report = made.report()
    assert findings(report) == [("act", "stockout", "slices train")]
    assert "repeat pulumi up" in report.findings[0].next_step
    made.google = GoogleReadings(pools={})
    assert findings(made.report()) == [("act", "pool-missing", "slices train")]


def test_a_manager_of_several_clusters_shows_its_workers() -> None:
    shared = {"train": TRAIN}
    multikueue = {"role": "manager", "workers": {"east": {"stack": "organization/tpu/east"}}, "slices": shared}
    made = World(load({}, multikueue=multikueue, queues={"research": QUEUES["research"]}))
    made.add("clusterqueues", cluster_queue("research", 16, used=16))
    made.add("localqueues", local_queue("research"))
    away = condition("Active", False, message="failed to connect")
    made.add(
        "multikueueclusters",
        {"metadata": {"name": "east", "creationTimestamp": LONG}, "status": {"conditions": [away]}},
    )
    report = made.report()
    assert report.known
    assert report.slices == ()
    assert findings(report) == [("act", "worker-away", "worker east")]
    assert [row.used for row in report.queues or ()] == [16]


# What cannot be read


def test_what_the_cluster_refuses_is_said_and_the_rest_is_shown() -> None:
    made = world()
    made.refusals["workloads"] = refused(403, 'workloads is forbidden: User "ada" cannot list')
    made.refusals["pods"] = refused(403, "pods is forbidden")
    report = made.report()
    assert [each.what for each in report.unread] == ["pods", "workloads"]
    assert named(report.slices)["train"].whole == 2
    assert named(report.slices)["train"].chips_used is None
    assert named(report.queues or ())["research"].waiting is None
    assert "pods: the cluster answers 403: pods is forbidden" in text(report)
    assert report.known


def test_without_the_cluster_google_still_says_what_is_wrong() -> None:
    made = world()
    out_of_stock(made, "train-1")
    made.refusals["nodes"] = refused(403, "nodes is forbidden")
    report = made.report()
    assert findings(report) == [("act", "stockout", "slices train")]
    assert named(report.slices)["train"].whole is None
    assert not report.known


# The screen, and the command


def text(report: Any, width: int = 100) -> str:
    shown = StringIO()
    Console(width=width, file=shown).print(as_text(report), highlight=False)
    return shown.getvalue()


def test_the_screen() -> None:
    made = world()
    occupy(made, "train-0", "big")
    made.add("workloads", workload("a", "research", 16))
    made.add("jobsets", jobset("big", 1, ready=0))
    interruption = Interruption(NOW, "host train-0-h0", "Google took the spot host back")
    made.google = replace(
        made.google,
        interruptions=(interruption,),
        reservations=(ReservationReading("my-project", "res", "READY", 4, 8),),
        unread=(Unread("load of chips", "Google answers 403: no"),),
    )
    out_of_stock(made, "train-1")
    shown = text(made.report())
    for line in (
        "tpu in my-project: GKE REGULAR in us-east5, slices in us-east5-b; 2026-11-23 12:00:00 UTC",
        "needs a person: 4 of 5 slices whole, 7 of 11 hosts ready, 16 chips used, 3 idle",
        "research            16     0         0  16 in 1 job     5 h 0 min",
        "res           my-project   READY        4 of 8",
        "0 s ago  host train-0-h0: Google took the spot host back",
        "slices train: Google has no capacity for its hosts (GCE_STOCKOUT:",
        "JobSet team-a/big: is starting again after 1 restart, 2 left",
        "load of chips: Google answers 403: no",
    ):
        assert line in shown, shown
    assert len(shown.splitlines()) < 40
    assert text(made.report(), width=80)


def test_a_thousand_slices_are_one_screen() -> None:
    made = World(load({"train": {**TRAIN, "count": 800}}))
    made.google = GoogleReadings(pools={})
    shown = text(made.report())
    assert len(shown.splitlines()) < 20
    assert "and 797 more" in shown


def test_durations() -> None:
    assert [duration(seconds) for seconds in (5, 65, 3700, 90000)] == ["5 s", "1 min", "1 h 1 min", "1 d 1 h"]


@pytest.fixture
def run(stack_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command on a world."""
    file = stack_file({"train": TRAIN, "serve": SERVE}, queues=QUEUES)

    def run(made: World, *arguments: str) -> Result:
        @contextmanager
        def watching(*_arguments: Any) -> Any:
            yield made.report

        monkeypatch.setattr(running, "watching", watching)
        return CliRunner().invoke(app, ["status", "-f", str(file), *arguments])

    return run


def test_the_exit_code_says_whether_a_person_is_needed(run: Callable[..., Result]) -> None:
    made = world()
    assert run(made).exit_code == 0
    out_of_stock(made, "train-1")
    assert run(made).exit_code == 1
    made.google = GoogleReadings()
    made.refusals["nodes"] = refused(403, "no")
    assert run(made).exit_code == 2


def test_json_has_everything(run: Callable[..., Result]) -> None:
    made = world()
    out_of_stock(made, "train-1")
    found = json.loads(run(made, "--json").stdout)
    assert found["needs_a_person"] is True
    assert [row["name"] for row in found["slices"]] == ["serve", "train"]
    assert found["findings"][0]["kind"] == "stockout"
    assert found["at"] == NOW.isoformat()
    assert json.loads(as_json(made.report())) == found


def test_json_does_not_deny_what_nobody_knows(run: Callable[..., Result]) -> None:
    made = world()
    assert json.loads(run(made, "--json").stdout)["needs_a_person"] is False
    made.google = GoogleReadings()
    made.refusals["nodes"] = refused(403, "no")
    done = run(made, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["needs_a_person"] is None


def test_without_google_and_without_the_cluster_it_says_so_and_ends(
    stack_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = stack_file({"train": TRAIN})

    def away(*_arguments: Any, **_names: Any) -> Any:
        raise NoConnectionError("no connection to Google: timed out", "check network and proxy")

    monkeypatch.setattr(running.Cloud, "_guarded", away)
    done = CliRunner().invoke(app, ["status", "-f", str(file)], terminal_width=200)
    assert done.exit_code == 2
    assert done.stdout.count("no connection to Google: timed out -> check network and proxy") == 1
    assert "not known" in done.stdout

    def no_cluster(*_arguments: Any) -> Any:
        raise ClusterAwayError("kubectl cannot be run: No such file or directory")

    monkeypatch.setattr(running, "reading", no_cluster)
    kubeconfig = file.with_name("kubeconfig")
    kubeconfig.write_text("")
    done = CliRunner().invoke(app, ["status", "-f", str(file), "--kubeconfig", str(kubeconfig)])
    assert done.exit_code == 2
    assert "kubectl cannot be run" in done.stdout


def test_watch_looks_again_until_somebody_ends_it(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    paces = []

    def sleep(seconds: int) -> None:
        paces.append(seconds)
        out_of_stock(made, "train-1")
        if len(paces) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    done = run(made, "--watch", "--every", "60")
    assert done.exit_code == 0, done.output
    assert paces == [60, 60]
    assert "Google has no capacity" in done.stdout


def test_the_load_of_chips_as_monitoring_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def pages(_cloud: Any, api: str, _method: str, _items: str, **parameters: Any) -> list[Any]:
        if api != "monitoring":
            return []
        asked.update(parameters)
        resource = {"type": "k8s_node", "labels": {"node_name": "serve-h0"}}
        return [{"resource": resource, "points": [{"value": {"doubleValue": 0.5}}, {"value": {"doubleValue": 7}}]}]

    monkeypatch.setattr(running.Cloud, "pages", pages)
    found = read_google(world().platform, running.Cloud({}), {"nodePools": []}, NOW)
    assert found.load == {"serve-h0": 7.0}
    assert 'metric.type = "kubernetes.io/node/accelerator/duty_cycle"' in asked["filter"]
    assert (asked["interval_startTime"], asked["interval_endTime"]) == ("2026-11-23T11:50:00Z", "2026-11-23T12:00:00Z")
    claimed = world({"train": {**TRAIN, "devices": "dra"}}, queues={})
    assert read_google(claimed.platform, running.Cloud({}), {}, NOW).load is None, "nothing measures claimed chips"


def test_watch_and_json_exclude_each_other(run: Callable[..., Result]) -> None:
    assert run(world(), "--watch", "--json").exit_code == 2
