"""The collector of queues' metrics in the graph: its rights, and that no credential is among its inputs."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from google.protobuf import json_format

from plan.queue_metrics import NAME, NAMESPACE, ROLE
from tests.graph.emulated import recorded
from tests.platforms import SELF_MANAGED, raw

QUEUES = {"q": {"namespaces": ["a"], "slices": {"train": 1}}}
CLUSTERS: dict[str, dict[str, Any]] = {"gke": {}, "self-managed": SELF_MANAGED}


@cache
def registered(cluster: str, who: str = "install") -> dict[str, dict[str, Any]]:
    """Logical name -> inputs of everything that belongs to the collector."""
    graph = recorded(raw(cluster=CLUSTERS[cluster], queues=QUEUES, monitoring={"queue_metrics": who}))
    return {
        request.name: json_format.MessageToDict(request.object)
        for request in graph.requests.values()
        if request.name.startswith(("queue-metrics-", "metrics-writer-"))
    }


def test_only_where_it_is_asked_for() -> None:
    assert registered("gke", "own") == registered("gke", "none") == {}


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_it_may_read_metrics_and_find_controllers_and_nothing_else(cluster: str) -> None:
    found = registered(cluster)
    rules = {name: each["rules"] for name, each in found.items() if "rules" in each}
    pods = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert rules == {
        "queue-metrics-role": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        "queue-metrics-pods-role-kueue-system": pods,
        "queue-metrics-pods-role-jobset-system": pods,
    }
    assert not any("Secret" in json.dumps(each) for each in found.values())


def test_on_gke_its_account_writes_as_itself() -> None:
    found = registered("gke")
    grant = found["metrics-writer-metrics"]
    assert grant["role"] == ROLE
    assert grant["member"].endswith(f".svc.id.goog/subject/ns/{NAMESPACE}/sa/{NAME}")


def test_without_gke_it_is_known_by_the_pool_of_the_cluster() -> None:
    found = registered("self-managed")
    grant = found["metrics-writer-metrics"]
    assert grant["role"] == ROLE
    assert grant["member"].startswith("principalSet://iam.googleapis.com/")
    assert grant["member"].endswith(f"/attribute.namespace/{NAMESPACE}")
    pod = found["queue-metrics-deployment"]["spec"]["template"]["spec"]
    [volume] = [each for each in pod["volumes"] if "projected" in each]
    assert "serviceAccountToken" in volume["projected"]["sources"][0]
    assert json.loads(found["queue-metrics-credential"]["data"]["credential.json"])["type"] == "external_account"


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_its_pod_has_no_privilege(cluster: str) -> None:
    found = registered(cluster)
    labels = found["queue-metrics-namespace"]["metadata"]["labels"]
    assert labels == {"pod-security.kubernetes.io/enforce": "restricted"}
    assert "hostNetwork" not in found["queue-metrics-deployment"]["spec"]["template"]["spec"]
    assert found["queue-metrics-closed"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}


def test_other_settings_make_another_pod() -> None:
    annotations = {
        cluster: registered(cluster)["queue-metrics-deployment"]["spec"]["template"]["metadata"]["annotations"]
        for cluster in CLUSTERS
    }
    assert annotations["gke"] != annotations["self-managed"]


@pytest.mark.parametrize("wanted", [True, False])
def test_the_device_plugin_serves_metrics_where_the_platform_wants_them(wanted: bool) -> None:
    monitoring = {"queue_metrics": "install", "device_metrics": wanted}
    graph = recorded(raw(cluster=SELF_MANAGED, queues=QUEUES, monitoring=monitoring))
    named = {request.name: json_format.MessageToDict(request.object) for request in graph.requests.values()}
    [plugin, _agent] = named["device-plugin-daemons"]["spec"]["template"]["spec"]["containers"]
    assert f"--enable-runtime-metrics={str(wanted).lower()}" in plugin["args"]
    assert ("queue-metrics-pods-role-kube-system" in named) == wanted
