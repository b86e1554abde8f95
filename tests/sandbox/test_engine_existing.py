"""Two platforms, one cluster: the second joins what the first has built, uses its software, goes without a trace."""

from __future__ import annotations

import base64
import json
from typing import Any

from sandbox import workload
from sandbox.kubernetes.api import ApiClient, condition, is_true
from sandbox.kubernetes.nodes import TPU_RESOURCE
from tests.sandbox.conftest import Project
from tests.sandbox.workloads import PATIENCE_SECONDS, eventually, jobs_of, place_pod

Json = dict[str, Any]

LAB, GUEST = "lab", "guest"
SUBNET = {"kind": "existing", "network": "lab", "subnetwork": "lab-us-east5", "pods_range": "pods"}
OWN: Json = {"machine_type": "ct6e-standard-1t", "topology": "1x1"}
SERVE: Json = {
    **OWN,
    "capacity": "spot",
    "node_drain": {"grace": "1s", "pdb_timeout": "60s"},
}
HOST = "guest-serve-w-0001"
LABELS = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
    "cloud.google.com/gke-tpu-topology": "1x1",
    "cloud.google.com/gke-accelerator-count": "1",
    "cloud.google.com/gke-nodepool": "guest-serve",
    "tpu-platform/slice": "serve",
}
PROVIDED = ["device-plugin", "jobset", "kueue", "lws"]


def existing(project: Project) -> Json:
    """How a guest is told of the lab's cluster and what it has, from what the lab's own kubeconfig says."""
    kubeconfig = json.loads(project.succeed("stack", "output", "kubeconfig", "-s", LAB, "--show-secrets"))
    cluster = kubeconfig["clusters"][0]["cluster"]
    return {
        "kind": "existing",
        "server": cluster["server"],
        "ca": base64.b64decode(cluster["certificate-authority-data"]).decode(),
        "join_secret": "projects/my-project/secrets/lab-join",
        "access_secret": "projects/my-project/secrets/lab-access",
        "provides": PROVIDED,
    }


KINDS = {
    "Node": "v1",
    "Namespace": "v1",
    "DaemonSet": "apps/v1",
    "Deployment": "apps/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "ResourceFlavor": workload.QUEUE_API,
    "ClusterQueue": workload.QUEUE_API,
    "LocalQueue": workload.QUEUE_API,
}


def objects(client: ApiClient) -> dict[str, str]:
    """What a platform makes in a cluster, and its nodes: kind and name by uid."""
    return {
        item["metadata"]["uid"]: f"{kind} {item['metadata']['name']}"
        for kind, version in KINDS.items()
        for item in client.list_all(version, kind)
    }


def is_evicted(client: ApiClient) -> bool:
    pod = client.get("v1", "Pod", "training", "default")
    assert pod, "the pod is gone before it has finished"
    return condition(pod, "DisruptionTarget").get("reason") == "EvictionByEvictionAPI"


def destroy_with_checkpoint(project: Project, client: ApiClient) -> str:
    """Destroy the guest, whose pod ends in an orderly way once it is told to; returns what Pulumi said."""
    pod = place_pod(client, HOST)
    pulumi = project.session.start_pulumi(
        "destroy", "-s", GUEST, "--yes", "--skip-preview", "--run-program", capture=True
    )
    try:
        eventually("the pod is evicted", lambda: is_evicted(client))
        assert HOST in str(project.session.inventory()), "hosts are emptied before they go"
        client.patch(pod, {"metadata": {"finalizers": None}})
        said, errors = pulumi.communicate()
    finally:
        pulumi.kill()
    assert pulumi.returncode == 0, said + errors
    return said


def run_job(project: Project) -> None:
    """A job of the guest's queue runs on the guest's host, admitted by the lab's Kueue, and ends."""
    with jobs_of(project, GUEST) as jobs:
        job = jobs.submit("job")
        (pod,) = jobs.running(job)
        assert pod["spec"]["nodeName"] == HOST
        jobs.end(job)
        for _ in workload.watch(jobs.client, job, PATIENCE_SECONDS):
            pass


def queue(namespace: str, slices: str) -> Json:
    return {namespace: {"namespaces": [namespace], "slices": {slices: 1}}}


def test_a_slice_joins_a_cluster_that_somebody_else_runs(project: Project) -> None:
    lab = {"cluster": {"kind": "self-managed"}, "slices": {"own": OWN}, "queues": queue(LAB, "own"), "namespaces": []}
    project.write_stack(LAB, name=LAB, **lab)
    project.up(LAB)
    client = project.cluster_client()
    assert client is not None
    before = objects(client)
    inventory = project.session.inventory()

    guest = {
        "cluster": existing(project),
        "network": SUBNET,
        "slices": {"serve": SERVE},
        "queues": queue(GUEST, "serve"),
    }
    project.write_stack(GUEST, name=GUEST, namespaces=[], **guest)
    project.up(GUEST)
    assert not [each for each in project.state(GUEST)["resources"] if "helm.sh" in each["type"]]
    project.assert_clean(GUEST)
    node = client.get("v1", "Node", HOST)
    assert node is not None
    assert node["metadata"]["labels"].items() >= LABELS.items()
    eventually("the host offers its chip", lambda: chips(client) == "1")
    assert is_true(client.get("v1", "Node", HOST) or {}, "Ready")
    run_job(project)

    # `destroy` empties the host before it goes, and leaves the cluster as it was.
    assert "without a drain" not in destroy_with_checkpoint(project, client)
    assert not project.state(GUEST).get("resources")
    eventually("the guest's node is gone", lambda: client.get("v1", "Node", HOST) is None)
    assert project.session.inventory() == inventory
    assert objects(client) == before
    project.assert_clean(LAB)
    project.destroy(LAB)


def chips(client: ApiClient) -> str:
    node = client.get("v1", "Node", HOST) or {}
    return str(node.get("status", {}).get("allocatable", {}).get(TPU_RESOURCE, "0"))
