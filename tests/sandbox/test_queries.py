"""The catalogue's queries, read by a real Prometheus; those about queues, and all alerts but one, also evaluated.

The metrics come from this test and stand for those of Kueue v0.19.2 (pkg/metrics/metrics.go), of a leader and a
follower, and for Google's own, under the names and labels that PromQL has for them in Cloud Monitoring. Different from
these: the values are the test's own, a point comes every second, and Kueue's counters and histograms are missing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalogue import queries
from plan.hosts import group_name
from plan.monitoring import STOCKOUT_RESOURCES, alerts, charts, log_counts
from tests.platforms import load
from tests.sandbox.admission import within
from tests.sandbox.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.sandbox

SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3}
WHOLE = {"machine_type": "ct6e-standard-4t", "topology": "4x4"}
TOLD = {"notify": ["ops@example.com"]}
PLATFORM = load(
    {"serve": SERVE},
    queues={
        "one": {"namespaces": ["team"], "slices": {"serve": 1}},
        "two": {"namespaces": ["team"], "slices": {"serve": 2}},
    },
    monitoring={**TOLD, "queue_metrics": "own"},
)
# Together they have every chart and alert.
RESERVED = load({"s": {**WHOLE, "count": 2, "capacity": {"model": "reservation", "name": "r"}}}, monitoring=TOLD)
SELF_MANAGED = load({"s": {**WHOLE, "count": 2}}, cluster={"kind": "self-managed"}, monitoring=TOLD)
EVERYTHING = (PLATFORM, RESERVED, SELF_MANAGED)
(PLAN,) = PLATFORM.slice_plans
OWNED, USED, WAITING = {"one": 1, "two": 2}, {"one": 2, "two": 0}, {"one": 0, "two": 4}
CHARTS = {plan.chart.name: plan.query for plan in charts(PLATFORM)}
ALERTS = {plan.alert.name: plan.query for plan in alerts(PLATFORM)}
OF_GOOGLE = {plan.alert.name: plan.query for each in (SELF_MANAGED, RESERVED) for plan in alerts(each)}
SCRAPES = 6
PATIENCE = 180
RISING = "@"
"""Stands for a number that grows with every reading."""


def metrics(role: str) -> str:
    """What a replica of Kueue serves, where queue `one` has borrowed a chip and a large job waits in `two`."""
    lines = []
    for queue, owned in OWNED.items():
        name = f'cluster_queue="{queue}",replica_role="{role}"'
        chips = f'{name},resource="google.com/tpu"'
        place = f'{chips},cohort="tpu",flavor="{PLAN.flavor}"'
        lines += [
            f"kueue_cluster_queue_nominal_quota{{{place}}} {owned}",
            f"kueue_cluster_queue_resource_usage{{{place}}} {USED[queue]}",
            f"kueue_cluster_queue_resource_pending{{{chips}}} {WAITING[queue]}",
            f'kueue_cluster_queue_status{{{name},status="active"}} 1',
            f'kueue_pending_workloads{{{name},status="active"}} 0',
            f'kueue_pending_workloads{{{name},status="inadmissible"}} {WAITING[queue] // 4}',
        ]
    return "\n".join(lines) + "\n"


def line(name: str, value: object, **labels: str) -> str:
    """A metric with its labels, as it is scraped."""
    written = ",".join(f'{key}="{each}"' for key, each in labels.items())
    return f"{name}{{{written}}} {value}"


def of_google() -> str:
    """What Google measures where something of each kind is wrong, and something is not; and of another cluster, in
    which all is wrong."""
    lines = []
    for cluster, wrong in ((RESERVED.cluster_name, False), ("another", True)):
        place = {"cluster_name": cluster, "location": RESERVED.location}
        node, pool = ({"monitored_resource": kind, **place} for kind in ("k8s_node", "k8s_node_pool"))
        for name, whole in (("s-0", 0), ("s-1", int(not wrong)), ("system", 0)):
            at = {**pool, "node_pool_name": name}
            lines += [
                line("kubernetes_io:node_pool_multi_host_available", whole, **at),
                line("kubernetes_io:node_pool_status", 1 - whole, **at, status="ERROR"),
                line("kubernetes_io:node_pool_status", whole, **at, status="RUNNING"),
            ]
        for name, status in (("a", "False"), ("b", "Unknown"), ("c", "True")):
            ready = {**node, "node_name": name, "condition": "Ready", "status": status}
            lines.append(line("kubernetes_io:node_status_condition", 1, **ready))
        for reason, count in (("HostError", 1), ("Eviction", 0)):
            kind = {"interruption_type": "TerminationEvent", "interruption_reason": reason}
            lines.append(line("kubernetes_io:node_interruption_count", count, **node, **kind))
        for model, busy in (("idle", (0, 0, 90)), ("busy", (0, 90, 90))):
            for chip, duty in enumerate(busy):
                labels = {**node, "model": model, "accelerator_id": str(chip)}
                lines.append(line("kubernetes_io:node_accelerator_duty_cycle", duty, **labels))
    for jobset, restarts in (("again", RISING), ("before", 7)):
        lines.append(line("kube_jobset_restarts", restarts, namespace="team", jobset_name=jobset))
    for number, (reserved, used) in enumerate([(8, 1), (8, 7), (0, 0)]):
        at = {"monitored_resource": "compute.googleapis.com/Reservation", "location": RESERVED.zone}
        lines.append(line("compute_googleapis_com:reservation_reserved", reserved, **at, reservation_id=str(number)))
        lines.append(line("compute_googleapis_com:reservation_used", used, **at, reservation_id=str(number)))
    for name, size in (("s-0", 4), ("s-1", 3), ("others", 0)):
        group = {"location": SELF_MANAGED.zone, "instance_group_name": group_name(SELF_MANAGED, name)}
        lines.append(line("compute_googleapis_com:instance_group_size", size, **group))
    for count in log_counts(RESERVED):
        resource = STOCKOUT_RESOURCES["gke"][0] if count.key == "stockouts" else "k8s_cluster"
        name = f"logging_googleapis_com:user_{count.name}"
        lines.append(line(name, RISING, monitored_resource=resource))
    return "\n".join(lines) + "\n"


@contextmanager
def serving(text: str) -> Iterator[str]:
    """The address at which the text is served, with the number of the reading for RISING."""
    times = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(text.replace(RISING, str(next(times))).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def found() -> Iterator[Prometheus]:
    """Prometheus, once it has scraped both replicas."""
    with (
        serving(metrics("leader")) as leader,
        serving(metrics("follower")) as follower,
        prometheus(leader, follower, cluster=PLATFORM.cluster_name) as running,
    ):
        within(PATIENCE, lambda: len(running.ask("up == 1")) == 2)
        yield running


def test_every_query_of_the_catalogue_parses(found: Prometheus) -> None:
    written = {plan.chart.title: plan.query for each in EVERYTHING for plan in charts(each)}
    written |= {plan.alert.title: plan.query for each in EVERYTHING for plan in alerts(each)}
    assert written.keys() == {each.title for each in (*queries.CHARTS, *queries.ALERTS)}
    for query in written.values():
        found.check(query)
    with pytest.raises(ValueError, match="parse error"):
        found.check("sum(")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (CHARTS["owned"], {"one": 1, "two": 2}),
        (CHARTS["used"], {"one": 2, "two": 0}),
        (CHARTS["waiting"], {"one": 0, "two": 4}),
        (CHARTS["borrowed"], {"one": 1, "two": 0}),
        (ALERTS["free-but-waiting"], {"two": 4}),
    ],
    ids=["owned", "used", "waiting", "borrowed", "free-but-waiting"],
)
def test_two_replicas_count_once(found: Prometheus, query: str, expected: dict[str, float]) -> None:
    assert {dict(labels)["cluster_queue"]: value for labels, value in found.ask(query).items()} == expected


def test_money_is_chips_times_the_price(found: Prometheus) -> None:
    assert PLAN.price_per_chip_hour
    assert found.ask(CHARTS["idle-cost"]) == {(): pytest.approx(PLAN.price_per_chip_hour.amount)}
    assert found.ask(CHARTS["free"]) == {(("flavor", PLAN.flavor),): 1}


def test_missing_metrics_are_told(found: Prometheus) -> None:
    missing = ALERTS["no-queue-metrics"]
    assert found.ask(missing) == {}
    elsewhere = missing.replace(f'cluster="{PLATFORM.cluster_name}"', 'cluster="another"')
    assert found.ask(elsewhere) == {(("cluster", "another"),): 1}


@pytest.fixture(scope="module")
def measured() -> Iterator[Prometheus]:
    """Prometheus, once it has read Google's metrics a few times."""
    with serving(of_google()) as address, prometheus(address, cluster=RESERVED.cluster_name) as running:
        within(PATIENCE, lambda: bool(running.ask(f"count_over_time(up[1m]) >= {SCRAPES}")))
        yield running


FIRING: dict[str, tuple[str, dict[str, float | None]]] = {
    "not-whole": ("node_pool_name", {"s-0": 0}),
    "pool-error": ("node_pool_name", {"s-0": 1}),
    "hosts-missing": ("instance_group_name", {group_name(SELF_MANAGED, "s-1"): 1}),
    "not-ready": ("node_name", {"a": 1, "b": 1}),
    "interruptions": ("interruption_reason", {"HostError": None}),
    "stockouts": ("", {"": None}),
    "autoscaler-errors": ("", {"": None}),
    "reservation-unused": ("reservation_id", {"0": 0.125}),
    "idle-chips": ("model", {"idle": pytest.approx(2 / 3)}),
    "restarts": ("jobset_name", {"again": None}),
}
"""By alert: the label that says what is wrong, and what is, with its value; None where it grows with time."""


def test_every_alert_is_evaluated() -> None:
    """`stuck` alone is not: it takes hours of points."""
    above = {"free-but-waiting", "idle-cost", "no-queue-metrics"}
    assert {alert.name for alert in queries.ALERTS} == FIRING.keys() | above | {"stuck"}


@pytest.mark.parametrize("name", FIRING)
def test_an_alert_fires_for_what_is_wrong_alone(measured: Prometheus, name: str) -> None:
    label, expected = FIRING[name]
    found = {dict(labels).get(label, ""): value for labels, value in measured.ask(OF_GOOGLE[name]).items()}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert value is None or found[key] == value
