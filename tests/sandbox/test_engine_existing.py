"""Two platforms, one cluster: hosts of the second join what the first has built, and go without a trace of theirs."""

from __future__ import annotations

import base64
import json
from typing import Any

from sandbox.kubernetes.api import ApiClient, condition, is_true
from sandbox.kubernetes.nodes import TPU_RESOURCE
from tests.sandbox.conftest import Project
from tests.sandbox.workloads import eventually

Json = dict[str, Any]

LAB, GUEST = "lab", "guest"
SUBNET = {"kind": "existing", "network": "lab", "subnetwork": "lab-us-east5", "pods_range": "pods"}
SERVE: Json = {
    "machine_type": "ct6e-standard-1t",
    "topology": "1x1",
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
# Both platforms would install it. A cluster that somebody else runs may have none of what a guest installs.
WITHOUT_JOBSET = ("--exclude", "**tpu:kubernetes:JobSet**")


def existing(project: Project) -> Json:
    """How a guest is told of the lab's cluster, from what the lab's own kubeconfig says."""
    kubeconfig = json.loads(project.succeed("stack", "output", "kubeconfig", "-s", LAB, "--show-secrets"))
    cluster = kubeconfig["clusters"][0]["cluster"]
    return {
        "kind": "existing",
        "server": cluster["server"],
        "ca": base64.b64decode(cluster["certificate-authority-data"]).decode(),
        "join_secret": "projects/my-project/secrets/lab-join",
        "access_secret": "projects/my-project/secrets/lab-access",
    }


KINDS = {
    "Node": "v1",
    "Namespace": "v1",
    "DaemonSet": "apps/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
}


def objects(client: ApiClient) -> dict[str, str]:
    """What a platform makes in a cluster, and its nodes: kind and name by uid."""
    return {
        item["metadata"]["uid"]: f"{kind} {item['metadata']['name']}"
        for kind, version in KINDS.items()
        for item in client.list_all(version, kind)
    }


def place_pod(client: ApiClient) -> Json:
    """A pod on the guest's host that has something to finish before it goes."""
    return client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "training", "namespace": "default", "finalizers": ["example.com/checkpoint"]},
            "spec": {
                "nodeName": HOST,
                "containers": [{"name": "training", "image": "registry.k8s.io/pause:3.10"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
    )


def is_evicted(client: ApiClient) -> bool:
    pod = client.get("v1", "Pod", "training", "default")
    assert pod, "the pod is gone before it has finished"
    return condition(pod, "DisruptionTarget").get("reason") == "EvictionByEvictionAPI"


def destroy_with_checkpoint(project: Project, client: ApiClient) -> str:
    """Destroy the guest, whose pod ends in an orderly way once it is told to; returns what Pulumi said."""
    pod = place_pod(client)
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


def test_a_slice_joins_a_cluster_that_somebody_else_runs(project: Project) -> None:
    project.write_stack(LAB, name="lab", cluster={"kind": "self-managed"}, slices={}, queues={}, namespaces=["lab"])
    project.up(LAB, *WITHOUT_JOBSET)
    client = project.cluster_client()
    assert client is not None
    before = objects(client)
    inventory = project.session.inventory()

    guest = {"cluster": existing(project), "network": SUBNET, "slices": {"serve": SERVE}, "queues": {}}
    project.write_stack(GUEST, name=GUEST, **guest)
    project.up(GUEST)
    project.assert_clean(GUEST)
    node = client.get("v1", "Node", HOST)
    assert node is not None
    assert node["metadata"]["labels"].items() >= LABELS.items()
    eventually("the host offers its chip", lambda: chips(client) == "1")
    assert is_true(client.get("v1", "Node", HOST) or {}, "Ready")

    # `destroy` empties the host before it goes, and leaves the cluster as it was.
    assert "without having been drained" not in destroy_with_checkpoint(project, client)
    assert not project.state(GUEST).get("resources")
    eventually("the guest's node is gone", lambda: client.get("v1", "Node", HOST) is None)
    assert project.session.inventory() == inventory
    assert objects(client).items() >= before.items()
    project.succeed("preview", "-s", LAB, "--expect-no-changes", *WITHOUT_JOBSET)
    project.destroy(LAB)


def chips(client: ApiClient) -> str:
    node = client.get("v1", "Node", HOST) or {}
    return str(node.get("status", {}).get("allocatable", {}).get(TPU_RESOURCE, "0"))
