"""The catalogue's queries, read by a real Prometheus; those about queues also evaluated.

The metrics come from this test and stand for those of Kueue v0.19.2 (pkg/metrics/metrics.go), of a leader and a
follower. Different from Kueue: the values are the test's own, and counters and histograms are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from catalogue import queries
from plan.monitoring import alerts, charts
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
EVERYTHING = (
    PLATFORM,
    load({"s": {**WHOLE, "capacity": {"model": "reservation", "name": "r"}}}, monitoring=TOLD),
    load({"s": WHOLE}, cluster={"kind": "self-managed"}, monitoring=TOLD),
)
(PLAN,) = PLATFORM.slice_plans
OWNED, USED, WAITING = {"one": 1, "two": 2}, {"one": 2, "two": 0}, {"one": 0, "two": 4}
CHARTS = {plan.chart.name: plan.query for plan in charts(PLATFORM)}
ALERTS = {plan.alert.name: plan.query for plan in alerts(PLATFORM)}
PATIENCE = 60


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


@contextmanager
def serving(text: str) -> Iterator[str]:
    """The address at which the text is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(text.encode())

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
