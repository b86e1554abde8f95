"""Where GKE or TPU Provisioner creates node pools, a real API server takes only pods and jobs that queues can count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from plan import created_pools
from plan.platform import Platform
from plan.workloads.job import Job, plan_named
from plan.workloads.jobset import jobset
from sandbox.kubernetes.api import ApiClient, ApiError, Object
from tests.platforms import load
from tests.sandbox.admission import bare_cluster, install, within

pytestmark = pytest.mark.sandbox

IMAGE = f"example.com/images/tpu-provisioner@sha256:{'0' * 64}"
SLICE = {"machine_type": "ct6e-standard-4t", "topology": "4x4", "capacity": "spot", "count": 2}
QUEUES = {"research": {"namespaces": ["team-a"], "slices": {"train": 2}}}
TPU_PROVISIONER = load(
    {"train": SLICE | {"provisioning": "tpu-provisioner"}},
    cluster={"release_channel": "UNSPECIFIED"},
    software={"tpu_provisioner": {"image": IMAGE}},
    queues=QUEUES,
)
COMPUTE_CLASS = load(
    {
        "train": SLICE | {"provisioning": "compute-class"},
        "serve": {"machine_type": "ct6e-standard-1t", "topology": "1x1", "capacity": "spot"},
    },
    queues=QUEUES,
)
SELECTOR, EXCLUSIVE = "tpu-platform/jobset", "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
PATIENCE = 120.0


def in_force(platform: Platform) -> Iterator[ApiClient]:
    """A cluster with the policy of a platform, the namespace of its queue, and one of nobody."""
    with bare_cluster() as cluster:
        found = cluster.plane.client
        for name in ("team-a", "free"):
            found.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        policy = created_pools.policy(platform)
        assert policy
        install(found, policy)
        stranger = pod(platform) | {"metadata": {"name": "p", "namespace": "free"}}
        within(PATIENCE, lambda: "for jobs in queues only" in refused(found, stranger))
        # A new namespace takes no pods before it has the account that they need.
        within(PATIENCE, lambda: not refused(found, pod(platform)))
        yield found


@pytest.fixture(scope="module")
def provisioner() -> Iterator[ApiClient]:
    yield from in_force(TPU_PROVISIONER)


@pytest.fixture(scope="module")
def of_class() -> Iterator[ApiClient]:
    yield from in_force(COMPUTE_CLASS)


def job(platform: Platform, slices: str = "train") -> Object:
    """The Job of one slice, as JobSet makes it of the tool's manifest."""
    plan = plan_named(platform, slices)
    queue = "research" if slices == "train" else None
    made = jobset(platform, plan, Job("train", "team-a", 1, queue=queue))
    return dict(made["spec"]["replicatedJobs"][0]["template"]["spec"])


def pod(platform: Platform, **selectors: str) -> Object:
    """A pod of it, with other selectors where they are given; an empty text takes one away."""
    spec: dict[str, Any] = job(platform)["template"]["spec"]
    chosen = {**spec["nodeSelector"], **{key.replace("__", "/"): value for key, value in selectors.items()}}
    spec["nodeSelector"] = {key: value for key, value in chosen.items() if value}
    annotations = {EXCLUSIVE: "cloud.google.com/gke-nodepool", JOBSET_NAME: "train"}
    metadata = {"name": "p", "namespace": "team-a", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def refused(client: ApiClient, wanted: Object) -> str:
    """Why the server does not take an object, in a dry run; "" where it does."""
    try:
        client.create(wanted, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


def without(wanted: Object, annotation: str) -> Object:
    del wanted["metadata"]["annotations"][annotation]
    return wanted


def batch_job(platform: Platform, namespace: str = "team-a", **spec: Any) -> Object:
    metadata = {"name": "j", "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job(platform) | spec}


def test_what_the_tool_prints_is_taken(provisioner: ApiClient, of_class: ApiClient) -> None:
    for client, platform in ((provisioner, TPU_PROVISIONER), (of_class, COMPUTE_CLASS)):
        assert refused(client, pod(platform)) == ""
        assert refused(client, batch_job(platform)) == ""


def test_a_job_of_one_pod_does_not_bring_the_hosts_of_a_whole_slice(
    provisioner: ApiClient, of_class: ApiClient
) -> None:
    """The controller counts hosts by the topology. Eight such Jobs once were 32 chips to Kueue, and 128 to Google."""
    for client, platform in ((provisioner, TPU_PROVISIONER), (of_class, COMPUTE_CLASS)):
        one = batch_job(platform, parallelism=1, completions=1)
        assert "has a pod for each host" in refused(client, one)
        fewer_chips = batch_job(platform)
        resources = fewer_chips["spec"]["template"]["spec"]["containers"][0]["resources"]
        for part in ("limits", "requests"):
            resources[part]["google.com/tpu"] = 1
        assert "all chips of its host" in refused(client, fewer_chips)


def test_a_shape_that_the_platform_does_not_have_is_refused(provisioner: ApiClient) -> None:
    large = pod(TPU_PROVISIONER, **{"cloud.google.com__gke-tpu-topology": "16x16"})
    assert "of one of them" in refused(provisioner, large)


def test_nobody_gets_hosts_outside_the_namespaces_of_queues(provisioner: ApiClient, of_class: ApiClient) -> None:
    for client, platform in ((provisioner, TPU_PROVISIONER), (of_class, COMPUTE_CLASS)):
        assert "for jobs in queues only" in refused(client, batch_job(platform, namespace="free"))


def test_slices_that_stand_are_not_the_policys_business(of_class: ApiClient) -> None:
    standing = batch_job(COMPUTE_CLASS, namespace="free", template=job(COMPUTE_CLASS, "serve")["template"])
    assert refused(of_class, standing) == ""


def test_affinity_to_a_class_is_no_way_around(of_class: ApiClient) -> None:
    wanted = batch_job(COMPUTE_CLASS, namespace="free", parallelism=1, completions=1)
    spec = wanted["spec"]["template"]["spec"]
    name = spec["nodeSelector"].pop("cloud.google.com/compute-class")
    expression = {"key": "cloud.google.com/compute-class", "operator": "In", "values": [name]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert "for jobs in queues only" in refused(of_class, wanted)


@pytest.mark.parametrize("selector", ["", "team-a.eval", "team-b.train"])
def test_no_pod_runs_on_the_pool_of_another_jobset(provisioner: ApiClient, selector: str) -> None:
    assert "NAMESPACE.JOBSET" in refused(provisioner, pod(TPU_PROVISIONER, **{"tpu-platform__jobset": selector}))


def test_a_jobset_without_exclusive_topology_is_refused(provisioner: ApiClient) -> None:
    assert f"needs the annotation {EXCLUSIVE}" in refused(provisioner, without(pod(TPU_PROVISIONER), EXCLUSIVE))


def test_a_pod_of_no_jobset_would_never_get_a_host(provisioner: ApiClient) -> None:
    assert "for JobSets only" in refused(provisioner, without(pod(TPU_PROVISIONER), JOBSET_NAME))


def test_pods_do_not_choose_networks_accounts_or_reservations_of_hosts(provisioner: ApiClient) -> None:
    steering = pod(TPU_PROVISIONER)
    steering["metadata"]["annotations"]["tpu-provisioner.cloud.google.com/additional-node-networks"] = "other:subnet"
    assert "cannot choose networks" in refused(provisioner, steering)
    labelled = pod(TPU_PROVISIONER)
    labelled["metadata"]["labels"] = {"google.com/nodepool-manager": "me"}
    assert "cannot choose networks" in refused(provisioner, labelled)
    reserved = pod(TPU_PROVISIONER, **{"cloud.google.com__reservation-name": "theirs"})
    assert "do not use that reservation" in refused(provisioner, reserved)


def test_pods_without_tpus_are_free(provisioner: ApiClient) -> None:
    plain = pod(TPU_PROVISIONER, **{"tpu-platform__jobset": ""})
    plain["spec"]["containers"][0]["resources"] = {}
    assert refused(provisioner, plain) == ""
