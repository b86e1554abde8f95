"""`python -m tools status` on a real API server with JobSet and Kueue: situations made there, read through kubectl.

Google is put together by hand; tests/sandbox/test_status_emulator.py reads it. One cluster for all; each test leaves
its queues empty.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalogue.labels import FLAVOR_LABEL, SLICE_LABEL
from plan.charts import LWS
from plan.workloads.job import Job
from plan.workloads.jobset import jobset
from plan.workloads.server import Server, inference_server
from sandbox import toolchain
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.tests.kubernetes_support import JOBSET_CHART, node_pool
from sandbox_adapter import PROGRAM as ADAPTER
from tests.graph.recording import GraphMonitor, record_main
from tests.platforms import PROJECT, load, raw
from tests.sandbox.admission import apply_recorded, install_kueue, within
from tests.sandbox.conftest import ROOT
from tools.cluster_api import ClusterApi, ClusterAwayError, RefusedReadError, reading
from tools.status.cluster import read_cluster
from tools.status.judgement import judge
from tools.status.readings import GoogleReadings, PoolReading, Readings, ReservationReading
from tools.status.report import QueueRow, Report, SliceRow

pytestmark = pytest.mark.sandbox

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
TRAIN = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "count": 2}
SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 2}
SLICES = {"train": TRAIN, "serve": SERVE}
QUEUES = {
    "research": {"namespaces": ["team-a"], "slices": {"train": 1, "serve": 2}, "borrow": True},
    "prod": {"namespaces": ["team-b"], "slices": {"train": 1, "serve": 0}},
}
WRITTEN = raw(SLICES, queues=QUEUES)
PLATFORM = load(SLICES, queues=QUEUES)
SERVING, TRAINING = PLATFORM.slice_plans
PATIENCE = 240
ALL_POOLS = {"train-0": 4, "train-1": 4, "serve": 2}


@dataclass
class Lab:
    """A cluster, and a look at it."""

    cluster: GkeCluster
    api: ClusterApi

    @property
    def client(self) -> ApiClient:
        return self.cluster.plane.client

    def hosts(self, **nodes: int) -> None:
        """Gives pools these numbers of hosts; the others have all of theirs."""
        pools = [node_pool("system", "e2-standard-8", 1)]
        for name, number in {**ALL_POOLS, **{key.replace("_", "-"): value for key, value in nodes.items()}}.items():
            plan = SERVING if name == "serve" else TRAINING
            topology = "" if name == "serve" else plan.topology
            labels = {FLAVOR_LABEL: plan.flavor, SLICE_LABEL: plan.group}
            pools.append(node_pool(name, plan.machine.name, number, topology, labels=labels))
        self.cluster.set_pools(pools)

    def look(self, **google: Any) -> Report:
        pools = {name: PoolReading(name, "RUNNING", "", wanted, 0, {}) for name, wanted in ALL_POOLS.items()}
        found = GoogleReadings(**{"pools": pools, **google})
        at = datetime.now(UTC)
        return judge(PLATFORM, "test", Readings(at, read_cluster(PLATFORM, self.api, at), found))

    def until(self, seen: Callable[[Report], Any], **google: Any) -> Report:
        """The first look of which this is true."""

        def once() -> Report | None:
            report = self.look(**google)
            return report if seen(report) else None

        found: Report = within(PATIENCE, once)
        return found

    def submit(self, name: str, namespace: str, queue: str, slices: int, run_for: str = "600s") -> Object:
        """A JobSet as `python -m tools workload train` prints it, whose pods are played for so long."""
        made = jobset(PLATFORM, TRAINING, Job(name, namespace, slices, queue=queue))
        template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        template.setdefault("metadata", {}).setdefault("annotations", {})["sandbox/run-for"] = run_for
        return self.client.create(made)

    def remove(self, *objects: Object) -> None:
        for each in objects:
            self.client.delete(each)
        self.until(lambda report: all(queue.reserved == 0 and not queue.waiting for queue in report.queues))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    graph = record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(WRITTEN)})
    kubectl = toolchain.ensure(("kubectl",))["kubectl"]
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch, pytest.MonkeyPatch.context() as patch:
        (Path(scratch) / "bin").mkdir()
        (Path(scratch) / "bin" / "kubectl").symlink_to(kubectl)
        patch.setenv("PATH", f"{scratch}/bin{os.pathsep}{os.environ['PATH']}")
        cluster = GkeCluster(Path(scratch) / "lab", "lab", PROJECT, lambda _name, _nodes: None)
        registry = ChartRegistry(cluster.plane.authority, ADAPTER.charts)
        cluster.start()
        try:
            with reading(cluster.plane.kubeconfig_path) as api:
                made = Lab(cluster, api)
                made.hosts()
                _install(cluster, registry, graph)
                yield made
        finally:
            registry.stop()
            cluster.stop()


def _install(cluster: GkeCluster, registry: ChartRegistry, graph: GraphMonitor) -> None:
    plane = cluster.plane
    helm = Helm(plane.kubeconfig_path, registry.variables(plane.authority.pair.certificate))
    apply_recorded(plane.client, graph, "Namespace")
    helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, PLATFORM.software.jobset.version, {}, wait=False))
    values, version = LWS.values(PLATFORM), LWS.version(PLATFORM.software)
    helm.install(ReleaseSpec(LWS.release, LWS.namespace, LWS.reference, version, values))
    install_kueue(cluster, registry, PLATFORM)

    def applied() -> bool:
        try:
            for kind in ("ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"):
                apply_recorded(plane.client, graph, kind, named="queues")
        except ApiError as error:
            if "failed calling webhook" in error.message:
                return False
            raise
        return True

    within(PATIENCE, applied)


def kinds(report: Report) -> set[tuple[str, str, str]]:
    return {(each.level, each.kind, each.about) for each in report.findings}


def queue(report: Report, name: str) -> QueueRow:
    assert report.queues is not None
    return next(row for row in report.queues if row.name == name)


def slices(report: Report, name: str) -> SliceRow:
    return next(row for row in report.slices if row.name == name)


def test_all_well_then_borrowing_then_queued(lab: Lab) -> None:
    report = lab.until(
        lambda report: slices(report, "train").whole == slices(report, "serve").whole == 2 and not report.findings
    )
    assert report.unread == ()
    assert (slices(report, "train").hosts_ready, slices(report, "train").chips_idle) == (8, 32)
    assert (queue(report, "research").owned, queue(report, "prod").owned) == (18, 16)

    both = lab.submit("both", "team-a", "research", 2)
    report = lab.until(lambda report: slices(report, "train").chips_used == queue(report, "research").used == 32)
    assert not report.findings
    row = queue(report, "research")
    assert (row.used, row.borrowed, row.waiting) == (32, 16, 0)
    assert slices(report, "train").idle_cost == 0

    later = lab.submit("later", "team-a", "research", 1)
    report = lab.until(lambda report: queue(report, "research").waiting == 1)
    row = queue(report, "research")
    assert (row.waiting_chips, row.used) == (16, 32)
    assert row.longest_wait is not None
    assert row.longest_wait < PATIENCE
    assert not report.needs_a_person
    lab.remove(later, both)


def test_work_that_never_starts(lab: Lab) -> None:
    """Kueue's own words say so: prod may not borrow."""
    wide = jobset(PLATFORM, TRAINING, Job("wide", "team-a", 2, queue="research"))
    wide["metadata"]["namespace"] = "team-b"
    wide["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "prod"
    made = lab.client.create(wide)
    lab.until(lambda report: kinds(report) == {("act", "never-admitted", "JobSet team-b/wide")})
    lab.remove(made)


def test_hosts_missing_and_a_reservation_that_is_used_up(lab: Lab) -> None:
    lab.hosts(train_1=0)
    missing = {("act", "host-missing", "slices train")}
    report = lab.until(lambda report: slices(report, "train").hosts_ready == 4 and kinds(report) == missing)
    assert report.findings[0].names == ("train-1",)

    reserved = load({"train": {**TRAIN, "capacity": {"model": "reservation", "name": "res"}}})
    at = datetime.now(UTC)
    google = GoogleReadings(reservations=(ReservationReading(PROJECT, "res", "READY", 7, 7),))
    report = judge(reserved, "test", Readings(at, read_cluster(reserved, lab.api, at), google))
    assert kinds(report) == {("act", "reservation-exhausted", "slices train")}

    well = {name: PoolReading(name, "RUNNING", "", wanted, 0, {}) for name, wanted in ALL_POOLS.items()}
    broken = PoolReading("train-1", "ERROR", "GCE_STOCKOUT: no capacity", 4, 0, {})
    assert kinds(lab.look(pools={**well, "train-1": broken})) == {("act", "stockout", "slices train")}
    lab.hosts()
    lab.until(lambda report: slices(report, "train").whole == 2)


def test_a_host_that_is_not_ready(lab: Lab) -> None:
    path = lab.client.path("v1", "Node", "")
    name = next(
        each["metadata"]["name"] for each in lab.client.list_all("v1", "Node") if "train-0" in each["metadata"]["name"]
    )

    def seen() -> Report | None:
        condition = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "runtime is down"}
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        status = {"status": {"conditions": [{**condition, "lastTransitionTime": now}]}}
        lab.client.request("PATCH", f"{path}/{name}/status", status, "application/strategic-merge-patch+json")
        report = lab.look()
        return report if slices(report, "train").hosts_ready == 7 else None

    report = within(PATIENCE, seen)
    assert kinds(report) == {("note", "host-not-ready", "slices train")}, "GKE repairs it within ten minutes"
    assert "runtime is down" in report.findings[0].what
    assert slices(report, "train").whole == 1
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    lab.client.request(
        "PATCH",
        f"{path}/{name}/status",
        {"status": {"conditions": [condition]}},
        "application/strategic-merge-patch+json",
    )
    lab.until(lambda report: slices(report, "train").whole == 2)


def test_a_job_that_restarts(lab: Lab) -> None:
    made = lab.submit("flaky", "team-a", "research", 1)
    # A pod that was still being started would be written over.
    pods = within(PATIENCE, lambda: _four_running(lab, "flaky"))
    lab.until(lambda report: slices(report, "train").chips_used == 16)
    path = lab.client.path("v1", "Pod", pods[0]["metadata"]["name"], "team-a")
    ended = {"name": "worker", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}, "image": "", "imageID": "",
             "ready": False, "restartCount": 0}  # fmt: skip
    failed = {"status": {"phase": "Failed", "containerStatuses": [ended]}}
    lab.client.request("PATCH", f"{path}/status", failed, "application/strategic-merge-patch+json")
    report = lab.until(lambda report: kinds(report) == {("note", "job-restarting", "JobSet team-a/flaky")})
    assert "after 1 restart, 2 left" in report.findings[0].what
    lab.remove(made)


def _four_running(lab: Lab, job: str) -> list[Object]:
    pods = lab.client.list_all("v1", "Pod", "team-a", labelSelector=f"jobset.sigs.k8s.io/jobset-name={job}")
    return pods if [each["status"].get("phase") for each in pods] == ["Running"] * 4 else []


def test_a_server_that_is_idle(lab: Lab) -> None:
    wanted = Server(Job("server", "team-a", 2, queue="research"), "model")
    served = [lab.client.create(each) for each in inference_server(PLATFORM, SERVING, wanted)]
    lab.until(lambda report: slices(report, "serve").chips_used == 2 and not report.findings)
    at = datetime.now(UTC)
    found = read_cluster(PLATFORM, lab.api, at)
    assert found.holders is not None
    held = [each for each in found.holders if each.server]
    assert {each.owner for each in held} == {"LeaderWorkerSet team-a/server"}
    load_of = {each.host: 0.0 for each in held}
    # An hour later, when its chips have done nothing for ten minutes.
    later = Readings(at + timedelta(hours=1), found, GoogleReadings(load=load_of))
    assert ("note", "server-idle", "LeaderWorkerSet team-a/server") in kinds(judge(PLATFORM, "test", later))
    lab.remove(*served)


def test_readers_with_other_rights(lab: Lab, tmp_path: Path) -> None:
    """The ClusterRole of the page is enough; without it every list is refused, and said so."""
    page = (ROOT / "docs" / "status.md").read_text()
    role = yaml.safe_load(page.partition("## What it needs to read")[2].partition("```yaml\n")[2].partition("```")[0])
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": "team-a"}
    lab.client.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": "team-a"}}
    )
    path = lab.client.path("v1", "ServiceAccount", "reader", "team-a")
    token = lab.client.request(
        "POST", f"{path}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    )
    config = yaml.safe_load(lab.cluster.plane.kubeconfig_path.read_text())
    config["users"][0]["user"] = {"token": token["status"]["token"]}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with reading(file) as api:
        at = datetime.now(UTC)
        refused = read_cluster(PLATFORM, api, at)
        assert {each.what for each in refused.unread} == {
            "nodes", "pods", "jobsets", "clusterqueues", "localqueues", "workloads",
        }  # fmt: skip
        assert "403" in refused.unread[0].why
        assert judge(PLATFORM, "test", Readings(at, refused, GoogleReadings())).known is False
        lab.client.create(role)
        binding = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tpu-status"}}
        metadata = {"metadata": {"name": "tpu-status"}}
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        lab.client.create({**kind, **metadata, **binding, "subjects": [account]})
        within(PATIENCE, lambda: not read_cluster(PLATFORM, api, at).unread)
        for path in ("/apis/resource.k8s.io/v1/resourceclaims", "/apis/kueue.x-k8s.io/v1beta2/multikueueclusters"):
            api.items(path)
        with pytest.raises(RefusedReadError, match="secrets is forbidden"):
            api.items("/api/v1/secrets")


def test_a_cluster_that_is_away(lab: Lab, tmp_path: Path) -> None:
    config = yaml.safe_load(lab.cluster.plane.kubeconfig_path.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    with reading(file) as api, pytest.raises(ClusterAwayError, match="refused"):
        api.items("/api/v1/nodes")
    file.write_text("nonsense: [")
    with pytest.raises(ClusterAwayError, match="does not start"), reading(file):
        pass
