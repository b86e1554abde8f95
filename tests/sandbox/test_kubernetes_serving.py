"""Servers and jobs share slices: the tool's servers with the real API server, LeaderWorkerSet, JobSet and Kueue.

Charts are installed as the program does: its values, its post-renderers, its namespaces. Hosts are played (kwok).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from catalogue.labels import FLAVOR_LABEL, QUEUE_LABEL
from plan import flavors
from plan.charts import JOBSET, KUEUE, LWS
from plan.unqueued_tpus import GATE
from plan.workloads.job import Job
from plan.workloads.jobset import jobset
from plan.workloads.leader_worker_set import INDEX_LABEL, SET_LABEL
from sandbox.kubernetes import addons
from sandbox.kubernetes.addons import objects_by_addon
from sandbox.kubernetes.api import ApiClient, ApiError, Object, is_true
from sandbox.kubernetes.assets import gateway_crds
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import ReleaseSpec
from sandbox.plugins.kubernetes.releases import PostRenderingHelm
from sandbox.tests.kubernetes_support import KUEUE_API, UNTIL_TOLD, end, node_pool
from sandbox_adapter import PROGRAM as ADAPTER
from tests.graph.recording import ROOT, record_main
from tests.platforms import PROJECT, load, raw
from tests.sandbox.admission import apply_recorded, within
from tools.__main__ import app

pytestmark = pytest.mark.sandbox

TEAM, QUEUE = "team", "main"
CHIPS, PAIR = "chips", "pair"
SLICES = {
    CHIPS: {"machine_type": "ct6e-standard-1t", "topology": "1x1", "count": 2},
    PAIR: {"machine_type": "ct6e-standard-4t", "topology": "2x4"},
}
SETTINGS: dict[str, Any] = {
    "queues": {QUEUE: {"namespaces": [TEAM], "slices": {CHIPS: 2, PAIR: 1}}},
    "priorities": {"high": 1000},
}
WRITTEN, PLATFORM = raw(SLICES, **SETTINGS), load(SLICES, **SETTINGS)
PLANS = {plan.name: plan for plan in PLATFORM.slice_plans}
LWS_API, JOBSET_API = "leaderworkerset.x-k8s.io/v1", "jobset.x-k8s.io/v1alpha2"
PATIENCE = 240


@pytest.fixture(scope="module")
def client() -> Iterator[ApiClient]:
    """A cluster with what the platform puts inside, its system pool, and the hosts of its slices."""
    graph = record_main({"gcp:project": PROJECT, "tpu-platform:platform": json.dumps(WRITTEN)})
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        cluster = GkeCluster(Path(scratch), "lab", PROJECT, lambda _name, _nodes: None)
        authority = cluster.plane.authority
        registry = ChartRegistry(authority, ADAPTER.charts)
        cluster.start()
        try:
            labels = {flavor.topology: {FLAVOR_LABEL: flavor.name} for flavor in flavors.flavors(PLATFORM).values()}
            cluster.set_pools(
                [
                    node_pool("system", "e2-standard-16", 1),
                    node_pool("chips", "ct6e-standard-1t", 2, labels=labels["1x1"]),
                    node_pool("pair", "ct6e-standard-4t", 2, "2x4", labels=labels["2x4"]),
                ]
            )
            found = cluster.plane.client
            apply_recorded(found, graph, "Namespace")
            for chart in (JOBSET, LWS, KUEUE):
                renderer = str(ROOT / chart.postrender) if chart.postrender else ""
                helm = PostRenderingHelm(
                    cluster.plane.kubeconfig_path, renderer, registry.variables(authority.pair.certificate)
                )
                values = chart.values(PLATFORM)
                version = chart.version(PLATFORM.software)
                helm.install(ReleaseSpec(chart.release, chart.namespace, chart.reference, version, values))
            within(PATIENCE, lambda: _applied(found, graph))
            apply_recorded(
                found, graph, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", named="unqueued-tpus"
            )
            within(PATIENCE, lambda: "with the label" in refused(found, bare_pod()))
            within(PATIENCE, lambda: found.get(KUEUE_API, "LocalQueue", "default", TEAM))
            yield found
        finally:
            registry.stop()
            cluster.stop()


def _applied(client: ApiClient, graph: Any) -> bool:
    """Whether Kueue's webhook took the platform's queues."""
    try:
        for kind in ("ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"):
            apply_recorded(client, graph, kind, named="queues")
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    """The platform's stack file."""
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, "tpu-platform:platform": WRITTEN}}))
    return path


@pytest.fixture(autouse=True)
def _nothing_left(client: ApiClient) -> Iterator[None]:
    """Each test begins with an empty queue."""
    yield
    for api, kind in ((LWS_API, "LeaderWorkerSet"), (JOBSET_API, "JobSet"), ("v1", "Service")):
        for each in client.list_all(api, kind, TEAM):
            client.delete(each)
    within(PATIENCE, lambda: used(client) == {} and not client.list_all("v1", "Pod", TEAM))


def printed(stack: Path, *arguments: str) -> tuple[Object, Object]:
    """The server and the Service that the tool prints."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = ["--model", "acme/tiny", "--queue", QUEUE, "--json", "-f", str(stack)]
    result = CliRunner().invoke(app, ["workload", "serve", *arguments[:at], *options, *arguments[at:]])
    assert result.exit_code == 0, result.output
    server, service = json.loads(result.stdout)
    return server, service


def served(client: ApiClient, stack: Path, *arguments: str) -> Object:
    """A server that runs from now on, as the API server stored it."""
    server, service = printed(stack, *arguments)
    client.create(service)
    return client.create(server)


def trained(client: ApiClient, slices: str, name: str, seconds: int = 2, priority: str | None = None) -> Object:
    """A job on one slice, as the API server stored it."""
    made = jobset(PLATFORM, PLANS[slices], Job(name, TEAM, 1, queue=QUEUE, priority=priority))
    template = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template.setdefault("metadata", {}).setdefault("annotations", {})["sandbox/run-for"] = f"{seconds}s"
    return client.create(made)


def completed(client: ApiClient, name: str) -> bool:
    return is_true(client.get(JOBSET_API, "JobSet", name, TEAM) or {}, "Completed")


def running(client: ApiClient, job: str) -> list[Object]:
    """Pods of a job that run."""
    found = client.list_all("v1", "Pod", TEAM, labelSelector=f"jobset.sigs.k8s.io/jobset-name={job}")
    return [each for each in found if each["status"].get("phase") == "Running"]


def used(client: ApiClient) -> dict[str, int]:
    """Chips in use of the queue, by flavor; without those of which none is."""
    found = client.get(KUEUE_API, "ClusterQueue", QUEUE) or {}
    usage = found.get("status", {}).get("flavorsReservation", [])
    chips = {each["name"]: sum(int(resource["total"]) for resource in each["resources"]) for each in usage}
    return {name: number for name, number in chips.items() if number}


def of(slices: str, chips: int) -> dict[str, int]:
    return {PLANS[slices].flavor: chips}


def pods(client: ApiClient, server: str = CHIPS) -> list[Object]:
    """Pods of a server that are not on their way out."""
    found = client.list_all("v1", "Pod", TEAM, labelSelector=f"{SET_LABEL}={server}")
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


def ready(client: ApiClient, server: str = CHIPS) -> list[str]:
    return sorted(each["metadata"]["name"] for each in pods(client, server) if is_true(each, "Ready"))


def gated(pod: Object) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates", []))


def waiting(client: ApiClient, server: str = CHIPS) -> list[str]:
    return sorted(each["metadata"]["name"] for each in pods(client, server) if gated(each))


def bare_pod(*, tpus: bool = True, **metadata: Any) -> Object:
    resources = {"limits": {"google.com/tpu": "1"}} if tpus else {}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": resources}
    spec = {"containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bare", "namespace": TEAM, **metadata},
        "spec": spec,
    }


def refused(client: ApiClient, obj: Object) -> str:
    """Why the server does not take the object, in a dry run; "" where it does."""
    try:
        client.create(obj, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def within_it(stored: Any, said: Any) -> bool:
    """Whether everything that was said is in what is stored."""
    if isinstance(said, dict):
        return isinstance(stored, dict) and all(key in stored and within_it(stored[key], said[key]) for key in said)
    if isinstance(said, list):
        return len(stored) >= len(said) and all(any(within_it(other, each) for other in stored) for each in said)
    return str(stored) == str(said)


def test_a_server_is_admitted_and_counted_and_answers_by_its_service(client: ApiClient, stack: Path) -> None:
    """It was a Deployment first, which no queue counted, and then a Job, which cannot be changed."""
    within(PATIENCE, lambda: used(client) == {})
    served(client, stack, CHIPS)
    within(PATIENCE, lambda: ready(client) == ["chips-0"])
    within(PATIENCE, lambda: used(client) == of(CHIPS, 1))
    [workload] = client.list_all(KUEUE_API, "Workload", TEAM)
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet"
    assert is_true(workload, "Admitted")

    def behind() -> list[str]:
        selector = "kubernetes.io/service-name=chips-http"
        slices = client.list_all("discovery.k8s.io/v1", "EndpointSlice", TEAM, labelSelector=selector)
        points = [point for each in slices for point in each.get("endpoints") or []]
        return [point["targetRef"]["name"] for point in points if point["conditions"]["ready"]]

    within(PATIENCE, lambda: behind() == ["chips-0"])
    client.delete({"apiVersion": LWS_API, "kind": "LeaderWorkerSet", "metadata": {"name": CHIPS, "namespace": TEAM}})
    within(PATIENCE, lambda: used(client) == {})


def test_a_server_and_a_job_compete_for_slices_and_the_queue_decides(client: ApiClient, stack: Path) -> None:
    server = served(client, stack, CHIPS, "--replicas", "2")
    within(PATIENCE, lambda: ready(client) == ["chips-0", "chips-1"])
    within(PATIENCE, lambda: used(client) == of(CHIPS, 2))
    trained(client, CHIPS, "late")

    def pending() -> bool:
        queue = client.get(KUEUE_API, "ClusterQueue", QUEUE) or {}
        return bool(queue["status"].get("pendingWorkloads") == 1)

    within(PATIENCE, pending)
    assert ready(client) == ["chips-0", "chips-1"]
    client.patch(server, {"spec": {"replicas": 1}}, subresource="scale")
    within(PATIENCE, lambda: completed(client, "late"))
    within(PATIENCE, lambda: ready(client) == ["chips-0"] and used(client) == of(CHIPS, 1))


def test_a_server_that_is_scaled_up_past_its_queue_waits_with_what_is_more(client: ApiClient, stack: Path) -> None:
    server = served(client, stack, CHIPS)
    within(PATIENCE, lambda: ready(client) == ["chips-0"])
    client.patch(server, {"spec": {"replicas": 3}}, subresource="scale")
    within(PATIENCE, lambda: len(ready(client)) == 2 and len(waiting(client)) == 1)
    within(PATIENCE, lambda: used(client) == of(CHIPS, 2))


def test_a_job_of_higher_priority_takes_a_servers_slice_until_it_ends(client: ApiClient, stack: Path) -> None:
    served(client, stack, CHIPS, "--replicas", "2")
    within(PATIENCE, lambda: ready(client) == ["chips-0", "chips-1"])
    trained(client, CHIPS, "urgent", UNTIL_TOLD, "high")
    within(PATIENCE, lambda: len(ready(client)) == 1 and len(waiting(client)) == 1)
    end(client, within(PATIENCE, lambda: running(client, "urgent")))
    within(PATIENCE, lambda: completed(client, "urgent"))
    within(PATIENCE, lambda: ready(client) == ["chips-0", "chips-1"])
    within(PATIENCE, lambda: used(client) == of(CHIPS, 2))


def test_a_slice_of_several_hosts_is_one_group_on_one_node_pool(client: ApiClient, stack: Path) -> None:
    served(client, stack, PAIR, "--experimental-multi-host")
    within(PATIENCE, lambda: ready(client, PAIR) == ["pair-0", "pair-0-1"])
    within(PATIENCE, lambda: used(client) == of(PAIR, 8))
    found = {each["metadata"]["name"]: each for each in pods(client, PAIR)}
    assert {each["spec"]["nodeSelector"].get("cloud.google.com/gke-nodepool") for each in found.values()} >= {"pair"}
    assert len({each["spec"]["nodeName"] for each in found.values()}) == 2
    for number, name in enumerate(("pair-0", "pair-0-1")):
        environment = {each["name"]: each.get("value") for each in found[name]["spec"]["containers"][0]["env"]}
        assert environment["TPU_WORKER_ID"] == str(number)
        assert environment["TPU_WORKER_HOSTNAMES"] == "pair-0.pair,pair-0-1.pair"
        assert environment["LWS_GROUP_SIZE"] == "2"
    assert found["pair-0-1"]["metadata"]["labels"][INDEX_LABEL] == "1"


def test_another_version_rolls_out_and_keeps_its_slice(client: ApiClient, stack: Path) -> None:
    served(client, stack, CHIPS)
    within(PATIENCE, lambda: ready(client) == ["chips-0"])
    (before,) = (each["metadata"]["uid"] for each in pods(client))
    client.apply(printed(stack, CHIPS, "--image", "example.com/vllm:2")[0])

    def rolled() -> bool:
        found = pods(client)
        return (
            [each["spec"]["containers"][0]["image"] for each in found] == ["example.com/vllm:2"]
            and found[0]["metadata"]["uid"] != before
            and ready(client) == ["chips-0"]
        )

    within(PATIENCE, rolled)
    within(PATIENCE, lambda: used(client) == of(CHIPS, 1))


def test_only_kueue_lets_a_servers_pod_start(client: ApiClient, stack: Path) -> None:
    """Whoever may change pods could otherwise take the gate away, and with it a slice past the queue."""
    trained(client, CHIPS, "first", seconds=UNTIL_TOLD)
    trained(client, CHIPS, "second", seconds=UNTIL_TOLD)
    within(PATIENCE, lambda: used(client) == of(CHIPS, 2))
    served(client, stack, CHIPS)
    within(PATIENCE, lambda: waiting(client) == ["chips-0"])
    (pod,) = pods(client)
    with pytest.raises(ApiError, match="only Kueue lets it start"):
        client.patch(pod, {"spec": {"schedulingGates": []}})
    assert (
        client.patch(pod, {"metadata": {"annotations": {"note": "kept"}}})["metadata"]["annotations"]["note"] == "kept"
    )


def test_a_server_without_a_queue_and_its_parts_are_refused(client: ApiClient, stack: Path) -> None:
    """Of a namespace with one queue that one is its default; here the label names no queue."""
    server, _ = printed(stack, CHIPS)
    group = server["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    labels = {SET_LABEL: CHIPS, INDEX_LABEL: "0", QUEUE_LABEL: QUEUE}
    forged: Object = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "forged", "namespace": TEAM, "labels": labels},
        "spec": {
            "serviceName": "forged",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": group["spec"]},
        },
    }
    assert "a LeaderWorkerSet with the label" in refused(client, forged)
    gates = [{"name": GATE}]
    pod = {**bare_pod(), "spec": {**bare_pod()["spec"], "schedulingGates": gates}}
    assert "a LeaderWorkerSet with the label" in refused(client, pod)
    made = client.create(server, dry_run=True)
    assert made["metadata"]["labels"][QUEUE_LABEL] == QUEUE
    del server["metadata"]["labels"]
    assert client.create(server, dry_run=True)["metadata"]["labels"][QUEUE_LABEL] == "default"


def test_pods_that_are_of_no_server_are_left_alone(client: ApiClient) -> None:
    """Kueue would hold them back, and give them a finalizer, wherever a namespace has a default queue."""
    made = client.create(bare_pod(tpus=False), dry_run=True)
    assert not gated(made)
    assert "finalizers" not in made["metadata"]
    assert QUEUE_LABEL not in made["metadata"].get("labels", {})


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--replicas", "2"),
        ("--name", "gemma"),
        ("--priority", "high"),
        ("--token", "hf-secret:token"),
        ("--weights", "gs://acme/gemma"),
        ("--image", "example.com/vllm@sha256:" + "0" * 64),
        ("--", "--max-model-len=2048"),
    ],
    ids=lambda arguments: arguments[0].strip("-") or "flags" if arguments else "nothing",
)
def test_the_api_server_stores_what_the_tool_says(client: ApiClient, stack: Path, arguments: tuple[str, ...]) -> None:
    """All of it: nothing is pruned, and no webhook takes anything away."""
    for said in printed(stack, CHIPS, *arguments):
        assert within_it(client.create(said, dry_run=True), said)


GATEWAYS = {
    "cluster": {"gateway": True},
    "network": {"proxy_only_cidr": "10.0.64.0/23"},
    "teams": {TEAM: {"secrets": {"VLLM_API_KEY": "key"}}},
}


def test_gkes_gateways_take_what_the_tool_prints(client: ApiClient, tmp_path: Path) -> None:
    """With the CRDs that GKE brings; no load balancer is made of them."""
    for each in (*gateway_crds(), *objects_by_addon()[addons.GATEWAYS]):
        within(PATIENCE, lambda each=each: applied(client, each))
    path = tmp_path / "Pulumi.test.yaml"
    config = {"gcp:project": PROJECT, "tpu-platform:platform": {**WRITTEN, **GATEWAYS}}
    path.write_text(yaml.safe_dump({"config": config}))
    for options in (["internal"], ["external", "--certificate", "tls"]):
        command = ["workload", "serve", CHIPS, "--model", "m", "--gateway", *options, "--json", "-f", str(path)]
        _, _, *made = json.loads(CliRunner().invoke(app, command).stdout)
        assert [each["kind"] for each in made] == [
            *("Gateway", "HTTPRoute", "HealthCheckPolicy", "GCPBackendPolicy"),
            "NetworkPolicy",
        ]
        for said in made:
            assert within_it(within(PATIENCE, lambda said=said: created(client, said)), said)
        for change in ({"listeners": []}, {"listeners": made[0]["spec"]["listeners"], "gatewayClassName": ""}):
            assert refused(client, {**made[0], "spec": {**made[0]["spec"], **change}})


def applied(client: ApiClient, obj: Object) -> bool:
    """Whether the server took the object; not before it serves the kind."""
    try:
        client.apply(obj)
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True


def created(client: ApiClient, obj: Object) -> Object:
    """The object as the server would store it; nothing before it serves the kind."""
    try:
        return client.create(obj, dry_run=True)
    except ApiError as error:
        if error.status == 404:
            return {}
        raise
