"""The catalogue's queries about queues, on the metrics of the real Kueue, as the platform's collector reads them.

Kueue and JobSet run with the platform's settings. A Prometheus of the same line as the collector's reads them with
the collector's own settings, account and rights, and finds their pods by itself. It differs in four things: it is
upstream's and writes nowhere, so the labels that Google's adds when it writes are put on when it reads; it reads every
second; its token and the address of the API server come from files; and a controller's pod has no address in the
sandbox, so it is given one, by which it is found, and is read on a port of this machine.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from catalogue.labels import QUEUE_LABEL
from plan import flavors
from plan.monitoring import alerts, charts
from plan.queue_metrics import FEATURES, NAME, NAMESPACE, SETTINGS, targets
from sandbox.kubernetes.api import ApiClient, Object
from sandbox.tests.kubernetes_support import KUEUE_API
from tests.graph.recording import record_main
from tests.platforms import PROJECT, load, raw
from tests.sandbox.admission import apply_recorded, within
from tests.sandbox.prometheus import SCRAPED_EVERY, Prometheus, configured
from tests.sandbox.queue_cluster import QueueCluster, queue_cluster

pytestmark = pytest.mark.sandbox

SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3}
TEAM = "team"
SETTINGS_OF_PLATFORM: dict[str, Any] = {
    "queues": {
        "one": {"namespaces": [TEAM], "slices": {"serve": 1}, "borrow": True},
        "two": {"namespaces": [TEAM], "slices": {"serve": 2}},
    },
    "monitoring": {
        "notify": ["ops@example.com"],
        "queue_metrics": "install",
        "thresholds": {"idle_usd_an_hour": 1.0},
    },
}
PLATFORM = load({"serve": SERVE}, **SETTINGS_OF_PLATFORM)
CONFIG = {"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(raw({"serve": SERVE}, **SETTINGS_OF_PLATFORM))}
(PLAN,) = PLATFORM.slice_plans
(FLAVOR,) = flavors.flavors(PLATFORM).values()
assert PLAN.price_per_chip_hour
PRICE = PLAN.price_per_chip_hour.amount
PATIENCE = 180
CHARTS = {plan.chart.name: plan.query for plan in charts(PLATFORM)}
ALERTS = {plan.alert.name: plan.query for plan in alerts(PLATFORM)}
STUCK_FOR = PLATFORM.monitoring.thresholds.stuck_for
SERVICES = {"kueue": "kueue-controller-manager-metrics-service", "jobset": "jobset-metrics-service"}
COLLECTOR = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "NetworkPolicy",
    "Deployment",
)
BUCKETS = (0, 1, *(2.5 * 2**power for power in range(15)))
"""Bounds of Kueue's distribution of waits, in seconds (pkg/metrics/metrics.go, generateExponentialBuckets)."""


@dataclass
class Lab:
    """A cluster with queues, and the Prometheus that reads its Kueue."""

    cluster: QueueCluster
    found: Prometheus

    @property
    def client(self) -> ApiClient:
        return self.cluster.client

    def by(self, label: str, query: str) -> dict[str, float]:
        """Value of each series by one of its labels, those of 0 left out."""
        return {dict(labels)[label]: value for labels, value in self.found.ask(query).items() if value}

    def come_to(self, chart: str, expected: Mapping[str, float], label: str = "cluster_queue") -> None:
        """Waits until the chart has these values and no others but 0."""
        within(PATIENCE, lambda: self.by(label, CHARTS[chart]) == expected, lambda: self.by(label, CHARTS[chart]))

    def answers(self, query: str, expected: Mapping[tuple[tuple[str, str], ...], Any]) -> None:
        """Waits until a query has this answer: metrics that change together may be read a second apart."""
        within(PATIENCE, lambda: self.found.ask(query) == expected, lambda: self.found.ask(query))

    def submit(self, name: str, queue: str, pods: int = 1) -> None:
        """A job whose pods run for longer than the test."""
        container = {
            "name": "c",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"limits": {"google.com/tpu": "1"}},
        }
        toleration = {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
        pod = {"restartPolicy": "Never", "tolerations": [toleration], "containers": [container]}
        template = {"metadata": {"annotations": {"sandbox/run-for": "900s"}}, "spec": pod}
        spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
        metadata = {"name": name, "namespace": TEAM, "labels": {QUEUE_LABEL: queue}}
        self.client.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def delete(self, name: str) -> None:
        path = f"/apis/batch/v1/namespaces/{TEAM}/jobs/{name}"
        self.client.request("DELETE", path, propagationPolicy="Background")

    def workload(self, job: str) -> Object:
        """Kueue's record of a job."""
        [found] = [
            each
            for each in self.client.list_all(KUEUE_API, "Workload", TEAM)
            if each["metadata"]["ownerReferences"][0]["name"] == job
        ]
        return found

    def waited(self, job: str) -> float:
        """Seconds from a job's creation to its admission, exact to a second."""
        workload = self.workload(job)
        [admitted] = [each for each in workload["status"]["conditions"] if each["type"] == "Admitted"]
        begin, end = workload["metadata"]["creationTimestamp"], admitted["lastTransitionTime"]
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()

    def comes_to_the_longest_of(self, waits: Iterable[float]) -> None:
        """Waits until "nine in ten" is in the bucket of the longest wait, which is known to a second."""
        longest = max(waits)
        lower = max(bound for bound in BUCKETS if bound <= max(longest - 1, 0))
        upper = min(bound for bound in BUCKETS if bound > longest + 1)

        def shown() -> float:
            return self.by("cluster_queue", CHARTS["wait"]).get("one", 0)

        within(PATIENCE, lambda: lower < shown() <= upper, shown)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    graph = record_main(CONFIG)
    with queue_cluster(CONFIG) as cluster, tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        apply_recorded(cluster.client, graph, *COLLECTOR, named="queue-metrics")
        _give_addresses(cluster.client)
        settings = _settings(cluster, Path(scratch))
        with configured(settings, f"--enable-feature={','.join(FEATURES)}") as found:
            yield Lab(cluster, found)


def _give_addresses(client: ApiClient) -> None:
    """As the kubelet does; Prometheus leaves out a pod without an address."""
    for number, pod in enumerate(_controllers(client), 1):
        address = f"192.0.2.{number}"
        client.patch(pod, {"status": {"podIP": address, "podIPs": [{"ip": address}]}}, subresource="status")


def _controllers(client: ApiClient) -> list[Object]:
    """All pods of Kueue and JobSet."""
    return [pod for namespace in ("kueue-system", "jobset-system") for pod in client.list_all("v1", "Pod", namespace)]


def _settings(cluster: QueueCluster, folder: Path) -> dict[str, Any]:
    """The collector's settings as they are in the cluster, with what is different on this machine."""
    written = cluster.client.get("v1", "ConfigMap", NAME, NAMESPACE)
    assert written
    settings: dict[str, Any] = yaml.safe_load(written["data"][SETTINGS])
    settings["global"]["scrape_interval"] = SCRAPED_EVERY
    added = settings["global"].pop("external_labels")
    token = folder / "token"
    token.write_text(_token(cluster.client, NAMESPACE, NAME))
    access = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in access["users"]:
        user["user"] = {"tokenFile": str(token)}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(access))
    namespaces = {target.job: target.namespace for target in targets(PLATFORM)}
    for job in settings["scrape_configs"]:
        address = cluster.address(SERVICES[job["job_name"]], namespaces[job["job_name"]])
        job["authorization"] = {"credentials_file": str(token)}
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubeconfig)
        job["relabel_configs"] += [{"target_label": "__address__", "replacement": address}]
        job["relabel_configs"] += [{"target_label": key, "replacement": value} for key, value in added.items()]
    return settings


def _token(client: ApiClient, namespace: str, account: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    made = client.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    return str(made["status"]["token"])


@pytest.mark.parametrize("controller", SERVICES)
def test_nobody_else_reads_the_controllers(lab: Lab, controller: str) -> None:
    """Neither without a token nor with one of another account."""
    address = lab.cluster.address(SERVICES[controller], f"{controller}-system")

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"https://{address}/metrics", headers=headers, verify=False, trust_env=False).status_code

    assert status("") in (401, 403)
    assert status(_token(lab.client, TEAM, "default")) == 403
    assert status(_token(lab.client, NAMESPACE, NAME)) == 200


def test_the_collector_finds_every_controller(lab: Lab) -> None:
    within(PATIENCE, lambda: lab.by("job", "up") == {"kueue": 1, "jobset": 1})
    assert lab.by("instance", "up").keys() == {pod["metadata"]["name"] for pod in _controllers(lab.client)}
    [labels] = [dict(labels) for labels in lab.found.ask('up{job="kueue"}')]
    assert labels["namespace"] == "kueue-system"
    assert labels["instance"] == labels["pod"]
    assert labels["pod"].startswith("kueue-controller-manager-")
    kept = {name for name in lab.found.names() if name != "up" and not name.startswith("scrape_")}
    assert {name.partition("_")[0] for name in kept} <= {"kueue", "jobset"}


def test_its_namespace_admits_its_pod(lab: Lab) -> None:
    """Pod Security enforces `restricted` there."""
    labels = (lab.client.get("v1", "Namespace", NAMESPACE) or {})["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    within(PATIENCE, lambda: lab.client.list_all("v1", "Pod", NAMESPACE))


def test_idle_queues_own_chips_that_nobody_uses(lab: Lab) -> None:
    lab.come_to("owned", {"one": 1, "two": 2})
    lab.come_to("used", {})
    lab.come_to("waiting", {})
    lab.come_to("borrowed", {})
    lab.come_to("free", {FLAVOR.name: 3}, "flavor")
    lab.come_to("workloads-waiting", {})
    lab.answers(CHARTS["idle-cost"], {(): pytest.approx(3 * PRICE)})
    lab.answers(ALERTS["idle-cost"], {(): pytest.approx(3 * PRICE)})
    for alert in ("free-but-waiting", "stuck", "no-queue-metrics"):
        lab.answers(ALERTS[alert], {})


def test_a_full_queue_borrows_and_lets_work_wait(lab: Lab) -> None:
    """Four jobs of one chip in a queue that owns one of three: it borrows two, and one job waits."""
    for index in range(4):
        lab.submit(f"small-{index}", "one")
        lab.come_to("used", {"one": min(index + 1, 3)})
    lab.come_to("waiting", {"one": 1})
    lab.come_to("borrowed", {"one": 2})
    lab.come_to("free", {}, "flavor")
    lab.come_to("workloads-waiting", {"one": 1})
    lab.answers(CHARTS["idle-cost"], {(): pytest.approx(0)})
    for alert in ("idle-cost", "free-but-waiting"):
        lab.answers(ALERTS[alert], {})


def test_nine_in_ten_of_four_is_the_one_that_waited(lab: Lab) -> None:
    at_once = [lab.waited(f"small-{index}") for index in range(3)]
    lab.comes_to_the_longest_of(at_once)
    time.sleep(3)  # no job that is admitted at once waits as long
    lab.delete("small-0")
    lab.come_to("waiting", {})
    last = lab.waited("small-3")
    assert last >= 3
    lab.comes_to_the_longest_of([*at_once, last])


def test_the_first_eviction_counts(lab: Lab) -> None:
    """A counter begins with its first event, which `increase` alone does not see."""
    assert lab.by("reason", CHARTS["evictions"]) == {}
    lab.client.patch(lab.workload("small-1"), {"spec": {"active": False}})
    lab.come_to("evictions", {"Deactivated": 1}, "reason")


def test_work_that_cannot_fit_waits_beside_free_chips(lab: Lab) -> None:
    """A job of four chips in a queue that owns two, where there are three in all."""
    for index in range(1, 4):
        lab.delete(f"small-{index}")
    lab.come_to("used", {})
    lab.submit("large", "two", pods=4)
    lab.come_to("waiting", {"two": 4})
    within(PATIENCE, lambda: lab.by("cluster_queue", ALERTS["free-but-waiting"]) == {"two": 4})
    assert lab.found.ask(CHARTS["idle-cost"]) == {(): pytest.approx(3 * PRICE)}


def test_a_queue_is_stuck_until_it_admits_something(lab: Lab) -> None:
    """The same query over a shorter time: hours in a few seconds."""
    soon = ALERTS["stuck"].replace(f"[{STUCK_FOR}:5m]", "[5s:1s]").replace(STUCK_FOR, "10s")
    assert STUCK_FOR not in soon
    within(PATIENCE, lambda: lab.by("cluster_queue", soon) == {"two": 1})
    since = time.time()
    lab.submit("small", "two")
    lab.come_to("used", {"two": 1})
    # It is so for ten seconds, which a busy machine may sleep through.
    within(PATIENCE, lambda: lab.found.was_empty(soon, since))
    lab.come_to("waiting", {"two": 4})
    within(PATIENCE, lambda: lab.by("cluster_queue", soon) == {"two": 1})


def test_missing_metrics_are_told(lab: Lab) -> None:
    elsewhere = ALERTS["no-queue-metrics"].replace(f'cluster="{PLATFORM.cluster_name}"', 'cluster="another"')
    assert lab.found.ask(elsewhere) == {(("cluster", "another"),): 1}
