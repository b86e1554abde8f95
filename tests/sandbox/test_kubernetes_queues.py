"""Quotas hold: the program's own queues and policies with the real API server, JobSet and Kueue."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalogue.labels import FLAVOR_LABEL, QUEUE_LABEL
from plan import flavors
from plan.workloads.job import Job
from plan.workloads.jobset import jobset
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseSpec
from sandbox.tests.kubernetes_support import JOBSET_CHART, KUEUE_API, node_pool
from sandbox_adapter import PROGRAM as ADAPTER
from tests.graph.recording import record_main
from tests.platforms import PROJECT, load, raw
from tests.sandbox.admission import apply_recorded, install_kueue, within

pytestmark = pytest.mark.sandbox

SERVE = {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 3}
# One queue in the first namespace, two in the second.
SOLO, BOTH = "solo", "both"
QUEUES = {
    "one": {"namespaces": [SOLO, BOTH], "slices": {"serve": 1}},
    "two": {"namespaces": [BOTH], "slices": {"serve": 2}},
}
WRITTEN = raw({"serve": SERVE}, queues=QUEUES)
PLATFORM = load({"serve": SERVE}, queues=QUEUES)
(PLAN,) = PLATFORM.slice_plans
(FLAVOR,) = flavors.flavors(PLATFORM).values()
PATIENCE = 240
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def client() -> Iterator[ApiClient]:
    """A cluster with what the platform puts inside, and its three hosts."""
    graph = record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(WRITTEN)})
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        cluster = GkeCluster(Path(scratch), "lab", PROJECT, lambda _name, _nodes: None)
        authority = cluster.plane.authority
        registry = ChartRegistry(authority, ADAPTER.charts)
        cluster.start()
        try:
            labels = {FLAVOR_LABEL: FLAVOR.name}
            cluster.set_pools(
                [node_pool("system", "e2-standard-8", 1), node_pool("serve", "ct6e-standard-1t", 3, labels=labels)]
            )
            found = cluster.plane.client
            helm = Helm(cluster.plane.kubeconfig_path, registry.variables(authority.pair.certificate))
            apply_recorded(found, graph, "Namespace")
            helm.install(
                ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, PLATFORM.software.jobset.version, {}, wait=False)
            )
            install_kueue(cluster, registry, PLATFORM)
            within(PATIENCE, lambda: _applied(found, graph))
            found.create(suspended(of_job("older", BOTH)))
            apply_recorded(found, graph, *POLICIES, named="unqueued-tpus")
            within(PATIENCE, lambda: "with the label" in refused(found, of_pod(SOLO)))
            within(PATIENCE, lambda: found.get(KUEUE_API, "LocalQueue", "default", SOLO))
            yield found
        finally:
            registry.stop()
            cluster.stop()


def _applied(client: ApiClient, graph: Any) -> bool:
    """Whether Kueue's webhook took the platform's queues."""
    try:
        for kind in ("ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue"):
            apply_recorded(client, graph, kind, named="queues")
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True


def pod_spec(*, tpus: bool = True) -> Object:
    resources = {"limits": {"google.com/tpu": "1"}} if tpus else {}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    tolerations = [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"restartPolicy": "Never", "tolerations": tolerations, "containers": [container]}


def of_pod(namespace: str, *, tpus: bool = True, **metadata: Any) -> Object:
    named = {"name": "bare", "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": pod_spec(tpus=tpus)}


def of_job(name: str, namespace: str, *, tpus: bool = True, **metadata: Any) -> Object:
    named = {"name": name, "namespace": namespace, **metadata}
    spec = {"template": {"spec": pod_spec(tpus=tpus)}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": spec}


def of_jobset(name: str, namespace: str, *, tpus: bool = True) -> Object:
    replicated = {"name": "r", "template": {"spec": {"template": {"spec": pod_spec(tpus=tpus)}}}}
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": [replicated]},
    }


def suspended(job: Object) -> Object:
    return {**job, "spec": {**job["spec"], "suspend": True}}


def of_apps(kind: str, *, tpus: bool = True) -> Object:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(tpus=tpus) | {"restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "a", "namespace": SOLO}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def in_queue(name: str) -> dict[str, Any]:
    return {"labels": {QUEUE_LABEL: name}}


def owner(kind: str, api_version: str) -> dict[str, Any]:
    found = {"apiVersion": api_version, "kind": kind, "name": "x", "uid": "00000000-0000-0000-0000-000000000000"}
    return {"ownerReferences": [{**found, "controller": True}]}


def refused(client: ApiClient, obj: Object) -> str:
    """Why the server does not take the object, in a dry run; "" where it does."""
    try:
        client.create(obj, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def workload_of(client: ApiClient, job: Object) -> Object:
    for each in client.list_all(KUEUE_API, "Workload", job["metadata"]["namespace"]):
        if any(own["uid"] == job["metadata"]["uid"] for own in each["metadata"].get("ownerReferences", [])):
            return each
    return {}


def admitted(client: ApiClient, job: Object) -> Object:
    """The job's Workload, once it is admitted."""

    def look() -> Object:
        found = workload_of(client, job)
        return found if is_true(found, "Admitted") else {}

    found: Object = within(PATIENCE, look)
    return found


def chips(client: ApiClient, queue: str) -> int:
    found = client.get(KUEUE_API, "ClusterQueue", queue) or {}
    flavors = found.get("status", {}).get("flavorsReservation", [])
    return sum(int(each["total"]) for flavor in flavors for each in flavor["resources"])


def test_a_job_without_a_queue_goes_to_the_only_one_of_its_namespace(client: ApiClient) -> None:
    """M2: a Job without the label started at once, on chips that Kueue took for free."""
    job = client.create(of_job("unlabelled", SOLO))
    assert job["metadata"]["labels"][QUEUE_LABEL] == "default"
    assert job["spec"]["suspend"] is True
    found = admitted(client, job)
    assert found["status"]["admission"]["clusterQueue"] == "one"
    within(PATIENCE, lambda: is_true(client.get("batch/v1", "Job", "unlabelled", SOLO) or {}, "Complete"))
    within(PATIENCE, lambda: chips(client, "one") == 0)


def test_a_job_without_tpus_is_admitted_at_once_where_jobs_go_to_a_queue(client: ApiClient) -> None:
    """Its namespace's default queue takes it, too; it needs nothing that the queue has a quota of."""
    job = of_job("cpu", SOLO, tpus=False)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    found = admitted(client, client.create(job))
    assert found["status"]["admission"]["clusterQueue"] == "one"
    assert chips(client, "one") == 0
    within(PATIENCE, lambda: is_true(client.get("batch/v1", "Job", "cpu", SOLO) or {}, "Complete"))


@pytest.mark.parametrize(
    "bypass",
    [
        of_pod(SOLO),
        of_pod(SOLO, **in_queue("one")),
        of_pod(SOLO, **owner("Job", "batch/v1")),
        of_apps("Deployment"),
        of_apps("StatefulSet"),
        of_apps("DaemonSet"),
        of_job("j", BOTH),
    ],
    ids=["pod", "labelled pod", "owned pod", "deployment", "stateful set", "daemon set", "job"],
)
def test_what_would_go_past_the_queues_is_refused(client: ApiClient, bypass: Object) -> None:
    """M2. The message says what to write instead; labels and owners that anybody can write change nothing."""
    said = refused(client, bypass)
    assert f"write a Job, a JobSet or a LeaderWorkerSet with the label {QUEUE_LABEL}: QUEUE" in said


def test_a_job_that_claims_to_be_part_of_a_jobset_is_refused(client: ApiClient) -> None:
    """Of a queued JobSet, too: only its own controller makes Jobs for it."""
    asked = of_job("j", BOTH, **owner("JobSet", "jobset.x-k8s.io/v1alpha2"))
    assert "not found" in refused(client, asked), "Kueue looks for the owner"
    waiting = jobset(PLATFORM, PLAN, Job("waiting", BOTH, 1, queue="two"))
    waiting["metadata"]["labels"][QUEUE_LABEL] = "nowhere"
    made = client.create(waiting)
    found = {"apiVersion": made["apiVersion"], "kind": "JobSet", "name": "waiting", "uid": made["metadata"]["uid"]}
    forged = of_job("j", BOTH, ownerReferences=[{**found, "controller": True}])
    assert "with the label" in refused(client, forged)
    client.delete(made)


def test_a_claim_counts_as_asking_for_tpus(client: ApiClient) -> None:
    spec = pod_spec(tpus=False) | {"resourceClaims": [{"name": "t", "resourceClaimTemplateName": "tpu-v6e-1"}]}
    assert "with the label" in refused(client, {**of_pod(SOLO), "spec": spec})


@pytest.mark.parametrize(
    "allowed",
    [of_pod(SOLO, tpus=False), of_apps("Deployment", tpus=False), of_job("j", BOTH, tpus=False), of_pod("default")],
    ids=["pod", "deployment", "job", "other namespace"],
)
def test_what_takes_no_chips_of_a_queue_is_let_through(client: ApiClient, allowed: Object) -> None:
    assert not refused(client, allowed)


def test_a_waiting_job_cannot_leave_its_queue(client: ApiClient) -> None:
    """Without its label Kueue would forget it, and its owner could start it."""
    client.create(of_job("leaving", BOTH, labels={QUEUE_LABEL: "nowhere"}))
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "leaving", "namespace": BOTH}}
    with pytest.raises(ApiError, match="with the label"):
        client.patch(job, {"metadata": {"labels": {QUEUE_LABEL: None}}})
    client.delete(job)


@pytest.mark.parametrize("make", [of_job, of_jobset], ids=["job", "jobset"])
def test_a_job_that_took_no_chips_cannot_ask_for_them_by_an_update(client: ApiClient, make: Any) -> None:
    """The way past the queues was: suspended and without TPUs, TPUs added by an update, then started."""
    made = client.create(suspended(make("growing", BOTH, tpus=False)))
    with pytest.raises(ApiError, match="with the label"):
        client.patch(made, {"spec": make("growing", BOTH)["spec"]})
    client.delete(made)


def test_a_job_that_is_older_than_the_policy_may_still_be_changed(client: ApiClient) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "older", "namespace": BOTH}}
    changed = client.patch(job, {"metadata": {"annotations": {"note": "kept"}}})
    assert changed["metadata"]["annotations"]["note"] == "kept"


def test_a_jobset_runs_through_its_queue(client: ApiClient) -> None:
    """The Jobs and pods that controllers make of an admitted JobSet are let through."""
    made = client.create(jobset(PLATFORM, PLAN, Job("train", BOTH, 2, queue="two")))
    admitted(client, made)
    live = (made["apiVersion"], made["kind"], "train", BOTH)
    within(PATIENCE, lambda: is_true(client.get(*live) or {}, "Completed"))


@pytest.mark.parametrize("labels", [{}, {QUEUE_LABEL: "two"}], ids=["as it is", "with a label"])
def test_a_job_of_a_jobset_takes_no_more_pods_than_kueue_has_counted(client: ApiClient, labels: Object) -> None:
    """A finding: such Jobs carry no queue's label, so whoever could change them could start pods past the queue."""
    wide = jobset(PLATFORM, PLAN, Job("wide", BOTH, 1, queue="two"))
    template = wide["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("annotations", {})["sandbox/run-for"] = "600s"
    made = client.create(wide)
    admitted(client, made)

    def started() -> list[Object]:
        jobs = client.list_all("batch/v1", "Job", BOTH, labelSelector="jobset.sigs.k8s.io/jobset-name=wide")
        return [each for each in jobs if not each["spec"].get("suspend")]

    [job] = within(PATIENCE, started)
    wider = {"metadata": {"labels": labels}, "spec": {"parallelism": 4, "completions": 4}}
    with pytest.raises(ApiError, match="takes no more pods"):
        client.patch({"apiVersion": "batch/v1", "kind": "Job", **job}, wider)
    client.delete(made)
    within(PATIENCE, lambda: not started())
