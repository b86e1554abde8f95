"""One emulated cluster with the real JobSet and Kueue controllers: workloads, autoscaling, faults, releases."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from sandbox.google.errors import GoogleError
from sandbox.kubernetes.api import ApiError, Object, condition, is_true
from sandbox.kubernetes.control_plane import RUN_FOR
from sandbox.kubernetes.gke import GkeCluster
from sandbox.kubernetes.nodes import POOL_LABEL
from sandbox.kubernetes.registry import ChartRegistry
from sandbox.kubernetes.releases import Helm, ReleaseError, ReleaseFailedError, ReleaseSpec
from sandbox.tests.kubernetes_support import (
    EVERY_CHART,
    JOBSET_CHART,
    KUEUE_API,
    UNTIL_TOLD,
    end,
    kueue_release,
    node_pool,
)
from sandbox.toolchain.kubernetes_binaries import JOBSET_VERSION

pytestmark = pytest.mark.sandbox

DRA_CHART = "oci://registry.k8s.io/dra-driver-google/charts/dra-driver-google-tpu"
JOBSET_API = "jobset.x-k8s.io/v1alpha2"
REQUEST_API = "autoscaling.x-k8s.io/v1"
TEAM = "team-a"
IDLE_SECONDS = 4.0
REFRESH_SECONDS = 8.0  # in which the distrust after an upgrade has to be seen
TPU_TOLERATION = {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}
DRA_LABELS = {"cloud.google.com/gke-tpu-dra-driver": "true"}
QUEUED_LABELS = {"cloud.google.com/gke-queued": "true"}

T = TypeVar("T")


def eventually(what: str, probe: Callable[[], T | None], seconds: float = 180) -> T:
    """The first true result of `probe`; fails with its last result when there is none in time."""
    deadline = time.monotonic() + seconds
    result = probe()
    while not result:
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)
        result = probe()
    return result


COMPUTE_CLASS = "cloud.google.com/compute-class"
FALLBACK: dict[str, Any] = {"labels": {COMPUTE_CLASS: "fallback"}, "autoscaling": {"enabled": True, "maxNodeCount": 1}}


POOLS: tuple[dict[str, Any], ...] = (
    node_pool("system", "e2-standard-8", 1),
    node_pool("slice-a", "ct6e-standard-4t", 4, "4x4", labels=DRA_LABELS),
    node_pool("slice-b", "ct6e-standard-4t", 4, "4x4", labels=DRA_LABELS),
    node_pool(
        "queued",
        "ct6e-standard-4t",
        0,
        "2x4",
        labels=QUEUED_LABELS,
        config={"flexStart": True},
        autoscaling={"enabled": True, "minNodeCount": 0, "maxNodeCount": 2},
        queuedProvisioning={"enabled": True},
    ),
    node_pool(
        "single",
        "ct6e-standard-1t",
        0,
        labels=DRA_LABELS,
        config={"spot": True},
        autoscaling={"enabled": True, "totalMinNodeCount": 0, "totalMaxNodeCount": 3},
    ),
)
# In the wrong order on purpose: the ComputeClass decides.
POOLS += (
    node_pool("second-choice", "ct5lp-hightpu-1t", 0, **FALLBACK),
    node_pool("first-choice", "ct5lp-hightpu-1t", 0, **FALLBACK),
)
KUEUE_CONFIGURATION: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    "managedJobsNamespaceSelector": {"matchLabels": {"team": "a"}},
    "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
    "resources": {
        "quotaCheckStrategy": "IgnoreUndeclared",
        "deviceClassMappings": [{"name": "google.com/tpu", "deviceClassNames": ["tpu.google.com"]}],
    },
}
DRA_VALUES = {
    "kubeletPlugin": {
        "priorityClassName": "",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "cloud.google.com/gke-tpu-accelerator", "operator": "Exists"},
                                {"key": "cloud.google.com/gke-tpu-dra-driver", "operator": "In", "values": ["true"]},
                            ]
                        }
                    ]
                }
            }
        },
    }
}


class World:
    """A cluster, helm for it, and the sizes that the autoscaler has asked for; "first-choice" is out of stock."""

    def __init__(self, run_dir: Path) -> None:
        self.pools = [dict(each) for each in POOLS]
        self.resizes: list[tuple[str, int]] = []
        self.refusals = 0
        self.cluster = GkeCluster(
            run_dir, "lab", "my-project", self.resize, idle_seconds=IDLE_SECONDS, refresh_seconds=REFRESH_SECONDS
        )
        authority = self.cluster.plane.authority
        self.registry = ChartRegistry(authority, EVERY_CHART)
        variables = self.registry.variables(authority.pair.certificate)
        self.helm = Helm(self.cluster.plane.kubeconfig_path, variables)

    def resize(self, name: str, nodes: int) -> None:
        if name == "first-choice":
            self.refusals += 1
            raise GoogleError("RESOURCE_EXHAUSTED", "The zone does not have enough resources available.")
        self.resizes.append((name, nodes))
        for pool in self.pools:
            if pool["name"] == name:
                pool["currentNodeCount"] = nodes
        self.cluster.set_pools(self.pools)

    def apply(self, *objects: Object) -> None:
        for each in objects:
            self.cluster.plane.client.apply(each)

    def pods(self, jobset: str) -> list[Object]:
        selector = f"jobset.sigs.k8s.io/jobset-name={jobset}"
        return self.cluster.plane.client.list_all("v1", "Pod", TEAM, labelSelector=selector)

    def jobs(self, jobset: str) -> list[Object]:
        """One for each slice."""
        selector = f"jobset.sigs.k8s.io/jobset-name={jobset}"
        return self.cluster.plane.client.list_all("batch/v1", "Job", TEAM, labelSelector=selector)

    def nodes(self, pool: str) -> set[str]:
        found = self.cluster.plane.client.list_all("v1", "Node", labelSelector=f"{POOL_LABEL}={pool}")
        return {each["metadata"]["name"] for each in found}

    def completed(self, jobset: str) -> bool:
        found = self.cluster.plane.client.get(JOBSET_API, "JobSet", jobset, TEAM)
        assert found
        assert not is_true(found, "Failed"), found["status"]
        return is_true(found, "Completed")

    def workload(self, jobset: str) -> Object | None:
        for each in self.cluster.plane.client.list_all(KUEUE_API, "Workload", TEAM):
            if any(owner["name"] == jobset for owner in each["metadata"].get("ownerReferences", [])):
                return each
        return None


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="tpu-") as scratch:
        made = World(Path(scratch))
        made.cluster.start()
        try:
            made.cluster.set_pools(made.pools)
            install_controllers(made)
            create_queues(made)
            yield made
        finally:
            made.registry.stop()
            made.cluster.stop()


def install_controllers(world: World) -> None:
    for name in ("jobset-system", "kueue-system", "dra-driver-google-tpu"):
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    world.helm.install(
        ReleaseSpec("dra-driver-google-tpu", "dra-driver-google-tpu", DRA_CHART, "0.2.0", DRA_VALUES, wait=False)
    )
    world.helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}, wait=False))
    world.helm.install(kueue_release(yaml.safe_dump(KUEUE_CONFIGURATION)))


def create_queues(world: World) -> None:
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"}
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": {"team": "a"}}},
        claim_template("tpu-host-4", 4),
        claim_template("tpu-host-1", 1),
        flavor("v6e-4x4", {**selector, "cloud.google.com/gke-tpu-topology": "4x4"}, []),
        flavor(
            "v6e-2x4-queued",
            {**selector, **QUEUED_LABELS},
            [{"key": "cloud.google.com/gke-queued", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        ),
        {
            "apiVersion": KUEUE_API,
            "kind": "ProvisioningRequestConfig",
            "metadata": {"name": "dws"},
            "spec": {"provisioningClassName": "queued-provisioning.gke.io", "managedResources": ["google.com/tpu"]},
        },
        {
            "apiVersion": KUEUE_API,
            "kind": "AdmissionCheck",
            "metadata": {"name": "dws"},
            "spec": {
                "controllerName": "kueue.x-k8s.io/provisioning-request",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"},
            },
        },
        *queue("train", "v6e-4x4", 32),
        *queue("dws", "v6e-2x4-queued", 8, {"admissionChecks": [{"name": "dws"}]}),
    )


def claim_template(name: str, chips: int) -> Object:
    exactly = {"deviceClassName": "tpu.google.com", "allocationMode": "ExactCount", "count": chips}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"spec": {"devices": {"requests": [{"name": "tpu", "exactly": exactly}]}}},
    }


def flavor(name: str, labels: dict[str, str], tolerations: list[dict[str, str]]) -> Object:
    spec = {"nodeLabels": labels, "tolerations": [TPU_TOLERATION, *tolerations]}
    return {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def queue(name: str, flavor_name: str, chips: int, checks: dict[str, Any] | None = None) -> list[Object]:
    flavors = [{"name": flavor_name, "resources": [{"name": "google.com/tpu", "nominalQuota": chips}]}]
    spec = {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "resourceGroups": [{"coveredResources": ["google.com/tpu"], "flavors": flavors}],
        **({"admissionChecksStrategy": checks} if checks else {}),
    }
    local = {"name": name, "namespace": TEAM}
    return [
        {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {"apiVersion": KUEUE_API, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}},
    ]


def jobset(name: str, queue_name: str, hosts: int, *, slices: int = 1, seconds: int = 1, dra: bool = True) -> Object:
    """A JobSet of whole slices of 4-chip hosts, each slice on a node pool of its own."""
    container: Object = {"name": "jax", "image": "jax", "resources": {"requests": {"cpu": "100", "memory": "100Gi"}}}
    pod: Object = {"restartPolicy": "Never", "tolerations": [TPU_TOLERATION], "containers": [container]}
    if dra:
        container["resources"]["claims"] = [{"name": "tpu"}]
        pod["resourceClaims"] = [{"name": "tpu", "resourceClaimTemplateName": "tpu-host-4"}]
    else:
        container["resources"]["limits"] = {"google.com/tpu": "4"}
    job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"annotations": {RUN_FOR: f"{seconds}s"}}, "spec": pod},
    }
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": TEAM,
            "labels": {"kueue.x-k8s.io/queue-name": queue_name},
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": POOL_LABEL},
        },
        "spec": {"replicatedJobs": [{"name": "slice", "replicas": slices, "template": {"spec": job}}]},
    }


def chips_by_node(world: World) -> dict[str, set[str]]:
    """Devices allocated to claims, by node."""
    allocated: dict[str, set[str]] = {}
    for claim in world.cluster.plane.client.list_all("resource.k8s.io/v1", "ResourceClaim", TEAM):
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
            devices = allocated.setdefault(result["pool"], set())
            assert result["device"] not in devices, "one chip in two claims"
            devices.add(result["device"])
    return allocated


def quota_in_use(world: World, name: str) -> str:
    found = world.cluster.plane.client.get(KUEUE_API, "ClusterQueue", name)
    assert found
    total: str = found["status"]["flavorsReservation"][0]["resources"][0]["total"]
    return total


def test_two_slices_take_every_chip_and_do_not_mix_hosts_while_a_second_job_waits(world: World) -> None:
    world.apply(jobset("both", "train", 4, slices=2, seconds=UNTIL_TOLD))
    pods = eventually(
        "8 pods running",
        lambda: found if len(found := running(world, "both")) == 8 else [],
    )
    slices = {"slice-a": world.nodes("slice-a"), "slice-b": world.nodes("slice-b")}
    pools_of_job = {
        index: {pool for pod in pods for pool, nodes in slices.items() if on(pod, index, nodes)} for index in ("0", "1")
    }
    assert sorted(pools_of_job.values(), key=sorted) == [{"slice-a"}, {"slice-b"}]
    chips = chips_by_node(world)
    assert chips.keys() == slices["slice-a"] | slices["slice-b"]
    assert all(len(devices) == 4 for devices in chips.values())

    world.apply(jobset("later", "train", 4))
    waiting = eventually("the second workload told to wait", lambda: waits_for_quota(world, "later"))
    eventually("all quota is in use", lambda: quota_in_use(world, "train") == "32")
    end(world.cluster.plane.client, pods)
    eventually("second completed", lambda: world.completed("later"))
    eventually("first completed", lambda: world.completed("both"))
    admitted = world.workload("later")
    assert admitted
    assert admitted["metadata"]["uid"] == waiting["metadata"]["uid"]
    eventually("quota released", lambda: quota_in_use(world, "train") == "0")
    # Kueue passes the quota of a slice on when the slice has ended, also before the job's other slice has.
    freed = min(each["status"]["completionTime"] for each in world.jobs("both"))
    assert condition(admitted, "Admitted")["lastTransitionTime"] >= freed


def waits_for_quota(world: World, name: str) -> Object | None:
    found = world.workload(name)
    return found if found and "insufficient" in condition(found, "QuotaReserved").get("message", "") else None


def running(world: World, name: str) -> list[Object]:
    return [each for each in world.pods(name) if each["status"]["phase"] == "Running"]


def on(pod: Object, job_index: str, nodes: set[str]) -> bool:
    is_of_job = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"] == job_index
    return is_of_job and pod["spec"]["nodeName"] in nodes


def test_a_provisioning_request_brings_a_queued_slice_and_gives_it_back(world: World) -> None:
    world.apply(jobset("queued", "dws", 2, seconds=UNTIL_TOLD, dra=False))
    request = eventually("a request", lambda: world.cluster.plane.client.list_all(REQUEST_API, "ProvisioningRequest"))
    assert request[0]["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    pods = eventually("2 pods running", lambda: found if len(found := running(world, "queued")) == 2 else [])
    assert ("queued", 2) in world.resizes
    assert {pod["spec"]["nodeName"] for pod in pods} == world.nodes("queued")
    end(world.cluster.plane.client, pods)
    eventually("completed", lambda: world.completed("queued"))
    eventually("slice given back", lambda: not world.nodes("queued"))
    assert [nodes for name, nodes in world.resizes if name == "queued"] == [2, 0]


def test_pending_pods_with_claims_scale_a_pool_from_zero_and_idle_nodes_go(world: World) -> None:
    pod_spec = {
        "nodeSelector": {"cloud.google.com/gke-spot": "true"},
        "tolerations": [TPU_TOLERATION],
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "tpu", "resourceClaimTemplateName": "tpu-host-1"}],
        "containers": [{"name": "serve", "image": "serve", "resources": {"claims": [{"name": "tpu"}]}}],
    }
    names = ("serve-0", "serve-1")
    for name in names:
        metadata = {"name": name, "namespace": TEAM}
        world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec})
    client = world.cluster.plane.client

    def placed() -> set[str]:
        pods = [client.get("v1", "Pod", name, TEAM) or {} for name in names]
        return {each["spec"]["nodeName"] for each in pods if each["status"].get("phase") == "Running"}

    nodes = eventually("two pods on two nodes", lambda: found if len(found := placed()) == 2 else set())
    assert nodes == world.nodes("single")
    for name in names:
        client.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": TEAM}})
    eventually("idle nodes gone", lambda: not world.nodes("single"))
    eventually("their chips gone", lambda: not (slice_nodes(world) - world.nodes("slice-a") - world.nodes("slice-b")))


def test_a_compute_class_decides_the_order_of_pools_and_one_without_capacity_is_passed_over(world: World) -> None:
    priorities = [{"nodepools": ["first-choice"]}, {"nodepools": ["second-choice"]}]
    spec = {"priorities": priorities, "whenUnsatisfiable": "DoNotScaleUp"}
    limits = {"limits": {"google.com/tpu": "1"}}
    container = {"name": "serve", "image": "serve", "resources": limits}
    pod_spec = {"nodeSelector": {COMPUTE_CLASS: "fallback"}, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "choosy", "namespace": TEAM}, "spec": pod_spec}
    compute_class = {"apiVersion": "cloud.google.com/v1", "kind": "ComputeClass", "metadata": {"name": "fallback"}}
    world.apply(compute_class | {"spec": spec}, pod)
    client = world.cluster.plane.client

    def node() -> str:
        found = client.get("v1", "Pod", "choosy", TEAM) or {}
        name: str = found["spec"].get("nodeName", "")
        return name

    assert eventually("placed", node) in world.nodes("second-choice")
    assert world.refusals == 1
    client.delete(pod)


def slice_nodes(world: World) -> set[str]:
    slices = world.cluster.plane.client.list_all("resource.k8s.io/v1", "ResourceSlice")
    return {each["spec"]["nodeName"] for each in slices}


def test_chips_are_published_only_where_the_driver_runs(world: World) -> None:
    expected = world.nodes("slice-a") | world.nodes("slice-b")
    eventually("slices of the DRA nodes", lambda: slice_nodes(world) == expected)


def test_during_a_webhook_outage_the_api_server_answers_500_and_afterwards_works(world: World) -> None:
    client = world.cluster.plane.client
    probe = flavor("probe", {}, [])
    client.apply(probe, dry_run=True)
    world.cluster.plane.egress.outage(60)
    with pytest.raises(ApiError, match="failed calling webhook") as caught:
        client.apply(probe, dry_run=True)
    assert caught.value.status == 500
    world.cluster.plane.egress.outage(0)
    client.apply(probe, dry_run=True)
    assert client.get(KUEUE_API, "ResourceFlavor", "probe") is None


def test_an_unknown_field_is_refused_by_the_server(world: World) -> None:
    wrong = {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "x"}, "spec": {"labels": {}}}
    with pytest.raises(ApiError, match=r"\.spec\.labels: field not declared in schema"):
        world.cluster.plane.client.apply(wrong, dry_run=True)


def test_a_release_reports_what_the_real_provider_reports(world: World) -> None:
    release = world.helm.get("jobset", "jobset-system")
    assert release
    assert release.status == {
        "appVersion": f"v{JOBSET_VERSION}",
        "chart": "jobset",
        "name": "jobset",
        "namespace": "jobset-system",
        "revision": 1,
        "status": "deployed",
        "version": JOBSET_VERSION,
    }
    assert release.resource_names["Deployment.apps/apps/v1"] == ["jobset-system/jobset-controller"]
    assert release.resource_names["Secret/v1"] == ["jobset-system/jobset-webhook-server-cert"]
    assert world.helm.get("jobset", "default") is None


def test_an_upgrade_of_jobset_distrusts_its_webhook_until_the_mount_is_fresh(world: World) -> None:
    client = world.cluster.plane.client
    release = world.helm.upgrade(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}))
    assert release.status["revision"] == 2
    refusal = eventually("refusal", lambda: refused(world, jobset("probe", "train", 4)))
    assert "certificate signed by unknown authority" in refusal
    eventually("trust", lambda: not refused(world, jobset("probe", "train", 4)))
    assert client.get(JOBSET_API, "JobSet", "probe", TEAM) is None


def refused(world: World, obj: Object) -> str:
    """The server's reason not to take the object, in a dry run; "" when it takes it."""
    try:
        world.cluster.plane.client.apply(obj, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def test_a_broken_controller_configuration_fails_the_release_while_the_old_one_serves(world: World) -> None:
    with pytest.raises(ReleaseFailedError, match="context deadline exceeded") as caught:
        world.helm.upgrade(kueue_release("waitForPodsReady: {enable: true}\n", timeout=6))
    assert caught.value.release.status["status"] == "failed"
    eventually("reported crash", lambda: "Unable to load the configuration" in crash_messages(world, "kueue-system"))
    world.cluster.plane.client.apply(flavor("probe", {}, []), dry_run=True)

    repaired = KUEUE_CONFIGURATION | {"waitForPodsReady": {"timeout": "45m"}}
    release = world.helm.upgrade(kueue_release(yaml.safe_dump(repaired)))
    assert release.status["status"] == "deployed"
    eventually("the new one serves", lambda: not refused(world, flavor("probe", {}, [])))
    folder = world.cluster.plane.run_dir / "controllers"
    eventually("one Kueue", lambda: len(list(folder.glob("kueue-*"))) == 1)
    local = yaml.safe_load(next(folder.glob("kueue-*/config.yaml")).read_text())
    assert local["waitForPodsReady"] == {"timeout": "45m"}


def crash_messages(world: World, namespace: str) -> str:
    pods = world.cluster.plane.client.list_all("v1", "Pod", namespace)
    states = [status["state"] for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return "\n".join(state["waiting"]["message"] for state in states if "waiting" in state)


def test_a_relabelled_pool_relabels_its_nodes_and_leaves_foreign_labels(world: World) -> None:
    client = world.cluster.plane.client
    name = min(world.nodes("system"))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    client.patch(node, {"metadata": {"labels": {"foreign": "kept"}}})
    taint = {"key": "dedicated", "value": "system", "effect": "PREFER_NO_SCHEDULE"}
    for labels, taints in (({"tier": "gold"}, [taint]), ({}, [])):
        pools = [
            dict(each, config={**each["config"], "labels": labels, "taints": taints})
            if each["name"] == "system"
            else each
            for each in world.pools
        ]
        world.cluster.set_pools(pools)
        found = client.get("v1", "Node", name)
        assert found
        assert found["metadata"]["labels"].get("tier") == labels.get("tier")
        assert found["metadata"]["labels"]["foreign"] == "kept"
        assert len(found["spec"].get("taints", [])) == len(taints)


@pytest.mark.parametrize(
    ("chart", "version", "message"),
    [
        ("oci://registry.k8s.io/kueue/charts/kueue", "0.18.0", r"no version 0\.18\.0 .* known: 0\.19\.2"),
        ("oci://example.com/charts/redis", "1.0.0", "has no registry example.com; it has registry.k8s.io"),
    ],
)
def test_unknown_charts_and_versions_are_refused(world: World, chart: str, version: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        world.helm.install(ReleaseSpec("x", TEAM, chart, version, {}))


@pytest.mark.parametrize(
    ("namespace", "values", "message"),
    [
        (TEAM, {"kubeletPlugin": {"toleration": []}}, "additional properties 'toleration' not allowed"),
        (TEAM, {"kubeletPlugin": {"tolerations": {}}}, "got object, want array"),
        ("default", {}, "'default' namespace"),
    ],
)
def test_values_the_dra_driver_does_not_know_are_refused(
    world: World, namespace: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ReleaseError, match=message):
        world.helm.render(ReleaseSpec("dra-driver-google-tpu", namespace, DRA_CHART, "0.2.0", values))


def test_helm_refuses_a_second_install_under_one_name(world: World) -> None:
    with pytest.raises(ReleaseError, match="cannot re-use a name that is still in use"):
        world.helm.install(ReleaseSpec("jobset", "jobset-system", JOBSET_CHART, JOBSET_VERSION, {}))


def test_pods_of_system_priority_need_a_quota_of_their_namespace(world: World) -> None:
    spec = {"priorityClassName": "system-node-critical", "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical", "namespace": TEAM}, "spec": spec}
    with pytest.raises(ApiError, match="insufficient quota to match these scopes"):
        world.cluster.plane.client.create(pod, dry_run=True)


def test_the_sizes_asked_for_are_whole_slices(world: World) -> None:
    hosts = {"queued": {0, 2}, "single": set(range(4)), "second-choice": {0, 1}}
    for name, nodes in world.resizes:
        assert nodes in hosts[name]
