"""NetworkPolicies on real hosts: who is refused, who is not, and what goes on beside them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from sandbox.kubernetes.api import Object, is_true
from sandbox.kubernetes.backend import enforces_policies
from sandbox.kubernetes.gke import GkeCluster
from sandbox.tests import real_hosts
from sandbox.tests.kubernetes_support import node_pool
from sandbox.tests.real_hosts import cluster, eventually, kubectl, nodes

pytestmark = [pytest.mark.sandbox]
real_pods = pytest.mark.real_pods

SERVER = "server"
CLIENTS = {"near": 0, "far": 1}  # pod: number of its host; the server is on host 0
NAMESPACES = ("team", "other")
SAME_NAMESPACE: Object = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "same-namespace", "namespace": "team"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
}


@pytest.fixture(scope="module")
def lab() -> Iterator[GkeCluster]:
    """A server in one namespace, and clients on its host and on another, in its namespace and in another."""
    with cluster([node_pool("slice", "ct6e-standard-4t", 2, "2x4")], hosts=2) as made:
        fill(made, CLIENTS)
        yield made


def fill(made: GkeCluster, clients: dict[str, int]) -> None:
    hosts = [str(each["metadata"]["name"]) for each in nodes(made)]
    for namespace in NAMESPACES:
        made.plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for name, number in clients.items():
            made.plane.client.create(pod(namespace, name, hosts[number], ["sleep", "3600"]))
    made.plane.client.create(server(hosts[0]))
    service = {"selector": {"app": SERVER}, "ports": [{"port": 80, "targetPort": 8080}]}
    metadata = {"name": SERVER, "namespace": "team"}
    made.plane.client.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    for namespace, name in (("team", SERVER), *((namespace, name) for namespace in NAMESPACES for name in clients)):
        eventually(f"{namespace}/{name} is ready", partial(is_ready, made, namespace, name))


def server(host: str) -> Object:
    code = "print('listens', flush=True); import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8080)"
    made = pod("team", SERVER, host, ["python", "-c", code])
    made["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    return made


def pod(namespace: str, name: str, host: str, command: list[str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"kubernetes.io/hostname": host},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "sandbox/python:1", "command": command}],
        },
    }


def is_ready(made: GkeCluster, namespace: str, name: str) -> bool:
    return is_true(made.plane.client.get("v1", "Pod", name, namespace) or {}, "Ready")


@pytest.fixture
def policy(lab: GkeCluster) -> Iterator[None]:
    """The namespace of the server lets in its own pods only; returns when both hosts have been told."""
    lab.plane.client.create(SAME_NAMESPACE)
    for client in CLIENTS:
        eventually(f"{client} is refused", partial(is_refused, lab, client))
    yield
    lab.plane.client.delete(SAME_NAMESPACE)
    eventually("it is open again", lambda: answer(lab, "other", "near") == "200")


def is_refused(made: GkeCluster, client: str) -> bool:
    return answer(made, "other", client) != "200"


def answer(made: GkeCluster, namespace: str, client: str, address: str = f"{SERVER}.team") -> str:
    """What a client gets from the server, by the name of its Service: "200", or the reason why not."""
    code = f"""
import urllib.error, urllib.request
try:
    print(urllib.request.urlopen("http://{address}/", timeout=5).status)
except urllib.error.URLError as error:
    print(error.reason)
"""
    return kubectl(made, "exec", "-n", namespace, client, "--", "python", "-c", code).strip()


def address(made: GkeCluster) -> str:
    return str((made.plane.client.get("v1", "Pod", SERVER, "team") or {})["status"]["podIP"])


@real_pods
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_without_a_policy_everybody_comes_in(lab: GkeCluster, namespace: str, client: str) -> None:
    assert answer(lab, namespace, client) == "200"
    assert answer(lab, namespace, client, f"{address(lab)}:8080") == "200"


@real_pods
@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_policy_lets_in_only_what_it_names(lab: GkeCluster, client: str) -> None:
    """On the host of the server and on another, by its Service and by its own address."""
    assert answer(lab, "other", client) == "[Errno 111] Connection refused"
    assert answer(lab, "other", client, f"{address(lab)}:8080") == "[Errno 111] Connection refused"
    assert answer(lab, "team", client) == "200"
    assert answer(lab, "team", client, f"{address(lab)}:8080") == "200"


@real_pods
@pytest.mark.usefixtures("policy")
def test_kubelet_and_kubectl_reach_a_pod_behind_a_policy(lab: GkeCluster) -> None:
    """The probe of a new pod, its log, commands in it and a forwarded port."""
    client = lab.plane.client
    [host] = [each["metadata"]["name"] for each in nodes(lab)][:1]
    client.delete(pod("team", SERVER, host, []), grace_seconds=0)
    eventually("the old server is gone", lambda: client.get("v1", "Pod", SERVER, "team") is None)
    client.create(server(host))
    eventually("the probe succeeds", partial(is_ready, lab, "team", SERVER))
    eventually("the new server's rules", partial(is_refused, lab, "near"))
    assert "listens" in kubectl(lab, "logs", "-n", "team", SERVER)
    assert answer(lab, "team", SERVER, "localhost:8080") == "200"
    assert forwarded(lab) == 200
    assert is_ready(lab, "team", SERVER)


def forwarded(made: GkeCluster) -> int:
    """The status that the server gives through `kubectl port-forward`."""
    with real_hosts.forwarded(made, SERVER, 80, "team") as port:
        return eventually("an answer", partial(status, port))


def status(port: int) -> int | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code
    except httpx.HTTPError:
        return None


@real_pods
def test_a_cluster_that_enforces_nothing_stores_policies() -> None:
    """As a cluster of GKE without Dataplane V2, and as self-managed clusters."""
    with cluster([node_pool("one", "ct6e-standard-1t", 1)], hosts=1, network_policies=False) as made:
        fill(made, {"near": 0})
        made.plane.client.create(SAME_NAMESPACE)
        [folder] = Path(made.plane.run_dir).glob("hosts/h1/logs")
        assert {"kubelet.log", "kube-proxy.log"} <= {each.name for each in folder.iterdir()}
        assert not (folder / "kube-router.log").exists()
        assert answer(made, "other", "near") == "200"


@pytest.mark.parametrize(
    ("cluster", "enforces"),
    [
        ({"networkConfig": {"datapathProvider": "ADVANCED_DATAPATH"}}, True),
        ({"networkConfig": {"datapathProvider": "LEGACY_DATAPATH"}, "networkPolicy": {"enabled": True}}, True),
        ({"networkConfig": {"datapathProvider": "LEGACY_DATAPATH"}}, False),
    ],
)
def test_which_clusters_of_gke_enforce_policies(cluster: Object, enforces: bool) -> None:
    assert enforces_policies(cluster) == enforces
